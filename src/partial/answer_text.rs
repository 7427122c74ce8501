//! Finds the beginning of the JSON in an answer, while the answer arrives.

use std::mem;

use crate::partial::parser::JsonParser;
use crate::turn::{AnswerStart, THINK_END_TAG, find_json_start};

/// The maximum number of bytes before the JSON, apart from reasoning.
const MAX_BYTES_BEFORE: usize = 1024;

/// A text of the model, in which JSON is expected.
#[derive(Clone, Debug)]
pub(super) enum AnswerText {
    /// The JSON has not begun. Contains the text so far, and whether reasoning preceded it.
    Before(String, bool),
    /// The text is reasoning. Contains its last bytes, which may be the beginning of its end tag.
    Reasoning(String),
    Json(JsonParser),
    /// The text contains no JSON that is certainly meant as the answer.
    Other,
}

impl Default for AnswerText {
    fn default() -> Self {
        Self::Before(String::new(), false)
    }
}

impl AnswerText {
    /// Reads the next piece of the text.
    pub(super) fn push(&mut self, piece: &str) {
        let next = match self {
            Self::Json(parser) => return parser.push(piece),
            Self::Other => return,
            Self::Before(text, has_reasoning) => {
                text.push_str(piece);
                match find_json_start(text) {
                    AnswerStart::Json(at) => {
                        let mut parser = JsonParser::default();
                        parser.push(&text[at..]);
                        Self::Json(parser)
                    }
                    AnswerStart::Reasoning(at) if !*has_reasoning => {
                        Self::after_reasoning(text.split_off(at))
                    }
                    AnswerStart::Unknown if text.len() <= MAX_BYTES_BEFORE => return,
                    AnswerStart::Reasoning(_) | AnswerStart::Unknown | AnswerStart::None => {
                        Self::Other
                    }
                }
            }
            Self::Reasoning(tail) => {
                tail.push_str(piece);
                Self::after_reasoning(mem::take(tail))
            }
        };
        *self = next;
    }

    fn after_reasoning(mut text: String) -> Self {
        if let Some((_, answer)) = text.split_once(THINK_END_TAG) {
            // Reasoning that follows reasoning is not read, so this is the only nested call.
            let mut next = Self::Before(String::new(), true);
            next.push(answer);
            return next;
        }
        // The tag is ASCII, so a text that ends within it ends with as many bytes of it.
        let from = text.ceil_char_boundary(text.len().saturating_sub(THINK_END_TAG.len() - 1));
        text.drain(..from);
        Self::Reasoning(text)
    }
}
