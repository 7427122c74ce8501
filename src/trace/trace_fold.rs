//! Folds events into steps without using shared state.

use std::time::SystemTime;

use crate::event::{AppendReason, EndReason, Event, Outcome, ToolEvent, Transition};
use crate::item::{
    History, Item, OpenCalls, RawJson, SideEffect, ToolCall, ToolResult, nesting_depth,
};
use crate::tool::{Rationale, unwrapped_call};
use crate::trace::iteration_span::OpenIteration;
use crate::trace::remaining_budget::{RemainingBudget, UsedBudget};
use crate::trace::step_time::Moment;
use crate::trace::tool_exit::{exit_of_result, normalize_error, to_single_line};
use crate::trace::{IterationSpan, TraceAction, TraceEvent, TraceResult};
use crate::turn::{Turn, TurnEvent};
use crate::usage::{PricedRequest, Prices, Usage};

/// The maximum nesting depth of a value that is stored as JSON. More deeply nested values are
/// stored as strings. JSON parsers reject values nested more than about 128 levels deep, and a step
/// adds some levels of its own.
const MAX_JSON_DEPTH: usize = 100;

/// Folds the events of a run into steps.
#[derive(Debug, Default)]
pub(super) struct TraceFold {
    pub(super) initial_budget: RemainingBudget,
    pub(super) prices: Prices,
    /// The ids of the calls that run the sub-agents, from the outermost sub-agent to the sub-agent
    /// whose run this is. The list is empty if this is not the run of a sub-agent.
    parent_calls: Vec<String>,
    /// The number of the most recent step.
    last_step_number: u32,
    /// The iterations that have ended, including those of sub-agents, and that have not been taken.
    iterations: Vec<IterationSpan>,
    run: RunTrace,
}

/// The state for the current run. Most of this state is reset at the start of each run.
#[derive(Debug, Default)]
struct RunTrace {
    /// The moment of the run's first event.
    began: Option<Moment>,
    /// The iteration of the loop that has not ended.
    iteration: Option<OpenIteration>,
    /// The moment of the latest event.
    last_event: Option<Moment>,
    /// The moment of the latest request.
    turn_began: Option<Moment>,
    turn_number: u32,
    model: String,
    /// Whether a request has been announced but its turn is not complete yet.
    is_turn_announced: bool,
    used_budget: UsedBudget,
    /// The calls that do not have a result yet.
    open_calls: OpenCalls<OpenToolCall>,
    /// The text from a turn without calls, which may be the run's last turn.
    final_text: Option<FinalText>,
    /// The inputs recorded for the next step.
    inputs: Vec<RawJson>,
    /// The folds for the sub-agents, each with the id of the call that runs the sub-agent.
    nested_folds: Vec<(String, TraceFold)>,
    /// The histories of suspended sub-agents, each with the id of the call that ran the sub-agent.
    suspended_histories: Vec<(String, History)>,
}

#[derive(Debug)]
struct OpenToolCall {
    call: ToolCall,
    turn_number: u32,
    model: String,
    /// When the tool started or, before that, when the turn ended. `None` if the turn ended before
    /// the trace started.
    began: Option<Moment>,
    /// The id of the grant that let the call start.
    grant_id: Option<String>,
}

#[derive(Debug)]
struct FinalText {
    text: String,
    stop_reason: String,
    turn_number: u32,
    model: String,
    /// The moment of the request.
    began: Option<Moment>,
}

impl TraceFold {
    /// Adds the open calls from a history.
    pub(super) fn resume_from(&mut self, history: &History) {
        let open = |call| OpenToolCall {
            call,
            turn_number: 0,
            model: String::new(),
            began: None,
            grant_id: None,
        };
        self.run.open_calls.extend(history.unanswered_calls().into_iter().map(open));
        for call_id in history.suspended_call_ids() {
            let nested = history.nested_history(call_id).cloned();
            self.run.suspended_histories.extend(nested.map(|nested| (call_id.to_owned(), nested)));
        }
    }

