//! Any bytes through the decoder; see `checks.rs` for what must hold.

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::decode(checks::Wire::Ollama, data));
