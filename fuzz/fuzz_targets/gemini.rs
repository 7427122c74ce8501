//! Passes arbitrary bytes to the decoder; `checks.rs` lists the properties that must hold.

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::decode(checks::Wire::Gemini, data));
