//! The events of this crate as server-sent events, for a page of your own.
//!
//! The `data` of each event is the JSON of an [`Event`](crate::Event), so a reader in Rust gets it back with
//! [`FrameReader`](crate::sse::FrameReader) and `serde_json`, and a page with `JSON.parse`:
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
//! The last event of a run is `end`: a page closes its `EventSource` there, which would connect again otherwise.
//! `{"finished":false,"error":{…}}` is the end of a stream that broke off before its run had finished. The
//! format is <https://html.spec.whatwg.org/multipage/server-sent-events.html>.

mod encode;
#[cfg(feature = "hub")]
mod reader;
mod request;
mod settings;

pub use settings::Sse;

#[cfg(test)]
mod tests;
