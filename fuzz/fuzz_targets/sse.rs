//! Passes arbitrary bytes to the frame reader; `checks.rs` lists the properties that must hold.

#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::frames(data));
