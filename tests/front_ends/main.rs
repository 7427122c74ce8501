//! Runs as front ends see them: every kind of run, encoded for each protocol.
//!
//! The clients themselves read what is encoded in the tests that are ignored; `tests/front_ends/run.sh`
//! installs them and runs those.

#![cfg(all(feature = "ui", feature = "http"))]

#[path = "../support/mod.rs"]
mod support;

mod ag_ui;
mod ai_sdk;
mod clients;
mod conversations;
mod disconnects;
mod mutations;
mod runs;
