//! The turns whose calls are interrupted, and the agents that make them.

use std::num::NonZeroUsize;
use std::time::Duration;

use async_stream::stream;
use serde_json::{Value, json};
use turnstream::agent::{Budget, hook};
use turnstream::event::EndReason;
use turnstream::provider::{Piece, from_stream};
use turnstream::tool::{Tool, ToolContext, ToolOutput, Toolkit, Verdict};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, History, Item};

use turnstream_test_support::tools::spec;

use crate::axes::{Cause, Machine, Who};
use crate::probe::{Probe, pause};

/// The id of the history and of the session.
pub(crate) const SESSION: &str = "s";

pub(crate) const TIME_LIMIT: Duration = Duration::from_hours(1);
pub(crate) const WRAP_UP_TIME: Duration = Duration::from_mins(10);
/// A time at which a last turn can follow.
pub(crate) const TIME_FOR_WRAP_UP: Duration = Duration::from_mins(55);

/// The calls in a turn.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) calls: Vec<CallSpec>,
    /// A call in a second turn, after the results of the first.
    second_turn: Option<CallSpec>,
    max_concurrency: Option<NonZeroUsize>,
    max_calls: Option<u32>,
    is_searched: bool,
}

/// A call, and the tool that it calls.
#[derive(Clone)]
pub(crate) struct CallSpec {
    pub(crate) kind: Kind,
    /// The number of polls, beside the last one, that the tool takes.
    pauses: u32,
    /// The program's answer if the call needs a verdict.
    pub(crate) answer: Option<Answer>,
    /// The calls of a sub-agent.
    inner: Vec<CallSpec>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Plain,
    Idempotent,
    Exclusive,
    External,
    SubAgent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Approve,
    Deny,
    /// The program has the result.
    Output,
}

use Answer::{Approve, Deny, Output};
use Kind::{Exclusive, External, Idempotent, Plain};

const ANSWERS: [Option<Answer>; 4] = [None, Some(Approve), Some(Deny), Some(Output)];

fn call(kind: Kind, pauses: u32) -> CallSpec {
    CallSpec { kind, pauses, answer: None, inner: Vec::new() }
}

impl CallSpec {
    fn answered(self, answer: impl Into<Option<Answer>>) -> Self {
        Self { answer: answer.into(), ..self }
    }
}

fn sub_agent(inner: impl IntoIterator<Item = CallSpec>) -> CallSpec {
    CallSpec { inner: inner.into_iter().collect(), ..call(Kind::SubAgent, 0) }
}

fn scenario(name: &str, calls: impl IntoIterator<Item = CallSpec>) -> Scenario {
    Scenario {
        name: name.to_owned(),
        calls: calls.into_iter().collect(),
        second_turn: None,
        max_concurrency: None,
        max_calls: None,
        is_searched: false,
    }
}

/// Casts in which the calls differ in the order in which they start and end.
fn orders() -> Vec<Scenario> {
    let one_at_a_time =
        |scenario: Scenario| Scenario { max_concurrency: NonZeroUsize::new(1), ..scenario };
    vec![
        scenario("end in order", [call(Plain, 1), call(Idempotent, 3), call(Plain, 5)]),
        scenario("end in reverse", [call(Plain, 5), call(Plain, 3), call(Idempotent, 1)]),
        one_at_a_time(scenario("in turn", [call(Plain, 1), call(Idempotent, 2), call(Plain, 1)])),
        one_at_a_time(scenario(
            "in turn, with a sub-agent",
            [
                call(Plain, 1).answered(Approve),
                call(Exclusive, 1),
                sub_agent([call(Plain, 1), call(Idempotent, 2)]),
                call(Idempotent, 1),
            ],
        )),
        scenario("an exclusive call", [call(Plain, 2), call(Exclusive, 2), call(Plain, 1)]),
        Scenario {
            max_calls: Some(2),
            ..scenario("over the budget", [call(Plain, 1), call(Plain, 2), call(Plain, 1)])
        },
        Scenario {
            second_turn: Some(call(Idempotent, 2)),
            ..scenario("two turns", [call(Plain, 2), call(Idempotent, 1)])
        },
        scenario(
            "a sub-agent beside other calls",
            [
                sub_agent([call(Plain, 9), call(Idempotent, 9)]),
                call(Plain, 12),
                call(Plain, 16),
                call(Plain, 20),
            ],
        ),
        scenario("one call", [call(Plain, 2)]),
        scenario("an idempotent call", [call(Idempotent, 2)]),
    ]
}

