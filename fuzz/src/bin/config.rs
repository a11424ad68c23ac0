//! libFuzzer on the target `config`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hapax_fuzz::config(data));