    /// Returns the iterations that have ended since the last call.
    pub(super) fn take_iterations(&mut self) -> Vec<IterationSpan> {
        std::mem::take(&mut self.iterations)
    }

    pub(super) fn add_input(&mut self, input: RawJson) {
        self.run.inputs.push(limit_depth(input));
    }

    /// Processes the next event, which occurs at the moment `now`, and appends the steps that it
    /// completes to `steps`.
    pub(super) fn observe(&mut self, event: &Event, now: Moment, steps: &mut Vec<TraceEvent>) {
        if let Event::Appended { why: AppendReason::Input, .. } = event {
            self.reset_run();
        }
        self.run.began.get_or_insert(now);
        let last_event = self.run.last_event.replace(now);
        self.run.iteration.get_or_insert(OpenIteration::new(now));
        match event {
            Event::TurnStarted { turn, model, .. } => {
                self.emit_message_step(now, steps);
                self.observe_request(*turn, now);
                self.run.turn_began = Some(now);
                self.run.turn_number = *turn;
                self.run.model.clone_from(model);
                self.run.is_turn_announced = true;
                self.run.used_budget.requests += 1;
            }
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                self.emit_message_step(now, steps);
                self.observe_turn(turn, now);
            }
            Event::Turn(TurnEvent::Retracted { usage, .. }) => {
                self.add_usage(**usage, None, now);
            }
            Event::Rewritten { why, usage, model, .. } => {
                if **usage != Usage::default() {
                    // The run does nothing else between the previous event and a summary.
                    let (model, times) = (model.as_deref(), (last_event, now));
                    steps.push(self.helper_step(why.to_string(), model, **usage, times));
                }
            }
            Event::HelperUsage { purpose, model, usage } => {
                // A hook may have sent the request long before it is reported.
                let times = (None, now);
                steps.push(self.helper_step(purpose.clone(), model.as_deref(), **usage, times));
            }
            // A retry does not start a new turn.
            Event::Turn(TurnEvent::Retrying { .. })
            | Event::Tool(
                ToolEvent::Progress { .. }
                | ToolEvent::GrantAdded { .. }
                | ToolEvent::GrantRevoked { .. },
            )
            | Event::Unknown => {}
            Event::Tool(ToolEvent::Started { call_id, grant_id, .. }) => {
                if let Some(open) =
                    self.run.open_calls.find_mut(|open| open.call.call_id == *call_id)
                {
                    open.began = Some(now);
                    open.grant_id = grant_id.as_deref().map(str::to_owned);
                }
            }
            Event::Tool(ToolEvent::Suspended { call_id, nested, .. }) => {
                self.run.suspended_histories.push((call_id.clone(), (**nested).clone()));
            }
            Event::Continued { reason } => {
                self.emit_message_step(now, steps);
                self.end_iteration(now, Some(*reason));
                self.run.iteration = Some(OpenIteration::new(now));
            }
            Event::Turn(_) => self.emit_message_step(now, steps),
            Event::Tool(ToolEvent::Output(result)) => {
                let step = self.result_step(result, now);
                steps.push(step);
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => {
                self.add_open_call(&call.to_tool_call(), now);
            }
            Event::Tool(ToolEvent::Nested { call_id, event, .. })
            | Event::Nested { call_id, event, .. } => {
                self.observe_nested(call_id, event, now, steps);
            }
            Event::Appended { items, .. } => {
                for result in items.iter().filter_map(Item::as_tool_result) {
                    let step = self.result_step(result, now);
                    steps.push(step);
                }
            }
            Event::Finished(outcome) => {
                let step = self.stop_step(outcome, now);
                steps.push(step);
                self.end_iteration(now, None);
                // A later run may answer the pending calls.
                let RunTrace { open_calls: open, suspended_histories: suspended, .. } =
                    std::mem::take(&mut self.run);
                if outcome.reason == EndReason::Pending {
                    self.run = RunTrace {
                        open_calls: open,
                        suspended_histories: suspended,
                        ..RunTrace::default()
                    };
                }
            }
        }
    }