/// All scenarios. The first call is of each kind and has each answer; beside it, one call runs, and one
/// waits for a verdict.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let beside = || [call(Plain, 2), call(Plain, 1).answered(Approve)];
    let with_beside = |first: CallSpec| std::iter::once(first).chain(beside());
    let answers = |kind: Kind| {
        let is_possible = move |answer: &Option<Answer>| {
            kind != External || matches!(answer, Some(Deny | Output))
        };
        ANSWERS.into_iter().filter(is_possible)
    };
    let mut scenarios = orders();
    for kind in [Plain, Idempotent, Exclusive, External] {
        for answer in answers(kind) {
            let first = call(kind, 2).answered(answer);
            scenarios.push(scenario(&format!("{kind:?}, {answer:?}"), with_beside(first.clone())));
            if kind != External {
                let name = format!("{kind:?}, {answer:?}, searched");
                scenarios.push(Scenario {
                    is_searched: true,
                    ..scenario(&name, with_beside(first.clone()))
                });
            }
            if kind != Exclusive {
                let name = format!("sub-agent with {kind:?}, {answer:?}");
                let calls = [sub_agent(with_beside(first)), call(Plain, 3)];
                scenarios.push(scenario(&name, calls));
            }
        }
    }
    for answer in ANSWERS {
        let first = sub_agent([call(Plain, 1), call(Idempotent, 1)]).answered(answer);
        scenarios.push(scenario(&format!("sub-agent, {answer:?}"), with_beside(first)));
    }
    scenarios
}

/// The settings of an agent, beside its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settings {
    /// Whether a run waits for verdicts, instead of ending.
    pub(crate) is_interactive: bool,
    /// The cause for which the agent is prepared.
    pub(crate) cause: Option<Cause>,
}

impl Scenario {
    pub(crate) fn needs_verdicts(&self) -> bool {
        let asks = |call: &CallSpec| call.answer.is_some() && call.kind != External;
        self.calls.iter().any(|call| asks(call) || call.inner.iter().any(asks))
    }

    /// Whether the program answers calls.
    pub(crate) fn has_answers(&self) -> bool {
        let inner = self.calls.iter().flat_map(|call| &call.inner);
        self.calls.iter().chain(inner).any(|call| call.answer.is_some())
    }

    pub(crate) fn agent(&self, probe: &Probe, settings: Settings) -> Agent {
        let calls = self.calls.iter().chain(&self.second_turn).enumerate();
        let tools = calls.map(|(at, call)| self.tool(at, call, probe, settings));
        let mut toolkit = Toolkit::new(tools);
        if let Some(max) = self.max_concurrency {
            toolkit = toolkit.with_max_concurrency(max);
        }
        if self.is_searched {
            toolkit = toolkit.searchable();
        }
        let (second, is_searched, calls) =
            (self.second_turn.clone(), self.is_searched, self.calls.clone());
        let script = move |history: &History, request: usize| {
            let count = history.iter().filter(|item| item.as_tool_result().is_some()).count();
            let turn = |first: usize, calls: &[CallSpec]| -> Vec<Piece> {
                let calls = calls.iter().enumerate();
                calls.map(|(at, it)| piece(request, first + at, it.kind, is_searched)).collect()
            };
            match (count, &second) {
                (0, _) => turn(0, &calls),
                (n, Some(second)) if n <= calls.len() => {
                    turn(calls.len(), std::slice::from_ref(second))
                }
                _ => vec![Piece::Text("Done.".to_owned())],
            }
        };
        let mut agent = new_agent(probe, settings, true, script).with_toolkit(toolkit);
        let mut budget = Budget::new();
        if let Some(max) = self.max_calls {
            budget = budget.with_tool_calls(max);
        }
        match settings.cause {
            Some(Cause::TimeLimit) => budget = budget.with_time_limit(TIME_LIMIT),
            Some(Cause::WrapUp) => {
                budget = budget.with_time_limit(TIME_LIMIT).with_wrap_up_time(WRAP_UP_TIME);
            }
            _ => {}
        }
        agent = agent.with_budget(budget);
        if settings.cause == Some(Cause::HookFails) {
            let (before, after) = (probe.clone(), probe.clone());
            agent = agent
                .with_hook(hook::before_tool(move |_, _| {
                    let probe = before.clone();
                    async move {
                        pause().await;
                        assert!(!probe.take_fault(Cause::HookFails), "the hook before a call");
                        hook::CallDecision::Allow
                    }
                }))
                .with_hook(hook::after_tool(move |_, _, _| {
                    assert!(!after.take_fault(Cause::HookFails), "the hook after a call");
                }));
        }
        agent
    }

