//! A crash at every append of a script, before and after the entry is written, and a second crash
//! in the resumed run: no reported item is lost, and no call that is not idempotent runs twice.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::executor::block_on;
use futures::future::{BoxFuture, FutureExt, pending};
use tokio::sync::Notify;
use turnstream::context::{Compaction, compactor_fn};
use turnstream::event::ToolEvent;
use turnstream::item::PendingCall;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{Entry, MemoryStore, Session, SessionState, Store, restore_history};
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Request};

use turnstream_test_support::cases;
use turnstream_test_support::forward_to_inner;
use turnstream_test_support::tools::spec;

/// The append at which a process dies, by number.
#[derive(Clone, Copy, Debug)]
enum CrashPoint {
    BeforeAppend(usize),
    AfterAppend(usize),
}

/// A store whose process dies.
struct CrashingStore {
    inner: MemoryStore,
    crash_point: Option<CrashPoint>,
    append_count: AtomicUsize,
    crashed: Arc<Notify>,
}

impl Store for CrashingStore {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        async move {
            let number = self.append_count.fetch_add(1, Ordering::Relaxed);
            let dies = match self.crash_point {
                Some(CrashPoint::BeforeAppend(at)) if at == number => true,
                Some(CrashPoint::AfterAppend(at)) if at == number => {
                    self.inner.append(id, expected, entries.clone()).await.unwrap();
                    true
                }
                Some(_) | None => false,
            };
            if dies {
                self.crashed.notify_one();
                return pending().await;
            }
            self.inner.append(id, expected, entries).await
        }
        .boxed()
    }

    forward_to_inner!();
}

/// The state that outlives a process.
#[derive(Clone, Default)]
struct DurableState {
    store: MemoryStore,
    /// The keys of the calls that had their effect, by tool.
    tool_effects: Arc<Mutex<Vec<(String, String)>>>,
    /// The items that were reported to consumers, in order.
    reported_items: Arc<Mutex<Vec<Item>>>,
    /// Violations that tools and the model observed. A panic inside of them would become a result.
    violations: Arc<Mutex<Vec<String>>>,
    /// How an unfinished session is continued: by a prompt, or by a resume.
    continues_with_prompt: bool,
}

/// The next step of the script, by the last call that was made.
fn script_stage(history: &History) -> u32 {
    let ids = history.iter().filter_map(Item::as_tool_call).map(|call| &call.call_id[1..2]);
    ids.map(|digit| digit.parse::<u32>().unwrap() + 1).max().unwrap_or(0)
}

impl DurableState {
    async fn load_entries(&self) -> Vec<Entry> {
        self.store.load("s", 0).await.unwrap().unwrap_or_default()
    }

    fn record_unless(&self, is_so: bool, wrong: &str) {
        if !is_so {
            self.violations.lock().unwrap().push(wrong.to_owned());
        }
    }

    fn recording_tool(&self, name: &'static str, pause: u64) -> Tool {
        let world = self.clone();
        let tool = Tool::raw(spec(name), move |_args, cx| {
            let world = world.clone();
            async move {
                let entries = world.load_entries().await;
                let is_call = |entry: &Entry| {
                    matches!(entry, Entry::Item(item)
                    if item.as_tool_call().is_some_and(|call| call.call_id == cx.call_id()))
                };
                world.record_unless(
                    entries.iter().any(is_call),
                    "a tool starts before its turn is durable",
                );
                let asks = entries.iter().rposition(|entry| matches!(entry, Entry::Pending { .. }));
                let goes = entries.iter().rposition(|entry| matches!(entry, Entry::Resumed { .. }));
                let has_waited = asks > entries.iter().position(is_call);
                world.record_unless(
                    !has_waited || asks < goes,
                    "a call that waited starts unannounced",
                );
                let key = cx.idempotency_key().to_owned();
                world.tool_effects.lock().unwrap().push((name.to_owned(), key));
                tokio::time::sleep(Duration::from_millis(pause)).await;
                "done"
            }
        });
        tool.unwrap()
    }

    fn scripted_agent(&self) -> Agent {
        let world = self.clone();
        let model = Scripted::from_fn(move |request: &Request, _| {
            let durable = restore_history("s", block_on(world.load_entries()));
            world.record_unless(request.history == durable, "what is asked is not durable");
            match script_stage(&request.history) {
                0 => Reply::text("Let me see.")
                    .call_raw("s0a", "once", "{}")
                    .call_raw("s0b", "again", "{}")
                    .call_raw("s0c", "slow", "{}"),
                1 if request.history.iter().all(|item| !item.compacted) => {
                    Reply::error(Error::new(ErrorKind::ContextWindow, "too long"))
                }
                1 => Reply::new().call_raw("s1a", "ask", "{}").call_raw("s1b", "again", "{}"),
                2 => Reply::new()
                    .call_raw("s2a", "ask", "{}")
                    .call_raw("s2b", "again", "{}")
                    .call_raw("s2c", "out", "{}")
                    .call_raw("s2d", "once", "{}"),
                3 => Reply::text("Once more.").call_raw("s3a", "again", "{}"),
                _ => Reply::text("The end."),
            }
        });
        let tools = [
            self.recording_tool("once", 5),
            self.recording_tool("again", 10).idempotent(),
            self.recording_tool("slow", 15),
            self.recording_tool("ask", 5).requires_approval(),
            Tool::external(spec("out")).unwrap(),
        ];
        let shorter = compactor_fn(|history: &History| {
            // All calls except those of the last turn have results.
            let calls = history.iter().position(|item| item.as_tool_call().is_some()).unwrap();
            let items = vec![Item::user("in short")];
            Ok(Some(Compaction { from: 0, to: calls - 1, items, ..Compaction::default() }))
        });
        Agent::new(model).with_tools(tools).with_compactor(shorter)
    }

