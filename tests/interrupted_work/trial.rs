//! Plays a scenario until its work is done: a run is interrupted, and the program continues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use turnstream::event::{EndReason, ToolEvent};
use turnstream::item::{PendingCall, ResultKind, ToolResult};
use turnstream::session::SessionState;
use turnstream::tool::Verdict;
use turnstream::{Agent, Event, History, Outcome};

use crate::account::Claim;
use crate::axes::{CallState, Cause, Machine, Position, Stage, Then};
use crate::machine::{Polled, Runs, Start};
use crate::probe::{CallLog, Probe};
use crate::scenario::{Kind, Scenario, Settings, TIME_FOR_WRAP_UP, TIME_LIMIT};

/// More runs and attempts than a trial needs.
const MAX_RUNS: usize = 14;

/// More polls than a run or an attempt needs.
const MAX_POLLS: usize = 2_000;

/// The tool whose calls the program may approve at once.
const ANSWERED_AT_ONCE: &str = "t2";

/// The plan of a trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) machine: Machine,
    pub(crate) answers: Answers,
    /// The moment at which the time for the last turn begins.
    pub(crate) wrap_up: Option<usize>,
    /// The moment at which the run is interrupted.
    pub(crate) cut: Option<(usize, Cause, Then)>,
    /// The number of moments after which the run that continues is interrupted.
    pub(crate) second: Option<(usize, Cause)>,
}

/// When the program answers the calls that need a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answers {
    /// The run ends, and the program resumes it.
    AfterRun,
    /// The run waits, and nothing else happens.
    WhenStalled,
    /// The run waits, and the program approves the calls of one tool as soon as it reads the
    /// request.
    AtOnce,
}

impl Plan {
    /// A trial in which no run is interrupted.
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, answers: Answers::AfterRun, wrap_up: None, cut: None, second: None }
    }

    /// The settings of an agent in such a trial.
    pub(crate) fn settings(&self) -> Settings {
        let causes = [
            self.wrap_up.map(|_| Cause::WrapUp),
            self.second.map(|(_, cause)| cause),
            self.cut.map(|(_, cause, _)| cause),
        ];
        let cause = causes.into_iter().flatten().find(|cause| cause.prepares_agent());
        Settings { is_interactive: self.answers != Answers::AfterRun, cause }
    }
}

/// A trial, and a record of it.
pub(crate) struct Trial<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) plan: Plan,
    pub(crate) probe: Probe,
    runs: Runs,
    /// The calls that need a verdict in the active run, by path.
    requests: BTreeMap<String, PendingCall>,
    /// The verdicts that the active run has received, by path.
    verdicts: BTreeMap<String, Verdict>,
    /// The calls whose sub-agents have started in the active run.
    started: BTreeSet<String>,
    suspended: BTreeSet<String>,
    /// The results that were reported, by path, each with the number of times that the call had
    /// begun.
    pub(crate) reported: BTreeMap<String, Vec<(ToolResult, usize)>>,
    /// The calls that a run left pending.
    pub(crate) left_to_program: BTreeSet<String>,
    /// All verdicts, in the order in which they were submitted.
    submitted: Vec<(PendingCall, Verdict)>,
    last_outcome: Option<Outcome>,
    /// The number of moments so far. A moment is before a poll, or between two runs.
    moment: usize,
    is_wrapping_up: bool,
    /// The positions at each moment up to the interruption.
    pub(crate) moments: Vec<Vec<(String, Position)>>,
    /// The positions when the run was interrupted, by path.
    pub(crate) cut_positions: Option<Vec<(String, Position)>>,
    /// Why the run that was interrupted ended, if it had an outcome.
    pub(crate) cut_reason: Option<EndReason>,
    pub(crate) violations: Vec<String>,
}

impl<'a> Trial<'a> {
    /// A trial with an agent of the scenario, whose probe has recorded nothing yet.
    pub(crate) fn new(scenario: &'a Scenario, plan: Plan, agent: &Agent, probe: Probe) -> Self {
        let runs = Runs::new(plan.machine, agent, &probe);
        Self {
            scenario,
            plan,
            probe,
            runs,
            requests: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            started: BTreeSet::new(),
            suspended: BTreeSet::new(),
            reported: BTreeMap::new(),
            left_to_program: BTreeSet::new(),
            submitted: Vec::new(),
            last_outcome: None,
            moment: 0,
            is_wrapping_up: false,
            moments: Vec::new(),
            cut_positions: None,
            cut_reason: None,
            violations: Vec::new(),
        }
    }

