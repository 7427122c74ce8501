//! What a run that nobody disturbs must come to, told a second time: from what is asked of an
//! agent, without a look at how it decides.

use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::item::ResultKind;

use super::script::{Ending, Fate, Script, Turn};

/// Numbers so small that every counter is full within three turns.
pub(crate) const LIMITS: Limits = Limits {
    max_turns: 3,
    max_corrections: 2,
    max_continuations: 1,
    max_truncated_call_retries: 1,
    max_turn_retries: 0,
    nudge_after_repeats: 2,
    end_after_repeats: 3,
    max_depth: 8,
    max_turn_bytes: turnstream::turn::TurnBuilder::DEFAULT_MAX_BYTES,
};

/// Numbers with which a script of more turns ends only where it repeats.
const LONG: Limits =
    Limits { max_turns: 20, nudge_after_repeats: 4, end_after_repeats: 6, ..LIMITS };

/// The limits of the agent that a script is tried with.
pub(crate) fn limits(script: &Script) -> Limits {
    if script.0.len() > LIMITS.max_turns as usize { LONG } else { LIMITS }
}

/// What must come of a script.
#[derive(Debug, PartialEq)]
pub(crate) struct Fortune {
    /// `None` if the model is asked for a turn behind the script.
    pub(crate) reason: Option<EndReason>,
    /// The kinds of all results, in call order.
    pub(crate) results: Vec<ResultKind>,
}

pub(crate) fn wants_more(script: &Script) -> bool {
    foretell(script).reason.is_none()
}

/// Foretells the run of a script. No script has a turn behind its end.
pub(crate) fn foretell(script: &Script) -> Fortune {
    let mut results = Vec::new();
    // How often in a row, or at all: bad replies, texts and calls cut off, odd ends, compactions.
    let (mut bad, mut texts, mut cuts, mut odd, mut compacted) = (0, 0, 0, false, false);
    let mut behind_results = false;
    let limits = limits(script);
    let mut rows = Vec::new();
    let mut reason = None;
    for (at, turn) in script.0.iter().enumerate() {
        assert!(reason.is_none(), "there is nothing to foretell behind the end");
        results.extend(turn.calls.iter().filter_map(|fate| result(turn.stop, *fate)));
        let has_calls = !turn.calls.is_empty();
        let was_behind_results = behind_results;
        behind_results = has_calls || (behind_results && !turn.words);
        reason = match (turn.stop, has_calls) {
            (Ending::Stop | Ending::ToolCalls, true) => {
                (texts, cuts, odd) = (0, 0, false);
                let all_bad = turn.calls.iter().all(|fate| *fate == Fate::Unknown);
                bad = if all_bad { bad + 1 } else { 0 };
                let counted = counted(turn, &mut rows);
                let repeated = if counted { repeating_end(&rows) } else { 0 };
                let nudged = counted && repeated % limits.nudge_after_repeats as usize == 0;
                behind_results = !nudged;
                if turn.calls.contains(&Fate::Asks) {
                    Some(EndReason::Pending)
                } else if bad == 3 {
                    Some(EndReason::Malformed)
                } else {
                    (repeated >= limits.end_after_repeats as usize).then_some(EndReason::Repeating)
                }
            }
            (Ending::Stop | Ending::ToolCalls, false) if turn.words => Some(EndReason::Completed),
            (Ending::Stop, false) if was_behind_results => Some(EndReason::Completed),
            (Ending::Stop, false) => {
                bad += 1;
                behind_results = false;
                (bad == 3).then_some(EndReason::Malformed)
            }
            (Ending::ToolCalls, false) => Some(EndReason::Malformed),
            (Ending::MaxTokens, false) => {
                (bad, texts, behind_results) = (0, texts + 1, false);
                (texts > LIMITS.max_continuations).then_some(EndReason::Truncated)
            }
            (Ending::MaxTokens, true) => {
                (bad, cuts) = (0, cuts + 1);
                (cuts > LIMITS.max_truncated_call_retries).then_some(EndReason::Truncated)
            }
            (Ending::ContentFilter, _) => Some(EndReason::Filtered),
            (Ending::Refusal, _) => Some(EndReason::Refused),
            (Ending::Pause, _) => {
                bad = 0;
                None
            }
            (Ending::ContextWindow, _) => {
                std::mem::replace(&mut compacted, true).then_some(EndReason::ContextWindow)
            }
            (Ending::Other, false) => Some(EndReason::Completed),
            (Ending::Other, true) => {
                bad = 0;
                std::mem::replace(&mut odd, true).then_some(EndReason::Malformed)
            }
        };
        if vetoed(turn) {
            // Its calls are always answered, and in another way than those that run.
            counted(turn, &mut rows);
        }
        if reason.is_none() && at + 1 == limits.max_turns as usize {
            reason = Some(EndReason::MaxTurns);
        }
    }
    Fortune { reason, results }
}

/// A turn as another may repeat it: how it ends if that keeps its calls from running, and its calls.
type Row<'a> = (Option<Ending>, Vec<&'a Fate>);

/// Adds a turn to those that may repeat. One that only polls is none of them.
fn counted<'a>(turn: &'a Turn, rows: &mut Vec<Row<'a>>) -> bool {
    let calls: Vec<_> = turn.calls.iter().filter(|fate| **fate != Fate::Polls).collect();
    let counts = !calls.is_empty();
    if counts {
        rows.push((vetoed(turn).then_some(turn.stop), calls));
    }
    counts
}

/// How long the longest end is that is a cycle of up to four, made twice at least.
fn repeating_end(rows: &[Row<'_>]) -> usize {
    let repeats = |cycle: usize, end: &[Row<'_>]| {
        end.len() >= 2 * cycle && end[cycle..] == end[..end.len() - cycle]
    };
    let ends = || (0..rows.len()).map(|from| &rows[from..]);
    let longest = (1..=4).filter_map(|cycle| Some(ends().find(|end| repeats(cycle, end))?.len()));
    longest.max().unwrap_or(1)
}

fn vetoed(turn: &Turn) -> bool {
    !turn.calls.is_empty() && !matches!(turn.stop, Ending::Stop | Ending::ToolCalls)
}

/// How a call is answered; not at all if nobody judges it.
fn result(stop: Ending, fate: Fate) -> Option<ResultKind> {
    Some(match (stop, fate) {
        (Ending::Stop | Ending::ToolCalls, Fate::Ok | Fate::Late | Fate::Polls) => ResultKind::Ok,
        (Ending::Stop | Ending::ToolCalls, Fate::Error) => ResultKind::Error,
        (Ending::Stop | Ending::ToolCalls, Fate::Timeout) => ResultKind::Timeout,
        (Ending::Stop | Ending::ToolCalls, Fate::Panic) => ResultKind::Panic,
        (Ending::Stop | Ending::ToolCalls, Fate::Denied) => ResultKind::Denied,
        (Ending::Stop | Ending::ToolCalls, Fate::Unknown) => ResultKind::UnknownTool,
        (Ending::Stop | Ending::ToolCalls, Fate::Asks) => return None,
        (Ending::MaxTokens | Ending::ContextWindow, _) => ResultKind::Truncated,
        (Ending::ContentFilter | Ending::Refusal | Ending::Pause | Ending::Other, _) => {
            ResultKind::Skipped
        }
    })
}
