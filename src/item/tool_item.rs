//! Tool calls as written by the model, and their results.

use std::fmt;
use std::sync::Arc;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, ErrorKind};
use crate::item::{Content, EffectReport, model_json};

/// The maximum length of a call id that every provider accepts.
pub(crate) const MAX_PORTABLE_CALL_ID_BYTES: usize = 40;

/// Returns whether every provider accepts a call id, whichever provider issued it.
pub(crate) fn is_portable_call_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=MAX_PORTABLE_CALL_ID_BYTES).contains(&id.len()) && id.bytes().all(is_plain)
}

/// A tool call requested by the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that links the call to its result. The id is unique within a history.
    pub call_id: String,
    /// The tool's name, as written by the model.
    pub name: String,
    /// The arguments as a JSON string, exactly as written by the model. The string may be empty,
    /// cut off or invalid.
    pub arguments: String,
}

impl ToolCall {
    /// Returns the arguments as they are passed to the tool or sent to a provider. Empty arguments
    /// and `null` become `{}`.
    pub fn arguments_or_empty_object(&self) -> &str {
        or_empty_object(&self.arguments)
    }

    /// Deserializes the arguments. Empty arguments and `null` are treated as `{}`, and any object
    /// deserializes into `()`. As for a [tool](crate::Tool), an integer may be written as `5.0`,
    /// and an optional field as `null`.
    ///
    /// ```
    /// use turnstream::item::ToolCall;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Delete {
    ///     path: String,
    /// }
    ///
    /// let call = ToolCall {
    ///     call_id: "c1".into(),
    ///     name: "delete".into(),
    ///     arguments: r#"{"path":"notes.md"}"#.into(),
    /// };
    /// assert_eq!(call.parse_arguments::<Delete>()?.path, "notes.md");
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`](ErrorKind::Malformed) if the arguments are not valid JSON or do not
    /// match the type. The error message states where the mismatch occurred.
    pub fn parse_arguments<T: DeserializeOwned>(&self) -> Result<T, Error> {
        model_json::read_arguments_by_type(self.arguments_or_empty_object()).map_err(|why| {
            let message = format!("the arguments of `{}` do not fit: {why}", self.name);
            Error::new(ErrorKind::Malformed, message).with_parameter(self.call_id.clone())
        })
    }
}

fn or_empty_object(arguments: &str) -> &str {
    match arguments.trim() {
        "" | "null" => "{}",
        text => text,
    }
}

/// Checks that a call's arguments are valid JSON, of any type. Empty arguments are also valid.
pub(crate) fn validate_json(arguments: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(or_empty_object(arguments)).map(drop)
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ToolResultRepr", into = "ToolResultRepr")]
pub struct ToolResult {
    /// The id of the call that produced this result.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The content that the model receives.
    pub content: Content,
    /// How the call ended, which also determines whether the result is [sent to the model as an
    /// error](ToolResult::is_error).
    pub kind: ResultKind,
    /// The side effects and evidence that the tool reported, if any. The report is never sent to
    /// the model.
    pub report: Option<Arc<EffectReport>>,
}

impl ToolResult {
    /// Returns whether the result is sent to the model as an error, which depends on
    /// [`kind`](Self::kind) alone. A front end shows the call as failed.
    pub fn is_error(&self) -> bool {
        !self.kind.is_success()
    }

    /// Creates a result for `call`, with the call's id and name and without a report.
    pub fn for_call(call: &ToolCall, kind: ResultKind, content: impl Into<Content>) -> Self {
        Self {
            call_id: call.call_id.clone(),
            name: call.name.clone(),
            content: content.into(),
            kind,
            report: None,
        }
    }

    /// Sets the side effects and evidence that the tool reported. An empty report becomes `None`.
    pub fn with_report(mut self, report: EffectReport) -> Self {
        self.report = (!report.is_empty()).then(|| Arc::new(report));
        self
    }
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResultKind {
    /// The tool ran and returned successfully.
    Ok,
    /// The tool ran and changed nothing, because what it should create or change was there already.
    /// This is not an error.
    AlreadyExists,
    /// The tool ran and failed.
    Error,
    /// The tool took too long and was cancelled.
    Timeout,
    /// The tool panicked.
    Panic,
    /// The arguments were not valid JSON or did not match the schema; the tool did not run.
    InvalidArguments,
    /// The tool does not exist.
    UnknownTool,
    /// The call was denied by a user, a policy or a hook; the tool did not run.
    Denied,
    /// The run ended before the result was available.
    Interrupted,
    /// The turn was cut off at the output limit; the tool did not run.
    Truncated,
    /// A budget was exhausted; the tool did not run.
    Budget,
    /// The turn did not allow tool calls; the tool did not run.
    Skipped,
}

impl ResultKind {
    /// Returns the kind's serialized name, for example `invalid_arguments`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::AlreadyExists => "already_exists",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::InvalidArguments => "invalid_arguments",
            Self::UnknownTool => "unknown_tool",
            Self::Denied => "denied",
            Self::Interrupted => "interrupted",
            Self::Truncated => "truncated",
            Self::Budget => "budget",
            Self::Skipped => "skipped",
        }
    }

    /// Returns whether the tool actually ran: it returned, failed, timed out or panicked.
    pub(crate) fn has_executed(self) -> bool {
        self.is_success() || matches!(self, Self::Error | Self::Timeout | Self::Panic)
    }

    /// Returns whether the tool ran and did not fail.
    pub(crate) fn is_success(self) -> bool {
        matches!(self, Self::Ok | Self::AlreadyExists)
    }

    /// Returns whether the tool did not run because the model made a mistake in the call.
    pub(crate) fn is_model_error(self) -> bool {
        matches!(self, Self::InvalidArguments | Self::UnknownTool)
    }
}

impl fmt::Display for ResultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The serialized form of a tool result. `is_error` is derived from the kind, and is included for
/// readers that do not know every kind.
#[derive(Clone, Serialize, Deserialize)]
struct ToolResultRepr {
    call_id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    is_error: bool,
    #[serde(default, deserialize_with = "deserialize_known_kind")]
    kind: Option<ResultKind>,
    content: Content,
    #[serde(flatten)]
    report: EffectReport,
}

/// Deserializes a result kind. An unknown kind, written by a later version, is ignored; the kind is
/// then derived from `is_error`.
fn deserialize_known_kind<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ResultKind>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    Ok(word.and_then(|word| {
        let word: StrDeserializer<'_, serde::de::value::Error> = word.as_str().into_deserializer();
        ResultKind::deserialize(word).ok()
    }))
}

impl From<ToolResultRepr> for ToolResult {
    fn from(wire: ToolResultRepr) -> Self {
        let otherwise = if wire.is_error { ResultKind::Error } else { ResultKind::Ok };
        Self {
            call_id: wire.call_id,
            name: wire.name,
            content: wire.content,
            kind: wire.kind.unwrap_or(otherwise),
            report: None,
        }
        .with_report(wire.report)
    }
}

impl From<ToolResult> for ToolResultRepr {
    fn from(result: ToolResult) -> Self {
        Self {
            is_error: result.is_error(),
            call_id: result.call_id,
            name: result.name,
            kind: Some(result.kind),
            content: result.content,
            report: result.report.map_or_else(EffectReport::default, Arc::unwrap_or_clone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_without_a_kind_takes_it_from_is_error() {
        let read = |json| serde_json::from_str::<ToolResult>(json).unwrap().kind;
        assert_eq!(read(r#"{"call_id":"c","content":"x","is_error":true}"#), ResultKind::Error);
        assert_eq!(read(r#"{"call_id":"c","content":"x"}"#), ResultKind::Ok);
    }

    #[test]
    fn a_result_kind_displays_as_it_serializes() {
        for kind in [ResultKind::Ok, ResultKind::InvalidArguments, ResultKind::UnknownTool] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }

    #[test]
    fn empty_and_null_arguments_are_an_empty_object() {
        for arguments in ["", "  \n", "null", "{}"] {
            let call =
                ToolCall { call_id: "c".into(), name: "t".into(), arguments: arguments.into() };
            assert_eq!(call.arguments_or_empty_object(), "{}");
        }
    }
}
