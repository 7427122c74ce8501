//! Describes how a step ended, using a small, fixed set of values.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::item::{Evidence, ResultKind, ToolResult};

/// The maximum length of a summary, in characters.
const MAX_SUMMARY_CHARS: usize = 240;

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolExit {
    /// The call succeeded.
    Success,
    /// The call failed, did not run, or ran a check that did not pass.
    Failure,
    /// The call exceeded its time limit.
    Timeout,
    /// The call was invalid, so no tool ran.
    ValidationError,
}

/// The error from a failed step, in normalized form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NormalizedError {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The first line of the error message that the model reads, shortened if necessary.
    #[serde(default)]
    pub summary: String,
}

/// A kind of failure. There is a small, fixed set of kinds.
///
/// For a call, the tool exit and the kind of failure depend on the call's result:
///
/// | result | exit | kind |
/// |---|---|---|
/// | [`Ok`] | `success` | |
/// | [`Ok`], [`Error`] with a check whose exit code is not 0 | `failure` | `validation` |
/// | [`Error`], [`Panic`] | `failure` | `runtime` |
/// | [`Timeout`] | `timeout` | `timeout` |
/// | [`InvalidArguments`], [`UnknownTool`] | `validation_error` | `validation` |
/// | [`Denied`] | `failure` | `denied` |
/// | [`Interrupted`] | `failure` | `interrupted` |
/// | [`Truncated`], [`Budget`], [`Skipped`] | `failure` | `not_run` |
///
/// For an error that ends a run, the kind is `timeout`, `validation`, `runtime` or `provider`. The
/// kind is `validation` if the request or the answer is invalid, unsupported or too large. The kind
/// is `runtime` if a hook or a store failed, or if a part of the run panicked.
///
/// [`Ok`]: ResultKind::Ok
/// [`Error`]: ResultKind::Error
/// [`Panic`]: ResultKind::Panic
/// [`Timeout`]: ResultKind::Timeout
/// [`InvalidArguments`]: ResultKind::InvalidArguments
/// [`UnknownTool`]: ResultKind::UnknownTool
/// [`Denied`]: ResultKind::Denied
/// [`Interrupted`]: ResultKind::Interrupted
/// [`Truncated`]: ResultKind::Truncated
/// [`Budget`]: ResultKind::Budget
/// [`Skipped`]: ResultKind::Skipped
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// The call or the request exceeded its time limit.
    Timeout,
    /// A value is invalid, or a check did not pass.
    Validation,
    /// The tool ran and failed.
    Runtime,
    /// A policy or an approver denied the call.
    Denied,
    /// The run ended before the result arrived.
    Interrupted,
    /// The call was not started, for reasons unrelated to the call itself.
    NotRun,
    /// The model could not be reached, or its answer was unusable.
    Provider,
    /// A kind that was added in a later version.
    #[serde(other)]
    Other,
}

/// Returns how the call that produced this result ended, along with the normalized error if the
/// call failed.
pub(super) fn exit_of_result(result: &ToolResult) -> (ToolExit, Option<NormalizedError>) {
    let (exit, kind) = match result.kind {
        // A failed check counts as a failure even if the tool that ran the check reports success.
        ResultKind::Ok | ResultKind::AlreadyExists | ResultKind::Error
            if has_failed_check(result) =>
        {
            (ToolExit::Failure, FailureKind::Validation)
        }
        ResultKind::Ok | ResultKind::AlreadyExists => return (ToolExit::Success, None),
        ResultKind::Error | ResultKind::Panic => (ToolExit::Failure, FailureKind::Runtime),
        ResultKind::Timeout => (ToolExit::Timeout, FailureKind::Timeout),
        ResultKind::InvalidArguments | ResultKind::UnknownTool => {
            (ToolExit::ValidationError, FailureKind::Validation)
        }
        ResultKind::Denied => (ToolExit::Failure, FailureKind::Denied),
        ResultKind::Interrupted => (ToolExit::Failure, FailureKind::Interrupted),
        ResultKind::Truncated | ResultKind::Budget | ResultKind::Skipped => {
            (ToolExit::Failure, FailureKind::NotRun)
        }
    };
    (exit, Some(NormalizedError { kind, summary: error_summary(&result.content.text()) }))
}

fn has_failed_check(result: &ToolResult) -> bool {
    let report = result.report.as_deref();
    let mut evidence = report.into_iter().flat_map(|report| &report.evidence);
    evidence.any(|json| Evidence::from_json(json).is_some_and(|check| !check.is_passing()))
}

/// Converts the error that ended a run into a normalized error.
pub(super) fn normalize_error(error: &Error) -> NormalizedError {
    let kind = match error.kind() {
        ErrorKind::Timeout => FailureKind::Timeout,
        ErrorKind::InvalidRequest
        | ErrorKind::ReasoningRefused
        | ErrorKind::Unsupported
        | ErrorKind::ContextWindow
        | ErrorKind::TooLarge
        | ErrorKind::Malformed => FailureKind::Validation,
        ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
        | ErrorKind::OutcomeUnknown
        | ErrorKind::Conflict
        | ErrorKind::ReplayMismatch
        | ErrorKind::Unfinished => FailureKind::Runtime,
        ErrorKind::Connect
        | ErrorKind::Auth
        | ErrorKind::Billing
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded
        | ErrorKind::Server
        | ErrorKind::Filtered
        | ErrorKind::GenerationFailed
        | ErrorKind::IncompleteTurn
        | ErrorKind::Protocol
        | ErrorKind::Other => FailureKind::Provider,
    };
    NormalizedError { kind, summary: to_single_line(&error.to_string()) }
}

/// Returns the first non-blank line of an error message, without the `Error: ` prefix.
fn error_summary(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    to_single_line(line.strip_prefix("Error: ").unwrap_or(line))
}

/// Converts text to a single line, shortened to the maximum length of a summary.
pub(super) fn to_single_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if let Some((end, _)) = line.char_indices().nth(MAX_SUMMARY_CHARS) {
            line.truncate(end);
            line.push('…');
            break;
        }
    }
    line
}
