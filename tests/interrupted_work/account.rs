//! Checks the account of each call at the end of a trial.

use std::collections::BTreeMap;

use turnstream::Item;
use turnstream::event::EndReason;
use turnstream::item::{INTERRUPTED_BEFORE_START, ResultKind, ToolResult};

use crate::axes::{CallState, Cause, Machine, Stage, Then, Who};
use crate::scenario::Answer;
use crate::trial::{Trial, summary};

/// The claim that a result makes about the execution of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The tool has returned.
    Done,
    /// The tool has failed.
    Failed,
    /// The tool has not run.
    NotRun,
    /// The tool may have run.
    Unknown,
}

impl Claim {
    pub(crate) fn of(result: &ToolResult) -> Self {
        let is_before_start = result.content.text().starts_with(INTERRUPTED_BEFORE_START);
        match result.kind {
            ResultKind::Ok => Self::Done,
            ResultKind::Error | ResultKind::Panic => Self::Failed,
            ResultKind::Interrupted if is_before_start => Self::NotRun,
            ResultKind::Interrupted | ResultKind::Timeout => Self::Unknown,
            // These kinds say that the tool did not run. A kind that is added later must be sorted
            // in here.
            ResultKind::InvalidArguments
            | ResultKind::UnknownTool
            | ResultKind::Denied
            | ResultKind::Truncated
            | ResultKind::Budget
            | ResultKind::Skipped => Self::NotRun,
            other => panic!("a new kind: {other}"),
        }
    }
}

/// Returns the claim of a result in the text of a sub-agent.
fn inner_claim(text: &str) -> Claim {
    match text {
        _ if text.starts_with("done ") || text == "from the program" => Claim::Done,
        _ if text.starts_with("Error: ") => Claim::Failed,
        _ if text.starts_with("Denied") || text.starts_with(INTERRUPTED_BEFORE_START) => {
            Claim::NotRun
        }
        _ if text.starts_with("Not run") => Claim::NotRun,
        _ => Claim::Unknown,
    }
}

/// Adds the violations to the trial.
pub(crate) fn check(trial: &mut Trial<'_>) {
    let violations = Account::new(trial).check();
    let of_probe = std::mem::take(&mut trial.probe.log().violations);
    trial.violations.extend(violations.into_iter().chain(of_probe));
}

struct Account<'a> {
    trial: &'a Trial<'a>,
    /// The results in the history, by call id.
    results: BTreeMap<String, Vec<ToolResult>>,
    found: Vec<String>,
}

impl<'a> Account<'a> {
    fn new(trial: &'a Trial<'_>) -> Self {
        let mut results: BTreeMap<String, Vec<ToolResult>> = BTreeMap::new();
        for result in trial.history().iter().filter_map(Item::as_tool_result) {
            results.entry(result.call_id.clone()).or_default().push(result.clone());
        }
        Self { trial, results, found: Vec::new() }
    }

    fn check(mut self) -> Vec<String> {
        let history = self.trial.history();
        if !history.is_settled() {
            self.found.push("the history is not settled".to_owned());
        }
        let calls = history.iter().filter(|item| !item.interrupted);
        let calls: Vec<String> =
            calls.filter_map(|item| Some(item.as_tool_call()?.call_id.clone())).collect();
        for call_id in &calls {
            let count = self.results.get(call_id).map_or(0, Vec::len);
            if count != 1 {
                self.found.push(format!("`{call_id}` has {count} results"));
            }
        }
        let made = self.trial.probe.log().made.clone();
        for (path, tool) in &made {
            match path.split_once('/') {
                None => self.check_own(path, tool),
                Some((parent, call_id)) => self.check_inner(parent, call_id, tool),
            }
        }
        for (path, call) in &self.trial.probe.log().calls {
            let root = path.split('/').next().unwrap();
            if call.begun > 0 && !calls.iter().any(|id| id == root) {
                self.found.push(format!("`{path}` has begun, and its turn is unknown"));
            }
        }
        self.found
    }

    /// Checks a call of the outermost agent.
    fn check_own(&mut self, path: &str, tool: &str) {
        let call = self.trial.probe.call(path);
        let result = self.results.get(path).and_then(|all| all.first()).cloned();
        let Some(result) = result else {
            // The turn of the call was lost, so the call must not have begun.
            let was_reported = self.trial.reported.contains_key(path);
            if call.begun > 0 || was_reported {
                self.found.push(format!("`{path}` is lost: {call:?}"));
            }
            return;
        };
        let (claim, is) = (Claim::of(&result), summary(&result));
        self.check_begun(path, tool, claim, &is);
        for (reported, begun_before) in self.trial.reported.get(path).into_iter().flatten() {
            let was = summary(reported);
            if was != is || *begun_before != call.begun {
                self.found.push(format!(
                    "`{path}` was reported as {was:?} and is {is:?}, and has begun {} times",
                    call.begun
                ));
            }
        }
        self.check_expected(path, tool, claim, &summary(&result));
    }

