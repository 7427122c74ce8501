//! The program `turnstream`: an agent on the command line that can read the working directory,
//! write a file there if the user approves it, and call the tools of MCP servers (feature `mcp`).
//!
//! ```text
//! cargo run -- "How many lines of Rust are in src, and which file is the longest?"
//! ```
//!
//! Without an API key it uses the offline model, whose replies are scripted. `--help` lists all
//! flags.
//!
//! This library is internal to the program: its items are public only for the binary and for the
//! example `web`, and they can change in any release. In your own program, use `turnstream`.

mod approval;
pub mod args;
mod chat;
mod ctrl_c;
mod error_context;
mod grants;
mod lines;
mod offline;
mod program;
pub mod provider;
mod provider_name;
mod render;
mod run;
#[cfg_attr(not(feature = "mcp"), path = "no_servers.rs")]
mod servers;
pub mod session;
mod text;
pub mod tools;
mod usage;
mod wrap;

pub use program::main;
