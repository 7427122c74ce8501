//! One world: a run of a script, its model, its tools, and what becomes of them poll by poll.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use serde_json::json;
use turnstream::agent::hook::{self, BeforeTool};
use turnstream::agent::{Limits, RunHandle};
use turnstream::context::{Compaction, compact_with};
use turnstream::env::CountingIds;
use turnstream::provider::{Provider, Scripted};
use turnstream::tool::{IntoToolOutput, ToolContext, ToolSpec};
use turnstream::{
    Agent, Error, ErrorKind, Event, History, Item, Journal, Request, Run, Tool, Toolkit,
    TurnEvents, TurnStream,
};

use crate::script::{Fate, Script};

/// What happens to a run that it did not ask for. Polls are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    Nothing,
    /// It is dropped behind so many polls.
    Drop(usize),
    /// It is interrupted behind so many polls, by a handle.
    Interrupt(usize),
    /// The wire breaks.
    Wire(Fault),
    Steer(usize),
    FollowUp(usize),
    StopAfterTurn(usize),
}

/// How the stream of a turn breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// In which turn, from 0.
    pub(crate) turn: usize,
    /// Behind how many of its events.
    pub(crate) behind: usize,
    pub(crate) how: How,
    /// The agent asks once more.
    pub(crate) retried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The stream ends without a terminal marker.
    Cut,
    Error,
}

/// What the worlds of one thread stand on: the clock, which only they move, and the tools.
pub(crate) struct Stage {
    pub(crate) tools: Arc<Tools>,
    kit: Toolkit,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let tools = Arc::new(Tools::default());
        Self { kit: kit(&tools), tools }
    }

    /// The agent and its model. Its limits are the oracle's.
    pub(crate) fn agent(&self, script: &Script, what: Disturbance) -> (Agent, Scripted) {
        self.tools.forget();
        let mut replies = script.replies();
        let mut limits = crate::oracle::LIMITS;
        let mut fault = None;
        if let Disturbance::Wire(wire) = what {
            fault = Some(wire);
            if wire.retried {
                replies.insert(wire.turn, script.0[wire.turn].reply());
                limits = Limits { retries: 1, max_turns: limits.max_turns + 1, ..limits };
            }
        }
        let model = Scripted::new(replies);
        let denied = hook::before_tool(|_, call| async move {
            match call.name == Fate::Denied.tool() {
                true => BeforeTool::Deny("no".into()),
                false => BeforeTool::Run,
            }
        });
        let first = |_: &History| {
            Ok(Some(Compaction { from: 0, to: 1, items: vec![Item::user("in short")] }))
        };
        let line = Line { model: model.clone(), fault, asked: AtomicUsize::new(0) };
        let agent = Agent::new(line)
            .with_kit(self.kit.clone())
            .with_limits(limits)
            .with_hook(denied)
            .with_compactor(compact_with(first))
            .with_ids(CountingIds::new("id"));
        (agent, model)
    }
}

/// What a run begins with: an exchange that is over.
pub(crate) fn before() -> History {
    History::from_items("h", [Item::user("before"), Item::text("said before")])
}

/// A model behind a wire that breaks.
struct Line {
    model: Scripted,
    fault: Option<Fault>,
    asked: AtomicUsize,
}

impl Provider for Line {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed);
        let history = request.history.clone();
        let events = self.model.stream_turn(request);
        let Some(fault) = self.fault.filter(|fault| fault.turn == turn) else { return events };
        let end = match fault.how {
            How::Cut => None,
            How::Error => Some(Err(Error::new(ErrorKind::Overloaded, "busy"))),
        };
        // It breaks in the middle of the event behind these.
        let whole = events.take(fault.behind + 1).enumerate().filter_map(move |(at, event)| {
            futures::future::ready((at < fault.behind).then_some(event))
        });
        whole.chain(stream::iter(end)).seal(&history)
    }

    fn model(&self) -> &str {
        self.model.model()
    }
}

/// What the tools did.
#[derive(Default)]
pub(crate) struct Tools {
    running: AtomicUsize,
    ran: Mutex<Vec<String>>,
}

impl Tools {
    /// How many run now.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The ids of the calls that were run, in order.
    pub(crate) fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }

    fn forget(&self) {
        assert_eq!(self.running(), 0, "law 2: a tool of the world before runs on");
        self.ran.lock().unwrap().clear();
    }
}

