//! libFuzzer on the target `http1`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hapax_fuzz::http1(data));
