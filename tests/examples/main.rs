//! The examples as programs: their output and their exit codes.
//!
//! | module | claims |
//! |---|---|
//! | `agent` | the example `agent`, as other programs run it |
//! | `agent_mcp` | the example `agent` with MCP servers |
//! | `agent_terminal` | the example `agent` on a terminal: keys, the input line, narrow terminals |
//! | `crash` | a process that is killed during a session loses nothing and repeats nothing |
//! | `minimal_loop` | the minimal loop: its steps, in both output formats, and its exit codes |
//! | `small` | the small examples: the essential lines of their output |
//! | `patterns` | the examples of patterns: their output, line by line |
//! | `web` | the example `web` over HTTP: access, starts of runs, reconnecting clients |
//! | `worker` | the example `worker` is stopped by signals, loses nothing and continues its jobs |
//!
//! The unit tests of the example `agent` run here as well: `cargo test` does not build an example
//! both as a program and with its tests.

#[cfg(all(feature = "http", feature = "schemars"))]
mod agent;
#[cfg(all(feature = "mcp", feature = "schemars"))]
mod agent_mcp;
#[cfg(all(target_os = "linux", feature = "http", feature = "schemars"))]
mod agent_terminal;
mod crash;
#[cfg(feature = "schemars")]
mod minimal_loop;
#[cfg(all(feature = "http", feature = "schemars"))]
mod patterns;
#[cfg(feature = "schemars")]
mod small;
#[path = "../support/mod.rs"]
mod support;
#[cfg(all(target_os = "linux", feature = "schemars"))]
mod terminal;
#[cfg(all(feature = "http", feature = "schemars"))]
mod web;
#[cfg(all(unix, feature = "http", feature = "schemars"))]
mod worker;

#[cfg(all(feature = "http", feature = "schemars"))]
#[expect(dead_code, reason = "only its tests are wanted")]
#[path = "../../examples/agent/approval.rs"]
mod approval;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/args.rs"]
mod args;
#[cfg(all(feature = "http", feature = "schemars"))]
#[expect(dead_code, reason = "only its tests are wanted")]
#[path = "../../examples/agent/ctrl_c.rs"]
mod ctrl_c;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/error_context.rs"]
mod error_context;
#[cfg(all(feature = "http", feature = "schemars"))]
#[expect(dead_code, reason = "the questions of `approval` are answered by it")]
#[path = "../../examples/agent/lines/mod.rs"]
mod lines;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/offline/mod.rs"]
mod offline;
#[cfg(all(feature = "http", feature = "schemars"))]
#[expect(dead_code, reason = "only its tests are wanted")]
#[path = "../../examples/agent/provider.rs"]
mod provider;
#[cfg(all(feature = "http", feature = "schemars"))]
#[expect(dead_code, reason = "only its tests are wanted")]
#[path = "../../examples/agent/render.rs"]
mod render;
#[cfg(all(feature = "mcp", feature = "schemars"))]
#[expect(dead_code, reason = "only its tests are wanted")]
#[path = "../../examples/agent/servers.rs"]
mod servers;
#[cfg(all(feature = "http", feature = "schemars"))]
#[expect(dead_code, reason = "only its checks are wanted")]
#[path = "../../examples/agent/session.rs"]
mod session;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/text.rs"]
mod text;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/tools/mod.rs"]
mod tools;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/usage.rs"]
mod usage;
#[cfg(all(feature = "http", feature = "schemars"))]
#[path = "../../examples/agent/wrap.rs"]
mod wrap;
