//! Gives a run access to its environment, and lets an engine record the run's effects.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;

use crate::durable::bridge::{Bridge, EffectEntry};
use crate::durable::step_record::{AwaitedVerdicts, StepResult};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{PendingCall, ToolCall};
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream, seal};
use crate::tool::{CallJournal, CallStart, CallsBegin, Tool, ToolRun, Verdict};
use crate::turn::{TurnBuilder, TurnEvent};
use crate::world::{
    Effect, EffectKey, EffectKind, EffectValue, LoopEnd, ReplayedEvent, ReplayedTurn, SavedTurn,
    SendRequest, World, is_vetoed_event, replay_event,
};

/// Gives a run access to its environment, and lets an engine record the run's effects.
#[derive(Clone, Debug)]
pub(super) struct JournaledWorld(pub(super) Arc<Bridge>);

impl World for JournaledWorld {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        let drawn = self.0.draw(key, || live().to_json());
        drawn.map_or_else(EffectValue::empty, EffectValue::from_json)
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        let (bridge, key) = (Arc::clone(&self.0), key.clone());
        JournaledEffect { bridge, key, stage: EffectStage::Unasked(effect) }.boxed()
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        let (bridge, key) = (Arc::clone(&self.0), key.clone());
        let stage = TurnStage::Unasked(Some((Box::new(request.clone()), ask)));
        seal(&request, JournaledTurn { bridge, key, stage })
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        self.0.begin_calls(calls.max_concurrency(), calls.progress_redactor());
        let (bridge, key) = (Arc::clone(&self.0), key.clone());
        let journal = JournaledCalls { bridge, key, was_asked: AtomicBool::new(false) };
        let bridge = Arc::clone(&self.0);
        calls
            .with_journal(Arc::new(journal))
            .on_complete(move |saved| bridge.complete(StepResult::Calls(saved)))
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
            std::future::poll_fn(|cx| bridge.poll_ready(cx)).await;
            if let EffectEntry::Perform = bridge.begin_effect(&key) {
                bridge.complete(StepResult::Suspended(AwaitedVerdicts { calls, limit }));
            }
            match std::future::poll_fn(|cx| bridge.poll_answer(cx)).await {
                StepResult::Suspended(_) => Ok(bridge.take_verdicts()),
                other => Err(other_answer(&key, &other)),
            }
        }
        .boxed()
    }

    fn observe(&self, event: &Event) {
        self.0.observe(event);
    }

    fn has_untaken_value(&self) -> bool {
        self.0.has_untaken_answer()
    }

    fn forced_end(&self) -> Option<LoopEnd> {
        self.0.forced_end()
    }

    fn on_end(&self, ending: &LoopEnd) {
        self.0.end_loop(ending);
    }
}

/// An effect whose value the engine records.
struct JournaledEffect {
    bridge: Arc<Bridge>,
    key: EffectKey,
    stage: EffectStage,
}

enum EffectStage {
    Unasked(Effect),
    Performing(Effect),
    Done,
}

impl Future for JournaledEffect {
    type Output = Result<EffectValue, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match &mut this.stage {
                EffectStage::Unasked(effect) => {
                    ready!(this.bridge.poll_ready(cx));
                    if let Some(value) = this.bridge.drawn_effect(this.key.kind) {
                        return Poll::Ready(Ok(EffectValue::from_json(value)));
                    }
                    // An effect that is ready on the first poll needs no step of its own. A step
                    // that a user's loop body requests is always recorded as a step of its own.
                    let is_step = this.key.kind == EffectKind::Step;
                    let early = match this.bridge.is_performing() && !is_step {
                        true => effect.poll_unpin(cx),
                        false => Poll::Pending,
                    };
                    if let Poll::Ready(Ok(value)) = &early {
                        let value = value.to_json()?;
                        this.bridge.keep_as_drawn(this.key.kind, value.clone());
                        return Poll::Ready(Ok(EffectValue::from_json(value)));
                    }
                    let entry = this.bridge.begin_effect(&this.key);
                    let EffectStage::Unasked(effect) =
                        std::mem::replace(&mut this.stage, EffectStage::Done)
                    else {
                        continue;
                    };
                    match (entry, early) {
                        (EffectEntry::Perform, Poll::Ready(made)) => {
                            this.bridge.complete(step_result(made));
                        }
                        (EffectEntry::Perform, Poll::Pending) => {
                            this.stage = EffectStage::Performing(effect);
                        }
                        (EffectEntry::Kept | EffectEntry::EndsAfter(_), _) => {}
                    }
                }
                EffectStage::Performing(effect) => {
                    let made = ready!(effect.poll_unpin(cx));
                    this.bridge.complete(step_result(made));
                    this.stage = EffectStage::Done;
                }
                EffectStage::Done => {
                    return Poll::Ready(match ready!(this.bridge.poll_answer(cx)) {
                        StepResult::Value(value) => Ok(EffectValue::from_json(value)),
                        StepResult::Failed(error) => Err(error),
                        other => Err(other_answer(&this.key, &other)),
                    });
                }
            }
        }
    }
}

fn step_result(made: Result<EffectValue, Error>) -> StepResult {
    match made.and_then(|value| value.to_json()) {
        Ok(value) => StepResult::Value(value),
        Err(error) => StepResult::Failed(error),
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
                    ready!(this.bridge.poll_ready(cx));
                    this.stage = match (this.bridge.begin_effect(&this.key), ask.take()) {
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
                            this.bridge.complete(StepResult::Turn(saved));
                        }
                    }
                }
                TurnStage::Done { is_performed } => {
                    let saved = match ready!(this.bridge.poll_answer(cx)) {
                        StepResult::Turn(saved) if *is_performed => saved.into_end(),
                        StepResult::Turn(saved) => {
                            this.bridge.set_repeating(true);
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
                        this.bridge.set_repeating(false);
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
            ready!(self.bridge.poll_ready(cx));
            self.was_asked.store(true, Ordering::Relaxed);
            if let EffectEntry::EndsAfter(events) = self.bridge.begin_effect(&self.key) {
                return Poll::Ready(CallsBegin::Ended(events));
            }
        }
        self.bridge.poll_calls_begin(cx)
    }

    fn announce(&self, call: &ToolCall, tool: &Tool) {
        self.bridge.announce(call, tool);
    }

    fn on_idle(&self) {
        self.bridge.on_calls_idle();
    }

    fn has_result(&self, call_id: &str) -> bool {
        self.bridge.has_call_result(call_id)
    }

    fn poll_start(&self, call_id: &str, cx: &mut Context<'_>) -> Poll<CallStart> {
        self.bridge.poll_call_start(call_id, cx)
    }

    fn end(&self, call_id: &str) {
        self.bridge.end_call(call_id);
    }

    fn on_repeated(&self) {
        self.bridge.set_repeating(false);
    }

    fn poll_kept(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.bridge.poll_answer(cx).map(drop)
    }
}
