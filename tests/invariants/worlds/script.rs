//! The scripts: the replies of a model in up to three turns, and the selection that is tested.
//!
//! A script is a list of turns that a run reads to its end: if a run ends earlier, no further turn
//! is requested, so a script with one more turn there is the same script. The one-turn scripts
//! below are complete; for the others, the omissions are listed.
//!
//! - **One turn**: all of them. Text or none, × each stop reason, × no call, one call of every
//!   fate, or two calls of every ordered pair of fates.
//! - **Two turns**: a turn of [`continuing_turns`] or of [`more_continuing_turns`], then a turn of
//!   [`last_turns`].
//! - **Three turns**: two turns of [`continuing_turns`], then a turn of [`last_turns`].
//! - **More turns**: cycles of one to four turns, until the run ends because of them, and
//!   near-cycles with polls in between. They are run undisturbed.
//!
//! After the first turn, the properties that have no influence are left out. The continuation
//! depends on the stop reason, on whether there are text or calls, and, if the calls run, on their
//! results. So: no call of a vetoed turn runs, and its fate is irrelevant; calls run under `stop`
//! as they do under `tool_calls`; text besides calls is the turn's text and nothing more. Pairs of
//! fates are covered by pairs that contain each fate. Every stop reason and every fate is tested at
//! every position of a script.

use std::fmt;

use turnstream::Usage;
use turnstream::provider::Reply;
use turnstream::turn::StopReason;

use turnstream_test_support::items::token_usage;

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnEnding {
    Stop,
    ToolCalls,
    MaxTokens,
    ContentFilter,
    Refusal,
    Pause,
    ContextWindow,
    Other,
}

/// The fate of a call that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFate {
    /// It returns its result on the first poll.
    Ok,
    /// It waits once.
    PendingOnce,
    Error,
    Timeout,
    Panic,
    /// A hook denies it.
    Denied,
    /// The tool does not exist.
    Unknown,
    /// It needs an approval.
    NeedsApproval,
    /// It may be called repeatedly.
    Pollable,
}

/// One turn of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScriptTurn {
    pub(crate) ending: TurnEnding,
    pub(crate) has_text: bool,
    pub(crate) calls: Vec<CallFate>,
}

/// The model's replies, turn by turn. After the last turn it says one word and stops.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Script(pub(crate) Vec<ScriptTurn>);

impl TurnEnding {
    pub(crate) const ALL: [Self; 8] = [
        Self::Stop,
        Self::ToolCalls,
        Self::MaxTokens,
        Self::ContentFilter,
        Self::Refusal,
        Self::Pause,
        Self::ContextWindow,
        Self::Other,
    ];

    pub(crate) fn stop_reason(self) -> StopReason {
        match self {
            Self::Stop => StopReason::Stop,
            Self::ToolCalls => StopReason::ToolCalls,
            Self::MaxTokens => StopReason::MaxTokens,
            Self::ContentFilter => StopReason::ContentFilter,
            Self::Refusal => StopReason::Refusal,
            Self::Pause => StopReason::Pause,
            Self::ContextWindow => StopReason::ContextWindow,
            Self::Other => StopReason::Other("odd".into()),
        }
    }
}

impl CallFate {
    /// All fates except the one that ends a run, and the one that differs only if calls repeat.
    pub(crate) const ALL: [Self; 7] = [
        Self::Ok,
        Self::PendingOnce,
        Self::Error,
        Self::Timeout,
        Self::Panic,
        Self::Denied,
        Self::Unknown,
    ];

    /// The name of the tool with this fate.
    pub(crate) fn tool_name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::PendingOnce => "late",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
            Self::NeedsApproval => "asks",
            Self::Pollable => "polls",
        }
    }
}

fn script_turn(stop: TurnEnding, words: bool, calls: &[CallFate]) -> ScriptTurn {
    ScriptTurn { ending: stop, has_text: words, calls: calls.to_vec() }
}

/// All lists of up to two of these fates.
fn call_lists(fates: &[CallFate]) -> Vec<Vec<CallFate>> {
    let one = fates.iter().map(|fate| vec![*fate]);
    let two = fates.iter().flat_map(|a| fates.iter().map(|b| vec![*a, *b]));
    std::iter::once(Vec::new()).chain(one).chain(two).collect()
}

