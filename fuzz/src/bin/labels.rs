//! libFuzzer on the target `labels`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hapax_fuzz::labels(data));