    /// Checks a call of the sub-agent, whose result is in the text of its parent's result.
    fn check_inner(&mut self, parent: &str, call_id: &str, tool: &str) {
        let path = format!("{parent}/{call_id}");
        let Some(result) = self.results.get(parent).and_then(|all| all.first()).cloned() else {
            return;
        };
        match Claim::of(&result) {
            Claim::Done => {
                let text = result.content.text();
                let inner = text.trim_start_matches("So: ").split("; ");
                let inner =
                    inner.filter_map(|it| it.split_once('=')).find(|(id, _)| *id == call_id);
                let Some((_, text)) = inner else {
                    return self.found.push(format!("`{path}` has no result in {text:?}"));
                };
                let claim = inner_claim(text);
                self.check_begun(&path, tool, claim, &(result.kind, text.to_owned()));
            }
            Claim::NotRun if self.trial.probe.call(&path).begun > 0 => {
                self.found.push(format!("`{path}` has begun, and its parent was not run"));
            }
            _ => self.check_begun(&path, tool, Claim::Unknown, &summary(&result)),
        }
    }

    /// Checks how often a call has begun and ended against its result.
    fn check_begun(&mut self, path: &str, tool: &str, claim: Claim, result: &(ResultKind, String)) {
        let call = self.trial.probe.call(path);
        let who = self.trial.scenario.who(self.trial.plan.machine, path, tool);
        if call.begun > 1 && !who.is_idempotent() {
            self.found.push(format!("`{path}` ({who:?}) has begun {} times", call.begun));
        }
        let answer = self.trial.scenario.call_spec(path, tool).answer;
        let is_approved = || answer == Some(Answer::Approve) && self.trial.has_answered(path);
        if call.begun > 0 && answer.is_some() && !is_approved() {
            self.found.push(format!("`{path}` ({who:?}) has begun without an approval"));
        }
        // The program may have executed a call that was left to it.
        let is_external = matches!(who, Who::ExternalTool | Who::ExternalToolOfSubAgent);
        let is_left_to_program = is_external && self.trial.left_to_program.contains(path);
        if claim == Claim::NotRun && is_left_to_program && !self.trial.has_answered(path) {
            self.found.push(format!("`{path}` was left to the program, and is {result:?}"));
        }
        let is_from_program = result.1 == "from the program";
        let fits = match claim {
            Claim::Done if is_from_program => call.begun == 0,
            Claim::Done => call.ended > 0,
            Claim::Failed => call.begun > 0,
            Claim::NotRun => call.begun == 0,
            Claim::Unknown => true,
        };
        if !fits {
            self.found.push(format!("`{path}` ({who:?}) is {result:?}, and has {call:?}"));
        }
    }

    /// Checks what the result of a call must be, given where the call was when its run was
    /// interrupted.
    fn check_expected(
        &mut self,
        path: &str,
        tool: &str,
        claim: Claim,
        result: &(ResultKind, String),
    ) {
        let trial = self.trial;
        let Some((_, cause, then)) = trial.plan.cut else { return };
        if trial.plan.second.is_some() || trial.plan.wrap_up.is_some() {
            return;
        }
        let (call, machine) = (trial.probe.call(path), trial.plan.machine);
        let who = trial.scenario.who(machine, path, tool);
        // A result that a tool has returned is never lost, unless what would have stored it was.
        if call.ended > 0 && claim != Claim::Done && !cause.loses_unreported_results(machine, who) {
            self.found.push(format!("the result of `{path}` is lost: it is {result:?}"));
        }
        let positions = trial.cut_positions.iter().flatten();
        let Some((_, position)) = positions.into_iter().find(|(of, _)| of == path) else { return };
        // An interruption may have come too late for the run.
        let is_in_time =
            matches!(trial.cut_reason, Some(EndReason::Interrupted(_) | EndReason::Budget));
        let is_immediate = matches!(cause, Cause::Interrupt | Cause::TimeLimit | Cause::WrapUp)
            && !machine.is_durable()
            // The event that is saved may be the start or the result of the call.
            && position.stage != Stage::Saving
            && is_in_time;
        let is_known = match position.state {
            CallState::NotStarted
            | CallState::WaitsForVerdict
            | CallState::Approved
            | CallState::DeniedUnreported
                if is_immediate =>
            {
                // A crash before the run may have interrupted a call that may run again.
                let may_run_again = machine == Machine::Session && who.is_idempotent();
                claim == Claim::NotRun || may_run_again && claim == Claim::Unknown
            }
            CallState::Running if is_immediate => claim == Claim::Unknown,
            _ => {
                // Nothing is uncertain if no process is lost and nothing is dropped.
                let drops = !matches!(cause, Cause::StopAfterTurn | Cause::ProviderFails);
                drops || then != Then::Resume || claim != Claim::Unknown
            }
        };
        if !is_known {
            let state = position.state;
            self.found.push(format!("`{path}` was {state:?}, and is {result:?}"));
        }
    }
}
