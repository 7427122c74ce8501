//! Where a replay is in its recording.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures::future::{self, FutureExt};
use futures::stream;

use crate::error::Error;
use crate::event::{AppendedWhy, Event, Outcome, RewrittenWhy, ToolEvent};
use crate::item::{EffectReport, Json};
use crate::lock::lock_ignoring_poison;
use crate::provider::{PlayedEvent, play};
use crate::replay::counts::Counts;
use crate::replay::entry::{Entry, Read};
use crate::replay::print::{Comparison, ReplayMismatch};
use crate::request::Request;
use crate::stream::{PollTurn, TurnSource, TurnStream, seal};
use crate::tool::ToolRun;
use crate::turn::TurnBuilder;
use crate::world::{Ask, Effect, Ending, Key, Kind, Value, World};

/// A recording that is played, and how far it is. Clones are the same replay.
#[derive(Clone)]
pub(super) struct Playing(Arc<Inner>);

struct Inner {
    read: Arc<Read>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first entry behind the last event that was given out.
    at: usize,
    /// How many events were given out.
    events: usize,
    /// The entries between two events that have had their turn.
    taken: HashSet<usize>,
    /// How often each kind of effect was asked for since the last event.
    counted: Counts,
    /// Something waits for what the recording does not have.
    stuck: bool,
    mismatch: Option<ReplayMismatch>,
    requests: Vec<Request>,
    asked: Comparison,
}

impl Playing {
    pub(super) fn new(read: &Arc<Read>) -> Self {
        Self(Arc::new(Inner { read: Arc::clone(read), state: Mutex::default() }))
    }

    /// An event that the replay gives out.
    fn event(&self, event: &Event) {
        if *event.innermost() == Event::Unknown {
            return;
        }
        let mut state = self.lock();
        if self.find(&state, Entry::asked).is_some() {
            state.differ("request", &true, &());
        }
        let next = self.next_event(state.at);
        match next.map(|(at, recorded)| (at, recorded, recorded == event)) {
            Some((at, _, true)) => {
                state.at = at + 1;
                state.counted.clear();
                state.taken.clear();
                state.events += 1;
            }
            Some((_, recorded, false)) => state.differ("event", recorded, event),
            None => state.differ("event", &(), event),
        }
    }

    /// What the recording has for an effect, which is asked for now.
    fn found(&self, key: &Key) -> Option<Result<Json, Error>> {
        let mut state = self.lock();
        let now = state.counted.next(key);
        let is_it = |kind: Kind, name: &str, nth: Option<u32>| {
            (kind, name) == (key.kind, &*key.name) && nth.is_none_or(|nth| nth == now)
        };
        let found = self.find(&state, |entry| match entry {
            Entry::Value { kind, name, nth, made } => {
                is_it(*kind, name, *nth).then(|| made.clone())
            }
            Entry::Event { .. } | Entry::Asked(_) | Entry::Failed(_) | Entry::Ended(_) => None,
        });
        let (at, made) = found?;
        state.taken.insert(at);
        Some(made)
    }

    /// Checks a request.
    fn asked(&self, request: &Request) -> Result<(), Error> {
        let state = &mut *self.lock();
        let found = self.find(state, Entry::asked);
        let mismatch = match found {
            Some((at, print)) => match state.asked.differ(print, request, state.events) {
                None => {
                    state.taken.insert(at);
                    state.requests.push(request.clone());
                    return Ok(());
                }
                Some(mismatch) => mismatch,
            },
            None => ReplayMismatch::new(state.events, "request", &(), &true),
        };
        state.mismatch.get_or_insert(mismatch.clone());
        Err(mismatch.into_error())
    }

    /// What the recording goes on with, from an entry or behind the last event. Something waits
    /// where it does not go on.
    pub(super) fn poll_entry<T>(
        &self,
        from: &mut usize,
        fits: impl Fn(&Entry) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut state = self.lock();
        *from = state.at.max(*from);
        for (at, entry) in self.0.read.entries.iter().enumerate().skip(*from) {
            match entry {
                Entry::Ended(_) => break,
                Entry::Asked(_) | Entry::Value { .. } => {}
                entry @ (Entry::Event { .. } | Entry::Failed(_)) => {
                    *from = at + 1;
                    return Poll::Ready(fits(entry));
                }
            }
        }
        state.stuck = true;
        Poll::Pending
    }

    /// What a holder said before the next request.
    fn said(&self) -> Option<Event> {
        use AppendedWhy::{FollowUp, Steer};
        let (_, next) = self.next_event(self.lock().at)?;
        matches!(next, Event::Appended { why: Steer | FollowUp, .. }).then(|| next.clone())
    }

    /// What became void next.
    fn tombstones(&self) -> Option<Event> {
        let (_, next) = self.next_event(self.lock().at)?;
        matches!(next, Event::Rewritten { why: RewrittenWhy::Tombstoned, .. }).then(|| next.clone())
    }

    /// The id of what is said next.
    fn id(&self) -> String {
        let state = self.lock();
        let said =
            self.0.read.entries.iter().skip(state.at).find_map(|entry| match entry.event() {
                Some(Event::Appended { id, .. }) => Some(id.clone()),
                _ => None,
            });
        said.unwrap_or_default()
    }

    /// How the run ended, if it did.
    fn outcome(&self) -> Option<&Outcome> {
        self.0.read.entries.last().and_then(Entry::event).and_then(Event::finished)
    }