    /// Adds the usage of an attempt that did not become a turn, or of another request. If the price
    /// of its model is unknown, the usage is priced as a turn.
    fn add_usage(&mut self, usage: Usage, model: Option<&str>, now: Moment) {
        let model = model.filter(|model| self.prices.find(model).is_some());
        let request = PricedRequest::new(model.unwrap_or(&self.run.model), usage, sent_at(now));
        let cost = self.prices.cost(&request);
        self.run.used_budget.add(usage, cost.map_or(0, |cost| cost.micros));
    }

    /// Creates the step for a request that is not a turn of the run.
    fn helper_step(
        &mut self,
        purpose: String,
        model: Option<&str>,
        usage: Usage,
        times: (Option<Moment>, Moment),
    ) -> TraceEvent {
        self.add_usage(usage, model, times.1);
        let action = TraceAction::Helper { purpose, usage };
        let model = model.unwrap_or_default().to_owned();
        self.new_step(self.run.turn_number, model, action, TraceResult::default(), times)
    }

    /// Resets the state at the start of a run and drops the state of an unfinished previous run.
    /// Only the open calls, the inputs and the suspended histories are kept.
    fn reset_run(&mut self) {
        let RunTrace { open_calls: open, inputs, suspended_histories: suspended, .. } =
            std::mem::take(&mut self.run);
        self.run = RunTrace {
            open_calls: open,
            inputs,
            suspended_histories: suspended,
            ..RunTrace::default()
        };
    }

    fn observe_turn(&mut self, turn: &Turn, now: Moment) {
        let run = &mut self.run;
        if !std::mem::take(&mut run.is_turn_announced) {
            // A hand-written loop does not announce its requests.
            run.turn_number += 1;
            run.used_budget.requests += 1;
            run.model.clear();
            let turn_number = run.turn_number;
            self.observe_request(turn_number, now);
        }
        let run = &mut self.run;
        let model = turn.model().unwrap_or(&run.model).to_owned();
        let priced = if self.prices.find(&model).is_some() { &model } else { &run.model };
        run.used_budget.add(turn.usage(), price_request(&self.prices, turn, priced, now));
        if turn.tool_calls().next().is_none() {
            run.final_text = Some(FinalText {
                text: to_single_line(&turn.text()),
                stop_reason: turn.stop_reason().as_str().to_owned(),
                turn_number: run.turn_number,
                model,
                began: run.turn_began.or(run.began),
            });
            return;
        }
        let open = |call: &ToolCall| OpenToolCall {
            call: call.clone(),
            turn_number: run.turn_number,
            model: model.clone(),
            began: Some(now),
            grant_id: None,
        };
        run.open_calls.extend(turn.tool_calls().map(open));
    }

    /// Records the request of the current iteration. A hand-written loop does not report that it
    /// continues, so a second request begins the next iteration.
    fn observe_request(&mut self, turn: u32, now: Moment) {
        if self.run.iteration.is_some_and(|iteration| iteration.turn != 0) {
            self.end_iteration(now, None);
        }
        self.run.iteration.get_or_insert(OpenIteration::new(now)).turn = turn;
    }

    fn end_iteration(&mut self, now: Moment, continued: Option<Transition>) {
        if let Some(iteration) = self.run.iteration.take() {
            self.iterations.push(iteration.end(now, &self.parent_calls, continued));
        }
    }

    /// Emits the step for a turn that contains no calls, once it is known that the turn is not the
    /// run's last turn.
    fn emit_message_step(&mut self, now: Moment, steps: &mut Vec<TraceEvent>) {
        let Some(message) = self.run.final_text.take() else { return };
        let FinalText { text, stop_reason: turn_stopped, turn_number: turn, model, began } =
            message;
        let action = TraceAction::Say { text, turn_stopped };
        let result = TraceResult::default();
        steps.push(self.new_step(turn, model, action, result, (began, now)));
    }

