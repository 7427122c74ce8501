//! How a step ended, in a few words.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::item::{Evidence, ResultKind, ToolResult};

/// A summary has at most so many characters.
const MAX_SUMMARY_CHARS: usize = 240;

/// How a call ended, one of four words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolExit {
    /// It did what it should.
    Success,
    /// It failed, or did not run, or a check that it ran did not pass.
    Failure,
    /// It took too long.
    Timeout,
    /// The call itself was wrong; nothing ran.
    ValidationError,
}

/// What went wrong in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NormalizedError {
    /// Of what kind it is.
    pub kind: FailureKind,
    /// The first line of what the model reads of it, shortened.
    #[serde(default)]
    pub summary: String,
}

/// What can go wrong in a step, a small closed set.
///
/// | of a call | exit | kind |
/// |---|---|---|
/// | [`Ok`](ResultKind::Ok) | `success` | |
/// | [`Ok`](ResultKind::Ok) or [`Error`](ResultKind::Error), and a check on record has not [passed](Evidence::is_passing) | `failure` | `validation` |
/// | [`Error`](ResultKind::Error), [`Panic`](ResultKind::Panic) | `failure` | `runtime` |
/// | [`Timeout`](ResultKind::Timeout) | `timeout` | `timeout` |
/// | [`InvalidArguments`](ResultKind::InvalidArguments), [`UnknownTool`](ResultKind::UnknownTool) | `validation_error` | `validation` |
/// | [`Denied`](ResultKind::Denied) | `failure` | `denied` |
/// | [`Interrupted`](ResultKind::Interrupted) | `failure` | `interrupted` |
/// | [`Truncated`](ResultKind::Truncated), [`Budget`](ResultKind::Budget), [`Skipped`](ResultKind::Skipped) | `failure` | `not_run` |
///
/// The error that ends a run is `timeout`, `validation` (the request or the answer has not the form
/// that it must have), `runtime` (a hook failed, something panicked, a store failed) or `provider`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// It took too long.
    Timeout,
    /// Something has not the form that it must have, or a check did not pass.
    Validation,
    /// It ran and failed.
    Runtime,
    /// Somebody or something refused it.
    Denied,
    /// The run ended before the result was there.
    Interrupted,
    /// It was not started, for no fault of its own.
    NotRun,
    /// The model could not be reached, or did not answer as it must.
    Provider,
    /// A kind of a later version.
    #[serde(other)]
    Other,
}

/// How a result ended, and what went wrong where something did.
pub(super) fn exit_of_result(result: &ToolResult) -> (ToolExit, Option<NormalizedError>) {
    let (exit, kind) = match result.kind {
        // A check that fails is no success, whatever the tool that ran it thinks.
        ResultKind::Ok | ResultKind::Error if has_failed_check(result) => {
            (ToolExit::Failure, FailureKind::Validation)
        }
        ResultKind::Ok => return (ToolExit::Success, None),
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

/// What ended a run.
pub(super) fn normalize_error(error: &Error) -> NormalizedError {
    let kind = match error.kind() {
        ErrorKind::Timeout => FailureKind::Timeout,
        ErrorKind::InvalidRequest
        | ErrorKind::Unsupported
        | ErrorKind::ContextWindow
        | ErrorKind::TooLarge
        | ErrorKind::Malformed => FailureKind::Validation,
        ErrorKind::Hook
        | ErrorKind::Panic
        | ErrorKind::Store
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

/// The first line that says something, without the word that it is an error.
fn error_summary(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    to_single_line(line.strip_prefix("Error: ").unwrap_or(line))
}

/// A text in one line, shortened.
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
