//! Detects a failure that is treated as a success.

use std::sync::Arc;

use crate::agent::detect::detection_input::{DetectionInput, Finding, result_checks};
use crate::item::{ResultKind, ToolResult};
use crate::turn::Turn;

/// Words whose presence indicates that an answer mentions a failure.
const FAILURE_WORDS: &[&str] = &[
    "fail",
    "error",
    "could not",
    "couldn't",
    "cannot",
    "can't",
    "unable",
    "not able",
    "timed out",
    "timeout",
    "too long",
    "denied",
    "blocked",
    "did not",
    "didn't",
    "exit code",
    "problem",
    "broke",
    "crash",
    "panic",
];

type AcknowledgementCheck = Arc<dyn Fn(&Turn, &ToolResult) -> bool + Send + Sync>;

/// Detects failures that are recorded as successes or ignored by the model, in two cases:
///
/// - A result with the kind `ok` reports a failed check, and the same check does not pass later in
///   that result. The detector reports this only once per run and tool.
/// - In the last turn before the model stops, a tool call failed, timed out, panicked or was
///   interrupted, no other call to the same tool succeeded, and the model's answer does not mention
///   the failure. A model that makes another call instead of stopping is assumed to be handling the
///   failure.
#[derive(Clone)]
pub struct AmbiguousFailure {
    /// Returns whether an answer acknowledges a failed result. By default, an answer acknowledges a
    /// failure if it contains one of several English words, such as "fail", "error" or "could not".
    pub acknowledgement_check: AcknowledgementCheck,
}

impl_debug!(AmbiguousFailure);

impl Default for AmbiguousFailure {
    fn default() -> Self {
        Self { acknowledgement_check: Arc::new(|turn, _| mentions_failure(turn)) }
    }
}

impl AmbiguousFailure {
    pub(super) fn detect(&self, seen: &DetectionInput<'_>) -> Option<Finding> {
        let (newest, earlier) = seen.newest_and_earlier_iterations()?;
        let recorded = newest.calls.iter().find(|(call, result)| {
            let before = earlier.iter().flat_map(|iteration| &iteration.calls);
            looks_like_failure(result)
                && !before
                    .filter(|(other, _)| other.name == call.name)
                    .any(|(_, result)| looks_like_failure(result))
        });
        if let Some((call, _)) = recorded {
            let what = format!("a check of `{}` has failed, and its result is `ok`", call.name);
            return Some(Finding::for_call(call, what));
        }
        if !seen.turn.calls().is_empty() {
            return None;
        }
        let (call, result) = newest.calls.iter().find(|(call, result)| {
            let mut same = newest.calls.iter().filter(|(other, _)| other.name == call.name);
            is_failure(result.kind)
                && !same.any(|(_, result)| !result.is_error())
                && !(self.acknowledgement_check)(seen.turn, result)
        })?;
        let what = format!("`{}` ended as `{}`, and the answer ignores it", call.name, result.kind);
        Some(Finding::for_call(call, what))
    }
}

fn mentions_failure(turn: &Turn) -> bool {
    let text = turn.text().to_lowercase().replace('\u{2019}', "'");
    FAILURE_WORDS.iter().any(|word| text.contains(word))
}

fn looks_like_failure(result: &ToolResult) -> bool {
    let checks: Vec<_> = result_checks(result).collect();
    let is_mended = |at: usize| {
        checks[at + 1..]
            .iter()
            .any(|later| later.is_passing() && later.command == checks[at].command)
    };
    !result.is_error() && (0..checks.len()).any(|at| !checks[at].is_passing() && !is_mended(at))
}

fn is_failure(kind: ResultKind) -> bool {
    match kind {
        ResultKind::Error | ResultKind::Timeout | ResultKind::Panic | ResultKind::Interrupted => {
            true
        }
        ResultKind::Ok
        | ResultKind::AlreadyExists
        | ResultKind::InvalidArguments
        | ResultKind::UnknownTool
        | ResultKind::Denied
        | ResultKind::Truncated
        | ResultKind::Budget
        | ResultKind::Skipped => false,
    }
}
