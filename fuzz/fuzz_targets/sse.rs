//! Any bytes through the reader of frames; see `checks.rs` for what must hold.

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::frames(data));
