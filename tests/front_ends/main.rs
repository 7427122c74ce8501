//! Runs as front ends see them: every kind of run, encoded for each protocol.
//!
//! The clients themselves read what is encoded in the tests that are ignored; `tests/front_ends/run.sh`
//! installs them and runs those.

#![cfg(feature = "ui")]

#[path = "../support/mod.rs"]
mod support;

mod ai_sdk;
mod clients;
mod mutations;
mod runs;
