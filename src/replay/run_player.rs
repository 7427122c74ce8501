//! Implements the world for a replay, which takes the results of effects from a recording.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures::future::{self, FutureExt};
use futures::stream;

use crate::error::Error;
use crate::event::{AppendReason, Event, Outcome, RewriteReason, ToolEvent};
use crate::item::{RawJson, ResultKind};
use crate::journal::DroppedCalls;
use crate::lock::lock_ignoring_poison;
use crate::replay::effect_counter::EffectCounter;
use crate::replay::recorded_request::RequestComparison;
use crate::replay::recording_entry::{ParsedRun, RecordingEntry};
use crate::replay::replay_mismatch::ReplayMismatch;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream, seal};
use crate::tool::ToolRun;
use crate::turn::TurnBuilder;
use crate::world::{
    Effect, EffectKey, EffectKind, EffectValue, LoopControl, LoopEnd, ReplayedEvent, SendRequest,
    World, replay_event,
};

/// Replays a recording, and keeps track of the current position. Clones share the same replay.
#[derive(Clone)]
pub(super) struct RunPlayer(Arc<PlayerInner>);

struct PlayerInner {
    parsed_run: Arc<ParsedRun>,
    state: Mutex<PlayerState>,
}

#[derive(Default)]
struct PlayerState {
    /// The index of the first entry after the last emitted event.
    next_entry_index: usize,
    /// The number of emitted events.
    event_count: usize,
    /// The indices of the entries after the last emitted event that have already been used.
    consumed_entries: HashSet<usize>,
    /// The number of times that each kind of effect has been requested since the last emitted
    /// event.
    effect_counter: EffectCounter,
    /// Whether a future or a stream is waiting for an entry that the recording does not contain.
    is_waiting: bool,
    mismatch: Option<ReplayMismatch>,
    requests: Vec<Request>,
    comparison: RequestComparison,
}

impl RunPlayer {
    pub(super) fn new(read: &Arc<ParsedRun>) -> Self {
        Self(Arc::new(PlayerInner { parsed_run: Arc::clone(read), state: Mutex::default() }))
    }

    /// Compares an event that the replay emitted with the recorded event.
    fn check_event(&self, event: &Event) {
        if *event.without_nesting() == Event::Unknown {
            return;
        }
        let mut state = self.lock();
        if self.find_entry(&state, RecordingEntry::request).is_some() {
            state.set_mismatch("request", &true, &());
        }
        let next = self.next_event(state.next_entry_index);
        match next.map(|(at, recorded)| (at, recorded, recorded == event)) {
            Some((at, _, true)) => {
                state.next_entry_index = at + 1;
                state.effect_counter.clear();
                state.consumed_entries.clear();
                state.event_count += 1;
            }
            Some((_, recorded, false)) => state.set_mismatch("event", recorded, event),
            None => state.set_mismatch("event", &(), event),
        }
    }

    /// Returns the recorded value for an effect and marks it as used.
    fn take_value(&self, key: &EffectKey) -> Option<Result<RawJson, Error>> {
        let mut state = self.lock();
        let now = state.effect_counter.count(key);
        let found = self.find_entry(&state, |entry| match entry {
            RecordingEntry::Value { kind, name, nth, result: made } => {
                ((*kind, &**name, *nth) == (key.kind, &*key.name, now)).then(|| made.clone())
            }
            RecordingEntry::Event { .. }
            | RecordingEntry::Request(_)
            | RecordingEntry::TurnError(_)
            | RecordingEntry::LoopEnd(_) => None,
        });
        let (at, made) = found?;
        state.consumed_entries.insert(at);
        Some(made)
    }

    /// Compares a request with the recorded request.
    fn check_request(&self, request: &Request) -> Result<(), Error> {
        let state = &mut *self.lock();
        let (turn, events) = (state.requests.len() + 1, state.event_count);
        let mismatch = match self.find_entry(state, RecordingEntry::request) {
            Some((at, recorded)) => match state.comparison.first_difference(recorded, request) {
                None => {
                    state.consumed_entries.insert(at);
                    state.requests.push(request.clone());
                    return Ok(());
                }
                Some(difference) => ReplayMismatch::from_request(turn, events, &difference),
            },
            None => ReplayMismatch::new(turn, events, "request", &(), &true),
        };
        state.mismatch.get_or_insert(mismatch.clone());
        Err(mismatch.into_error())
    }

