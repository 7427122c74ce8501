//! Sends the events of this crate as server-sent events, for a custom page.
//!
//! The `data` of each event is the JSON of an [`Event`](crate::Event). Rust clients parse the data
//! with [`FrameReader`](crate::sse::FrameReader) and `serde_json`, and pages with `JSON.parse`:
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
//! The last event of a run is `end`. After `end`, a page must close its `EventSource`, because the
//! `EventSource` would otherwise reconnect. A stream that broke before its run finished ends with
//! `{"finished":false,"error":{…}}`. The format of server-sent events is specified at
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

mod encode;
#[cfg(feature = "hub")]
mod reader;
mod request;
mod settings;

pub use settings::Sse;

#[cfg(test)]
mod tests;
