//! libFuzzer on the target `paths`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hapax_fuzz::paths(data));
