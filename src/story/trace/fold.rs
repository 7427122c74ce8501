//! The fold of events into steps, without any sharing.

use std::time::Duration;

use crate::event::{AppendedWhy, Event, Outcome, Reason, ToolEvent};
use crate::item::{
    History, Item, Json, OpenCalls, SideEffect, ToolCall, ToolResult, nesting_depth,
};
use crate::story::trace::budgets::{BudgetsLeft, Used};
use crate::story::trace::exit::{of_error, of_result, one_line};
use crate::story::trace::{Action, TraceEvent, TraceResult};
use crate::tool::Why;
use crate::turn::{Turn, TurnEvent};
use crate::usage::Prices;

/// What is nested deeper is kept as text: readers of JSON stop at some 128 levels, of which a step has
/// some itself.
const DEEPEST: usize = 100;

/// What the events so far have told, as far as it is needed for the next step.
#[derive(Debug, Default)]
pub(super) struct Fold {
    pub(super) limits: BudgetsLeft,
    pub(super) prices: Prices,
    /// The calls of the runs that it is nested in.
    within: Vec<String>,
    /// How many steps there were.
    step: u32,
    run: Run,
}

/// What begins anew with each run.
#[derive(Debug, Default)]
struct Run {
    turn: u32,
    model: String,
    /// A request was announced, and its turn is not complete.
    announced: bool,
    used: Used,
    /// The calls that have no result.
    open: OpenCalls<Open>,
    /// A turn without calls that may be the last.
    said: Option<Said>,
    /// What was noted for the next step.
    inputs: Vec<Json>,
    /// The sub-agents, by the calls that they run as.
    children: Vec<(String, Fold)>,
    /// What sub-agents had done when they were suspended, by the calls that they run as.
    suspended: Vec<(String, History)>,
}

#[derive(Debug)]
struct Open {
    call: ToolCall,
    turn: u32,
    model: String,
}

#[derive(Debug)]
struct Said {
    text: String,
    turn_stopped: String,
    turn: u32,
    model: String,
}

impl Fold {
    /// Takes the calls that were open before.
    pub(super) fn begin_with(&mut self, history: &History) {
        let open = |call| Open { call, turn: 0, model: String::new() };
        self.run.open.extend(history.unanswered_calls().into_iter().map(open));
        for call_id in history.suspended_calls() {
            let nested = history.nested_history(call_id).cloned();
            self.run.suspended.extend(nested.map(|nested| (call_id.to_owned(), nested)));
        }
    }

    pub(super) fn note(&mut self, input: Json) {
        self.run.inputs.push(readable(input));
    }

    /// Takes the next event; `elapsed` is the time since the first of the run. The steps that it
    /// ends are pushed to `steps`.
    pub(super) fn observe(
        &mut self,
        event: &Event,
        elapsed: Duration,
        steps: &mut Vec<TraceEvent>,
    ) {
        match event {
            Event::TurnStarted { turn, model, .. } => {
                self.say(elapsed, steps);
                self.run.turn = *turn;
                self.run.model.clone_from(model);
                self.run.announced = true;
                self.run.used.requests += 1;
            }
            Event::Turn(TurnEvent::TurnComplete { turn }) => {
                self.say(elapsed, steps);
                self.turn(turn);
            }
            Event::Turn(TurnEvent::Retracted { usage, .. }) | Event::Rewritten { usage, .. } => {
                self.run.used.add(*usage, &self.run.model, &self.prices);
            }
            // A retry opens no turn.
            Event::Turn(TurnEvent::Retrying { .. })
            | Event::Tool(ToolEvent::Started { .. } | ToolEvent::Progress { .. })
            | Event::Unknown => {}
            Event::Tool(ToolEvent::Suspended { call_id, nested, .. }) => {
                self.run.suspended.push((call_id.clone(), (**nested).clone()));
            }
            Event::Turn(_) | Event::Continued { .. } => self.say(elapsed, steps),
            Event::Tool(ToolEvent::Output(result)) => {
                let step = self.result(result, elapsed);
                steps.push(step);
            }
            Event::Tool(ToolEvent::ApprovalRequested(call)) => self.ask(call),
            Event::Tool(ToolEvent::Nested { call_id, event, .. })
            | Event::Nested { call_id, event, .. } => self.nested(call_id, event, steps),
            Event::Appended { why, items, .. } => {
                if *why == AppendedWhy::Input {
                    self.begin_anew();
                }
                for result in items.iter().filter_map(Item::as_tool_result) {
                    let step = self.result(result, elapsed);
                    steps.push(step);
                }
            }
            Event::Finished(outcome) => {
                let step = self.stop(outcome, elapsed);
                steps.push(step);
                // Calls that are pending are answered by a later run.
                let Run { open, suspended, .. } = std::mem::take(&mut self.run);
                if outcome.reason == Reason::Pending {
                    self.run = Run { open, suspended, ..Run::default() };
                }
            }
        }
    }

