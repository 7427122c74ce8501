//! The scripted MCP server, tested with hand-written messages.
//!
//! | module | claims |
//! |---|---|
//! | `modern` | the era without a handshake, over lines |
//! | `legacy` | the era of `initialize`, over lines |
//! | `http` | both eras over Streamable HTTP |
//! | `faults` | the faults that the server can simulate |

mod faults;
mod http;
mod http_client;
mod legacy;
mod line_client;
mod modern;
mod tools;
