//! The frames of a stream, and how they are written to a response's body.

use std::borrow::Cow;

use serde_json::Value;

use crate::sse::{escape_line_separators, write_frame};

/// A frame in a stream: a server-sent event or a JSON document.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Frame {
    /// The name of the event, on wires whose events have names.
    pub event: Option<Cow<'static, str>>,
    /// The frame's data, which is JSON in all frames except the last one of Chat Completions.
    pub data: String,
    /// The values in the frame that a client must send back unchanged in later requests. A server
    /// that keeps them can check those requests.
    pub issued: Vec<Issued>,
}

/// A value that a client must send back unchanged.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Issued {
    /// A signature, and the text that it signs.
    Signature {
        /// The signature.
        signature: String,
        /// The text that the signature signs: the text of a thinking block (Anthropic, Chat
        /// Completions), the id of the reasoning item (Responses), or the name and the arguments of
        /// a call (Gemini). Empty if the signature does not depend on a text.
        signed_text: String,
    },
    /// The id of an item that must be sent back together with the reasoning item before it, on the
    /// Responses wire.
    RequiresReasoning {
        /// The item's id.
        item: String,
        /// The id of the reasoning item.
        reasoning: String,
    },
}

impl Frame {
    /// Creates a frame.
    pub(in crate::provider) fn new(event: Option<&'static str>, data: &Value) -> Self {
        Self { event: event.map(Cow::Borrowed), data: data.to_string(), issued: Vec::new() }
    }
}

/// How a stream's frames are written to the body of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameFormat {
    /// The value of the response's `content-type` header.
    pub content_type: &'static str,
    /// The bytes after the last frame. They are empty, except in a JSON array.
    pub body_end: &'static str,
    layout: Layout,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Events,
    /// Events whose lines end with CR LF.
    GeminiEvents,
    JsonLines,
    JsonArray,
}

impl FrameFormat {
    /// The format for server-sent events.
    pub(in crate::provider) const EVENTS: Self = Self {
        content_type: "text/event-stream; charset=utf-8",
        body_end: "",
        layout: Layout::Events,
    };

    /// The JSON lines format, with a JSON document on each line.
    pub(in crate::provider) const JSON_LINES: Self =
        Self { content_type: "application/x-ndjson", layout: Layout::JsonLines, ..Self::EVENTS };

    /// The format for a single JSON array, as sent by Gemini.
    pub(in crate::provider) const JSON_ARRAY: Self = Self {
        content_type: "application/json; charset=utf-8",
        body_end: "]",
        layout: Layout::JsonArray,
    };

    /// The format for server-sent events, as sent by Gemini.
    pub(in crate::provider) const GEMINI_EVENTS: Self =
        Self { content_type: "text/event-stream", layout: Layout::GeminiEvents, ..Self::EVENTS };

    /// Encodes the `n`th frame of a body, counted from 0. Line separators such as U+2028 are
    /// escaped, because some clients split lines at them.
    pub fn encode(&self, frame: &Frame, n: usize) -> String {
        let mut out = Vec::with_capacity(frame.data.len() + 64);
        match self.layout {
            Layout::Events | Layout::GeminiEvents => {
                write_frame(&mut out, frame.event.as_deref(), &frame.data);
            }
            Layout::JsonLines => {
                out.extend_from_slice(frame.data.as_bytes());
                out.push(b'\n');
            }
            Layout::JsonArray => {
                out.extend_from_slice(if n == 0 { b"[" } else { b",\n" });
                out.extend_from_slice(frame.data.as_bytes());
            }
        }
        escape_line_separators(&mut out, 0);
        let text = String::from_utf8(out)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        match self.line_end() {
            "\n" => text,
            line_end => text.replace('\n', line_end),
        }
    }

    fn line_end(&self) -> &'static str {
        match self.layout {
            Layout::Events | Layout::JsonLines => "\n",
            Layout::GeminiEvents | Layout::JsonArray => "\r\n",
        }
    }

    /// Returns bytes that keep the connection alive without adding a frame to the body. JSON
    /// documents cannot contain comments, and Gemini's clients take comments for data, but they
    /// ignore empty lines.
    pub(super) fn comment(&self) -> String {
        match self.layout {
            Layout::Events => ": keep-alive\n\n".to_owned(),
            Layout::GeminiEvents | Layout::JsonLines | Layout::JsonArray => {
                self.line_end().to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(format: FrameFormat) -> String {
        let frame = |n| Frame::new(Some("piece"), &json!({ "n": n }));
        let body: String = (0..2).map(|n| format.encode(&frame(n), n)).collect();
        body + format.body_end
    }

    #[test]
    fn the_same_frames_are_written_in_every_format() {
        assert_eq!(
            body(FrameFormat::EVENTS),
            "event: piece\ndata: {\"n\":0}\n\nevent: piece\ndata: {\"n\":1}\n\n"
        );
        assert_eq!(
            body(FrameFormat::GEMINI_EVENTS),
            "event: piece\r\ndata: {\"n\":0}\r\n\r\nevent: piece\r\ndata: {\"n\":1}\r\n\r\n"
        );
        assert_eq!(body(FrameFormat::JSON_LINES), "{\"n\":0}\n{\"n\":1}\n");
        assert_eq!(body(FrameFormat::JSON_ARRAY), "[{\"n\":0},\r\n{\"n\":1}]");
        assert_eq!(FrameFormat::EVENTS.comment(), ": keep-alive\n\n");
        assert_eq!(FrameFormat::JSON_LINES.comment(), "\n");
    }
}
