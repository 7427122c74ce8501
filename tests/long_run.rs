//! Ten thousand turns in one run: the stack depth stays constant, memory grows only with the
//! history, and the last turn needs no more work than the first.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::env::CountingIds;
use turnstream::event::EndReason;
use turnstream::stream::{TurnSource, seal};
use turnstream::tool::ToolSpec;
use turnstream::turn::{StopReason, TurnBuilder};
use turnstream::{Agent, Error, Event, History, Provider, Request, Run, Tool, TurnStream, Usage};

const TURNS: usize = 10_000;

/// The checks run one after the other: they measure the memory of the process, and memory that one
/// frees would hide allocations of another.
#[test]
fn ten_thousand_turns_in_one_run() {
    memory_grows_with_the_history_and_is_given_back();
    the_last_turns_need_the_stack_and_the_work_of_the_first();
}

/// A model that calls a tool in all its turns except the last. It stores nothing.
struct Tireless {
    turns: usize,
    asked: AtomicUsize,
    seen: Arc<Stack>,
}

impl Provider for Tireless {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let says = Says { turn, is_last: turn == self.turns, seen: Arc::clone(&self.seen) };
        seal(&request.history, says)
    }

    fn model(&self) -> &'static str {
        "tireless"
    }
}

struct Says {
    turn: usize,
    is_last: bool,
    seen: Arc<Stack>,
}

impl TurnSource for Says {
    fn poll_turn(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> Poll<Option<Result<(), Error>>> {
        look(&self.seen.model);
        turn.set_usage(Usage { input_tokens: 7, output_tokens: 1, ..Usage::default() });
        turn.push_text(0, &format!("turn {}", self.turn));
        if self.is_last {
            turn.stop(StopReason::Stop, "stop");
        } else {
            turn.start_tool_call(1, "", "t");
            turn.push_tool_call_args(1, "{}");
            turn.end_tool_call(1);
            turn.stop(StopReason::ToolCalls, "tool_calls");
        }
        Poll::Ready(Some(turn.complete()))
    }
}

/// The stack addresses at which the model and the tool were polled.
#[derive(Default)]
struct Stack {
    model: Mutex<Vec<usize>>,
    tool: Mutex<Vec<usize>>,
}

/// Records the current stack address.
#[inline(never)]
fn look(at: &Mutex<Vec<usize>>) {
    let here = 0_u8;
    at.lock().unwrap().push(std::ptr::from_ref(&here).addr());
}

fn run(turns: usize) -> (Run, Arc<Stack>) {
    let seen = Arc::new(Stack::default());
    let polled = Arc::clone(&seen);
    let parameters = json!({ "type": "object" });
    let spec = ToolSpec::new("t", "", parameters);
    let tool = Tool::raw(spec, move |_, cx| {
        let seen = Arc::clone(&polled);
        std::future::poll_fn(move |_| {
            look(&seen.tool);
            Poll::Ready(format!("the result of {}", cx.call_id()))
        })
    });
    let model = Tireless { turns, asked: AtomicUsize::new(0), seen: Arc::clone(&seen) };
    let agent = Agent::new(model)
        .with_tools(tool)
        .with_limits(Limits { max_turns: Some(u32::MAX), ..Limits::default() })
        .with_ids(CountingIds::new("id"));
    (agent.run_from(History::empty("h"), "go"), seen)
}

/// Runs on a thread with a stack of 256 KiB, without a runtime, since nothing in the run waits.
/// `at_turn` is called when a turn starts.
fn drive<T: Send>(
    turns: usize,
    mut at_turn: impl FnMut(u32) + Send,
    at_end: impl FnOnce(&Run, &Stack) -> T + Send,
) -> T {
    let drive = || {
        let (mut run, seen) = run(turns);
        futures::executor::block_on(async {
            while let Some(event) = run.next().await {
                match event.expect("a run never gives an error") {
                    Event::TurnStarted { turn, .. } => at_turn(turn),
                    Event::Finished(outcome) => {
                        assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
                        assert_eq!(outcome.turns as usize, turns);
                        assert_eq!(outcome.new_items().len(), 3 * turns - 1);
                        assert_eq!(outcome.usage.input_tokens, 7 * turns as u64);
                    }
                    _ => {}
                }
            }
        });
        at_end(&run, &seen)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let driven = thread.spawn_scoped(scope, drive).expect("a thread").join();
        driven.expect("the run")
    })
}

