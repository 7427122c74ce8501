//! MCP servers as toolkits: listing, calls, cancellation and faults.
//!
//! Most tests use the scripted server of `turnstream_testing`. Those in `foreign` use third-party
//! servers, which `run.sh` installs. Those in `examples` and `mcp_server_example` run the examples as
//! programs.

mod raw_server;
mod support;

mod approvals;
mod attacks;
mod calls;
mod cancellation;
mod changes;
mod connecting;
mod examples;
mod foreign;
mod hostile;
mod http;
mod limits;
mod lists;
mod mcp_server_example;
mod processes;
mod questions;
mod redirects;
mod resources;
mod results;
mod sessions;