    /// Returns the recording's next event or turn error. The search starts at the index `from` or
    /// after the last emitted event, whichever is later. At the end of the recording, returns
    /// `Pending`.
    pub(super) fn poll_entry<T>(
        &self,
        from: &mut usize,
        fits: impl Fn(&RecordingEntry) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut state = self.lock();
        *from = state.next_entry_index.max(*from);
        for (at, entry) in self.0.parsed_run.entries.iter().enumerate().skip(*from) {
            match entry {
                RecordingEntry::LoopEnd(_) => break,
                RecordingEntry::Request(_) | RecordingEntry::Value { .. } => {}
                entry @ (RecordingEntry::Event { .. } | RecordingEntry::TurnError(_)) => {
                    *from = at + 1;
                    return Poll::Ready(fits(entry));
                }
            }
        }
        state.is_waiting = true;
        Poll::Pending
    }

    /// Returns the next event, if it appends user input.
    fn next_input(&self) -> Option<Event> {
        use AppendReason::{FollowUp, Message, Steer};
        let (_, next) = self.next_event(self.lock().next_entry_index)?;
        matches!(next, Event::Appended { why: Steer | FollowUp | Message, .. })
            .then(|| next.clone())
    }

    /// Returns the next event, if it is a rewrite that replaces items with tombstones, or reports
    /// that a grant was revoked or that a hook's request used tokens.
    fn next_owner_change(&self) -> Option<Event> {
        let (_, next) = self.next_event(self.lock().next_entry_index)?;
        matches!(
            next,
            Event::Rewritten { why: RewriteReason::Tombstoned, .. }
                | Event::Tool(ToolEvent::GrantRevoked { .. })
                | Event::HelperUsage { .. }
        )
        .then(|| next.clone())
    }

    /// Returns the id of the next appended input or message.
    fn id(&self) -> String {
        let state = self.lock();
        let played =
            self.0.parsed_run.entries.iter().skip(state.next_entry_index).find_map(|entry| {
                match entry.event() {
                    Some(Event::Appended { id, .. }) => Some(id.clone()),
                    _ => None,
                }
            });
        played.unwrap_or_default()
    }

    /// Returns the run's outcome, if the run finished.
    fn outcome(&self) -> Option<&Outcome> {
        self.0.parsed_run.entries.last().and_then(RecordingEntry::event).and_then(Event::outcome)
    }

    /// Returns the reports and results of calls that were dropped, from their recorded results.
    fn dropped_calls(&self) -> DroppedCalls {
        let state = self.lock();
        let left = self
            .0
            .parsed_run
            .entries
            .iter()
            .skip(state.next_entry_index)
            .filter_map(RecordingEntry::event);
        let results = left.map_while(|event| match event {
            Event::Tool(ToolEvent::Output(result)) => Some(result),
            _ => None,
        });
        let mut dropped = DroppedCalls::default();
        for result in results {
            match (result.kind, result.report.as_deref()) {
                (ResultKind::Interrupted | ResultKind::Timeout | ResultKind::Budget, report) => {
                    let report = report.map(|report| (result.call_id.clone(), report.clone()));
                    dropped.reports.extend(report);
                }
                (_, _) => dropped.known_results.push(result.clone()),
            }
        }
        dropped
    }

    /// Returns a stream of the recorded events from the current turn's calls.
    fn tool_events(&self) -> impl futures::Stream<Item = ToolEvent> + Send + use<> {
        let playing = self.clone();
        let mut at = 0;
        stream::poll_fn(move |_| {
            playing.poll_entry(&mut at, |entry| match entry.event()? {
                Event::Tool(event) => Some(event.clone()),
                Event::Nested { call_id, name, event } => Some(ToolEvent::Nested {
                    call_id: call_id.clone(),
                    name: name.clone(),
                    event: event.clone(),
                }),
                _ => None,
            })
        })
    }

    /// Returns whether the recording has been replayed to its end.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        self.next_event(state.next_entry_index).is_none()
            && self.find_entry(&state, RecordingEntry::loop_end).is_none()
    }

    /// Returns whether the recording contains, before the next event, a request that has not been
    /// replayed yet.
    pub(super) fn has_request_left(&self) -> bool {
        let state = self.lock();
        self.find_entry(&state, RecordingEntry::request).is_some()
    }

    /// Returns the first difference from the recording, if any.
    pub(super) fn mismatch(&self) -> Option<ReplayMismatch> {
        self.lock().mismatch.clone()
    }

    /// Returns whether the replay is waiting for an entry that the recording does not contain, and
    /// clears the `is_waiting` flag.
    pub(super) fn take_waiting(&self) -> bool {
        std::mem::take(&mut self.lock().is_waiting)
    }

    /// Returns the mismatch to report if the replay ends before the recording does.
    pub(super) fn missing_event(&self) -> Option<ReplayMismatch> {
        let state = self.lock();
        let (_, recorded) = self.next_event(state.next_entry_index)?;
        Some(ReplayMismatch::new(state.requests.len(), state.event_count, "event", recorded, &()))
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    fn next_event(&self, from: usize) -> Option<(usize, &Event)> {
        let mut entries = self.0.parsed_run.entries.iter().enumerate().skip(from);
        entries.find_map(|(at, entry)| Some((at, entry.event()?)))
    }

    /// Searches the unused entries before the next event. Returns the index of the first entry for
    /// which `fits` returns a value, together with that value.
    fn find_entry<'a, T>(
        &'a self,
        state: &PlayerState,
        fits: impl Fn(&'a RecordingEntry) -> Option<T>,
    ) -> Option<(usize, T)> {
        let entries = self.0.parsed_run.entries.iter().enumerate().skip(state.next_entry_index);
        let between = entries.take_while(|(_, entry)| entry.event().is_none());
        let mut left = between.filter(|(at, _)| !state.consumed_entries.contains(at));
        left.find_map(|(at, entry)| Some((at, fits(entry)?)))
    }

    fn lock(&self) -> MutexGuard<'_, PlayerState> {
        // No user code runs while the lock is held.
        lock_ignoring_poison(&self.0.state)
    }
}

