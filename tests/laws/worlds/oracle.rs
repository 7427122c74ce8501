//! What a run that nobody disturbs must come to, told a second time: from what is asked of an
//! agent, without a look at how it decides.

use turnstream::agent::Limits;
use turnstream::event::Reason;
use turnstream::item::ResultKind;

use super::script::{Ending, Fate, Script, Turn};

/// Numbers so small that every counter is full within three turns.
pub(crate) const LIMITS: Limits = Limits {
    max_turns: 3,
    corrections: 2,
    continuations: 1,
    cut_calls: 1,
    retries: 0,
    repeats_nudge: 2,
    repeats_end: 3,
    max_depth: 8,
    max_turn_bytes: turnstream::turn::TurnBuilder::DEFAULT_MAX_BYTES,
};

/// What must come of a script.
#[derive(Debug, PartialEq)]
pub(crate) struct Fortune {
    /// `None` if the model is asked for a turn behind the script.
    pub(crate) reason: Option<Reason>,
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
    let mut repeated: (u32, Option<&[Fate]>) = (0, None);
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
                let same = repeated.1 == Some(&turn.calls[..]);
                repeated = (if same { repeated.0 + 1 } else { 1 }, Some(&turn.calls));
                let nudged = repeated.0.is_multiple_of(LIMITS.repeats_nudge);
                behind_results = !nudged;
                if turn.calls.contains(&Fate::Asks) {
                    Some(Reason::Pending)
                } else {
                    (bad == 3 || repeated.0 == LIMITS.repeats_end).then_some(Reason::Malformed)
                }
            }
            (Ending::Stop | Ending::ToolCalls, false) if turn.words => Some(Reason::Completed),
            (Ending::Stop, false) if was_behind_results => Some(Reason::Completed),
            (Ending::Stop, false) => {
                bad += 1;
                behind_results = false;
                (bad == 3).then_some(Reason::Malformed)
            }
            (Ending::ToolCalls, false) => Some(Reason::Malformed),
            (Ending::MaxTokens, false) => {
                (bad, texts, behind_results) = (0, texts + 1, false);
                (texts > LIMITS.continuations).then_some(Reason::Truncated)
            }
            (Ending::MaxTokens, true) => {
                (bad, cuts) = (0, cuts + 1);
                (cuts > LIMITS.cut_calls).then_some(Reason::Truncated)
            }
            (Ending::ContentFilter, _) => Some(Reason::Filtered),
            (Ending::Refusal, _) => Some(Reason::Refused),
            (Ending::Pause, _) => {
                bad = 0;
                None
            }
            (Ending::ContextWindow, _) => {
                std::mem::replace(&mut compacted, true).then_some(Reason::ContextWindow)
            }
            (Ending::Other, false) => Some(Reason::Completed),
            (Ending::Other, true) => {
                bad = 0;
                std::mem::replace(&mut odd, true).then_some(Reason::Malformed)
            }
        };
        if vetoed(turn) {
            // Its calls are always answered, and in another way than those that run.
            repeated = (0, None);
        }
        if reason.is_none() && at + 1 == LIMITS.max_turns as usize {
            reason = Some(Reason::MaxTurns);
        }
    }
    Fortune { reason, results }
}

fn vetoed(turn: &Turn) -> bool {
    !turn.calls.is_empty() && !matches!(turn.stop, Ending::Stop | Ending::ToolCalls)
}

/// How a call is answered; not at all if nobody judges it.
fn result(stop: Ending, fate: Fate) -> Option<ResultKind> {
    Some(match (stop, fate) {
        (Ending::Stop | Ending::ToolCalls, Fate::Ok | Fate::Late) => ResultKind::Ok,
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
