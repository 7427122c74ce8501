//! The scripts: what a model may say in up to three turns, and which of it is tried.
//!
//! A script is a list of turns that a run reads to its end: where a run ends, nobody asks for a
//! turn behind it, so that a script with one more turn there is the same script. Every script of
//! the first kind below is complete; what the others leave out is named.
//!
//! - **One turn**: all of them. Words or none, × each stop reason, × no call, one call of every
//!   fate, or two calls of every ordered pair of fates.
//! - **Two turns**: a turn of [`goes_on`] or of [`vetoed`], then a turn of [`any`].
//! - **Three turns**: two turns of [`goes_on`], then a turn of [`any`].
//! - **More turns**: cycles of one to four turns, until the run ends for them, and what is nearly
//!   one, with polls in between. They are tried undisturbed.
//!
//! What is left out behind the first turn is what decides nothing there. What comes next depends on
//! the stop reason, on whether there are words or calls, and, where the calls run, on what became
//! of them. So: no call of a vetoed turn runs, and its fate is no matter; calls run under `stop` as
//! they do under `tool_calls`; words beside calls are text of the turn and nothing more. Pairs of
//! fates are told in pairs that hold each fate. Every stop reason and every fate is tried in every
//! place of a script.

use std::fmt;

use turnstream::Usage;
use turnstream::provider::Reply;
use turnstream::turn::StopReason;

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Stop,
    ToolCalls,
    MaxTokens,
    ContentFilter,
    Refusal,
    Pause,
    ContextWindow,
    Other,
}

/// What becomes of a call that may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has its result with the first poll.
    Ok,
    /// It waits once.
    Late,
    Error,
    Timeout,
    Panic,
    /// A hook denies it.
    Denied,
    /// There is no such tool.
    Unknown,
    /// It needs an approval.
    Asks,
    /// It may be called again and again.
    Polls,
}

/// One turn of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) stop: Ending,
    pub(crate) words: bool,
    pub(crate) calls: Vec<Fate>,
}

/// What the model says, turn by turn. Behind the last turn it says one word and stops.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Script(pub(crate) Vec<Turn>);

impl Ending {
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

