//! The scripted MCP server, driven by hand-written messages.
//!
//! | module | claims |
//! |---|---|
//! | `modern` | the era without a handshake, over lines |
//! | `legacy` | the era of `initialize`, over lines |
//! | `http` | both eras over Streamable HTTP |
//! | `faults` | each way in which the server misbehaves |
//! | `example` | the example `mcp_server` as a program |

mod example;
mod faults;
mod http;
mod http_client;
mod legacy;
mod line_client;
mod modern;
mod tools;