    fn tool(&self, at: usize, call: &CallSpec, probe: &Probe, settings: Settings) -> Tool {
        let name = format!("t{at}");
        match call.kind {
            Kind::SubAgent => {
                let inner = call.inner.clone();
                let script = move |history: &History, request: usize| {
                    let results = history.iter().filter_map(Item::as_tool_result);
                    let all: Vec<String> =
                        results.map(|it| format!("{}={}", it.call_id, it.content.text())).collect();
                    let calls = inner.iter().enumerate();
                    match all.is_empty() {
                        true => calls.map(|(at, it)| piece(request, at, it.kind, false)).collect(),
                        false => vec![Piece::Text(all.join("; "))],
                    }
                };
                let tools = call.inner.iter().enumerate();
                let tools = tools.map(|(at, call)| self.tool(at, call, probe, settings));
                let ended = probe.clone();
                let agent = new_agent(probe, settings, false, script).with_tools(tools);
                let agent = agent.with_hook(hook::on_finished(move |_, outcome| {
                    if outcome.reason == EndReason::Completed {
                        ended.end(path_of(outcome.history.id()));
                    }
                }));
                let tool = agent.as_tool(&name, "Looks").unwrap();
                if call.answer.is_some() { tool.requires_approval() } else { tool }
            }
            Kind::External => Tool::external(spec(&name)).unwrap(),
            kind => {
                let is_alone = self.calls.len() == 1 || self.second_turn.is_some();
                let tool = own_tool(&name, call.pauses, is_alone, probe);
                let tool = if call.answer.is_some() { tool.requires_approval() } else { tool };
                match kind {
                    Kind::Idempotent => tool.idempotent(),
                    Kind::Exclusive => tool.exclusive(),
                    _ => tool,
                }
            }
        }
    }

    /// The call with this path and tool.
    pub(crate) fn call_spec(&self, path: &str, tool: &str) -> &CallSpec {
        let at = |tool: &str| tool[1..].parse::<usize>().unwrap();
        let outermost = || self.calls.iter().chain(&self.second_turn);
        match path.contains('/') {
            false => outermost().nth(at(tool)).unwrap(),
            true => {
                // A scenario has at most one sub-agent.
                let parent = self.calls.iter().find(|call| call.kind == Kind::SubAgent).unwrap();
                &parent.inner[at(tool)]
            }
        }
    }

    /// Who runs the call with this path and tool.
    pub(crate) fn who(&self, machine: Machine, path: &str, tool: &str) -> Who {
        let call = self.call_spec(path, tool);
        match (call.kind, path.contains('/')) {
            (Kind::SubAgent, _) => Who::SubAgent,
            (Kind::External, false) => Who::ExternalTool,
            (Kind::External, true) => Who::ExternalToolOfSubAgent,
            (Kind::Idempotent, true) => Who::IdempotentToolOfSubAgent,
            (_, true) => Who::ToolOfSubAgent,
            (Kind::Exclusive, false) => Who::ExclusiveTool,
            (kind, false) => {
                let is_elsewhere =
                    machine == Machine::DurableWithWorker && self.runs_elsewhere(tool);
                match (kind, is_elsewhere) {
                    (Kind::Idempotent, true) => Who::IdempotentToolElsewhere,
                    (_, true) => Who::ToolElsewhere,
                    (Kind::Idempotent, false) => Who::IdempotentTool,
                    _ if self.is_searched => Who::SearchedTool,
                    _ => Who::Tool,
                }
            }
        }
    }

    /// Whether an engine that executes calls separately executes the calls of this tool: at least
    /// two calls start together.
    fn runs_elsewhere(&self, tool: &str) -> bool {
        let can_run = |call: &CallSpec| matches!(call.kind, Kind::Plain | Kind::Idempotent);
        let at: usize = tool[1..].parse().unwrap();
        let Some(own) = self.calls.get(at) else { return false };
        let runs = matches!(own.answer, None | Some(Approve));
        let together = self.calls.iter().filter(|it| it.answer == own.answer && can_run(it));
        runs && together.count() >= 2
    }