    pub(crate) fn reason(self) -> StopReason {
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

impl Fate {
    /// All but the one that ends a run, and the one that is only told apart where calls repeat.
    pub(crate) const ALL: [Self; 7] = [
        Self::Ok,
        Self::Late,
        Self::Error,
        Self::Timeout,
        Self::Panic,
        Self::Denied,
        Self::Unknown,
    ];

    /// The name of the tool that it is the fate of.
    pub(crate) fn tool(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Late => "late",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
            Self::Asks => "asks",
            Self::Polls => "polls",
        }
    }
}

fn turn(stop: Ending, words: bool, calls: &[Fate]) -> Turn {
    Turn { stop, words, calls: calls.to_vec() }
}

/// All lists of up to two of these fates.
fn calls(fates: &[Fate]) -> Vec<Vec<Fate>> {
    let one = fates.iter().map(|fate| vec![*fate]);
    let two = fates.iter().flat_map(|a| fates.iter().map(|b| vec![*a, *b]));
    std::iter::once(Vec::new()).chain(one).chain(two).collect()
}

/// Every turn.
fn all() -> Vec<Turn> {
    let mut turns = Vec::new();
    for stop in Ending::ALL {
        for words in [false, true] {
            turns.extend(calls(&Fate::ALL).iter().map(|calls| turn(stop, words, calls)));
        }
    }
    turns
}

/// Turns behind which a run goes on: every fate, every way on.
fn goes_on() -> Vec<Turn> {
    vec![
        turn(Ending::ToolCalls, false, &[Fate::Ok, Fate::Error]),
        turn(Ending::ToolCalls, false, &[Fate::Timeout, Fate::Panic]),
        turn(Ending::ToolCalls, true, &[Fate::Denied, Fate::Late]),
        turn(Ending::Stop, true, &[Fate::Ok]),
        turn(Ending::ToolCalls, false, &[Fate::Unknown]),
        turn(Ending::Stop, false, &[]),
        turn(Ending::MaxTokens, true, &[]),
        turn(Ending::MaxTokens, false, &[Fate::Ok]),
        turn(Ending::Pause, true, &[]),
        turn(Ending::ContextWindow, true, &[]),
        turn(Ending::Other, false, &[Fate::Ok]),
    ]
}

/// More of these, and one call of each fate.
fn vetoed() -> Vec<Turn> {
    let one = Fate::ALL.iter().map(|fate| turn(Ending::ToolCalls, false, &[*fate]));
    one.chain([
        turn(Ending::MaxTokens, false, &[]),
        turn(Ending::Pause, false, &[]),
        turn(Ending::Pause, false, &[Fate::Ok]),
        turn(Ending::ContextWindow, false, &[]),
        turn(Ending::ContextWindow, false, &[Fate::Ok]),
    ])
    .collect()
}

/// Every stop reason with nothing, with words and with a call, and every fate.
fn any() -> Vec<Turn> {
    let mut turns = Vec::new();
    for stop in Ending::ALL {
        turns.extend([
            turn(stop, false, &[]),
            turn(stop, true, &[]),
            turn(stop, false, &[Fate::Ok]),
        ]);
    }
    turns.extend([
        turn(Ending::ToolCalls, false, &[Fate::Ok, Fate::Error]),
        turn(Ending::ToolCalls, false, &[Fate::Timeout, Fate::Panic]),
        turn(Ending::ToolCalls, true, &[Fate::Denied, Fate::Late]),
        turn(Ending::ToolCalls, false, &[Fate::Unknown]),
    ]);
    turns
}

/// All scripts of one turn.
pub(crate) fn of_one_turn() -> Vec<Script> {
    all().into_iter().map(|turn| Script(vec![turn])).collect()
}

/// The scripts of two turns. `wants_more` tells whether a run asks for a turn behind a script.
pub(crate) fn of_two_turns(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    let first: Vec<Turn> = goes_on().into_iter().chain(vetoed()).collect();
    grown(first.into_iter().map(|turn| Script(vec![turn])).collect(), &any(), wants_more)
}

/// The scripts of three turns.
pub(crate) fn of_three_turns(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    let one: Vec<Script> = goes_on().into_iter().map(|turn| Script(vec![turn])).collect();
    let two = grown(one, &goes_on(), &wants_more);
    grown(two, &any(), wants_more)
}

/// The smallest scripts in which something can be said at every poll.
pub(crate) fn to_talk_into(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    let one: Vec<Script> = any().into_iter().map(|turn| Script(vec![turn])).collect();
    let more = grown(one.clone(), &goes_on()[..3], wants_more);
    one.into_iter().chain(more).collect()
}

/// All turns of up to two calls of which one needs an approval.
pub(crate) fn that_ask() -> Vec<Script> {
    let fates: Vec<Fate> = Fate::ALL.into_iter().chain([Fate::Asks]).collect();
    let calls = calls(&fates).into_iter().filter(|calls| calls.contains(&Fate::Asks));
    let turns = calls.flat_map(|calls| {
        [Ending::Stop, Ending::ToolCalls]
            .into_iter()
            .flat_map(move |stop| [false, true].map(|words| turn(stop, words, &calls)))
            .collect::<Vec<_>>()
    });
    turns.map(|turn| Script(vec![turn])).collect()
}

/// The scripts that go round in a cycle of one to four turns, to their ends, and with one turn less:
/// as they are, after another turn, with another turn instead of the third or the last, with polls in
/// turns of their own and beside the other calls. The same number of turns that only poll, too.
pub(crate) fn that_repeat(wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
    const TURNS: usize = 11;
    let run = |calls: &[Fate]| turn(Ending::ToolCalls, false, calls);
    let of = |fate: Fate| run(&[fate]);
    let other = || of(Fate::Panic);
    let polls = || of(Fate::Polls);
    let mut rows = vec![vec![polls(); TURNS]];
    for cycle in 1..=4 {
        let fates = [Fate::Ok, Fate::Error, Fate::Late, Fate::Denied];
        let row: Vec<Turn> = (0..TURNS).map(|at| of(fates[at % cycle])).collect();
        let beside = row.iter().enumerate().map(|(at, turn)| match at % 3 {
            0 => run(&[turn.calls[0], Fate::Polls]),
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
        // No shorter one has the limits of these.
        let turns = (4..TURNS).take_while(goes_on).last().expect("it goes on at first");
        scripts.extend([prefix(turns), prefix(turns + 1)]);
    }
    scripts
}

fn grown(scripts: Vec<Script>, by: &[Turn], wants_more: impl Fn(&Script) -> bool) -> Vec<Script> {
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

/// What every turn costs.
const COST: Usage = Usage {
    input_tokens: 10,
    output_tokens: 3,
    cache_read_input_tokens: 2,
    cache_write_input_tokens: 1,
    reasoning_tokens: 1,
};

impl Turn {
    /// The model is silent for a moment, and then says it.
    pub(crate) fn reply(&self) -> Reply {
        let mut reply = Reply::new().delay(std::time::Duration::from_millis(1)).usage(COST);
        if self.words {
            reply = reply.say("words");
        }
        for fate in &self.calls {
            reply = reply.call(fate.tool(), serde_json::json!({}));
        }
        reply.stop(self.stop.reason())
    }
}

impl Script {
    pub(crate) fn replies(&self) -> Vec<Reply> {
        let done = turn(Ending::Stop, true, &[]);
        self.0.iter().chain([&done]).map(Turn::reply).collect()
    }
}

/// As it can be found again: `tool_calls[ok,panic] + words, then stop[]`.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, turn) in self.0.iter().enumerate() {
            let then = if at == 0 { "" } else { ", then " };
            let calls: Vec<_> = turn.calls.iter().map(|fate| fate.tool()).collect();
            let words = if turn.words { " + words" } else { "" };
            write!(f, "{then}{}[{}]{words}", turn.stop.reason().as_str(), calls.join(","))?;
        }
        Ok(())
    }
}