    /// What calls had put on record that were dropped.
    fn reports(&self) -> Vec<(String, EffectReport)> {
        let state = self.lock();
        let left = self.0.read.entries.iter().skip(state.at).filter_map(Entry::event);
        let results = left.map_while(|event| match event {
            Event::Tool(ToolEvent::Output(result)) => Some(result),
            _ => None,
        });
        let reported = |result: &crate::item::ToolResult| {
            let report = result.report.as_deref()?;
            Some((result.call_id.clone(), report.clone()))
        };
        results.filter_map(reported).collect()
    }

    /// The recorded events of the calls of a turn.
    fn calls(&self) -> impl futures::Stream<Item = ToolEvent> + Send + use<> {
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

    /// Whether nothing is left to play.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        self.next_event(state.at).is_none() && self.find(&state, Entry::ended).is_none()
    }

    /// Whether a request is left that was made behind the last event.
    pub(super) fn is_asked(&self) -> bool {
        let state = self.lock();
        self.find(&state, Entry::asked).is_some()
    }

    /// What the replay did otherwise.
    pub(super) fn mismatch(&self) -> Option<ReplayMismatch> {
        self.lock().mismatch.clone()
    }

    /// Tells once that something waits for what the recording does not have.
    pub(super) fn take_stuck(&self) -> bool {
        std::mem::take(&mut self.lock().stuck)
    }

    /// The recording goes on, and the replay does not.
    pub(super) fn missing(&self) -> Option<ReplayMismatch> {
        let state = self.lock();
        let (_, recorded) = self.next_event(state.at)?;
        Some(ReplayMismatch::new(state.events, "event", recorded, &()))
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.lock().requests.clone()
    }

    fn next_event(&self, from: usize) -> Option<(usize, &Event)> {
        let mut entries = self.0.read.entries.iter().enumerate().skip(from);
        entries.find_map(|(at, entry)| Some((at, entry.event()?)))
    }

    /// The first of what is between the last event and the next that was not taken and fits.
    fn find<'a, T>(
        &'a self,
        state: &State,
        fits: impl Fn(&'a Entry) -> Option<T>,
    ) -> Option<(usize, T)> {
        let entries = self.0.read.entries.iter().enumerate().skip(state.at);
        let between = entries.take_while(|(_, entry)| entry.event().is_none());
        let mut left = between.filter(|(at, _)| !state.taken.contains(at));
        left.find_map(|(at, entry)| Some((at, fits(entry)?)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of a user runs while the lock is held.
        lock_ignoring_poison(&self.0.state)
    }
}

impl World for Playing {
    fn draw(&self, key: &Key, _live: &mut dyn FnMut() -> Value) -> Value {
        match key.kind {
            Kind::Id => Value::new(self.id()),
            Kind::Said => Value::new(self.said()),
            Kind::Tombstones => Value::new(self.tombstones()),
            Kind::Reports => Value::new(self.reports()),
            Kind::Undelivered => {
                let undelivered = self.outcome().map(|outcome| outcome.undelivered.clone());
                Value::new(undelivered.unwrap_or_default())
            }
            _ => match self.found(key) {
                Some(Ok(json)) => Value::from_json(json),
                Some(Err(_)) | None => Value::none(),
            },
        }
    }

    fn step(&self, key: &Key, _effect: Effect) -> Effect {
        let made = self.found(key).map(|made| made.map(Value::from_json));
        future::ready(made.unwrap_or_else(|| Ok(Value::none()))).boxed()
    }

    fn turn(&self, _key: &Key, request: Request, _ask: Ask) -> TurnStream {
        match self.asked(&request) {
            Ok(()) => seal(&request, PlayedTurn { playing: self.clone(), at: 0 }),
            Err(mismatch) => seal(&request, stream::iter([Err(mismatch)])),
        }
    }

    fn fan_out(&self, _key: &Key, calls: ToolRun) -> ToolRun {
        let pending = self.outcome().map(|outcome| outcome.pending.clone()).unwrap_or_default();
        calls.played(self.calls(), pending)
    }

    fn observe(&self, event: &Event) {
        self.event(event);
    }

    fn ending(&self) -> Option<Ending> {
        let state = self.lock();
        self.find(&state, Entry::ended).map(|(_, ending)| ending.clone())
    }

    fn ended(&self, _ending: &Ending) {
        let mut state = self.lock();
        let ended = self.find(&state, Entry::ended).map(|(at, _)| at);
        state.taken.extend(ended);
    }
}

/// The turn that the recording is at.
struct PlayedTurn {
    playing: Playing,
    at: usize,
}

impl TurnSource for PlayedTurn {
    fn poll_turn(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        turn: &mut TurnBuilder,
    ) -> PollTurn {
        let this = &mut *self;
        let heard = this.playing.poll_entry(&mut this.at, |entry| match entry {
            Entry::Event { event: Event::Turn(event), vetoed } => {
                Some(Ok(PlayedEvent { event: event.clone(), vetoed: *vetoed }))
            }
            Entry::Failed(error) => Some(Err(error.clone())),
            Entry::Event { .. } | Entry::Asked(_) | Entry::Value { .. } | Entry::Ended(_) => None,
        });
        heard.map(|heard| heard.map(|item| play(item, turn)))
    }
}

impl State {
    fn differ(
        &mut self,
        part: &str,
        recorded: &(impl serde::Serialize + ?Sized),
        replayed: &(impl serde::Serialize + ?Sized),
    ) {
        let mismatch = ReplayMismatch::new(self.events, part, recorded, replayed);
        self.mismatch.get_or_insert(mismatch);
    }
}

impl fmt::Debug for Playing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Playing").field("events", &self.lock().events).finish_non_exhaustive()
    }
}
