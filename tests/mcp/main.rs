//! MCP servers as toolkits: listing, calls, cancellation and faults.
//!
//! Most tests use the scripted server of `turnstream::testing`. Those in `foreign` use third-party
//! servers, which `run.sh` installs.

#![cfg(feature = "mcp")]

#[path = "../support/programs.rs"]
mod programs;
mod raw_server;
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
mod lists;
mod processes;
mod questions;
mod redirects;
mod resources;
mod results;
mod sessions;