    /// The history at the end.
    pub(crate) fn history(&self) -> History {
        self.runs.history()
    }

    /// Whether the program has submitted a verdict on this call.
    pub(crate) fn has_answered(&self, of: &str) -> bool {
        self.submitted.iter().any(|(call, _)| path(call) == of)
    }

    pub(crate) async fn trial(&mut self) {
        self.start(Start::Input("Do it."));
        let mut then = Then::Resume;
        let mut second = self.plan.second;
        let (mut runs, mut polls_of_run) = (1, 0);
        let (mut cut_at, mut has_ended_since) = (None, false);
        loop {
            if self.plan.wrap_up == Some(self.moment) {
                self.is_wrapping_up = true;
                tokio::time::advance(TIME_FOR_WRAP_UP).await;
            }
            if cut_at.is_none() {
                let positions = self.current_positions();
                self.moments.push(positions);
            }
            match self.plan.cut {
                Some((at, cause, next)) if cut_at.is_none() && at <= self.moment => {
                    let positions = self.moments.last().unwrap().clone();
                    if self.interrupt(cause, next).await {
                        self.cut_positions = Some(positions);
                        cut_at = Some(self.moment);
                        then = next;
                    }
                }
                _ => {}
            }
            if let (Some(at), Some((after, cause))) = (cut_at, second)
                && self.moment >= at + after
                && self.runs.is_active()
                && self.interrupt(cause, Then::Resume).await
            {
                second = None;
            }
            if !self.runs.is_active() {
                // The calls of the run that has ended wait.
                let answers = std::mem::replace(&mut then, Then::Resume);
                self.start_next(answers);
                (runs, polls_of_run) = (runs + 1, 0);
                self.moment += 1;
                continue;
            }
            if runs > MAX_RUNS || polls_of_run > MAX_POLLS {
                return self.violations.push(format!("no end after {runs} runs"));
            }
            self.moment += 1;
            polls_of_run += 1;
            let polled = self.runs.poll();
            self.read_events();
            if self.plan.answers == Answers::AtOnce && self.runs.is_active() {
                self.answer_request(|call| call.name == ANSWERED_AT_ONCE);
            }
            match polled {
                Polled::Progress => {}
                Polled::Stalled => {
                    if !self.answer_request(|_| true) {
                        tokio::time::advance(Duration::from_mins(1)).await;
                    }
                }
                Polled::Ended(ended) => {
                    self.check_nothing_runs();
                    self.is_wrapping_up = false;
                    self.last_outcome = ended.ok().map(|outcome| *outcome);
                    let reason = self.last_outcome.as_ref().map(|outcome| outcome.reason);
                    if cut_at.is_some() && !std::mem::replace(&mut has_ended_since, true) {
                        self.cut_reason = reason;
                    }
                    if reason == Some(EndReason::Completed) {
                        return;
                    }
                }
            }
        }
    }

    /// Interrupts the run. Returns `false` if the run cannot be interrupted so yet.
    async fn interrupt(&mut self, cause: Cause, then: Then) -> bool {
        if !self.runs.is_active() {
            // The program gives up the calls that wait, or answers them.
            return true;
        }
        match cause {
            Cause::Drop => {
                self.drop_run();
                if then == Then::Resume {
                    self.runs.retry();
                }
            }
            Cause::Interrupt | Cause::StopAfterTurn => return self.runs.command(cause),
            Cause::TimeLimit => tokio::time::advance(TIME_LIMIT * 2).await,
            Cause::WrapUp => tokio::time::advance(TIME_FOR_WRAP_UP).await,
            Cause::ProviderFails | Cause::ToolPanics | Cause::HookFails | Cause::WriteFails => {
                self.probe.log().fault = Some(cause);
            }
        }
        true
    }

    fn drop_run(&mut self) {
        self.runs.drop_run();
        self.read_events();
        self.forget_run();
        self.last_outcome = None;
        self.check_nothing_runs();
    }

    fn forget_run(&mut self) {
        self.requests.clear();
        self.verdicts.clear();
        self.started.clear();
    }

    fn check_nothing_runs(&mut self) {
        let running: Vec<String> = {
            let log = self.probe.log();
            let running = log.calls.iter().filter(|(_, call)| call.running > 0);
            running.map(|(path, _)| path.clone()).collect()
        };
        if !running.is_empty() {
            self.violations.push(format!("{running:?} run after the end of their run"));
        }
    }