    /// Runs one process. Returns whether it reached the end of the script.
    async fn run_process(&self, death: Option<CrashPoint>) -> bool {
        let died = Arc::new(Notify::new());
        let store = CrashingStore {
            inner: self.store.clone(),
            crash_point: death,
            append_count: AtomicUsize::new(0),
            crashed: Arc::clone(&died),
        };
        tokio::select! {
            biased;
            () = died.notified() => false,
            () = self.run_to_end(store) => true,
        }
    }

    async fn run_to_end(&self, store: CrashingStore) {
        let session = Session::open(store, "s").await.unwrap();
        let agent = self.scripted_agent();
        loop {
            assert!(session.history().settled().is_settled());
            let run = match session.state() {
                SessionState::Idle if session.history().is_empty() => {
                    session.run(&agent, "go").await
                }
                SessionState::Idle => break,
                SessionState::Pending { calls } => {
                    let verdict = |call: PendingCall| match &*call.name {
                        "out" => (call, Verdict::output("from elsewhere")),
                        _ => (call, Verdict::Approve),
                    };
                    session.resume(&agent, calls.into_iter().map(verdict)).await
                }
                SessionState::Unfinished { .. } if self.continues_with_prompt => {
                    session.run(&agent, "go on").await
                }
                SessionState::Unfinished { .. } => session.resume(&agent, []).await,
            };
            let mut run = run.unwrap();
            while let Some(event) = run.next().await {
                self.record_reported_items(&event.unwrap());
            }
        }
        let last = session.history().last().unwrap().clone();
        assert_eq!(last.as_text(), Some("The end."));
    }

    fn record_reported_items(&self, event: &Event) {
        let mut told = self.reported_items.lock().unwrap();
        match event {
            Event::Appended { items, .. } => told.extend(items.iter().cloned()),
            Event::Tool(ToolEvent::Output(result)) => told.push(Item::tool_result(result.clone())),
            event => {
                if let Some(turn) = event.turn_complete() {
                    told.extend(turn.to_history_items());
                }
            }
        }
    }

    async fn assert_consistent(&self, deaths: &[CrashPoint]) {
        let wrong = self.violations.lock().unwrap().clone();
        assert!(wrong.is_empty(), "{deaths:?}: {wrong:?}");
        let entries = self.load_entries().await;
        let mut items = entries.iter().filter_map(|entry| match entry {
            // Events do not report whether a call's tool is idempotent.
            Entry::Item(item) => Some(Item { idempotent: false, ..item.clone() }),
            _ => None,
        });
        for told in self.reported_items.lock().unwrap().iter() {
            assert!(items.any(|item| item == *told), "{deaths:?}: {told:?} was told and is lost");
        }
        let mut results = HashSet::new();
        for entry in &entries {
            let Entry::Item(item) = entry else { continue };
            let Some(result) = item.as_tool_result() else { continue };
            assert!(results.insert(result.call_id.clone()), "{deaths:?}: {result:?} comes twice");
        }
        assert!(restore_history("s", entries).is_settled(), "{deaths:?}");
        let mut keys = HashSet::new();
        for (name, key) in self.tool_effects.lock().unwrap().iter() {
            assert!(key.starts_with("s/s"), "{deaths:?}: {key}");
            let is_new = keys.insert(key.clone());
            assert!(is_new || name == "again", "{deaths:?}: {name} {key} ran twice");
        }
    }
}

/// Runs processes with these crashes, and then to the end. Returns how many of the crashes
/// occurred.
async fn run_with_crashes(deaths: &[CrashPoint], says: bool) -> usize {
    let world = DurableState { continues_with_prompt: says, ..DurableState::default() };
    let mut came = 0;
    for death in deaths {
        if world.run_process(Some(*death)).await {
            break;
        }
        came += 1;
    }
    if came == deaths.len() {
        assert!(world.run_process(None).await);
    }
    world.assert_consistent(&deaths[..came]).await;
    came
}

fn crash_points() -> impl Iterator<Item = CrashPoint> {
    (0..).flat_map(|at| [CrashPoint::BeforeAppend(at), CrashPoint::AfterAppend(at)])
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_append_loses_and_duplicates_nothing() {
    for says in [false, true] {
        let mut deaths = 0;
        for death in crash_points() {
            if run_with_crashes(&[death], says).await == 0 {
                break;
            }
            deaths += 1;
        }
        assert!(deaths > 30, "{deaths}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_crash_during_recovery_loses_and_duplicates_nothing() {
    // Odd, so that there are crashes before and after an append.
    let step = cases::sample_step(5);
    let mut pairs = 0;
    for first in crash_points().step_by(step) {
        let mut came = 0;
        for second in crash_points() {
            // Alternates between the two ways to continue.
            came = run_with_crashes(&[first, second], pairs % 2 == 0).await;
            if came < 2 {
                break;
            }
            pairs += 1;
        }
        if came == 0 {
            break;
        }
    }
    assert!(pairs > 500 / step, "{pairs}");
}
