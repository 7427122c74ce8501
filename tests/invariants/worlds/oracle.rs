//! The expected result of an undisturbed run, computed a second time: from the requirements of an
//! agent, independently of its implementation.

use std::time::Duration;

use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::item::ResultKind;

use super::script::{CallFate, Script, ScriptTurn, TurnEnding};

/// Limits so small that every counter is reached within three turns.
pub(crate) const SHORT_LIMITS: Limits = Limits {
    forced_tool_turns: 1,
    max_turns: Some(3),
    max_corrections: 2,
    max_continuations: 1,
    max_truncated_call_retries: 1,
    max_turn_retries: 0,
    nudge_after_repeats: 2,
    end_after_repeats: 3,
    end_after_failed_fixes: 0,
    max_depth: 8,
    max_turn_bytes: 64 << 20,
    hook_timeout: None,
    tool_source_timeout: None,
    compactor_timeout: None,
    long_poll: Duration::from_millis(100),
};

/// Limits with which a script of more turns ends only if it repeats.
const LONG_LIMITS: Limits =
    Limits { max_turns: Some(20), nudge_after_repeats: 4, end_after_repeats: 6, ..SHORT_LIMITS };

/// The limits of the agent that runs a script.
pub(crate) fn limits_for(script: &Script) -> Limits {
    match u32::try_from(script.0.len()) {
        Ok(turns) if Some(turns) <= SHORT_LIMITS.max_turns => SHORT_LIMITS,
        _ => LONG_LIMITS,
    }
}

/// The expected result of a script.
#[derive(Debug, PartialEq)]
pub(crate) struct ExpectedRun {
    /// `None` if the model receives a request after the script's last turn.
    pub(crate) reason: Option<EndReason>,
    /// The kinds of all results, in call order.
    pub(crate) result_kinds: Vec<ResultKind>,
}

pub(crate) fn expects_more_turns(script: &Script) -> bool {
    predict_run(script).reason.is_none()
}

/// Predicts the run of a script. No script has a turn after its end.
pub(crate) fn predict_run(script: &Script) -> ExpectedRun {
    let mut results = Vec::new();
    // The counts, in a row or in total: bad replies, truncated texts and calls, odd ends,
    // compactions.
    let (mut bad, mut texts, mut cuts, mut odd, mut compacted) = (0, 0, 0, false, false);
    let mut behind_results = false;
    let limits = limits_for(script);
    let mut rows = Vec::new();
    let mut reason = None;
    for (at, turn) in script.0.iter().enumerate() {
        assert!(reason.is_none(), "there is nothing to predict after the end");
        results
            .extend(turn.calls.iter().filter_map(|fate| expected_result_kind(turn.ending, *fate)));
        let has_calls = !turn.calls.is_empty();
        let was_behind_results = behind_results;
        behind_results = has_calls || (behind_results && !turn.has_text);
        reason = match (turn.ending, has_calls) {
            (TurnEnding::Stop | TurnEnding::ToolCalls, true) => {
                (texts, cuts, odd) = (0, 0, false);
                let all_bad = turn.calls.iter().all(|fate| *fate == CallFate::Unknown);
                bad = if all_bad { bad + 1 } else { 0 };
                let counted = push_repeatable(turn, &mut rows);
                let repeated = if counted { repeating_suffix_len(&rows) } else { 0 };
                let nudged = counted && repeated % limits.nudge_after_repeats as usize == 0;
                behind_results = !nudged;
                if turn.calls.contains(&CallFate::NeedsApproval) {
                    Some(EndReason::Pending)
                } else if bad == 3 {
                    Some(EndReason::Malformed)
                } else {
                    (repeated >= limits.end_after_repeats as usize).then_some(EndReason::Repeating)
                }
            }
            (TurnEnding::Stop | TurnEnding::ToolCalls, false) if turn.has_text => {
                Some(EndReason::Completed)
            }
            (TurnEnding::Stop, false) if was_behind_results => Some(EndReason::Completed),
            (TurnEnding::Other, false) if turn.has_text => Some(EndReason::Completed),
            (TurnEnding::Stop | TurnEnding::Other, false) => {
                bad += 1;
                behind_results = false;
                (bad == 3).then_some(EndReason::Malformed)
            }
            (TurnEnding::ToolCalls, false) => Some(EndReason::Malformed),
            (TurnEnding::MaxTokens, false) => {
                (bad, texts, behind_results) = (0, texts + 1, false);
                (texts > SHORT_LIMITS.max_continuations).then_some(EndReason::Truncated)
            }
            (TurnEnding::MaxTokens, true) => {
                (bad, cuts) = (0, cuts + 1);
                (cuts > SHORT_LIMITS.max_truncated_call_retries).then_some(EndReason::Truncated)
            }
            (TurnEnding::ContentFilter, _) => Some(EndReason::Filtered),
            (TurnEnding::Refusal, _) => Some(EndReason::Refused),
            (TurnEnding::Pause, _) => {
                bad = 0;
                None
            }
            (TurnEnding::ContextWindow, _) => {
                std::mem::replace(&mut compacted, true).then_some(EndReason::ContextWindow)
            }
            (TurnEnding::Other, true) => {
                bad = 0;
                std::mem::replace(&mut odd, true).then_some(EndReason::Malformed)
            }
        };
        if has_vetoed_calls(turn) {
            // Its calls are always answered, and differently from those that run.
            push_repeatable(turn, &mut rows);
        }
        if reason.is_none() && Some(at + 1) == limits.max_turns.map(|turns| turns as usize) {
            reason = Some(EndReason::MaxTurns);
        }
    }
    ExpectedRun { reason, result_kinds: results }
}

