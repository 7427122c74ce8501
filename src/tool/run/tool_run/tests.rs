use std::mem;
use std::sync::Mutex;
use std::task::Waker;

use futures::stream;
use serde_json::json;
use turnstream_test_support::transitions::{self, Machine};

use super::*;
use crate::event::EndReason;
use crate::journal::Journal;
use crate::request::ToolSpec;
use crate::tool::run::journaled_calls::JournalStage;
use crate::tool::{AdmittedCall, CallsBegin};
use crate::tool::{PreparedCall, Tool, ToolHandler, ToolUpdate};
use crate::turn::{StopReason, TurnBuilder, TurnEvent};

/// The surroundings of a run with a single call, and the effects of the current input.
#[derive(Default)]
struct Surroundings {
    /// The input that is applied in the current poll.
    input: String,
    is_tool_running: bool,
    has_sub_agent_ended: bool,
    /// The question to the journal that has no answer yet.
    pending_question: Option<Question>,
    /// The waker of whatever waits for the next input.
    waker: Option<Waker>,
    effects: Vec<&'static str>,
}

#[derive(Clone, Copy, PartialEq)]
enum Question {
    Begin,
    Start,
    Stored,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Surroundings>>);

impl Shared {
    fn with<T>(&self, access: impl FnOnce(&mut Surroundings) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    fn note(&self, effect: &'static str) {
        self.with(|it| it.effects.push(effect));
    }

    /// Answers a question with the current input, if it is an answer to this question.
    fn answer<T>(
        &self,
        question: Question,
        cx: &Context<'_>,
        answer: impl FnOnce(&str) -> Option<T>,
    ) -> Poll<T> {
        self.with(|it| {
            it.waker = Some(cx.waker().clone());
            let answer = answer(&it.input);
            it.pending_question = answer.is_none().then_some(question);
            answer.map_or(Poll::Pending, Poll::Ready)
        })
    }
}

struct TestTool(ToolSpec, Shared);

impl ToolHandler for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, _: &str) -> Result<PreparedCall, String> {
        let shared = self.1.clone();
        Ok(PreparedCall::new(move |_| Box::pin(Updates::new(shared))))
    }
}

struct Updates(Shared);

impl Updates {
    fn new(shared: Shared) -> Self {
        shared.with(|it| it.is_tool_running = true);
        Self(shared)
    }
}

impl Stream for Updates {
    type Item = ToolUpdate;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ToolUpdate>> {
        self.0.with(|it| it.waker = Some(cx.waker().clone()));
        match &*self.0.with(|it| mem::take(&mut it.input)) {
            "the tool returns" => Poll::Ready(Some(ToolUpdate::output("done"))),
            "the tool reports progress" => Poll::Ready(Some(ToolUpdate::progress(&1))),
            "the tool reports progress, and the policy fails" => {
                Poll::Ready(Some(ToolUpdate::progress(&2)))
            }
            "the sub-agent ends" => {
                self.0.with(|it| it.has_sub_agent_ended = true);
                let outcome = Journal::new(History::empty("h")).outcome(EndReason::Completed, None);
                let event = Event::Finished(Box::new(outcome));
                Poll::Ready(Some(ToolUpdate::NestedEvent(Box::new(event))))
            }
            _ if self.0.with(|it| it.has_sub_agent_ended) => {
                Poll::Ready(Some(ToolUpdate::output("done")))
            }
            _ => Poll::Pending,
        }
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.0.with(|it| it.is_tool_running = false);
    }
}

/// A policy that fails at the progress `2`.
struct TestPolicy;

impl ToolPolicy for TestPolicy {
    fn redact_progress(&mut self, _: &ToolCall, data: &mut RawJson) -> Result<(), Error> {
        match data.as_str() {
            "2" => Err(Error::new(ErrorKind::Hook, "the policy failed")),
            _ => Ok(()),
        }
    }
}

impl CallJournal for Shared {
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin> {
        self.answer(Question::Begin, cx, |input| {
            Some(match input {
                "the journal lets the calls run" => CallsBegin::Live(Vec::new()),
                "the journal has the calls' results" => CallsBegin::Saved(saved_calls()),
                "the journal has the events before an early end" => {
                    let (call_id, name) = ("c".to_owned(), "t".to_owned());
                    let data = json!(1).into();
                    let progress = ToolEvent::Progress { call_id, name, data };
                    CallsBegin::EndedEarly(vec![Event::Tool(progress)])
                }
                _ => return None,
            })
        })
    }

    fn announce(&self, _: &AdmittedCall, _: &Tool) {
        self.note("announces");
    }

    fn on_idle(&self) {
        self.note("idle");
    }

