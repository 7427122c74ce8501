//! Gives a run access to its environment, and lets an engine record the run's effects.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;

use crate::durable::bridge::{Bridge, BridgeState, Draw, EffectEntry};
use crate::durable::step_record::{AwaitedVerdicts, StepResult};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{PendingCall, ToolCall};
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream, seal};
use crate::tool::{CallJournal, CallStart, CallsBegin, Tool, ToolRun, Verdict};
use crate::turn::{TurnBuilder, TurnEvent};
use crate::world::{
    Effect, EffectKey, EffectKind, EffectValue, LoopControl, LoopEnd, ReplayedEvent, ReplayedTurn,
    SavedTurn, SendRequest, World, is_vetoed_event, replay_event,
};

/// Gives a run access to its environment, and lets an engine record the run's effects.
#[derive(Clone, Debug)]
pub(super) struct JournaledWorld(pub(super) Arc<Bridge>);

impl World for JournaledWorld {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        let kind = key.kind;
        match self.0.with(|it| it.draw(kind)) {
            Some(Draw::Recorded(value)) => {
                if is_taken_away(kind) {
                    // In a new attempt, the original value, such as a command, is available again.
                    // The value is removed here so that it is not delivered twice.
                    drop(live());
                }
                return EffectValue::from_json(value);
            }
            Some(Draw::Live) => match live().to_json() {
                Ok(value) => {
                    self.0.with(|it| it.keep_draw(kind, value.clone()));
                    return EffectValue::from_json(value);
                }
                Err(error) => self.0.with(|it| it.fail(error)),
            },
            None => {}
        }
        EffectValue::empty()
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        perform_effect(Arc::clone(&self.0), key.clone(), effect).boxed()
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        let (bridge, key) = (Arc::clone(&self.0), key.clone());
        let stage = TurnStage::Unasked(Some((Box::new(request.clone()), ask)));
        seal(&request, JournaledTurn { bridge, key, stage })
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        let (max, redactor) = (calls.max_concurrency(), calls.progress_redactor());
        self.0.with(|it| it.calls.begin(max, redactor));
        let (bridge, key) = (Arc::clone(&self.0), key.clone());
        let journal = JournaledCalls { bridge, key, was_asked: AtomicBool::new(false) };
        let bridge = Arc::clone(&self.0);
        calls
            .with_journal(Arc::new(journal))
            .on_complete(move |saved| bridge.with(|it| it.complete(StepResult::Calls(saved))))
    }

    fn can_suspend(&self) -> bool {
        true
    }

    fn suspend(
        &self,
        key: &EffectKey,
        calls: Vec<PendingCall>,
        limit: Option<Duration>,
    ) -> BoxFuture<'static, Result<Vec<(PendingCall, Verdict)>, Error>> {
        let (bridge, key) = (Arc::clone(&self.0), key.clone());
        async move {
            let entry = poll_fn(|cx| bridge.with(|it| it.poll_request(&key, cx))).await;
            if let EffectEntry::Perform = entry {
                let awaited = AwaitedVerdicts { calls, limit };
                bridge.with(|it| it.complete(StepResult::Suspended(awaited)));
            }
            match poll_fn(|cx| bridge.with(|it| it.poll_answer(cx))).await {
                StepResult::Suspended(_) => Ok(bridge.with(|it| std::mem::take(&mut it.verdicts))),
                other => Err(other_answer(&key, &other)),
            }
        }
        .boxed()
    }

    fn observe(&self, event: &Event) {
        self.0.with(|it| it.observe(event));
    }

    fn loop_control(&self) -> LoopControl {
        self.0.with(|it| it.loop_control())
    }

    fn on_end(&self, ending: &LoopEnd) {
        self.0.with(|it| it.end_loop(ending));
    }
}

/// Returns whether obtaining a value of this kind removes it from its source.
fn is_taken_away(kind: EffectKind) -> bool {
    matches!(
        kind,
        EffectKind::DeliveredInput
            | EffectKind::UndeliveredInput
            | EffectKind::Tombstones
            | EffectKind::EffectReports
            | EffectKind::HookMessages
    )
}

/// Performs an effect whose value the engine records.
async fn perform_effect(
    bridge: Arc<Bridge>,
    key: EffectKey,
    mut effect: Effect,
) -> Result<EffectValue, Error> {
    // An effect that is ready on the first poll needs no step of its own. A step that a user's loop
    // body requests is always recorded as a step of its own.
    let early = match poll_fn(|cx| bridge.with(|it| it.poll_draw(key.kind, cx))).await {
        Some(Draw::Recorded(value)) => return Ok(EffectValue::from_json(value)),
        Some(Draw::Live) if key.kind != EffectKind::Step => {
            poll_fn(|cx| Poll::Ready(effect.poll_unpin(cx))).await
        }
        Some(Draw::Live) | None => Poll::Pending,
    };
    if let Poll::Ready(Ok(value)) = &early {
        let value = value.to_json()?;
        bridge.with(|it| it.keep_draw(key.kind, value.clone()));
        return Ok(EffectValue::from_json(value));
    }
    if let EffectEntry::Perform = poll_fn(|cx| bridge.with(|it| it.poll_request(&key, cx))).await {
        let made = match early {
            Poll::Ready(made) => made,
            Poll::Pending => (&mut effect).await,
        };
        let result = match made.and_then(|value| value.to_json()) {
            Ok(value) => StepResult::Value(value),
            Err(error) => StepResult::Failed(error),
        };
        bridge.with(|it| it.complete(result));
    }
    drop(effect);
    match poll_fn(|cx| bridge.with(|it| it.poll_answer(cx))).await {
        StepResult::Value(value) => Ok(EffectValue::from_json(value)),
        StepResult::Failed(error) => Err(error),
        other => Err(other_answer(&key, &other)),
    }
}

