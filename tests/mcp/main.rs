//! MCP servers as toolkits: what a client finds, calls, cancels and survives.
//!
//! Most tests talk to the scripted server of `turnstream::testing`. Those in `foreign` talk to servers that
//! are not ours, which `run.sh` installs.

#![cfg(feature = "mcp")]

#[path = "../support/programs.rs"]
mod programs;
mod support;

mod approvals;
mod attacks;
mod calls;
mod cancellation;
mod changes;
mod connecting;
mod foreign;
mod hostile;
mod http;
mod processes;
mod questions;
mod resources;
