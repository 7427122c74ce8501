//! The answer of a turn, read into a type.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;
use crate::turn::Turn;

/// Why an answer could not be read into a type.
///
/// It is the source of an error of kind [`Malformed`](ErrorKind::Malformed), or of kind
/// [`Filtered`](ErrorKind::Filtered) when the model refused or a filter cut it off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// The model refused.
    Refused {
        /// What it said instead.
        text: String,
    },
    /// A content filter cut it off.
    Filtered {
        /// What came before that.
        text: String,
    },
    /// The output limit or the context window cut it off, or the provider paused it. What there is
    /// is not read, even if it happens to be JSON: the rest of a number or a list may be missing.
    Truncated {
        /// What came before that.
        text: String,
    },
    /// The run ended before there was a last answer.
    RunEndedEarly {
        /// How it ended, for example `max_turns`.
        reason: String,
    },
    /// It has no words. The turn may have calls.
    NoText,
    /// It is not one JSON value.
    NotJson {
        /// What was expected, and where.
        message: String,
        /// The line in `text`, from 1.
        line: usize,
        /// The byte in the line, from 1; 0 is before the first.
        column: usize,
        /// What was read.
        text: String,
    },
    /// It is JSON, but does not fit the type.
    TypeMismatch {
        /// What was expected, and where.
        message: String,
        /// The place in the value, for example `steps[2].title`; `.` is the value itself.
        path: String,
        /// What was read.
        text: String,
    },
    /// It is longer than a limit of this crate.
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
}

impl Turn {
    /// Reads the answer, JSON, into a type.
    ///
    /// The answer is all text of the turn. White space and a byte order mark around it are passed
    /// over, and so is one fence of three backticks, with or without the word `json`, which some
    /// models put around it. Nothing else is: JSON is not looked for among other words, because
    /// what is found there may be a quotation or an example.
    ///
    /// # Errors
    ///
    /// Says by its variant whether to ask again ([`NotJson`](ParseError::NotJson),
    /// [`TypeMismatch`](ParseError::TypeMismatch)), to raise a limit
    /// ([`Truncated`](ParseError::Truncated)) or to give up ([`Refused`](ParseError::Refused)).
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
    /// Why no answer of the turn is read, whatever it is.
    pub(crate) fn from_stop_reason(turn: &Turn) -> Option<Self> {
        match turn.stop_reason() {
            StopReason::Refusal => Some(Self::Refused { text: turn.text() }),
            StopReason::ContentFilter => Some(Self::Filtered { text: turn.text() }),
            StopReason::MaxTokens | StopReason::ContextWindow | StopReason::Pause => {
                Some(Self::Truncated { text: turn.text() })
            }
            StopReason::Stop | StopReason::ToolCalls | StopReason::Other(_) => None,
        }
    }

    /// Reads a whole answer into a type; see [`Turn::parse`].
    pub fn read_text<T: DeserializeOwned>(answer: &str) -> Result<T, Self> {
        match strip_code_fence(answer) {
            "" => Err(Self::NoText),
            json => Self::read_json(json),
        }
    }

    /// Reads one JSON value into a type.
    pub(crate) fn read_json<T: DeserializeOwned>(json: &str) -> Result<T, Self> {
        let mut reader = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize(&mut reader) {
            Ok(value) => match reader.end() {
                Ok(()) => Ok(value),
                Err(error) => Err(Self::from_serde(&error, ".", json)),
            },
            Err(error) => {
                let path = error.path().to_string();
                Err(Self::from_serde(error.inner(), &path, json))
            }
        }
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

/// The answer without what may stand around it.
fn strip_code_fence(answer: &str) -> &str {
    let blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    let answer = answer.trim_matches(blank);
    let fenced = answer.strip_prefix("```").and_then(|inside| inside.strip_suffix("```"));
    let Some((language, inside)) = fenced.and_then(|fenced| fenced.split_once('\n')) else {
        return answer;
    };
    match language.trim() {
        "" => inside.trim_matches(blank),
        language if language.eq_ignore_ascii_case("json") => inside.trim_matches(blank),
        _ => answer,
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { text } => write!(f, "the model refused: {}", shortened_line(text)),
            Self::Filtered { .. } => f.write_str("a content filter cut the answer off"),
            Self::Truncated { .. } => f.write_str("the answer was cut off before its end"),
            Self::RunEndedEarly { reason } => write!(f, "the run ended early: {reason}"),
            Self::NoText => f.write_str("there is no answer in words"),
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

/// A text as one line of bearable length.
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