fn other_answer(key: &EffectKey, found: &StepResult) -> Error {
    let message = format!("the engine has recorded another result for `{key}`: {}", found.name());
    Error::new(ErrorKind::ReplayMismatch, message)
}

/// A turn that the engine records. The turn's deltas are yielded as they arrive, and the end of the
/// turn is yielded once the turn has been recorded.
struct JournaledTurn {
    bridge: Arc<Bridge>,
    key: EffectKey,
    stage: TurnStage,
}

enum TurnStage {
    Unasked(Option<(Box<Request>, SendRequest)>),
    Performing {
        turn: TurnStream,
        saved: SavedTurn,
    },
    /// Waits until the turn has been recorded. If the turn was performed, all of its events except
    /// the end have already been yielded.
    Done {
        is_performed: bool,
    },
    /// Yields the recorded turn.
    Replaying(ReplayedTurn),
    /// Yields these events, after which the loop was ended from outside.
    EndsAfter(std::vec::IntoIter<Event>),
}

impl TurnSource for JournaledTurn {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> TurnPoll {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                TurnStage::Unasked(ask) => {
                    let entry = ready!(this.bridge.with(|it| it.poll_request(&this.key, cx)));
                    this.stage = match (entry, ask.take()) {
                        (EffectEntry::Perform, Some((request, ask))) => TurnStage::Performing {
                            turn: ask(*request),
                            saved: SavedTurn::default(),
                        },
                        (EffectEntry::EndsAfter(events), _) => {
                            TurnStage::EndsAfter(events.into_iter())
                        }
                        (EffectEntry::Kept | EffectEntry::Perform, _) => {
                            TurnStage::Done { is_performed: false }
                        }
                    };
                }
                TurnStage::Performing { turn: inner, saved } => {
                    let item = ready!(inner.poll_next_unpin(cx));
                    if let Some(item) = &item {
                        saved.observe(item);
                    }
                    match item {
                        Some(Ok(event)) if !saved.is_complete() => {
                            return Poll::Ready(Some(forward(Ok(event), turn)));
                        }
                        Some(_) | None => {
                            let saved = std::mem::take(saved);
                            this.stage = TurnStage::Done { is_performed: true };
                            this.bridge.with(|it| it.complete(StepResult::Turn(saved)));
                        }
                    }
                }
                TurnStage::Done { is_performed } => {
                    let saved = match ready!(this.bridge.with(|it| it.poll_answer(cx))) {
                        StepResult::Turn(saved) if *is_performed => saved.into_end(),
                        StepResult::Turn(saved) => {
                            this.bridge.with(BridgeState::begin_repeat);
                            saved.into_replay()
                        }
                        other => {
                            let error = other_answer(&this.key, &other);
                            return Poll::Ready(Some(Err(error)));
                        }
                    };
                    this.stage = TurnStage::Replaying(saved);
                }
                TurnStage::Replaying(replayed) => {
                    let item = ready!(Pin::new(replayed).poll_turn(cx, turn));
                    // A complete turn is being repeated until its end has been yielded.
                    if !matches!(item, Some(Ok(()))) {
                        this.bridge.with(BridgeState::end_repeat);
                    }
                    return Poll::Ready(item);
                }
                TurnStage::EndsAfter(events) => {
                    return match events.next() {
                        Some(Event::Turn(event)) => Poll::Ready(Some(forward(Ok(event), turn))),
                        Some(_) => continue,
                        None => Poll::Pending,
                    };
                }
            }
        }
    }
}

fn forward(item: Result<TurnEvent, Error>, turn: &mut TurnBuilder) -> Result<(), Error> {
    let item = item.map(|event| ReplayedEvent { is_vetoed: is_vetoed_event(&event), event });
    replay_event(item, turn)
}

/// The calls in a turn, whose results the engine records.
struct JournaledCalls {
    bridge: Arc<Bridge>,
    key: EffectKey,
    was_asked: AtomicBool,
}

impl CallJournal for JournaledCalls {
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<CallsBegin> {
        if !self.was_asked.load(Ordering::Relaxed) {
            let entry = ready!(self.bridge.with(|it| it.poll_request(&self.key, cx)));
            self.was_asked.store(true, Ordering::Relaxed);
            if let EffectEntry::EndsAfter(events) = entry {
                return Poll::Ready(CallsBegin::Ended(events));
            }
        }
        self.bridge.with(|it| it.poll_calls_begin(cx))
    }

    fn announce(&self, call: &ToolCall, tool: &Tool) {
        self.bridge.with(|it| it.announce(call, tool));
    }

    fn on_idle(&self) {
        self.bridge.with(BridgeState::on_calls_idle);
    }

    fn has_result(&self, call_id: &str) -> bool {
        self.bridge.with(|it| it.calls.results.contains_key(call_id))
    }

    fn poll_start(&self, call_id: &str, cx: &mut Context<'_>) -> Poll<CallStart> {
        self.bridge.with(|it| it.poll_call_start(call_id, cx))
    }

    fn end(&self, call_id: &str) {
        self.bridge.with(|it| it.end_call(call_id));
    }

    fn on_repeated(&self) {
        self.bridge.with(BridgeState::end_repeat);
    }

    fn poll_kept(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.bridge.with(|it| it.poll_answer(cx)).map(drop)
    }
}