    /// A run has begun. One that was dropped has left what it was about.
    fn begin_anew(&mut self) {
        let Run { open, inputs, suspended, .. } = std::mem::take(&mut self.run);
        self.run = Run { open, inputs, suspended, ..Run::default() };
    }

    fn turn(&mut self, turn: &Turn) {
        let run = &mut self.run;
        if !std::mem::take(&mut run.announced) {
            // A hand-written loop announces nothing.
            run.turn += 1;
            run.used.requests += 1;
            run.model.clear();
        }
        let model = turn.model().unwrap_or(&run.model).to_owned();
        let priced = if self.prices.get(&model).is_some() { &model } else { &run.model };
        run.used.add(turn.usage(), priced, &self.prices);
        if turn.tool_calls().next().is_none() {
            run.said = Some(Said {
                text: one_line(&turn.text()),
                turn_stopped: turn.stop_reason().as_str().to_owned(),
                turn: run.turn,
                model,
            });
            return;
        }
        let open =
            |call: &ToolCall| Open { call: call.clone(), turn: run.turn, model: model.clone() };
        run.open.extend(turn.tool_calls().map(open));
    }

    /// The turn before was not the last.
    fn say(&mut self, elapsed: Duration, steps: &mut Vec<TraceEvent>) {
        let Some(Said { text, turn_stopped, turn, model }) = self.run.said.take() else { return };
        let action = Action::Say { text, turn_stopped };
        steps.push(self.next(turn, model, action, TraceResult::default(), elapsed));
    }

    /// A call is shown to somebody whose turn the trace may not have seen.
    fn ask(&mut self, call: &ToolCall) {
        let open = &mut self.run.open;
        if open.find_mut(|open| open.call.call_id == call.call_id).is_none() {
            open.extend([Open { call: call.clone(), turn: 0, model: String::new() }]);
        }
    }

    fn result(&mut self, result: &ToolResult, elapsed: Duration) -> TraceEvent {
        let run = &mut self.run;
        run.used.tool_calls += u64::from(result.kind.has_executed());
        let (exit, error) = of_result(result);
        let mut said = TraceResult {
            tool_exit: Some(exit),
            normalized_error: error,
            ..TraceResult::default()
        };
        if let Some(report) = result.report.as_deref() {
            for SideEffect { kind, target } in &report.side_effects {
                match kind.as_str() {
                    "changed" => said.changed_files.push(target.clone()),
                    "created" => said.created_ids.push(target.clone()),
                    _ => said
                        .side_effects
                        .push(SideEffect { kind: kind.clone(), target: target.clone() }),
                }
            }
            said.evidence = report.evidence.iter().cloned().map(readable).collect();
        }
        // A run that was dropped may have left one with the same id.
        let open = self.run.open.take_last(|open| open.call.call_id == result.call_id);
        let (turn, model, arguments) = match open {
            Some(Open { call, turn, model }) => (turn, model, Some(call.arguments)),
            None => (self.run.turn, self.run.model.clone(), None),
        };
        let (why, args) = arguments.as_deref().map_or_else(Default::default, written);
        let action =
            Action::Tool { tool: result.name.clone(), call_id: result.call_id.clone(), args, why };
        self.next(turn, model, action, said, elapsed)
    }