/// Every turn.
fn all_turns() -> Vec<ScriptTurn> {
    let mut turns = Vec::new();
    for stop in TurnEnding::ALL {
        for words in [false, true] {
            turns.extend(
                call_lists(&CallFate::ALL).iter().map(|calls| script_turn(stop, words, calls)),
            );
        }
    }
    turns
}

/// Turns after which a run continues: every fate, every kind of continuation.
fn continuing_turns() -> Vec<ScriptTurn> {
    vec![
        script_turn(TurnEnding::ToolCalls, false, &[CallFate::Ok, CallFate::Error]),
        script_turn(TurnEnding::ToolCalls, false, &[CallFate::Timeout, CallFate::Panic]),
        script_turn(TurnEnding::ToolCalls, true, &[CallFate::Denied, CallFate::PendingOnce]),
        script_turn(TurnEnding::Stop, true, &[CallFate::Ok]),
        script_turn(TurnEnding::ToolCalls, false, &[CallFate::Unknown]),
        script_turn(TurnEnding::Stop, false, &[]),
        script_turn(TurnEnding::MaxTokens, true, &[]),
        script_turn(TurnEnding::MaxTokens, false, &[CallFate::Ok]),
        script_turn(TurnEnding::Pause, true, &[]),
        script_turn(TurnEnding::ContextWindow, true, &[]),
        script_turn(TurnEnding::Other, false, &[CallFate::Ok]),
    ]
}

/// More of these, and one call of each fate.
fn more_continuing_turns() -> Vec<ScriptTurn> {
    let one = CallFate::ALL.iter().map(|fate| script_turn(TurnEnding::ToolCalls, false, &[*fate]));
    one.chain([
        script_turn(TurnEnding::MaxTokens, false, &[]),
        script_turn(TurnEnding::Pause, false, &[]),
        script_turn(TurnEnding::Pause, false, &[CallFate::Ok]),
        script_turn(TurnEnding::ContextWindow, false, &[]),
        script_turn(TurnEnding::ContextWindow, false, &[CallFate::Ok]),
    ])
    .collect()
}

/// Every stop reason with nothing, with text and with a call, and every fate.
fn last_turns() -> Vec<ScriptTurn> {
    let mut turns = Vec::new();
    for stop in TurnEnding::ALL {
        turns.extend([
            script_turn(stop, false, &[]),
            script_turn(stop, true, &[]),
            script_turn(stop, false, &[CallFate::Ok]),
        ]);
    }
    turns.extend([
        script_turn(TurnEnding::ToolCalls, false, &[CallFate::Ok, CallFate::Error]),
        script_turn(TurnEnding::ToolCalls, false, &[CallFate::Timeout, CallFate::Panic]),
        script_turn(TurnEnding::ToolCalls, true, &[CallFate::Denied, CallFate::PendingOnce]),
        script_turn(TurnEnding::ToolCalls, false, &[CallFate::Unknown]),
    ]);
    turns
}

/// All scripts of one turn.
pub(crate) fn one_turn_scripts() -> Vec<Script> {
    all_turns().into_iter().map(|turn| Script(vec![turn])).collect()
}

/// The scripts of two turns. `wants_more` returns whether a run requests a turn after a script.
pub(crate) fn two_turn_scripts(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    let first: Vec<ScriptTurn> =
        continuing_turns().into_iter().chain(more_continuing_turns()).collect();
    extend_scripts(
        first.into_iter().map(|turn| Script(vec![turn])).collect(),
        &last_turns(),
        wants_more,
    )
}

/// The scripts of three turns.
pub(crate) fn three_turn_scripts(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    let one: Vec<Script> = continuing_turns().into_iter().map(|turn| Script(vec![turn])).collect();
    let two = extend_scripts(one, &continuing_turns(), &wants_more);
    extend_scripts(two, &last_turns(), wants_more)
}

/// The smallest scripts in which input can be sent at every poll.
pub(crate) fn user_input_scripts(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    let one: Vec<Script> = last_turns().into_iter().map(|turn| Script(vec![turn])).collect();
    let more = extend_scripts(one.clone(), &continuing_turns()[..3], wants_more);
    one.into_iter().chain(more).collect()
}