    fn poll_start(&self, _: &ToolCall, cx: &mut Context<'_>) -> Poll<Option<ToolResult>> {
        self.answer(Question::Start, cx, |input| match input {
            "the journal lets the call start" => Some(None),
            "the journal has the call's result" => Some(Some(result())),
            _ => None,
        })
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        let is_stored = |input: &str| (input == "the journal has stored the results").then_some(());
        self.answer(Question::Stored, cx, is_stored)
    }
}

fn result() -> ToolResult {
    let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
    ToolResult::for_call(&call, ResultKind::Ok, "done")
}

fn saved_calls() -> SavedCalls {
    let events = vec![Event::Tool(ToolEvent::Output(result()))];
    SavedCalls { events, ..SavedCalls::default() }
}

/// A turn with these calls, each with its id and the name of its tool.
fn turn(calls: &[(&str, &str)]) -> Arc<Turn> {
    let mut turn = TurnBuilder::new();
    for (call_id, name) in calls {
        let (call_id, name) = ((*call_id).to_owned(), (*name).to_owned());
        turn.absorb(TurnEvent::ToolCallStart { call_id: call_id.clone(), name });
        turn.absorb(TurnEvent::ToolCallEnd { call_id });
    }
    turn.stop(StopReason::ToolCalls, "");
    turn.complete().unwrap();
    let mut events = std::iter::from_fn(|| turn.next_event());
    let complete = events.find_map(|event| match event {
        TurnEvent::TurnComplete { turn } => Some(turn),
        _ => None,
    });
    complete.unwrap()
}

/// A run with a single call, and its surroundings.
struct RunMachine {
    run: Option<ToolRun>,
    shared: Shared,
    is_new: bool,
    is_recorded: bool,
}

impl RunMachine {
    fn new() -> Self {
        let shared = Shared::default();
        let spec = ToolSpec::new("t", "", json!({ "type": "object" }));
        let toolkit = Toolkit::new([Tool::from_handler(TestTool(spec, shared.clone()))]);
        let turn = turn(&[("c", "t")]);
        let saved = shared.clone();
        let run = toolkit.run(&History::empty("h"), &turn).with_policy(TestPolicy);
        let run = run.on_complete(move |_| saved.note("saves"));
        Self { run: Some(run), shared, is_new: true, is_recorded: false }
    }

    fn poll(&mut self) {
        self.is_new = false;
        let was_running = self.shared.with(|it| it.is_tool_running);
        self.shared.with(|it| it.waker.take()).into_iter().for_each(Waker::wake);
        let polled = self.run.as_mut().unwrap();
        match polled.poll_next_unpin(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {}
            Poll::Ready(None) => self.shared.note("ends"),
            Poll::Ready(Some(event)) => self.shared.note(match event {
                ToolEvent::Started { .. } => "starts the call",
                ToolEvent::Progress { .. } => "progress",
                ToolEvent::Output(_) => "result",
                ToolEvent::Nested { .. } => "the sub-agent's event",
                _ => "another event",
            }),
        }
        let has_result = self.run.as_ref().unwrap().result_collector.has_result("c");
        if was_running && !has_result && !self.shared.with(|it| it.is_tool_running) {
            self.shared.note("drops the call");
        }
    }
}

impl Machine for RunMachine {
    fn state(&self) -> String {
        let run = self.run.as_ref().unwrap();
        let (is_running, pending_question) =
            self.shared.with(|it| (it.is_tool_running, it.pending_question));
        let (error, has_result) =
            (run.result_collector.error(), run.result_collector.has_result("c"));
        let state = match &run.source {
            ResultSource::Over(_) => "over",
            ResultSource::Live(_) if self.is_new => "new",
            ResultSource::Live(live) if live.has_next_event() => "result known",
            ResultSource::Live(_) => match (error, has_result) {
                (Some(_), _) => "failed",
                (None, true) => "answered",
                (None, false) => "running",
            },
            ResultSource::Replayed(_) if self.is_recorded => "replaying",
            ResultSource::Replayed(_) if has_result => "saved calls repeated",
            ResultSource::Replayed(_) => "repeating saved calls",
            ResultSource::Journaled(journaled) => match (&journaled.stage, error, has_result) {
                (JournalStage::AwaitsBegin(_), _, _) => "awaiting the journal",
                (JournalStage::Running(live), _, _) if live.has_next_event() => {
                    "result known under a journal"
                }
                (JournalStage::Running(_), Some(_), _) => "failed under a journal",
                (JournalStage::Running(_), None, true) => "answered under a journal",
                (JournalStage::Running(_), None, false) if is_running => "running under a journal",
                (JournalStage::Running(_), None, false) if pending_question.is_some() => {
                    "awaiting the call's start"
                }
                (JournalStage::Running(_), None, false) => "call announced",
                (JournalStage::Repeating(_), _, true) => "repeating stored calls",
                (JournalStage::Repeating(_), _, false) => "ending early",
                (JournalStage::Storing(_), _, _) => "storing the results",
            },
        };
        state.to_owned()
    }

