//! Frames that differ only in a text and a number.

use std::borrow::Cow;

use crate::provider::server::frame::{Frame, FrameFormat};
use crate::sse::escape_line_separators;

/// The text in the frame from which a template is made. It must be the last text in the frame whose
/// content a client or a model chooses.
pub(in crate::provider) const TEXT_MARK: &str = "\u{e000}text\u{e000}";

/// The number in the frame from which a template is made. It must follow the text. It fits into 32
/// bits, so that the crate compiles for systems with such addresses.
pub(in crate::provider) const NUMBER_MARK: usize = 4_294_967_291;

/// A frame of which only a text varies, and a number, if it has one.
///
/// A model's answer consists mostly of such frames, and building each of them as a value would cost
/// many times the instructions of writing its text.
#[derive(Debug)]
pub(in crate::provider) struct TextTemplate {
    event: Option<Cow<'static, str>>,
    data: Slots,
    /// The frame as it is written to a body, and the body's format.
    in_body: Option<(FrameFormat, Slots)>,
}

/// Constant text around a text and, if there is one, a number.
#[derive(Debug)]
struct Slots {
    before: String,
    between: Option<String>,
    after: String,
}

impl TextTemplate {
    /// Creates a template from a frame that contains [`TEXT_MARK`] as a string and, if it has a
    /// number, [`NUMBER_MARK`].
    pub(in crate::provider) fn of(frame: Frame) -> Self {
        Self { event: frame.event, data: Slots::of(&frame.data), in_body: None }
    }

    /// Returns the frame with this text and number.
    pub(in crate::provider) fn frame(&self, text: &str, number: usize) -> Frame {
        let mut data = Vec::new();
        self.data.write(text, number, &mut data);
        let data = String::from_utf8(data)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Frame { event: self.event.clone(), data, issued: Vec::new() }
    }

    /// Writes the frame with this text and number to a body. The frame must not be the body's
    /// first one.
    pub(super) fn write(
        &mut self,
        text: &str,
        number: usize,
        format: &FrameFormat,
        body: &mut Vec<u8>,
    ) {
        if !matches!(&self.in_body, Some((known, _)) if known == format) {
            let frame = format.encode(&self.frame(TEXT_MARK, NUMBER_MARK), 1);
            self.in_body = Some((*format, Slots::of(&frame)));
        }
        if let Some((_, slots)) = &self.in_body {
            let begin = body.len();
            slots.write(text, number, body);
            escape_line_separators(body, begin);
        }
    }
}

impl Slots {
    /// Finds the marks in a text.
    fn of(marked: &str) -> Self {
        let text = format!("\"{TEXT_MARK}\"");
        let (before, rest) = marked.rsplit_once(&text).unwrap_or((marked, ""));
        let (between, after) = match rest.split_once(&NUMBER_MARK.to_string()) {
            Some((between, after)) => (Some(between.to_owned()), after),
            None => (None, rest),
        };
        Self { before: before.to_owned(), between, after: after.to_owned() }
    }

    /// Writes the constant text with this text, as JSON, and this number.
    fn write(&self, text: &str, number: usize, out: &mut Vec<u8>) {
        // Exact for a text without escapes, if the vector is empty.
        let digits = number.checked_ilog10().map_or(1, |digits| digits as usize + 1);
        let number_len = self.between.as_ref().map_or(0, |between| between.len() + digits);
        out.reserve(self.before.len() + text.len() + 2 + number_len + self.after.len());
        out.extend_from_slice(self.before.as_bytes());
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut *out, text);
        if let Some(between) = &self.between {
            out.extend_from_slice(between.as_bytes());
            let _ = serde_json::to_writer(&mut *out, &number);
        }
        out.extend_from_slice(self.after.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_frame_of_a_template_is_the_frame_that_would_have_been_built() {
        let build = |text: &str, number: usize| {
            let data = json!({ "model": TEXT_MARK, "delta": text, "sequence_number": number });
            Frame::new(Some("delta"), &data)
        };
        let template = TextTemplate::of(build(TEXT_MARK, NUMBER_MARK));
        for text in ["", "Hi", "\"\\\n\u{2028}ä😀", TEXT_MARK] {
            assert_eq!(template.frame(text, 7), build(text, 7));
        }
        let build = |text: &str| Frame::new(None, &json!({ "text": text }));
        let template = TextTemplate::of(build(TEXT_MARK));
        assert_eq!(template.frame("Hi", 7), build("Hi"));
        let data: Value = serde_json::from_str(&template.frame("Hi", 7).data).unwrap();
        assert_eq!(data, json!({ "text": "Hi" }));
    }

    #[test]
    fn a_template_writes_the_bytes_that_the_format_would_have_written() {
        let build = |text: &str, number: usize| {
            let data = json!({ "model": "\u{2029}", "delta": text, "sequence_number": number });
            Frame::new(Some("delta"), &data)
        };
        let mut template = TextTemplate::of(build(TEXT_MARK, NUMBER_MARK));
        // A template can be used for several formats.
        for format in [
            FrameFormat::EVENTS,
            FrameFormat::GEMINI_EVENTS,
            FrameFormat::JSON_LINES,
            FrameFormat::JSON_ARRAY,
        ] {
            let (mut body, mut expected) = (b"earlier".to_vec(), "earlier".to_owned());
            for (number, text) in
                [(0, ""), (9, "Hi"), (10, "\"\\\r\n\u{2028}ä😀"), (111, TEXT_MARK)]
            {
                template.write(text, number, &format, &mut body);
                expected += &format.encode(&build(text, number), 1);
            }
            assert_eq!(String::from_utf8(body).unwrap(), expected);
        }
    }
}