    fn start(&mut self, start: Start) {
        self.forget_run();
        if let Start::Verdicts(verdicts) = &start {
            for (call, verdict) in verdicts {
                self.verdicts.insert(path(call), verdict.clone());
                self.submitted.push((call.clone(), verdict.clone()));
            }
        }
        self.runs.start(start);
    }

    /// Starts the run with which the program continues.
    fn start_next(&mut self, then: Then) {
        let waiting = match self.runs.session_state() {
            None => {
                let outcome = self.last_outcome.as_ref();
                let pending = outcome.map(|outcome| outcome.pending.clone());
                pending.filter(|calls| !calls.is_empty())
            }
            Some(SessionState::Pending { calls }) => Some(calls),
            Some(SessionState::Unfinished { .. }) => Some(Vec::new()),
            Some(SessionState::Idle) => None,
        };
        let start = match (then, waiting) {
            (Then::SameVerdicts, _) if !self.submitted.is_empty() => {
                Start::Verdicts(self.submitted.clone())
            }
            (Then::NewInput, _) | (_, None) => Start::Input("Go on."),
            (_, Some(calls)) => {
                let verdict = |call: PendingCall| (call.clone(), self.verdict(&call));
                Start::Verdicts(calls.into_iter().map(verdict).collect())
            }
        };
        self.start(start);
    }

    fn verdict(&self, call: &PendingCall) -> Verdict {
        self.scenario.verdict(&path(call), &call.name)
    }

    /// Answers the first of these requests for a verdict that has no answer yet.
    fn answer_request(&mut self, is_wanted: impl Fn(&PendingCall) -> bool) -> bool {
        if !self.runs.accepts_verdicts() {
            return false;
        }
        // Only the status of a durable run lists the external calls that its run waits for.
        for call in self.runs.awaited_calls() {
            self.requests.insert(path(&call), call);
        }
        let is_open = |(path, call): &(&String, &PendingCall)| {
            !self.verdicts.contains_key(*path) && is_wanted(call)
        };
        let open = self.requests.iter().find(is_open);
        let Some((path, call)) = open.map(|(path, call)| (path.clone(), call.clone())) else {
            return false;
        };
        let verdict = self.verdict(&call);
        if let Err(error) = self.runs.answer(&call, verdict.clone()) {
            self.violations.push(format!("the verdict on `{path}` is refused: {error}"));
        }
        self.submitted.push((call, verdict.clone()));
        self.verdicts.insert(path, verdict);
        true
    }

    fn read_events(&mut self) {
        for event in self.runs.take_events() {
            self.read_event(&event, &mut Vec::new());
        }
    }

    fn read_event(&mut self, event: &Event, parents: &mut Vec<String>) {
        let path = |call_id: &str| {
            let mut all = parents.clone();
            all.push(call_id.to_owned());
            all.join("/")
        };
        match event {
            Event::Nested { call_id, event, .. }
            | Event::Tool(ToolEvent::Nested { call_id, event, .. }) => {
                parents.push(call_id.clone());
                self.read_event(event, parents);
                parents.pop();
            }
            Event::Tool(ToolEvent::Started { call_id, .. }) => {
                self.requests.remove(&path(call_id));
                self.suspended.remove(&path(call_id));
                self.started.insert(path(call_id));
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                let call = (**call).clone();
                let of = path(&call.call_id);
                self.requests.insert(of, PendingCall { path: parents.clone(), ..call });
            }
            Event::Tool(ToolEvent::Suspended { call_id, .. }) => {
                self.started.remove(&path(call_id));
                self.suspended.insert(path(call_id));
            }
            Event::Tool(ToolEvent::Output(result)) => {
                let path = path(&result.call_id);
                self.requests.remove(&path);
                self.suspended.remove(&path);
                let begun = self.probe.call(&path).begun;
                self.reported.entry(path).or_default().push((result.clone(), begun));
            }
            Event::Finished(outcome) => {
                let pending = outcome.pending.iter().map(|call| {
                    let parents = parents.iter().chain(&call.path).chain([&call.call_id]);
                    parents.cloned().collect::<Vec<_>>().join("/")
                });
                self.left_to_program.extend(pending);
            }
            _ => {}
        }
    }