    fn apply(&mut self, input: &str) -> String {
        let shared = self.shared.clone();
        shared.with(|it| it.input = input.to_owned());
        let question = match input {
            "it is polled" => {
                self.poll();
                None
            }
            "saved calls are given" if self.is_new => {
                self.run = self.run.take().map(|run| run.with_saved_calls(saved_calls()));
                self.is_new = false;
                None
            }
            "recorded events are given" if self.is_new => {
                let next = move || shared.with(|it| mem::take(&mut it.input));
                let events = stream::poll_fn(move |_| match &*next() {
                    "a recorded result arrives" => Poll::Ready(Some(ToolEvent::Output(result()))),
                    "the recording ends" => Poll::Ready(None),
                    _ => Poll::Pending,
                });
                let run = self.run.take();
                self.run = run.map(|run| run.with_replayed_events(events, Vec::new()));
                self.is_new = false;
                self.is_recorded = true;
                None
            }
            "a journal is given" if self.is_new => {
                self.run = self.run.take().map(|run| run.with_journal(Arc::new(shared)));
                self.poll();
                None
            }
            "the journal lets the calls run"
            | "the journal has the calls' results"
            | "the journal has the events before an early end" => Some(Question::Begin),
            "the journal lets the call start" | "the journal has the call's result" => {
                Some(Question::Start)
            }
            "the journal has stored the results" => Some(Question::Stored),
            "a recorded result arrives" | "the recording ends" => {
                if self.is_recorded && !self.run.as_ref().unwrap().is_terminated() {
                    self.poll();
                }
                None
            }
            _ if (input.starts_with("the tool") || input == "the sub-agent ends")
                && self.shared.with(|it| it.is_tool_running) =>
            {
                self.poll();
                None
            }
            _ => None,
        };
        if question.is_some() && self.shared.with(|it| it.pending_question) == question {
            self.poll();
        }
        let effects = self.shared.with(|it| mem::take(&mut it.effects));
        if effects.is_empty() { "-".to_owned() } else { effects.join(", ") }
    }
}

#[test]
fn a_tool_run_moves_between_its_states_as_its_table_says() {
    let table = include_str!("../tool_run.md");
    transitions::check(table, "# The states of a tool run", RunMachine::new);
}

/// Lets all calls run, and stores nothing.
struct NoJournal;

impl CallJournal for NoJournal {
    fn poll_begin(&self, _: &mut Context<'_>) -> Poll<CallsBegin> {
        Poll::Ready(CallsBegin::Live(Vec::new()))
    }

    fn poll_end(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[test]
fn calls_with_a_journal_are_all_announced_and_then_wait_for_slots() {
    // The number of running calls, and the numbers that the calls saw when they started.
    let seen: Arc<Mutex<(usize, Vec<usize>)>> = Arc::default();
    let tool = |name: &str| {
        let (spec, seen) =
            (ToolSpec::new(name, "", json!({ "type": "object" })), Arc::clone(&seen));
        let tool = Tool::raw(spec, move |_, _| {
            let seen = Arc::clone(&seen);
            async move {
                let running = {
                    let mut seen = seen.lock().unwrap();
                    seen.0 += 1;
                    seen.0
                };
                seen.lock().unwrap().1.push(running);
                let mut was_polled = false;
                std::future::poll_fn(|cx| match mem::replace(&mut was_polled, true) {
                    true => Poll::Ready(()),
                    false => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await;
                seen.lock().unwrap().0 -= 1;
                "done"
            }
        });
        tool.unwrap()
    };
    let toolkit = Toolkit::new([tool("shared"), tool("alone").exclusive()]);
    let toolkit = toolkit.with_max_concurrency(2.try_into().unwrap());
    let turn = turn(&[("1", "shared"), ("2", "shared"), ("3", "shared"), ("4", "alone")]);
    let run = toolkit.run(&History::empty("h"), &turn).with_journal(Arc::new(NoJournal));
    let events: Vec<ToolEvent> = futures::executor::block_on(run.collect());
    let is_start = |event: &ToolEvent| matches!(event, ToolEvent::Started { .. });
    assert_eq!(events.iter().map(is_start).collect::<Vec<_>>(), [[true; 4], [false; 4]].concat());
    let mut running = seen.lock().unwrap().1.clone();
    assert_eq!(running.pop(), Some(1), "the exclusive call runs last, and alone");
    assert_eq!((running.len(), running.iter().max()), (3, Some(&2)));
}
