//! A world outside the crate that stores a turn's calls through the public journal: first the calls
//! that may start, and then their results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::{StreamExt, poll};
use serde_json::json;
use turnstream::item::{INTERRUPTED_MID_EXECUTION, ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::stream::TurnStream;
use turnstream::tool::{
    AdmittedCall, CallJournal, CallsBegin, SavedCalls, Tool, ToolRun, ToolSpec,
};
use turnstream::world::{Effect, EffectKey, EffectValue, LiveWorld, SendRequest, World};
use turnstream::{Agent, Event, History, Item, Request, Run};

/// The data that survives a crash, by effect: the calls that may start, and their results as JSON.
type Disk = Arc<Mutex<BTreeMap<EffectKey, (Vec<AdmittedCall>, Option<String>)>>>;

/// Performs all effects, and stores the calls of each turn.
#[derive(Debug)]
struct StoredCalls(Disk);

impl World for StoredCalls {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        LiveWorld.draw(key, live)
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        LiveWorld.step(key, effect)
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        LiveWorld.turn(key, request, ask)
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        let (disk, key) = (Arc::clone(&self.0), key.clone());
        let stored = disk.lock().unwrap().get(&key).cloned();
        let (lost, saved) = stored.unwrap_or_default();
        let (announced, waker) = Default::default();
        let (store, at) = (Arc::clone(&disk), key.clone());
        calls
            .with_journal(Arc::new(Journal { disk, key, lost, saved, announced, waker }))
            .on_complete(move |saved| {
                let json = serde_json::to_string(&saved).unwrap();
                store.lock().unwrap().entry(at).or_default().1 = Some(json);
            })
    }
}

/// The journal of a single turn's calls.
struct Journal {
    disk: Disk,
    key: EffectKey,
    /// The calls that may have started before a crash.
    lost: Vec<AdmittedCall>,
    saved: Option<String>,
    announced: Mutex<Vec<AdmittedCall>>,
    waker: Mutex<Option<Waker>>,
}

impl CallJournal for Journal {
    fn poll_begin(&self, _cx: &mut Context<'_>) -> Poll<CallsBegin> {
        let saved = self.saved.as_ref().map(|json| serde_json::from_str::<SavedCalls>(json));
        Poll::Ready(match saved {
            Some(saved) => CallsBegin::Saved(saved.unwrap()),
            None => CallsBegin::Live(self.lost.clone()),
        })
    }

    fn announce(&self, call: &AdmittedCall, _tool: &Tool) {
        self.announced.lock().unwrap().push(call.clone());
    }

    fn on_idle(&self) {
        let announced = std::mem::take(&mut *self.announced.lock().unwrap());
        self.disk.lock().unwrap().entry(self.key.clone()).or_default().0.extend(announced);
        self.waker.lock().unwrap().take().into_iter().for_each(Waker::wake);
    }

    fn poll_start(&self, call: &ToolCall, cx: &mut Context<'_>) -> Poll<Option<ToolResult>> {
        if self.announced.lock().unwrap().iter().any(|it| it.call == *call) {
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let interrupted =
            || ToolResult::for_call(call, ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION);
        Poll::Ready(self.lost.iter().any(|it| it.call == *call).then(interrupted))
    }

    fn poll_end(&self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

/// Starts an attempt at a run with one call, to a tool that counts its starts. The tool ends only
/// if `returns` is true.
fn attempt(disk: &Disk, starts: &Arc<AtomicUsize>, returns: bool) -> Run {
    let model = Scripted::from_fn(|request, _| match request.history.last().unwrap() {
        last if last.as_tool_result().is_none() => Reply::new().call("pay", json!({})),
        last => Reply::text(last.as_tool_result().unwrap().content.text()),
    });
    let (spec, starts) =
        (ToolSpec::new("pay", "Pays", json!({ "type": "object" })), Arc::clone(starts));
    let pay = Tool::raw(spec, move |_, _| {
        starts.fetch_add(1, Ordering::Relaxed);
        async move {
            if !returns {
                std::future::pending::<()>().await;
            }
            "paid"
        }
    });
    let world = Arc::clone(disk);
    let agent = Agent::new(model).with_tool(pay.unwrap());
    let agent = agent.with_world(move |_, _| StoredCalls(Arc::clone(&world)));
    agent.run_from(History::from_items("chat", [Item::user("Hi")]), "Pay.")
}

#[tokio::test]
async fn a_call_that_was_lost_in_a_crash_is_not_started_again() {
    let (disk, starts) = (Disk::default(), Arc::new(AtomicUsize::new(0)));
    let mut lost = attempt(&disk, &starts, false);
    while starts.load(Ordering::Relaxed) == 0 {
        let _ = poll!(lost.next());
    }
    drop(lost);
    let outcome = attempt(&disk, &starts, true).outcome().await;
    assert_eq!((&*outcome.text, starts.load(Ordering::Relaxed)), (INTERRUPTED_MID_EXECUTION, 1));
}

#[tokio::test]
async fn results_that_were_stored_before_a_crash_are_emitted_again() {
    let (disk, starts) = (Disk::default(), Arc::new(AtomicUsize::new(0)));
    let mut lost = attempt(&disk, &starts, true);
    while disk.lock().unwrap().values().all(|(_, saved)| saved.is_none()) {
        lost.next().await.unwrap().unwrap();
    }
    drop(lost);
    let mut again = attempt(&disk, &starts, true);
    let mut outputs = 0;
    let mut text = String::new();
    while let Some(event) = again.next().await {
        let event = event.unwrap();
        outputs += usize::from(event.tool_output().is_some());
        if let Event::Finished(outcome) = event {
            text = outcome.text;
        }
    }
    assert_eq!((&*text, outputs, starts.load(Ordering::Relaxed)), ("paid", 1, 1));
}
