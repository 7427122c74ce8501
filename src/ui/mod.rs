//! Sends runs to front ends, as responses from a web server.
//!
//! Each protocol has its own module, which consists of pure functions and streams and does not
//! depend on a web framework. A [`Response`] contains a status, headers and a body, and works with
//! any server. Dropping the body drops the stream that it was created from. Dropping a run's stream
//! cancels the run, whereas dropping a hub's reader only stops reading.
//!
//! | module | clients |
//! |---|---|
//! | [`sse`] | your own page, with `EventSource` or `fetch`: this crate's events, unchanged |
//! | [`ag_ui`] | `CopilotKit`, `assistant-ui` and all other clients that support AG-UI |
//! | [`ai_sdk`] | `useChat` and any other client that is based on the AI SDK |
//!
//! Three rules apply to all protocols:
//!
//! - The body ends with the protocol's end marker, even if the stream fails, panics or ends early.
//!   No data follows the end marker.
//! - Error messages are [hidden](ErrorTexts) by default.
//! - The data that a client posts is [limited in size](ClientLimits). The posted messages are never
//!   used as the history, because the [session](crate::session) stores the history.
//!
//! # Limits
//!
//! The third column names the setter, if there is one. [The guide](crate::guide::defaults) lists
//! the other limits of front ends.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | size of a client's request | 8 MiB | `ClientLimits::max_bytes`; status 413, as for the rows below |
//! | messages in a client's request | 1,000 | `ClientLimits::max_messages` |
//! | parts per message | 1,000 | `ClientLimits::max_parts` |
//! | tools that a client may add | 64 | `ClientLimits::max_tools` |
//! | size of an attached file | 4 MiB | `ClientLimits::max_file_bytes` |
//! | JSON values in a client's request | 200,000 | status 413 |
//! | length of an attached file's media type | 255 bytes | status 400 |

pub mod ag_ui;
pub mod ai_sdk;
mod error_texts;
mod frame;
mod message_name;
mod nested_run;
mod partial_sender;
mod request;
mod response;
pub mod sse;
mod stored_file;
mod stored_items;

pub use error_texts::ErrorTexts;
pub use request::{ClientLimits, RequestError};
pub use response::{Response, ResponseBody};