fn the_last_turns_need_the_stack_and_the_work_of_the_first() {
    let mut marks = Vec::new();
    let (model, tool) = drive(
        TURNS,
        |turn| {
            if turn % 1_000 == 0 {
                marks.extend(worked());
            }
        },
        |_, seen| {
            let take = |at: &Mutex<Vec<usize>>| std::mem::take(&mut *at.lock().unwrap());
            (take(&seen.model), take(&seen.tool))
        },
    );
    assert_eq!((model.len(), tool.len()), (TURNS, TURNS - 1));
    for at in [model, tool] {
        let elsewhere = at.iter().position(|place| *place != at[0]);
        assert_eq!(elsewhere, None, "the stack of turn {elsewhere:?} is another");
    }
    if marks.is_empty() {
        println!("skipped: the work of a thread cannot be known here");
        return;
    }
    let each: Vec<f64> = marks.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000.0).collect();
    println!("nanoseconds a turn, each 1,000 turns: {each:.0?}");
    let (early, late) = (each[0] + each[1] + each[2], each[6] + each[7] + each[8]);
    assert!(late < 3.0 * early, "the work of a turn grows: {each:.0?}");
}

/// The memory of the process in KiB; `None` if it is unknown.
fn resident() -> Option<f64> {
    // Wine has this file as well, but in it the memory is 0.
    if !cfg!(target_os = "linux") {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The CPU time of this thread in nanoseconds.
fn worked() -> Option<f64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split_whitespace().next()?.parse().ok()
}

fn memory_grows_with_the_history_and_is_given_back() {
    if resident().is_none() {
        println!("skipped: what the process holds cannot be known here");
        return;
    }
    let mut first = Vec::new();
    let copied = drive(
        TURNS,
        |turn| {
            if turn % 2_000 == 0 {
                first.extend(resident());
            }
        },
        |run, _| {
            // Measures the memory of the history alone.
            let line = serde_json::to_string(&run.history()).expect("it can be written");
            let before = resident().unwrap_or_default();
            let copy: History = serde_json::from_str(&line).expect("it can be read");
            let copied = resident().unwrap_or_default() - before;
            assert_eq!(copy.len(), 3 * TURNS - 1);
            copied
        },
    );
    let grown: Vec<f64> = first.windows(2).map(|pair| (pair[1] - pair[0]) / 2.0).collect();
    println!("bytes a turn, each 2,000 turns: {grown:.0?}; of the history: {:.0}", copied / 10.0);
    let (early, late) = (grown[0] + grown[1], grown[2] + grown[3]);
    assert!(late < 1.5 * early + 500.0, "it grows faster and faster: {grown:?}");
    // The state and the journal each have a copy of the history.
    let all: f64 = grown.iter().sum::<f64>() / 4.0;
    assert!(all < 4.0 * copied / 10.0, "{all} bytes a turn, {copied} KiB for the history");
    // Runs that have ended leave no memory allocated.
    let mut left = Vec::new();
    for _ in 0..5 {
        drive(2_500, |_| (), |_, _| ());
        left.extend(resident());
    }
    // For 2,500 turns each, in KiB.
    let (of_one, more) = (all * 2.5, left[4] - left[1]);
    assert!(more < of_one, "three more runs left {more} KiB, and one has {of_one}");
}

impl fmt::Debug for Tireless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tireless")
    }
}
