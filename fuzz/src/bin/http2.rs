//! libFuzzer on the target `http2`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hapax_fuzz::http2(data));
