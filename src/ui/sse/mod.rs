//! Sends this crate's events as server-sent events, for a custom page.
//!
//! The `data` field of each server-sent event contains an [`Event`](crate::Event) as JSON. Rust
//! clients can parse the data with [`FrameReader`](crate::sse::FrameReader) and `serde_json`. Web
//! pages can parse the data with `JSON.parse`:
//!
//! ```text
//! retry: 2000
//!
//! id: 1
//! data: {"type":"turn_started","turn":1,"model":"scripted","transition":null}
//!
//! id: 2
//! data: {"type":"text_delta","index":0,"text":"Hello!"}
//!
//! event: end
//! data: {"finished":true}
//!
//! ```
//!
//! The last event in a run's stream is `end`. When a page receives `end`, it must close its
//! `EventSource`, which would otherwise reconnect. If a stream fails before its run has finished,
//! the data of the last event is `{"finished":false,"error":{…}}`. The format of server-sent events
//! is specified at <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

mod encode;
mod reader;
mod settings;

pub use settings::Sse;

#[cfg(test)]
mod tests;
