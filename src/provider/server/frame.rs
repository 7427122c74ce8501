//! Defines the frames in a stream and encodes them.

use std::borrow::Cow;

use serde_json::Value;

use crate::sse::write_frame;

/// A frame in a stream: a server-sent event or a JSON document.
#[derive(Debug)]
pub(crate) struct ServerFrame {
    pub(crate) event: Option<Cow<'static, str>>,
    pub(crate) data: String,
    pub(crate) role: FrameRole,
}

/// The role of a frame at the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameRole {
    Event,
    /// The frame that completes the turn.
    Terminal,
    /// The last frame of the stream.
    Done,
}

impl ServerFrame {
    /// Creates a frame that does not end the turn or the stream.
    pub(crate) fn from_event(event: Option<&'static str>, data: &Value) -> Self {
        Self { event: event.map(Cow::Borrowed), data: data.to_string(), role: FrameRole::Event }
    }
}

/// The format in which frames are written to a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameFormat {
    pub(crate) content_type: &'static str,
    layout: Layout,
    line_end: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    Events,
    JsonLines,
    JsonArray,
}

impl FrameFormat {
    /// The format for server-sent events.
    pub(crate) const EVENTS: Self = Self {
        content_type: "text/event-stream; charset=utf-8",
        layout: Layout::Events,
        line_end: "\n",
    };

    /// The JSON lines format, with a JSON document on each line.
    pub(crate) const JSON_LINES: Self =
        Self { content_type: "application/x-ndjson", layout: Layout::JsonLines, line_end: "\n" };

    /// The format for a single JSON array, as sent by Gemini.
    pub(crate) const JSON_ARRAY: Self = Self {
        content_type: "application/json; charset=utf-8",
        layout: Layout::JsonArray,
        line_end: "\r\n",
    };

    /// The format for server-sent events, as sent by Gemini.
    pub(crate) const GEMINI_EVENTS: Self =
        Self { content_type: "text/event-stream", line_end: "\r\n", ..Self::EVENTS };

    /// Returns the same format with the given line ending, if the format allows it. `\r` alone does
    /// not end a line of JSON, and line endings in an array are only whitespace.
    pub(crate) fn with_line_end(self, line_end: &'static str) -> Self {
        match self.layout {
            Layout::Events => Self { line_end, ..self },
            Layout::JsonLines if line_end == "\r\n" => Self { line_end, ..self },
            Layout::JsonLines | Layout::JsonArray => self,
        }
    }

    /// Encodes the `n`th frame of a body, counted from 0.
    pub(crate) fn encode_frame(&self, frame: &ServerFrame, n: usize) -> String {
        match self.layout {
            Layout::Events => {
                let mut out = Vec::new();
                write_frame(&mut out, frame.event.as_deref(), &frame.data);
                self.apply_line_end(&String::from_utf8_lossy(&out))
            }
            Layout::JsonLines => format!("{}{}", frame.data, self.line_end),
            Layout::JsonArray if n == 0 => format!("[{}", frame.data),
            Layout::JsonArray => format!(",{}{}", self.line_end, frame.data),
        }
    }

    /// Returns whether the format allows other lines between frames. All formats except a JSON
    /// array allow other lines.
    pub(crate) fn accepts_extra_lines(&self) -> bool {
        matches!(self.layout, Layout::Events | Layout::JsonLines)
    }

    /// Replaces each LF in a string with the format's line ending.
    pub(crate) fn apply_line_end(&self, lines: &str) -> String {
        lines.replace('\n', self.line_end)
    }

    /// Returns bytes that keep the connection alive without adding a frame to the body. JSON lines
    /// cannot contain comments, but readers ignore empty lines.
    pub(crate) fn keep_alive(&self) -> String {
        match self.layout {
            Layout::Events => self.apply_line_end(": keep-alive\n\n"),
            Layout::JsonLines | Layout::JsonArray => self.apply_line_end("\n"),
        }
    }

    /// Returns the line ending after the last frame, and the bytes that follow it to close the
    /// body.
    pub(crate) fn closing_bytes(&self) -> (&'static str, Option<&'static str>) {
        match self.layout {
            Layout::Events | Layout::JsonLines => (self.line_end, None),
            Layout::JsonArray => ("", Some("]")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(format: FrameFormat) -> String {
        let frame = |n| ServerFrame::from_event(Some("piece"), &json!({ "n": n }));
        let mut body: String = (0..2).map(|n| format.encode_frame(&frame(n), n)).collect();
        if format.accepts_extra_lines() {
            body.push_str(&format.keep_alive());
        }
        body + format.closing_bytes().1.unwrap_or_default()
    }

    #[test]
    fn the_same_frames_are_written_in_every_format() {
        assert_eq!(
            body(FrameFormat::EVENTS),
            "event: piece\ndata: {\"n\":0}\n\nevent: piece\ndata: {\"n\":1}\n\n: keep-alive\n\n"
        );
        assert_eq!(body(FrameFormat::JSON_LINES), "{\"n\":0}\n{\"n\":1}\n\n");
        assert_eq!(body(FrameFormat::JSON_ARRAY), "[{\"n\":0},\r\n{\"n\":1}]");
    }

    #[test]
    fn a_format_uses_only_its_valid_line_ends() {
        let ends = |format: FrameFormat| {
            ["\n", "\r\n", "\r"].map(|end| format.with_line_end(end).closing_bytes().0)
        };
        assert_eq!(ends(FrameFormat::EVENTS), ["\n", "\r\n", "\r"]);
        assert_eq!(ends(FrameFormat::JSON_LINES), ["\n", "\r\n", "\n"]);
        assert_eq!(ends(FrameFormat::JSON_ARRAY), [""; 3]);
    }
}