    /// Adds a call for which an approval is requested, since the trace may not have processed the
    /// turn that contains this call.
    fn add_open_call(&mut self, call: &ToolCall, now: Moment) {
        let open = &mut self.run.open_calls;
        if open.find_mut(|open| open.call.call_id == call.call_id).is_none() {
            open.extend([OpenToolCall {
                call: call.clone(),
                turn_number: 0,
                model: String::new(),
                began: Some(now),
                grant_id: None,
            }]);
        }
    }

    fn result_step(&mut self, result: &ToolResult, now: Moment) -> TraceEvent {
        let run = &mut self.run;
        run.used_budget.tool_calls += u64::from(result.kind.has_executed());
        let (exit, error) = exit_of_result(result);
        let mut trace_result = TraceResult {
            tool_exit: Some(exit),
            normalized_error: error,
            ..TraceResult::default()
        };
        if let Some(report) = result.report.as_deref() {
            for SideEffect { kind, target } in &report.side_effects {
                match kind.as_str() {
                    "changed" => trace_result.changed_files.push(target.clone()),
                    "created" => trace_result.created_ids.push(target.clone()),
                    _ => trace_result
                        .side_effects
                        .push(SideEffect { kind: kind.clone(), target: target.clone() }),
                }
            }
            trace_result.evidence = report.evidence.iter().cloned().map(limit_depth).collect();
        }
        // A run that was dropped may have left an open call with the same id.
        let open =
            self.run.open_calls.take_last_unanswered(|open| open.call.call_id == result.call_id);
        let (turn, model, began, grant_id, arguments) = match open {
            Some(OpenToolCall { call, turn_number: turn, model, began, grant_id }) => {
                // The tool may have been called from inside another call.
                let inner = unwrapped_call(&call);
                let called = if inner.name == result.name { &*inner } else { &call };
                (turn, model, began, grant_id, Some(called.arguments.clone()))
            }
            None => (self.run.turn_number, self.run.model.clone(), None, None, None),
        };
        let (why, args) = arguments.as_deref().map_or_else(Default::default, split_rationale);
        let action = TraceAction::Tool {
            tool: result.name.clone(),
            call_id: result.call_id.clone(),
            args,
            why,
            grant_id,
        };
        self.new_step(turn, model, action, trace_result, (began, now))
    }

    fn observe_nested(
        &mut self,
        call_id: &str,
        event: &Event,
        now: Moment,
        steps: &mut Vec<TraceEvent>,
    ) {
        let children = &mut self.run.nested_folds;
        let found = children.iter().rposition(|(id, _)| id == call_id);
        let at = found.unwrap_or_else(|| {
            let mut within = self.parent_calls.clone();
            within.push(call_id.to_owned());
            let mut child = Self { parent_calls: within, ..Self::default() };
            // The sub-agent continues from its latest suspended history.
            if let Some((_, history)) =
                self.run.suspended_histories.iter().rfind(|(id, _)| id == call_id)
            {
                child.resume_from(history);
            }
            children.push((call_id.to_owned(), child));
            children.len() - 1
        });
        if let Some((_, child)) = children.get_mut(at) {
            // The trace does not know the budgets of a sub-agent.
            child.observe(event, now, steps);
            self.iterations.append(&mut child.iterations);
        }
    }

