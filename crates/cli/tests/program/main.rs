//! The program as other programs and users run it: its output and its exit codes.
//!
//! | module | claims |
//! |---|---|
//! | `output` | runs without a terminal: output, exit codes, sessions |
//! | `mcp` | runs with MCP servers |
//! | `terminal` | runs on a terminal: keys, the input line, narrow terminals |
//! | `other_servers` | runs against a mock server that is not part of this repository |

#[cfg(feature = "mcp")]
mod mcp;
mod other_servers;
mod output;
#[cfg(target_os = "linux")]
mod terminal;