/// Counts a tool while it runs, however it ends.
struct Running(Arc<Tools>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

fn kit(tools: &Arc<Tools>) -> Toolkit {
    Toolkit::new([
        tool(tools, Fate::Ok, async || "fine"),
        tool(tools, Fate::Late, async || {
            tokio::task::yield_now().await;
            "late"
        }),
        tool(tools, Fate::Error, async || Err::<&str, _>("broken")),
        tool(tools, Fate::Timeout, std::future::pending::<&str>)
            .with_timeout(Duration::from_secs(1)),
        tool(tools, Fate::Panic, async || -> &str {
            tokio::task::yield_now().await;
            std::panic::resume_unwind(Box::new("boom"))
        }),
        tool(tools, Fate::Denied, async || "never"),
        tool(tools, Fate::Asks, async || "allowed").needs_approval(),
    ])
}

fn tool<F, Fut, R>(tools: &Arc<Tools>, fate: Fate, run: F) -> Tool
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoToolOutput + 'static,
{
    let parameters = json!({ "type": "object" });
    let spec = ToolSpec { name: fate.tool().into(), description: String::new(), parameters };
    let tools = Arc::clone(tools);
    let run = move |_, cx: ToolContext| {
        tools.ran.lock().unwrap().push(cx.call_id().to_owned());
        tools.running.fetch_add(1, Ordering::Relaxed);
        let running = Running(Arc::clone(&tools));
        let running_tool = run();
        async move {
            let _running = running;
            running_tool.await
        }
    };
    Tool::raw(spec, run).expect("the spec of a tool")
}

/// Counts how often a run said that it wants to be polled.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One run, and all that was seen of it.
pub(crate) struct World<'a> {
    script: &'a Script,
    what: Disturbance,
    /// `None` once it was dropped.
    pub(crate) run: Option<Run>,
    pub(crate) handle: RunHandle,
    pub(crate) journal: Journal,
    pub(crate) model: Scripted,
    pub(crate) tools: Arc<Tools>,
    /// What runs before this one gave.
    pub(crate) earlier: Vec<Event>,
    pub(crate) events: Vec<Event>,
    /// The same, written and read.
    pub(crate) read: Vec<Event>,
    /// The fold of what was read.
    pub(crate) folded: Journal,
    /// What was folded when a turn began.
    pub(crate) asked_with: Vec<History>,
    /// Behind how many polls each turn began.
    pub(crate) starts: Vec<usize>,
    pub(crate) polls: usize,
    /// How many requests other runs had sent.
    pub(crate) sent_before: usize,
    woken: Arc<Woken>,
    /// The last poll gave nothing.
    pub(crate) silent: bool,
    silences: usize,
}

/// So many polls in a row without an event, each a second behind the other: it hangs.
const HANGS: usize = 10;

impl<'a> World<'a> {
    pub(crate) fn new(stage: &Stage, script: &'a Script, what: Disturbance) -> Self {
        let (agent, model) = stage.agent(script, what);
        let run = agent.run_from(before(), "go");
        Self::of(stage, script, what, (run, model, before()))
    }

    pub(crate) fn of(
        stage: &Stage,
        script: &'a Script,
        what: Disturbance,
        (run, model, before): (Run, Scripted, History),
    ) -> Self {
        Self {
            script,
            what,
            handle: run.handle(),
            journal: run.journal().clone(),
            run: Some(run),
            sent_before: model.requests().len(),
            model,
            tools: Arc::clone(&stage.tools),
            folded: Journal::new(before),
            earlier: Vec::new(),
            events: Vec::new(),
            read: Vec::new(),
            asked_with: Vec::new(),
            starts: Vec::new(),
            polls: 0,
            woken: Arc::default(),
            silent: false,
            silences: 0,
        }
    }

    /// Fails with the world's name if a law does not hold.
    #[track_caller]
    pub(crate) fn check(&self, holds: bool, law: impl fmt::Display) {
        assert!(holds, "{law}, behind {} polls, in the world of {self:?}", self.polls);
    }

    /// The same for two values.
    #[track_caller]
    pub(crate) fn equal<T: PartialEq + fmt::Debug>(&self, found: &T, wanted: &T, law: &str) {
        if found != wanted {
            panic!(
                "{law}, behind {} polls, in the world of {self:?}\n found: {found:?}\nwanted: \
                 {wanted:?}",
                self.polls
            );
        }
    }

    /// How often the run wanted to be polled.
    pub(crate) fn wakes(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }

    /// How many requests this run has sent.
    pub(crate) fn sent(&self) -> usize {
        self.model.requests().len() - self.sent_before
    }

    /// Polls once; false if the run is over. `known` is what another run of the script gave.
    pub(crate) async fn poll(&mut self, known: Option<&World<'_>>) -> bool {
        let wakes = self.wakes();
        let Some(run) = &mut self.run else { return false };
        let waker = Waker::from(Arc::clone(&self.woken));
        let polled = Pin::new(run).poll_next(&mut Context::from_waker(&waker));
        self.polls += 1;
        self.silent = polled.is_pending();
        match polled {
            Poll::Ready(Some(Ok(event))) => {
                self.silences = 0;
                self.take(event, known);
                true
            }
            Poll::Ready(Some(Err(error))) => {
                self.check(false, format!("law 6: a run never gives an error: {error}"));
                false
            }
            Poll::Ready(None) => false,
            Poll::Pending => {
                self.silences += 1;
                self.check(self.silences < HANGS, "law 6: nothing hangs");
                if self.wakes() == wakes {
                    tokio::time::advance(Duration::from_secs(1)).await;
                }
                true
            }
        }
    }

    fn take(&mut self, event: Event, known: Option<&World<'_>>) {
        let at = self.events.len();
        let read = match known {
            // Law 8 for the part that both have in common.
            Some(known) => {
                let same = known.events.get(at) == Some(&event);
                self.check(same, format!("law 8: event {at} is another: {event:?}"));
                known.read[at].clone()
            }
            None => self.written_and_read(&event),
        };
        self.folded.observe(&read);
        if let Event::TurnStarted { .. } = event {
            self.asked_with.push(self.folded.history());
            self.starts.push(self.polls);
        }
        self.events.push(event);
        self.read.push(read);
    }

    fn written_and_read(&self, event: &Event) -> Event {
        let line = serde_json::to_string(event).expect("an event can be written");
        let read: Event = serde_json::from_str(&line).expect("an event can be read");
        let again = serde_json::to_string(&read).expect("an event can be written");
        self.equal(&again, &line, "law 7: an event is what was written of it");
        read
    }

    /// Polls until `polls` were made in all, or to the end.
    pub(crate) async fn poll_until(&mut self, polls: usize, known: &World<'_>) {
        while self.polls < polls && self.poll(Some(known)).await {}
    }
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {:?}", self.script, self.what)
    }
}