    fn nested(&mut self, call_id: &str, event: &Event, steps: &mut Vec<TraceEvent>) {
        let children = &mut self.run.children;
        let found = children.iter().rposition(|(id, _)| id == call_id);
        let at = found.unwrap_or_else(|| {
            let mut within = self.within.clone();
            within.push(call_id.to_owned());
            let mut child = Self { within, ..Self::default() };
            // The newest is what it continues with.
            if let Some((_, history)) = self.run.suspended.iter().rfind(|(id, _)| id == call_id) {
                child.begin_with(history);
            }
            children.push((call_id.to_owned(), child));
            children.len() - 1
        });
        if let Some((_, child)) = children.get_mut(at) {
            // What a sub-agent may spend is not known here.
            child.observe(event, Duration::ZERO, steps);
        }
    }

    fn stop(&mut self, outcome: &Outcome, elapsed: Duration) -> TraceEvent {
        let mut result = TraceResult {
            normalized_error: outcome.error.as_ref().map(of_error),
            ..TraceResult::default()
        };
        let mut stop_reason = outcome.reason.as_str();
        match outcome.reason {
            Reason::Completed if outcome.proof.is_some() => {
                stop_reason = "success";
                result.verification_evidence = outcome.proof.as_deref().cloned();
            }
            Reason::Blocked | Reason::Unproven => result.missing.clone_from(&outcome.why),
            Reason::Pending => {
                let calls = outcome.pending.iter();
                let calls: Vec<_> =
                    calls.map(|call| format!("`{}` ({})", call.name, call.call_id)).collect();
                let what = format!("a verdict on or a result for {}", calls.join(", "));
                result.missing = Some(what);
            }
            Reason::Completed
            | Reason::MaxTurns
            | Reason::Interrupted(_)
            | Reason::Stopped
            | Reason::StopHookPrevented
            | Reason::ContextWindow
            | Reason::Truncated
            | Reason::Refused
            | Reason::Filtered
            | Reason::Malformed
            | Reason::Repeating
            | Reason::Budget
            | Reason::Incomplete
            | Reason::ProviderError
            | Reason::HookError
            | Reason::Other => result.why.clone_from(&outcome.why),
        }
        // An attempt that broke off is told of nowhere else.
        self.run.used.usage = outcome.usage;
        self.run.used.cost = outcome.cost.unwrap_or(self.run.used.cost);
        let (turn, model) = (self.run.turn, self.run.model.clone());
        let model = self.run.said.take().map_or(model, |said| said.model);
        let text = one_line(&outcome.text);
        let action = Action::Stop { stop_reason: stop_reason.to_owned(), text };
        self.next(turn, model, action, result, elapsed)
    }

    fn next(
        &mut self,
        turn: u32,
        model: String,
        action: Action,
        result: TraceResult,
        elapsed: Duration,
    ) -> TraceEvent {
        self.step += 1;
        TraceEvent {
            step: self.step,
            turn,
            model,
            within: self.within.clone(),
            inputs: std::mem::take(&mut self.run.inputs),
            action,
            result,
            budgets: self.limits.minus(&self.run.used, elapsed),
        }
    }
}

/// Arguments as the trace has them.
fn written(arguments: &str) -> (Why, Option<Json>) {
    let (why, rest) = Why::split_whole(arguments);
    let text = || serde_json::Value::from(arguments).into();
    let args = match rest.trim() {
        "" => serde_json::Value::Object(serde_json::Map::new()).into(),
        rest => Json::parse(rest).map_or_else(|_| text(), readable),
    };
    (why, Some(args))
}

/// The value, or its text where it is nested too deep to be read again as a part of a step.
fn readable(json: Json) -> Json {
    match nesting_depth(json.as_str()) > DEEPEST {
        true => serde_json::Value::from(json.as_str()).into(),
        false => json,
    }
}
