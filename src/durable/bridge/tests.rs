use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use serde_json::json;

use super::*;
use crate::request::ToolSpec;
use crate::tool::SavedCalls;
use crate::turn::{StopReason, TurnBuilder, TurnEvent};
use turnstream_test_support::transitions::{self, Machine};

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A bridge, and a task that waits for it.
struct Task {
    bridge: Bridge,
    wakes: Arc<WakeCounter>,
}

impl Task {
    fn new() -> Self {
        let bridge = Bridge::new("attempt".to_owned(), Toolkit::new([tool()]));
        Self { bridge, wakes: Arc::default() }
    }

    fn with<T>(&self, access: impl FnOnce(&mut BridgeState, &Context<'_>) -> T) -> T {
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.bridge.with(|it| access(it, &Context::from_waker(&waker)))
    }

    /// Applies an input, and adds to the effect whether the task was woken.
    fn woken(&self, apply: impl FnOnce(&mut BridgeState, &Context<'_>) -> &'static str) -> String {
        let _: Poll<()> = self.with(BridgeState::wait);
        let before = self.wakes.0.load(Ordering::Relaxed);
        let effect = self.with(apply);
        match (effect, self.wakes.0.load(Ordering::Relaxed) > before) {
            ("-", true) => "wakes".to_owned(),
            (effect, true) => format!("{effect}, wakes"),
            (effect, false) => effect.to_owned(),
        }
    }
}

fn tool() -> Tool {
    Tool::raw(ToolSpec::new("t", "", json!({ "type": "object" })), |_, _| async { "" }).unwrap()
}

fn call(call_id: &str) -> ToolCall {
    ToolCall { call_id: call_id.to_owned(), name: "t".to_owned(), arguments: "{}".to_owned() }
}

fn key(nth: u32) -> EffectKey {
    EffectKey { run: "r".into(), iteration: 1, kind: EffectKind::Turn, name: "".into(), nth }
}

fn value() -> RawJson {
    json!(1).into()
}

fn event() -> Event {
    Event::Turn(TurnEvent::TextDelta { index: 0, text: "Hi".into() })
}

fn turn_complete() -> Event {
    let mut turn = TurnBuilder::new();
    turn.stop(StopReason::Stop, "");
    turn.complete().unwrap();
    let mut events = std::iter::from_fn(|| turn.next_event());
    Event::Turn(events.find(|event| matches!(event, TurnEvent::TurnComplete { .. })).unwrap())
}

/// A recorded step in which the run drew this number of values.
fn record(draws: usize, key: Option<EffectKey>, result: StepResult) -> RawJson {
    let draw = DrawnValue { kind: EffectKind::Facts, value: value() };
    StepRecord::new(vec![draw; draws], key, result).to_json().unwrap()
}

fn early_end() -> StepResult {
    StepResult::Ended(EndedEarly::new(1, 0, vec![event()], &LoopEnd::default()))
}

fn started_calls(attempt: &str) -> BegunCalls {
    let calls = vec![BegunCall::new(&call("c").into(), &tool(), true)];
    BegunCalls { attempt: attempt.to_owned(), calls }
}

fn may_end(bridge: &BridgeState) -> bool {
    matches!(bridge.loop_control(), LoopControl::MayEnd)
}

/// Walks the states of a step.
struct StepMachine(Task);

impl Machine for StepMachine {
    fn state(&self) -> String {
        let replay = |name: &str, replay: &Replay| match replay.record.drawn_values.len() {
            len if len > replay.drawn => format!("{name}, a value left"),
            _ => name.to_owned(),
        };
        self.0.with(|it, _| match &it.step {
            Step::Undecided { calls: None } => "undecided".to_owned(),
            Step::Undecided { calls: Some(_) } => "undecided, calls started".to_owned(),
            Step::Performing { effect: None, .. } => "performing".to_owned(),
            Step::Performing { effect: Some(effect), .. } => match effect.started {
                Some(_) => "performing calls".to_owned(),
                None => "performing an effect".to_owned(),
            },
            Step::Performed { .. } => "performed".to_owned(),
            Step::Recording { .. } => "recording".to_owned(),
            Step::RepeatingCalls { replay: it, .. } => replay("repeating calls", it),
            Step::Replaying { replay: it, effect } => match (&it.record.result, effect) {
                (StepResult::Calls(_), _) => replay("replaying calls", it),
                (StepResult::Ended(_), None) => replay("replaying an early end", it),
                (StepResult::Ended(_), Some(_)) => replay("ending an effect early", it),
                (StepResult::Finished, _) => replay("replaying the run's end", it),
                _ => replay("replaying", it),
            },
            Step::Replayed { replay: it, .. } => match it.record.ended().is_some() {
                true => replay("replayed an early end", it),
                false => replay("replayed", it),
            },
            Step::Failed { .. } => "failed".to_owned(),
        })
    }

    fn apply(&mut self, input: &str) -> String {
        let drawn = |draw: Option<Draw>| match draw {
            Some(Draw::Live) => "live",
            Some(Draw::Recorded(_)) => "recorded",
            None => "-",
        };
        let requested = |entry: Poll<EffectEntry>| match entry {
            Poll::Ready(EffectEntry::Perform) => "performs",
            Poll::Ready(EffectEntry::EndsAfter(events)) if events == [event()] => {
                "ends after an event"
            }
            Poll::Ready(EffectEntry::EndsAfter(_)) => "ends after other events",
            Poll::Ready(EffectEntry::Kept) => "kept",
            Poll::Pending => "-",
        };
        let performed = |it: &BridgeState, was_performed: bool| match &it.step {
            Step::Performed { result: StepResult::CallsBegin(_), .. } if !was_performed => {
                "calls begin"
            }
            Step::Performed { result, .. } if !was_performed => result.name(),
            _ => "-",
        };
        let end = |it: &mut BridgeState, result| match it.poll_end(&mut Some(result)) {
            Poll::Ready(Ok(_)) => "ends",
            Poll::Ready(Err(_)) => "error",
            Poll::Pending => "-",
        };
        self.0.woken(|it, cx| {
            let was_performed = matches!(it.step, Step::Performed { .. });
            match input {
                _ if input.starts_with("the engine") => apply_engine_input(it, input, cx),
                "the run draws a value" => drawn(it.draw(EffectKind::Facts)),
                "the run draws another value" => drawn(it.draw(EffectKind::Id)),
                "an effect is polled first" => match it.poll_draw(EffectKind::Facts, cx) {
                    Poll::Ready(None) => "not drawn",
                    Poll::Ready(draw) => drawn(draw),
                    Poll::Pending => "-",
                },
                "the run requests the effect" => requested(it.poll_request(&key(1), cx)),
                "the run requests another effect" => requested(it.poll_request(&key(2), cx)),
                "the effect completes" => {
                    it.complete(StepResult::Value(value()));
                    performed(it, was_performed)
                }
                "the calls are idle" => {
                    it.announce(&call("c").into(), &tool());
                    it.on_calls_idle();
                    performed(it, was_performed)
                }
                "the run is idle without calls" => {
                    it.calls.announced.clear();
                    it.on_calls_idle();
                    performed(it, was_performed)
                }
                "the calls begin" => match it.poll_calls_begin(cx) {
                    Poll::Ready(CallsBegin::Live(_)) => "live",
                    Poll::Ready(CallsBegin::Saved(_)) => "saved",
                    Poll::Ready(CallsBegin::EndedEarly(_)) => "ended",
                    Poll::Pending => "-",
                },
                "the calls end" => match it.poll_calls_end(cx) {
                    Poll::Ready(()) => "ends",
                    Poll::Pending => "-",
                },
                "a call asks to start" => match it.poll_call_start(&call("c"), cx) {
                    Poll::Ready(None) => "starts",
                    Poll::Ready(Some(_)) => "does not run",
                    Poll::Pending => "-",
                },
                "the run asks whether to end" => match it.loop_control() {
                    LoopControl::MustEnd(_) => "the loop must end",
                    LoopControl::MayEnd => "the loop may end",
                    LoopControl::MustContinue => "-",
                },
                "the loop ends" => {
                    it.end_loop(&LoopEnd::default());
                    performed(it, was_performed)
                }
                "the run ends" => {
                    it.end_run();
                    performed(it, was_performed)
                }
                "the step ends" => {
                    let effect = end(it, StepResult::Value(value()));
                    it.previous = PreviousResult::Taken;
                    effect
                }
                "the step ends, and calls start" => {
                    end(it, StepResult::CallsBegin(started_calls("attempt")))
                }
                other => panic!("an unknown input: {other}"),
            }
        })
    }
}

/// Applies what the engine does with a step.
fn apply_engine_input(it: &mut BridgeState, input: &str, cx: &Context<'_>) -> &'static str {
    let accept = |it: &mut BridgeState, json: &RawJson| {
        it.accept(json).unwrap();
        "-"
    };
    match input {
        "the engine polls" => match it.poll_step(cx) {
            Poll::Ready(_) => "records",
            Poll::Pending => "-",
        },
        "the engine returns a step" => {
            accept(it, &record(1, Some(key(1)), StepResult::Value(value())))
        }
        "the engine returns the calls" => {
            accept(it, &record(1, Some(key(1)), StepResult::Calls(SavedCalls::default())))
        }
        "the engine returns an early end" => accept(it, &record(1, Some(key(1)), early_end())),
        "the engine returns the run's end" => accept(it, &record(0, None, StepResult::Finished)),
        other => panic!("an unknown input: {other}"),
    }
}

#[test]
fn a_step_moves_between_its_states_as_its_table_says() {
    let table = include_str!("../bridge.md");
    let inputs_without_rows = ["the run is idle without calls"];
    transitions::check_with_inputs(table, "# The states of a step", &inputs_without_rows, || {
        StepMachine(Task::new())
    });
}

/// Walks the states of the previous step's result.
struct ResultMachine(Task);

impl ResultMachine {
    fn end_step(it: &mut BridgeState, result: StepResult) {
        it.step = Step::Recording { effect: Effect::default(), written: None };
        assert!(it.poll_end(&mut Some(result)).is_ready());
        it.step = Step::Performing { draws: Vec::new(), effect: None };
    }
}

impl Machine for ResultMachine {
    fn state(&self) -> String {
        let state = self.0.with(|it, _| match it.previous {
            PreviousResult::Taken => "taken",
            PreviousResult::Untaken(_) => "untaken",
            PreviousResult::Repeating => "repeating",
        });
        state.to_owned()
    }

    fn apply(&mut self, input: &str) -> String {
        let observe = |it: &mut BridgeState, event: &Event| {
            let before = it.event_count;
            it.observe(event);
            if it.event_count > before { "counted" } else { "-" }
        };
        let effect = self.0.with(|it, cx| {
            it.step = Step::Performing { draws: Vec::new(), effect: None };
            match input {
                "a step ends with a value" => {
                    Self::end_step(it, StepResult::Value(value()));
                    "-"
                }
                "a step ends early" => {
                    Self::end_step(it, early_end());
                    "-"
                }
                "the run's end is recorded" => {
                    Self::end_step(it, StepResult::Finished);
                    "-"
                }
                "the run takes the result" => match it.poll_answer(cx) {
                    Poll::Ready(_) => "result",
                    Poll::Pending => "-",
                },
                "the calls begin" => match it.poll_calls_begin(cx) {
                    Poll::Ready(CallsBegin::Live(_)) => "live",
                    Poll::Ready(CallsBegin::Saved(_)) => "saved",
                    Poll::Ready(CallsBegin::EndedEarly(_)) => "ended",
                    Poll::Pending => "-",
                },
                "the calls end" => match it.poll_calls_end(cx) {
                    Poll::Ready(()) => "ends",
                    Poll::Pending => "-",
                },
                "the run asks whether it may end" => {
                    if may_end(it) {
                        "yes"
                    } else {
                        "-"
                    }
                }
                "the run repeats the result" => {
                    it.begin_repeat();
                    "-"
                }
                "the run has repeated the result" => {
                    it.end_repeat();
                    "-"
                }
                "a turn completes" => observe(it, &turn_complete()),
                "another event" => observe(it, &event()),
                "the loop ends" => {
                    it.end_loop(&LoopEnd::default());
                    "-"
                }
                other => panic!("an unknown input: {other}"),
            }
        });
        effect.to_owned()
    }
}

#[test]
fn the_previous_steps_result_moves_between_its_states_as_its_table_says() {
    let table = include_str!("../bridge.md");
    let heading = "# The result of the previous step";
    let inputs_without_rows = ["a step ends early", "the run's end is recorded"];
    transitions::check_with_inputs(table, heading, &inputs_without_rows, || {
        ResultMachine(Task::new())
    });
}

#[test]
fn a_result_that_the_run_has_yielded_in_another_way_no_longer_keeps_the_run_from_ending() {
    let result = ToolResult::for_call(&call("c"), crate::item::ResultKind::UnknownTool, "gone");
    Task::new().with(|it, _| {
        it.step = Step::Performing { draws: Vec::new(), effect: None };
        it.calls.set_results(vec![result.clone()]);
        assert!(!may_end(it));
        it.observe(&Event::Tool(ToolEvent::Output(result)));
        assert!(may_end(it));
    });
}

/// A task in whose current step calls have been allowed to start by the attempt with this name.
fn task_with_started_calls(attempt: &str) -> Task {
    let task = Task::new();
    let started = Some(started_calls(attempt));
    let effect = Some(Effect { started, ..Effect::default() });
    task.with(|it, _| it.step = Step::Performing { draws: Vec::new(), effect });
    task
}

fn starts(task: &Task, call_id: &str) -> bool {
    let start = task.with(|it, cx| it.poll_call_start(&call(call_id), cx));
    matches!(start, Poll::Ready(None))
}

#[test]
fn a_call_that_an_earlier_attempt_started_runs_again_only_if_its_tool_was_and_is_idempotent() {
    for (was_idempotent, is_idempotent) in [(true, true), (true, false), (false, true)] {
        let task = task_with_started_calls("an earlier attempt");
        task.with(|it, _| {
            let tool = if is_idempotent { tool().idempotent() } else { tool() };
            it.announce(&call("c").into(), &tool);
            let Step::Performing { effect: Some(effect), .. } = &mut it.step else { return };
            let Some(started) = &mut effect.started else { return };
            started.calls[0].is_idempotent = was_idempotent;
        });
        assert_eq!(starts(&task, "c"), was_idempotent && is_idempotent);
    }
}

#[test]
fn an_early_end_keeps_only_the_events_of_the_effect() {
    let (task, continued) = (
        Task::new(),
        serde_json::from_value(json!({
            "type": "continued", "reason": "next_turn"
        })),
    );
    task.with(|it, cx| {
        it.step = Step::Performing { draws: Vec::new(), effect: None };
        it.observe(&event());
        assert!(it.poll_request(&key(1), cx).is_ready());
        it.observe(&continued.unwrap());
        it.observe(&event());
        it.end_loop(&LoopEnd::default());
        let Step::Performed { result: StepResult::Ended(ended), .. } = &it.step else {
            panic!("the step has not ended early")
        };
        assert_eq!((ended.event_count, &*ended.effect_events), (3, &[event()][..]));
    });
}

#[test]
fn calls_that_have_been_allowed_to_start_are_passed_to_the_run_with_their_arguments() {
    let task = task_with_started_calls("an earlier attempt");
    let begin = task.with(super::BridgeState::poll_calls_begin);
    assert!(
        matches!(begin, Poll::Ready(CallsBegin::Live(calls)) if calls == [AdmittedCall::from(call("c"))])
    );
}

#[test]
fn drawn_values_that_are_too_large_to_be_recorded_fail_the_step() {
    let task = Task::new();
    let effect = task.woken(|it, cx| {
        assert!(it.poll_step(cx).is_pending());
        assert!(it.poll_request(&key(1), cx).is_ready());
        it.keep_draw(EffectKind::HookMessages, json!("x".repeat(17 << 20)).into());
        it.complete(StepResult::Value(value()));
        assert!(it.poll_step(cx).is_pending() && it.is_live());
        match it.poll_end(&mut None) {
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::TooLarge => "too large",
            _ => "-",
        }
    });
    assert_eq!(effect, "too large, wakes");
}

#[test]
fn a_value_that_is_not_a_step_is_a_replay_mismatch_and_leaves_the_step_undecided() {
    Task::new().with(|it, _| {
        assert_eq!(it.accept(&value()).unwrap_err().kind(), ErrorKind::ReplayMismatch);
        assert!(matches!(it.step, Step::Undecided { calls: None }));
    });
}

#[test]
fn an_early_end_is_repeated_at_the_same_event_after_the_previous_result_has_been_taken() {
    let end = StepResult::Ended(EndedEarly::new(0, 1, Vec::new(), &LoopEnd::default()));
    let untaken = PreviousResult::Untaken(StepResult::Value(value()));
    for (previous, must_end) in
        [(PreviousResult::Taken, true), (PreviousResult::Repeating, false), (untaken, false)]
    {
        Task::new().with(|it, _| {
            it.accept(&record(0, None, end.clone())).unwrap();
            it.previous = previous;
            let must_end_now = |it: &BridgeState| match it.loop_control() {
                LoopControl::MustEnd(_) => true,
                LoopControl::MayEnd | LoopControl::MustContinue => false,
            };
            assert!(!must_end_now(it));
            it.event_count = 1;
            assert_eq!(must_end_now(it), must_end);
        });
    }
}

/// Performs a step with this result, and returns the JSON that the engine records.
fn perform_step(it: &mut BridgeState, cx: &Context<'_>, result: StepResult) -> RawJson {
    assert!(it.poll_step(cx).is_pending());
    assert!(it.poll_request(&key(1), cx).is_ready());
    it.complete(result);
    match it.poll_step(cx) {
        Poll::Ready(json) => json,
        Poll::Pending => panic!("the step has not been performed"),
    }
}

/// Returns whether the state keeps a result that the engine may return unchanged.
fn keeps_result(it: &BridgeState) -> bool {
    matches!(it.step, Step::Recording { written: Some(_), .. })
}

fn turn_result(data: &str) -> StepResult {
    let mut turn = TurnBuilder::new();
    turn.push_text(0, "Hi");
    // A provider can create such data without parsing it.
    let value = RawJson::new(&serde_json::value::RawValue::from_string(data.to_owned()).unwrap());
    turn.set_text_data(0, crate::item::ProviderData::new("p", "m", value.unwrap()));
    turn.stop(StopReason::Stop, "");
    turn.complete().unwrap();
    let mut saved = crate::world::SavedTurn::default();
    std::iter::from_fn(|| turn.next_event()).for_each(|event| saved.observe(&Ok(event)));
    StepResult::Turn(saved)
}

fn calls_result(text: &str) -> StepResult {
    let output = ToolResult::for_call(&call("c"), ResultKind::Ok, text);
    let events = [serde_json::to_value(Event::Tool(ToolEvent::Output(output))).unwrap()];
    StepResult::Calls(serde_json::from_value(json!({ "events": events })).unwrap())
}

#[test]
fn an_attempt_continues_with_the_result_that_a_later_attempt_parses() {
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let large = RawJson::new(&(u128::from(u64::MAX) + 1)).unwrap();
    for (result, is_kept) in [
        (StepResult::Value(value()), true),
        (StepResult::Value(large), false),
        (StepResult::Value(nested(100).into()), false),
        // `serde_json` does not parse such a value.
        (StepResult::Value(nested(130).into()), false),
        (turn_result(r#"{"n":1}"#), true),
        (turn_result(r#"{"n":1e2}"#), false),
        (calls_result("found"), true),
        (StepResult::CallsBegin(started_calls("attempt")), true),
        (StepResult::Failed(Error::new(ErrorKind::Other, "failed")), false),
        (early_end(), false),
        (StepResult::Finished, true),
    ] {
        Task::new().with(|it, cx| {
            let name = format!("{result:?}");
            let json = perform_step(it, cx, result);
            assert_eq!(keeps_result(it), is_kept, "{name}");
            let parsed = StepRecord::parse(&json).map(|record| format!("{:?}", record.result));
            let accepted = it.accept(&json).map(|result| format!("{result:?}"));
            assert_eq!(accepted.ok(), parsed.ok(), "{name}");
            assert!(!keeps_result(it), "{name}");
        });
    }
}

#[test]
fn json_that_an_engine_has_rewritten_is_parsed() {
    Task::new().with(|it, cx| {
        let json = perform_step(it, cx, turn_result("{}"));
        let fields = json.as_str().strip_prefix(r#"{"v":1,"#).unwrap().strip_suffix('}').unwrap();
        let rewritten = RawJson::parse(&format!(r#"{{{fields},"v":1}}"#)).unwrap();
        assert_ne!(rewritten, json);
        let accepted = format!("{:?}", it.accept(&rewritten).unwrap());
        assert!(keeps_result(it));
        assert_eq!(accepted, format!("{:?}", StepRecord::parse(&json).unwrap().result));
    });
}
