//! Runs for front ends: a stream of events becomes the response of a web server.
//!
//! Every protocol is a folder of pure functions and streams. None of them knows a web framework: a
//! [`Response`] has a status, headers and a body, and any server can send it. Dropping the body drops the stream that
//! it was made from: a run is cancelled by that, and a reader of a hub only stops reading.
//!
//! | module | who reads it |
//! |---|---|
//! | [`sse`] | your own page, with `EventSource` or `fetch`: the events of this crate as they are |
//! | [`ag_ui`] | `CopilotKit`, `assistant-ui` and all others that speak AG-UI |
//! | [`ai_sdk`] | `useChat` and everything else that is made with the AI SDK |
//!
//! Three rules hold for all of them. The body ends with the word that its protocol has for an end, also after
//! an error, a panic or a stream that broke off, and nothing follows it. Texts of errors are
//! [hidden](ErrorTexts) unless you ask for them. And what a client posts is [bounded](ClientLimits) and never
//! taken for the history: that is in a [session](crate::session).

pub mod ag_ui;
pub mod ai_sdk;
mod error_texts;
mod frame;
mod message_name;
mod nested_run;
mod request;
mod response;
pub mod sse;
mod stored_items;

pub use error_texts::ErrorTexts;
pub use request::{ClientLimits, RequestError};
pub use response::{Response, ResponseBody};
