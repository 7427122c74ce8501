//! Parses a turn's answer into a value of a given type.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::error::{Error, ErrorKind};
use crate::item::model_json::read_by_type;
use crate::item::{StopReason, has_too_many_values, too_many_values_message};
use crate::turn::Turn;
use crate::turn::answer_json::find_json;

/// The reason why an answer could not be parsed into the requested type.
///
/// When a `ParseError` is the source of an [`Error`], the error's kind is
/// [`Filtered`](ErrorKind::Filtered) if the model refused to answer or a filter cut off the answer,
/// [`TooLarge`](ErrorKind::TooLarge) if the answer is [too long](Self::TooLong), and
/// [`Malformed`](ErrorKind::Malformed) otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The model refused to answer.
    Refused {
        /// The text of the refusal.
        text: String,
    },
    /// A content filter cut off the answer.
    Filtered {
        /// The text up to the point where the answer was cut off.
        text: String,
    },
    /// The answer was cut off by the output limit or the context window, or was paused by the
    /// provider. The text is not parsed, even if it happens to be valid JSON, because part of a
    /// number or a list may be missing.
    Truncated {
        /// The text up to the point where the answer was cut off.
        text: String,
    },
    /// The run ended before the model gave a final answer.
    RunEndedEarly {
        /// The reason why the run ended, for example `max_turns`.
        reason: String,
    },
    /// The answer does not contain any text. The turn may contain tool calls instead.
    NoText,
    /// The answer is not a single JSON value.
    NotJson {
        /// A description of the syntax error, including its position.
        message: String,
        /// The number of the line in `text` that contains the error, starting at 1.
        line: usize,
        /// The position of the error within the line, in bytes, starting at 1. A value of 0 means
        /// that the error occurred before the first byte.
        column: usize,
        /// The text that was parsed.
        text: String,
    },
    /// The answer is JSON, but does not match the requested type.
    TypeMismatch {
        /// A description of the mismatch, including its position.
        message: String,
        /// The path to the value that does not match, for example `steps[2].title`. The path `.`
        /// stands for the whole value.
        path: String,
        /// The text that was parsed.
        text: String,
    },
    /// The answer is longer than the limit.
    TooLong {
        /// The maximum length of the answer, in bytes.
        limit: usize,
    },
}

impl Turn {
    /// Parses the answer as JSON into a value of type `T`.
    ///
    /// The parsed text is the turn's [`answer`](Self::answer), which must be JSON. Some models
    /// write more than that. The parser accepts what is certainly meant as JSON:
    ///
    /// - Whitespace and a byte order mark around the answer are ignored, and so is reasoning
    ///   between `<think>` and `</think>` before it.
    /// - If the text contains one code fence of three backticks, with or without the language
    ///   `json`, the answer is the JSON inside of it.
    /// - One sentence may precede an object or list.
    /// - For an integer, a whole number such as `5.0` is accepted. For an optional field, including
    ///   one with `#[serde(default)]`, `null` is accepted.
    ///
    /// The parser does not search for JSON within other text, because such JSON might be a
    /// quotation or an example. Two objects are an error.
    ///
    /// # Errors
    ///
    /// Returns a [`ParseError`] whose variant suggests how to react: ask the model again
    /// ([`NotJson`](ParseError::NotJson), [`TypeMismatch`](ParseError::TypeMismatch)), raise a
    /// limit ([`Truncated`](ParseError::Truncated)) or give up ([`Refused`](ParseError::Refused)).
    ///
    /// ```
    /// use turnstream::provider::{Provider, Reply, Scripted};
    /// use turnstream::turn::ParseError;
    /// use turnstream::{History, Request, TurnStreamExt, env::SystemIds};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct City {
    ///     name: String,
    ///     people: u32,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::text(r#"{ "name": "Oslo", "people": 717710 }"#),
    ///     Reply::text(r#"{ "name": "Oslo", "people": "many" }"#),
    /// ]);
    /// let request = || Request::new(History::new(&SystemIds));
    /// let city: City = model.stream_turn(request()).into_turn().await?.parse()?;
    /// assert_eq!((city.name.as_str(), city.people), ("Oslo", 717_710));
    ///
    /// match model.stream_turn(request()).into_turn().await?.parse::<City>() {
    ///     Err(ParseError::TypeMismatch { path, .. }) => assert_eq!(path, "people"),
    ///     other => panic!("{:?}", other.map(|city| city.name)),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ParseError> {
        match ParseError::from_stop_reason(self) {
            None => ParseError::read_text(&self.answer()),
            Some(error) => Err(error),
        }
    }
}