    fn stop_step(&mut self, outcome: &Outcome, now: Moment) -> TraceEvent {
        let mut result = TraceResult {
            normalized_error: outcome.error.as_ref().map(normalize_error),
            ..TraceResult::default()
        };
        let mut stop_reason = outcome.reason.as_str();
        match outcome.reason {
            EndReason::Completed if outcome.proof.is_some() => {
                stop_reason = "success";
                result.verification_evidence = outcome.proof.as_deref().cloned();
            }
            EndReason::Blocked | EndReason::Unproven => result.missing.clone_from(&outcome.why),
            EndReason::Pending => {
                let calls = outcome.pending.iter();
                let calls: Vec<_> =
                    calls.map(|call| format!("`{}` ({})", call.name, call.call_id)).collect();
                let what = format!("a verdict on or a result for {}", calls.join(", "));
                result.missing = Some(what);
            }
            EndReason::Completed
            | EndReason::MaxTurns
            | EndReason::Interrupted(_)
            | EndReason::Stopped
            | EndReason::StopHookPrevented
            | EndReason::ContextWindow
            | EndReason::Truncated
            | EndReason::Refused
            | EndReason::Filtered
            | EndReason::Malformed
            | EndReason::Repeating
            | EndReason::Budget
            | EndReason::Incomplete
            | EndReason::ProviderError
            | EndReason::HookError
            | EndReason::Other => {
                result.why.clone_from(&outcome.why);
                result.missing = outcome.unproven.as_deref().map(str::to_owned);
            }
        }
        // Only the outcome contains the usage of an interrupted attempt.
        self.run.used_budget.usage = outcome.usage;
        self.run.used_budget.cost_micros = outcome.cost.unwrap_or(self.run.used_budget.cost_micros);
        let (turn, model) = (self.run.turn_number, self.run.model.clone());
        let model = self.run.final_text.take().map_or(model, |trace_result| trace_result.model);
        let text = to_single_line(&outcome.text);
        let stop_action = outcome.stop_action.clone();
        let action = TraceAction::Stop { stop_reason: stop_reason.to_owned(), text, stop_action };
        let began = self.run.began;
        self.new_step(turn, model, action, result, (began, now))
    }

    fn new_step(
        &mut self,
        turn: u32,
        model: String,
        action: TraceAction,
        result: TraceResult,
        (began, ended): (Option<Moment>, Moment),
    ) -> TraceEvent {
        self.last_step_number += 1;
        TraceEvent {
            step: self.last_step_number,
            turn,
            model,
            within: self.parent_calls.clone(),
            inputs: std::mem::take(&mut self.run.inputs),
            action,
            result,
            time: began.and_then(|began| began.until(ended)),
            budgets: self.initial_budget.after_use(&self.run.used_budget, ended.elapsed),
        }
    }
}

/// Returns the cost of a turn, in millionths of the currency unit, or 0 if the model has no price.
fn price_request(prices: &Prices, turn: &Turn, model: &str, now: Moment) -> u64 {
    let request = PricedRequest::new(model, turn.usage(), sent_at(now));
    let request = match turn.billing() {
        Some(billing) => request.with_billing(billing),
        None => request,
    };
    prices.cost(&request).map_or(0, |cost| cost.micros)
}

/// Returns the time of a request. A trace without a clock uses the current time: the remaining cost
/// is an estimate until the end of the run, whose outcome contains the exact cost.
fn sent_at(now: Moment) -> SystemTime {
    now.date.unwrap_or_else(SystemTime::now)
}

/// Splits arguments into the rationale and the remaining arguments, in the form that the trace
/// stores.
fn split_rationale(arguments: &str) -> (Rationale, Option<RawJson>) {
    let (why, rest) = Rationale::split_well_formed(arguments);
    let text = || serde_json::Value::from(arguments).into();
    let args = match rest.trim() {
        "" => serde_json::Value::Object(serde_json::Map::new()).into(),
        rest => RawJson::parse(rest).map_or_else(|_| text(), limit_depth),
    };
    (why, Some(args))
}

/// Returns the value unchanged, unless it is nested too deeply to be parsed as part of a step. In
/// that case, returns a string that contains the value's JSON text.
fn limit_depth(json: RawJson) -> RawJson {
    match nesting_depth(json.as_str()) > MAX_JSON_DEPTH {
        true => serde_json::Value::from(json.as_str()).into(),
        false => json,
    }
}
