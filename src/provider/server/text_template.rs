//! Frames that differ only in a text and a number.

use std::borrow::Cow;

use crate::provider::server::frame::Frame;

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
    before: String,
    between: Option<String>,
    after: String,
}

impl TextTemplate {
    /// Creates a template from a frame that contains [`TEXT_MARK`] as a string and, if it has a
    /// number, [`NUMBER_MARK`].
    pub(in crate::provider) fn of(frame: Frame) -> Self {
        let text = format!("\"{TEXT_MARK}\"");
        let (before, rest) = frame.data.rsplit_once(&text).unwrap_or((&frame.data, ""));
        let (between, after) = match rest.split_once(&NUMBER_MARK.to_string()) {
            Some((between, after)) => (Some(between.to_owned()), after),
            None => (None, rest),
        };
        let (before, after) = (before.to_owned(), after.to_owned());
        Self { event: frame.event, before, between, after }
    }

    /// Returns the frame with this text and number.
    pub(in crate::provider) fn frame(&self, text: &str, number: usize) -> Frame {
        let mut data = Vec::with_capacity(self.before.len() + text.len() + self.after.len() + 64);
        data.extend_from_slice(self.before.as_bytes());
        // Writing a string to a vector does not fail.
        let _ = serde_json::to_writer(&mut data, text);
        if let Some(between) = &self.between {
            data.extend_from_slice(between.as_bytes());
            data.extend_from_slice(number.to_string().as_bytes());
        }
        data.extend_from_slice(self.after.as_bytes());
        let data = String::from_utf8(data)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Frame { event: self.event.clone(), data, issued: Vec::new() }
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
}
