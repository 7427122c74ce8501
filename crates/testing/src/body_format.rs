//! How frames and the noise between them are written to a body.

use turnstream::provider::server::{Frame, FrameFormat, Wire};

use crate::fault::{LineEnd, Noise};
use crate::wire::profile;

/// The format of a body on a wire, with the line endings of a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyFormat {
    wire: Wire,
    format: FrameFormat,
    /// The line ending to use instead of the format's own.
    line_end: Option<LineEnd>,
}

impl BodyFormat {
    /// Returns the format of the response to a request with this path.
    pub(crate) fn new(wire: Wire, path: &str) -> Self {
        Self { wire, format: wire.frame_format(path), line_end: None }
    }

    /// Returns the same format with the given line ending, if the format allows it. `\r` alone does
    /// not end a line of JSON, and line endings in an array are only whitespace.
    pub(crate) fn with_line_end(self, line_end: LineEnd) -> Self {
        let is_allowed = match self.wire {
            _ if !self.accepts_extra_lines() => false,
            Wire::Ollama => line_end == LineEnd::CrLf,
            _ => true,
        };
        Self { line_end: is_allowed.then_some(line_end).or(self.line_end), ..self }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        self.format.content_type
    }

    /// Returns the bytes after the last frame.
    pub(crate) fn body_end(&self) -> &'static str {
        self.format.body_end
    }

    /// Returns whether the format allows other lines between frames. All formats except a JSON
    /// array allow other lines.
    pub(crate) fn accepts_extra_lines(&self) -> bool {
        self.format.body_end.is_empty()
    }

    /// Encodes the `n`th frame of a body, counted from 0.
    pub(crate) fn encode(&self, frame: &Frame, n: usize) -> String {
        self.apply_line_end(self.format.encode(frame, n))
    }

    /// Encodes noise before the `n`th frame.
    pub(crate) fn encode_noise(&self, noise: Noise, n: usize) -> String {
        let is_events = self.wire != Wire::Ollama;
        let lines = match noise {
            Noise::BlankLines => "\n\n".to_owned(),
            Noise::Comments if is_events => ": keep-alive\n\n".to_owned(),
            Noise::Comments => "\n".to_owned(),
            Noise::Pings => self.wire.keep_alive(&self.format, n),
            Noise::UnknownEvents => match profile(self.wire).unknown_event {
                (_, data) if !is_events => format!("{data}\n"),
                (Some(event), data) => format!("event: {event}\ndata: {data}\n\n"),
                (None, data) => format!("data: {data}\n\n"),
            },
        };
        match (self.line_end, self.wire) {
            (None, Wire::Gemini) => with_line_ends(&lines, LineEnd::CrLf),
            _ => self.apply_line_end(lines),
        }
    }

    fn apply_line_end(&self, lines: String) -> String {
        match self.line_end {
            Some(line_end) => with_line_ends(&lines, line_end),
            None => lines,
        }
    }
}

/// Replaces each line ending in a text. Frames contain no others, because JSON escapes them.
fn with_line_ends(lines: &str, line_end: LineEnd) -> String {
    lines.replace("\r\n", "\n").replace('\n', line_end.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_uses_only_its_valid_line_ends() {
        let blank_lines = |wire| {
            [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr].map(|line_end| {
                let format = BodyFormat::new(wire, "/").with_line_end(line_end);
                format.encode_noise(Noise::BlankLines, 0)
            })
        };
        assert_eq!(blank_lines(Wire::Anthropic), ["\n\n", "\r\n\r\n", "\r\r"]);
        assert_eq!(blank_lines(Wire::Ollama), ["\n\n", "\r\n\r\n", "\n\n"]);
        // A JSON array keeps its own.
        assert_eq!(blank_lines(Wire::Gemini), ["\r\n\r\n"; 3]);
    }
}