    /// The verdict with which the program answers a call of this tool.
    pub(crate) fn verdict(&self, path: &str, tool: &str) -> Verdict {
        match self.call_spec(path, tool).answer {
            None | Some(Answer::Approve) => Verdict::Approve,
            Some(Answer::Deny) => Verdict::deny("no"),
            Some(Answer::Output) => Verdict::Output(ToolOutput::ok("from the program")),
        }
    }
}

/// A call of the request with this number.
fn piece(request: usize, at: usize, kind: Kind, is_searched: bool) -> Piece {
    let arguments = match kind {
        Kind::SubAgent => json!({ "prompt": "Look." }),
        _ => json!({}),
    };
    let (name, arguments) = match is_searched {
        true => {
            let arguments = json!({ "name": format!("t{at}"), "arguments": arguments });
            ("call_tool".to_owned(), arguments)
        }
        false => (format!("t{at}"), arguments),
    };
    Piece::ToolCall { id: format!("c{request}_{at}"), name, arguments: arguments.to_string() }
}

/// The path of a call, or of the call that runs a sub-agent, without the session.
pub(crate) fn path_of(key: &str) -> &str {
    key.strip_prefix(SESSION).unwrap().trim_start_matches('/')
}

/// An agent whose model answers what `script` returns for the history and the request's number.
fn new_agent(
    probe: &Probe,
    settings: Settings,
    is_outermost: bool,
    script: impl Fn(&History, usize) -> Vec<Piece> + Send + Sync + 'static,
) -> Agent {
    let probe = probe.clone();
    let model = from_stream("model", move |request| {
        let probe = probe.clone();
        let history = &request.history;
        // The encoder settles the calls of an incomplete turn.
        if !history.unanswered_calls().is_empty() {
            let violation = "a request without the result of a call".to_owned();
            probe.log().violations.push(violation);
        }
        let parent = path_of(history.id()).to_owned();
        let pieces = script(history, probe.next_request());
        let has_calls = pieces.iter().any(|it| matches!(it, Piece::ToolCall { .. }));
        if has_calls && !is_outermost {
            probe.log().calls.entry(parent.clone()).or_default().begun += 1;
        }
        stream! {
            let open = probe.open_turn(is_outermost);
            let fails = || probe.take_fault(Cause::ProviderFails);
            let failed = || Error::new(ErrorKind::Auth, "the provider failed");
            let first = [Piece::Text("So: ".to_owned())];
            for piece in first.into_iter().chain(pieces.iter().cloned()) {
                pause().await;
                if fails() {
                    yield Err(failed());
                    return;
                }
                yield Ok(piece);
            }
            pause().await;
            drop(open);
            let made = pieces.iter().filter_map(made_call);
            let prefix = if parent.is_empty() { String::new() } else { format!("{parent}/") };
            let made = made.map(|(id, name)| (format!("{prefix}{id}"), name));
            probe.log().made.extend(made);
            let reason = if has_calls { StopReason::ToolCalls } else { StopReason::Stop };
            yield Ok(Piece::Stop(reason));
        }
    });
    let agent = Agent::new(model);
    if settings.is_interactive { agent.interactive() } else { agent }
}

/// The id and the tool of a call.
fn made_call(piece: &Piece) -> Option<(String, String)> {
    let Piece::ToolCall { id, name, arguments } = piece else { return None };
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let name = arguments["name"].as_str().unwrap_or(name);
    Some((id.clone(), name.to_owned()))
}

/// A tool that pauses, and returns its path.
fn own_tool(name: &str, pauses: u32, is_alone: bool, probe: &Probe) -> Tool {
    let probe = probe.clone();
    let run = move |_: Value, cx: ToolContext| {
        let path = path_of(cx.idempotency_key()).to_owned();
        let is_elsewhere = !is_alone && cx.turn().tool_calls().count() == 1;
        let running = probe.begin(&path, is_elsewhere);
        let probe = probe.clone();
        async move {
            for _ in 0..pauses {
                pause().await;
                assert!(!probe.take_fault(Cause::ToolPanics), "the tool");
            }
            probe.end(&path);
            drop(running);
            format!("done {path}")
        }
    };
    Tool::raw(spec(name), run).unwrap()
}