/// All turns of up to two calls of which one needs approval.
pub(crate) fn approval_scripts() -> Vec<Script> {
    let fates: Vec<CallFate> = CallFate::ALL.into_iter().chain([CallFate::NeedsApproval]).collect();
    let calls =
        call_lists(&fates).into_iter().filter(|calls| calls.contains(&CallFate::NeedsApproval));
    let turns = calls.flat_map(|calls| {
        [TurnEnding::Stop, TurnEnding::ToolCalls]
            .into_iter()
            .flat_map(move |stop| [false, true].map(|words| script_turn(stop, words, &calls)))
            .collect::<Vec<_>>()
    });
    turns.map(|turn| Script(vec![turn])).collect()
}

/// The scripts that repeat a cycle of one to four turns, up to their ends, and with one turn less:
/// as they are, after another turn, with another turn instead of the third or the last, with polls
/// in turns of their own and besides the other calls. Also the same number of turns that only poll.
pub(crate) fn repeating_scripts(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    const TURN_COUNT: usize = 11;
    let run = |calls: &[CallFate]| script_turn(TurnEnding::ToolCalls, false, calls);
    let of = |fate: CallFate| run(&[fate]);
    let other = || of(CallFate::Panic);
    let polls = || of(CallFate::Pollable);
    let mut rows = vec![vec![polls(); TURN_COUNT]];
    for cycle in 1..=4 {
        let fates = [CallFate::Ok, CallFate::Error, CallFate::PendingOnce, CallFate::Denied];
        let row: Vec<ScriptTurn> = (0..TURN_COUNT).map(|at| of(fates[at % cycle])).collect();
        let beside = row.iter().enumerate().map(|(at, turn)| match at % 3 {
            0 => run(&[turn.calls[0], CallFate::Pollable]),
            _ => turn.clone(),
        });
        rows.push(beside.collect());
        rows.push(row.iter().flat_map(|turn| [turn.clone(), polls()]).collect());
        rows.push([&[other()], &row[..]].concat());
        for at in [2, 3, 5] {
            let mut broken = row.clone();
            broken[at] = other();
            rows.push(broken);
        }
        rows.push(row);
    }
    let mut scripts = Vec::new();
    for row in rows {
        let prefix = |turns: usize| Script(row[..turns].to_vec());
        let goes_on = |turns: &usize| wants_more(&prefix(*turns));
        // The limits require at least this number of turns.
        let turns = (4..TURN_COUNT).take_while(goes_on).last().expect("it continues at first");
        scripts.extend([prefix(turns), prefix(turns + 1)]);
    }
    scripts
}

fn extend_scripts(
    scripts: Vec<Script>,
    by: &[ScriptTurn],
    wants_more: impl Fn(&Script) -> bool,
) -> Vec<Script> {
    let scripts = scripts.into_iter().filter(|script| wants_more(script));
    let longer = |script: Script| {
        by.iter().map(move |turn| {
            let mut turns = script.0.clone();
            turns.push(turn.clone());
            Script(turns)
        })
    };
    scripts.flat_map(longer).collect()
}

/// The usage of every turn.
const TURN_USAGE: Usage = Usage {
    cache_read_input_tokens: 2,
    cache_write_input_tokens: 1,
    reasoning_tokens: 1,
    ..token_usage(10, 3)
};

impl ScriptTurn {
    /// The reply, after a short delay.
    pub(crate) fn reply(&self) -> Reply {
        let mut reply = Reply::new().delay(std::time::Duration::from_millis(1)).usage(TURN_USAGE);
        if self.has_text {
            reply = reply.say("words");
        }
        for fate in &self.calls {
            reply = reply.call(fate.tool_name(), serde_json::json!({}));
        }
        reply.stop(self.ending.stop_reason())
    }
}

impl Script {
    pub(crate) fn replies(&self) -> Vec<Reply> {
        let done = script_turn(TurnEnding::Stop, true, &[]);
        self.0.iter().chain([&done]).map(ScriptTurn::reply).collect()
    }
}

/// A readable form: `tool_calls[ok,panic] + words, then stop[]`.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, turn) in self.0.iter().enumerate() {
            let then = if at == 0 { "" } else { ", then " };
            let calls: Vec<_> = turn.calls.iter().map(|fate| fate.tool_name()).collect();
            let words = if turn.has_text { " + words" } else { "" };
            write!(f, "{then}{}[{}]{words}", turn.ending.stop_reason().as_str(), calls.join(","))?;
        }
        Ok(())
    }
}
