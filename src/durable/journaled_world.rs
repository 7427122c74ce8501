//! Gives a run access to its environment, and lets an engine record the run's effects.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{Stream, StreamExt};

use crate::durable::bridge::{Bridge, BridgeState, Draw, EffectEntry};
use crate::durable::step_record::{AwaitedVerdicts, StepResult};
use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::item::{PendingCall, ToolCall, ToolResult};
use crate::propagation::TraceContext;
use crate::request::Request;
use crate::stream::{TurnStream, seal};
use crate::tool::{AdmittedCall, CallJournal, CallsBegin, Tool, ToolRun, Verdict};
use crate::turn::{TurnBuilder, TurnEvent};
use crate::world::{
    Effect, EffectKey, EffectKind, EffectValue, LoopControl, LoopEnd, SavedTurn, SendRequest, World,
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
        let turn = TurnBuilder::from(&request);
        seal(turn, JournaledTurn { bridge, key, request, stage: TurnStage::Unasked(Some(ask)) })
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        let redactor = Arc::new(calls.progress_redactor());
        self.0.with(|it| it.calls.progress_redactor = Some(redactor));
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

    fn is_repeating(&self) -> bool {
        self.0.with(|it| it.is_repeating())
    }

    fn first_trace_context(&self) -> Option<TraceContext> {
        self.0.with(|it| it.first_trace_context())
    }

    fn record_trace_context(&self, context: &TraceContext) {
        self.0.with(|it| it.set_first_trace_context(context));
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
            | EffectKind::DroppedCalls
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
    request: Request,
    stage: TurnStage,
}

enum TurnStage {
    Unasked(Option<SendRequest>),
    Performing {
        turn: TurnStream,
        saved: SavedTurn,
    },
    /// Waits until the turn has been recorded. If the turn was performed, all of its events except
    /// the end have already been yielded.
    Done {
        is_performed: bool,
    },
    /// Yields the recorded turn, or only its end.
    Replaying {
        turn: TurnStream,
        only_end: bool,
    },
    /// The end of the turn has been yielded.
    Ended,
    /// Yields these events, after which the loop was ended from outside.
    EndsAfter(std::vec::IntoIter<Event>),
}

impl Stream for JournaledTurn {
    type Item = Result<TurnEvent, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                TurnStage::Unasked(ask) => {
                    let entry = ready!(this.bridge.with(|it| it.poll_request(&this.key, cx)));
                    this.stage = match (entry, ask.take()) {
                        (EffectEntry::Perform, Some(ask)) => TurnStage::Performing {
                            turn: ask(this.request.clone()),
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
                TurnStage::Performing { turn, saved } => {
                    let item = ready!(turn.poll_next_unpin(cx));
                    if let Some(item) = &item {
                        saved.observe(item);
                    }
                    match item {
                        Some(Ok(event)) if !saved.is_complete() => {
                            return Poll::Ready(Some(Ok(event)));
                        }
                        Some(_) | None => {
                            let saved = std::mem::take(saved);
                            this.stage = TurnStage::Done { is_performed: true };
                            this.bridge.with(|it| it.complete(StepResult::Turn(saved)));
                        }
                    }
                }
                TurnStage::Done { is_performed } => {
                    let only_end = *is_performed;
                    let saved = match ready!(this.bridge.with(|it| it.poll_answer(cx))) {
                        StepResult::Turn(saved) => saved,
                        other => return Poll::Ready(Some(Err(other_answer(&this.key, &other)))),
                    };
                    if only_end && let Some(end) = saved.received_end() {
                        let end = end.clone();
                        this.stage = TurnStage::Ended;
                        return Poll::Ready(Some(Ok(end)));
                    }
                    if !only_end {
                        this.bridge.with(BridgeState::begin_repeat);
                    }
                    let turn = saved.into_stream(&this.request);
                    this.stage = TurnStage::Replaying { turn, only_end };
                }
                TurnStage::Replaying { turn, only_end } => {
                    let item = ready!(turn.poll_next_unpin(cx));
                    match &item {
                        Some(Ok(TurnEvent::TurnComplete { .. })) => {}
                        Some(Ok(_)) if *only_end => continue,
                        Some(Ok(_)) => {}
                        // A complete turn is being repeated until its end has been yielded.
                        Some(Err(_)) | None => this.bridge.with(BridgeState::end_repeat),
                    }
                    return Poll::Ready(item);
                }
                TurnStage::Ended => return Poll::Ready(None),
                TurnStage::EndsAfter(events) => {
                    return match events.next() {
                        Some(Event::Turn(event)) => Poll::Ready(Some(Ok(event))),
                        Some(_) => continue,
                        None => Poll::Pending,
                    };
                }
            }
        }
    }
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
                return Poll::Ready(CallsBegin::EndedEarly(events));
            }
        }
        self.bridge.with(|it| it.poll_calls_begin(cx))
    }

    fn announce(&self, call: &AdmittedCall, tool: &Tool) {
        self.bridge.with(|it| it.announce(call, tool));
    }

    fn on_idle(&self) {
        self.bridge.with(BridgeState::on_calls_idle);
    }

    fn has_result(&self, call_id: &str) -> bool {
        self.bridge.with(|it| it.calls.results.contains_key(call_id))
    }

    fn poll_start(&self, call: &ToolCall, cx: &mut Context<'_>) -> Poll<Option<ToolResult>> {
        self.bridge.with(|it| it.poll_call_start(call, cx))
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.bridge.with(|it| it.poll_calls_end(cx))
    }
}