    /// Where the run is now, and each of its calls.
    fn current_positions(&self) -> Vec<(String, Position)> {
        let (made, log): (BTreeMap<_, _>, BTreeMap<_, _>) = {
            let log = self.probe.log();
            (log.made.clone(), log.calls.clone())
        };
        let call_log = |path: &str| log.get(path).copied().unwrap_or_default();
        let states = made.iter().map(|(path, tool)| {
            let state = self.call_state(path, tool, call_log(path));
            (path.clone(), tool.clone(), state)
        });
        // The calls of earlier turns are reported.
        let last_turn =
            made.keys().filter(|path| !path.contains('/')).map(|path| turn_of(path)).max();
        let states: Vec<_> = states.filter(|(path, ..)| Some(turn_of(path)) == last_turn).collect();
        let stage = self.stage(&states);
        // A call of a sub-agent that is over is accounted for with the sub-agent.
        let is_over = |path: &str| {
            path.split_once('/').is_some_and(|(parent, _)| self.reported.contains_key(parent))
                && !self.reported.contains_key(path)
        };
        let states = states.into_iter().filter(|(path, ..)| !is_over(path));
        let machine = self.plan.machine;
        let position = |(path, tool, state): (String, String, CallState)| {
            let who = self.scenario.who(machine, &path, &tool);
            (path, Position { machine, stage, state, who })
        };
        states.map(position).collect()
    }

    fn stage(&self, states: &[(String, String, CallState)]) -> Stage {
        let (open_turns, writes) = {
            let log = self.probe.log();
            (log.open_turns, log.writes)
        };
        let own = || states.iter().filter(|(path, ..)| !path.contains('/'));
        let is_any = |wanted: CallState| states.iter().any(|(.., state)| *state == wanted);
        let is_over = |state: CallState| {
            matches!(state, CallState::Reported | CallState::ReportedWithoutResult)
        };
        let is_at_work = |state: CallState| {
            matches!(state, CallState::Starting | CallState::Running | CallState::DoneUnreported)
        };
        let is_new =
            |state: CallState| matches!(state, CallState::NotStarted | CallState::External);
        if !self.runs.is_active() {
            Stage::Suspended
        } else if self.is_wrapping_up {
            Stage::WrappingUp
        } else if writes > 0 {
            Stage::Saving
        } else if open_turns > 0 {
            Stage::TurnStreams
        } else if own().all(|(.., state)| is_over(*state)) {
            Stage::BeforeRequest
        } else if states.iter().any(|(.., state)| is_at_work(*state)) {
            Stage::ToolsRun
        } else if is_any(CallState::WaitsForVerdict) {
            Stage::WaitsForVerdicts
        } else if states.iter().all(|(.., state)| is_new(*state)) {
            Stage::BeforeTools
        } else {
            Stage::ToolsRun
        }
    }

    fn call_state(&self, path: &str, tool: &str, call: CallLog) -> CallState {
        let spec = self.scenario.call_spec(path, tool);
        if let Some((result, _)) = self.reported.get(path).and_then(|all| all.first()) {
            return match Claim::of(result) {
                Claim::Done | Claim::Failed => CallState::Reported,
                Claim::NotRun | Claim::Unknown => CallState::ReportedWithoutResult,
            };
        }
        let is_started = self.started.contains(path);
        let is_sub_agent = spec.kind == Kind::SubAgent;
        if call.running > 0 || is_sub_agent && is_started && call.begun > call.ended {
            return CallState::Running;
        }
        if call.ended > 0 {
            return CallState::DoneUnreported;
        }
        if is_started && call.begun == 0 {
            return CallState::Starting;
        }
        if self.suspended.contains(path) {
            return CallState::Suspended;
        }
        match (call.begun > 0, spec.kind, self.verdicts.get(path)) {
            (true, ..) => CallState::CutOff,
            (_, Kind::External, None) => CallState::External,
            (.., Some(Verdict::Deny(_))) => CallState::DeniedUnreported,
            (.., Some(_)) => CallState::Approved,
            (.., None) if self.requests.contains_key(path) => CallState::WaitsForVerdict,
            (.., None) => CallState::NotStarted,
        }
    }
}

/// The number of the request that made the call with this path, or its sub-agent.
fn turn_of(path: &str) -> usize {
    path[1..].split('_').next().unwrap().parse().unwrap()
}

/// The path of a call, without the session.
fn path(call: &PendingCall) -> String {
    let mut all = call.path.clone();
    all.push(call.call_id.clone());
    all.join("/")
}

/// The kind and the text of a result.
pub(crate) fn summary(result: &ToolResult) -> (ResultKind, String) {
    (result.kind, result.content.text())
}