impl ParseError {
    /// Returns the reason why the turn's answer must not be parsed, if any. The result depends only
    /// on the turn's stop reason, not on its text.
    pub(crate) fn from_stop_reason(turn: &Turn) -> Option<Self> {
        match turn.stop_reason() {
            StopReason::Refusal => Some(Self::Refused { text: turn.text() }),
            StopReason::ContentFilter => Some(Self::Filtered { text: turn.text() }),
            StopReason::MaxTokens
            | StopReason::ContextWindow
            | StopReason::Pause
            | StopReason::Interrupted => Some(Self::Truncated { text: turn.text() }),
            StopReason::Stop | StopReason::ToolCalls | StopReason::Other(_) => None,
        }
    }

    /// Parses a complete answer into a value of type `T`; see [`Turn::parse`].
    ///
    /// # Errors
    ///
    /// Returns [`NoText`](Self::NoText) if the answer contains nothing to parse,
    /// [`NotJson`](Self::NotJson) if it is not a valid JSON value, and
    /// [`TypeMismatch`](Self::TypeMismatch) if the value does not fit `T` or consists of too many
    /// values.
    pub fn read_text<T: DeserializeOwned>(answer: &str) -> Result<T, Self> {
        match find_json(answer) {
            "" => Err(Self::NoText),
            json => Self::read_json(json),
        }
    }

    /// Parses a single JSON value into a value of type `T`.
    pub(crate) fn read_json<T: DeserializeOwned>(json: &str) -> Result<T, Self> {
        if has_too_many_values(json.as_bytes()) {
            let (message, path) = (too_many_values_message(), String::new());
            return Err(Self::TypeMismatch { message, path, text: json.to_owned() });
        }
        read_by_type(json)
            .map_err(|mismatch| Self::from_serde(&mismatch.error, &mismatch.path(), json))
    }

    fn from_serde(error: &serde_json::Error, path: &str, json: &str) -> Self {
        let text = json.to_owned();
        match error.classify() {
            Category::Data => {
                Self::TypeMismatch { message: error.to_string(), path: path.to_owned(), text }
            }
            Category::Syntax | Category::Eof | Category::Io => Self::NotJson {
                message: error.to_string(),
                line: error.line(),
                column: error.column(),
                text,
            },
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { text } => write!(f, "the model refused: {}", shortened_line(text)),
            Self::Filtered { .. } => f.write_str("a content filter cut the answer off"),
            Self::Truncated { .. } => f.write_str("the answer was cut off before its end"),
            Self::RunEndedEarly { reason } => write!(f, "the run ended early: {reason}"),
            Self::NoText => f.write_str("there is no text answer"),
            Self::NotJson { message: what, .. } => {
                write!(f, "the answer is not JSON: {}", shortened_line(what))
            }
            Self::TypeMismatch { message: what, path, .. } => match path.as_str() {
                "." => write!(f, "the answer does not fit: {}", shortened_line(what)),
                path => write!(
                    f,
                    "the answer does not fit: {} (at `{}`)",
                    shortened_line(what),
                    shortened_line(path)
                ),
            },
            Self::TooLong { limit } => write!(f, "the answer is longer than {limit} bytes"),
        }
    }
}

/// Converts text to a single line of at most 300 characters.
fn shortened_line(text: &str) -> String {
    const MAX_LINE_CHARS: usize = 300;
    let mut line: String =
        text.chars().take(MAX_LINE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_LINE_CHARS).is_some() {
        line.push('…');
    }
    line
}

impl std::error::Error for ParseError {}

impl From<ParseError> for Error {
    fn from(error: ParseError) -> Self {
        let kind = match &error {
            ParseError::Refused { .. } | ParseError::Filtered { .. } => ErrorKind::Filtered,
            ParseError::TooLong { .. } => ErrorKind::TooLarge,
            ParseError::Truncated { .. }
            | ParseError::RunEndedEarly { .. }
            | ParseError::NoText
            | ParseError::NotJson { .. }
            | ParseError::TypeMismatch { .. } => ErrorKind::Malformed,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::MAX_JSON_VALUES;

    #[test]
    fn an_answer_with_too_many_values_is_not_parsed() {
        let answer = |values: usize| format!("[{}0]", "0,".repeat(values));
        let parse = |values| ParseError::read_text::<Vec<u8>>(&answer(values));
        assert_eq!(parse(1_000).map(|read| read.len()).ok(), Some(1_001));
        let refused = parse(MAX_JSON_VALUES);
        assert!(matches!(refused, Err(ParseError::TypeMismatch { .. })), "{refused:?}");
    }
}