impl World for RunPlayer {
    fn draw(&self, key: &EffectKey, _live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        match key.kind {
            EffectKind::Id => EffectValue::new(self.id()),
            EffectKind::DeliveredInput => EffectValue::new(self.next_input()),
            EffectKind::Tombstones => EffectValue::new(self.next_owner_change()),
            EffectKind::DroppedCalls => EffectValue::new(self.dropped_calls()),
            EffectKind::UndeliveredInput => {
                let undelivered = self.outcome().map(|outcome| outcome.undelivered.clone());
                EffectValue::new(undelivered.unwrap_or_default())
            }
            _ => match self.take_value(key) {
                Some(Ok(json)) => EffectValue::from_json(json),
                Some(Err(_)) | None => EffectValue::empty(),
            },
        }
    }

    fn step(&self, key: &EffectKey, _effect: Effect) -> Effect {
        let made = self.take_value(key).map(|made| made.map(EffectValue::from_json));
        future::ready(made.unwrap_or_else(|| Ok(EffectValue::empty()))).boxed()
    }

    fn turn(&self, _key: &EffectKey, request: Request, _ask: SendRequest) -> TurnStream {
        match self.check_request(&request) {
            Ok(()) => seal(&request, ReplayedTurn { player: self.clone(), entry_index: 0 }),
            Err(mismatch) => seal(&request, stream::iter([Err(mismatch)])),
        }
    }

    fn fan_out(&self, _key: &EffectKey, calls: ToolRun) -> ToolRun {
        let pending = self.outcome().map(|outcome| outcome.pending.clone()).unwrap_or_default();
        calls.with_replayed_events(self.tool_events(), pending)
    }

    fn observe(&self, event: &Event) {
        self.check_event(event);
    }

    fn loop_control(&self) -> LoopControl {
        let state = self.lock();
        let ending = self.find_entry(&state, RecordingEntry::loop_end);
        ending.map_or(LoopControl::MayEnd, |(_, ending)| LoopControl::MustEnd(ending.clone()))
    }

    fn on_end(&self, _ending: &LoopEnd) {
        let mut state = self.lock();
        let ended = self.find_entry(&state, RecordingEntry::loop_end).map(|(at, _)| at);
        state.consumed_entries.extend(ended);
    }
}

/// The turn at the current position of the recording.
struct ReplayedTurn {
    player: RunPlayer,
    entry_index: usize,
}

impl TurnSource for ReplayedTurn {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> TurnPoll {
        let this = &mut *self;
        let played = this.player.poll_entry(&mut this.entry_index, |entry| match entry {
            RecordingEntry::Event { event: Event::Turn(event), is_vetoed } => {
                Some(Ok(ReplayedEvent { event: event.clone(), is_vetoed: *is_vetoed }))
            }
            RecordingEntry::TurnError(error) => Some(Err(error.clone())),
            RecordingEntry::Event { .. }
            | RecordingEntry::Request(_)
            | RecordingEntry::Value { .. }
            | RecordingEntry::LoopEnd(_) => None,
        });
        played.map(|played| played.map(|item| replay_event(item, turn)))
    }
}

impl PlayerState {
    fn set_mismatch(
        &mut self,
        part: &str,
        recorded: &(impl serde::Serialize + ?Sized),
        replayed: &(impl serde::Serialize + ?Sized),
    ) {
        let turn = self.requests.len();
        let mismatch = ReplayMismatch::new(turn, self.event_count, part, recorded, replayed);
        self.mismatch.get_or_insert(mismatch);
    }
}

impl_debug!(RunPlayer(it), event_count = it.lock().event_count);