/// A turn as another one may repeat it: its ending, if that keeps its calls from running, and its
/// calls.
type RepeatableTurn<'a> = (Option<TurnEnding>, Vec<&'a CallFate>);

/// Adds a turn to those that may repeat, unless it only polls.
fn push_repeatable<'a>(turn: &'a ScriptTurn, rows: &mut Vec<RepeatableTurn<'a>>) -> bool {
    let calls: Vec<_> = turn.calls.iter().filter(|fate| **fate != CallFate::Pollable).collect();
    let counts = !calls.is_empty();
    if counts {
        rows.push((has_vetoed_calls(turn).then_some(turn.ending), calls));
    }
    counts
}

/// The length of the longest suffix that is a cycle of up to four turns, repeated at least once.
fn repeating_suffix_len(rows: &[RepeatableTurn<'_>]) -> usize {
    let repeats = |cycle: usize, end: &[RepeatableTurn<'_>]| {
        end.len() >= 2 * cycle && end[cycle..] == end[..end.len() - cycle]
    };
    let ends = || (0..rows.len()).map(|from| &rows[from..]);
    let longest = (1..=4).filter_map(|cycle| Some(ends().find(|end| repeats(cycle, end))?.len()));
    longest.max().unwrap_or(1)
}

fn has_vetoed_calls(turn: &ScriptTurn) -> bool {
    !turn.calls.is_empty() && !matches!(turn.ending, TurnEnding::Stop | TurnEnding::ToolCalls)
}

/// The kind of a call's result; `None` if the call has no verdict.
fn expected_result_kind(stop: TurnEnding, fate: CallFate) -> Option<ResultKind> {
    Some(match (stop, fate) {
        (
            TurnEnding::Stop | TurnEnding::ToolCalls,
            CallFate::Ok | CallFate::PendingOnce | CallFate::Pollable,
        ) => ResultKind::Ok,
        (TurnEnding::Stop | TurnEnding::ToolCalls, CallFate::Error) => ResultKind::Error,
        (TurnEnding::Stop | TurnEnding::ToolCalls, CallFate::Timeout) => ResultKind::Timeout,
        (TurnEnding::Stop | TurnEnding::ToolCalls, CallFate::Panic) => ResultKind::Panic,
        (TurnEnding::Stop | TurnEnding::ToolCalls, CallFate::Denied) => ResultKind::Denied,
        (TurnEnding::Stop | TurnEnding::ToolCalls, CallFate::Unknown) => ResultKind::UnknownTool,
        (TurnEnding::Stop | TurnEnding::ToolCalls, CallFate::NeedsApproval) => return None,
        (TurnEnding::MaxTokens | TurnEnding::ContextWindow, _) => ResultKind::Truncated,
        (
            TurnEnding::ContentFilter | TurnEnding::Refusal | TurnEnding::Pause | TurnEnding::Other,
            _,
        ) => ResultKind::Skipped,
    })
}
