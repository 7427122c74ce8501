//! Where a replay is in its recording.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use crate::agent::replay::line::{Noted, Outside, TimeUp};
use crate::agent::replay::print::ReplayMismatch;
use crate::agent::replay::recording::{Entry, Read};
use crate::error::Error;
use crate::event::{AppendedWhy, Event, Outcome, RewrittenWhy, ToolEvent};
use crate::item::{Report, Tombstones};
use crate::lock::lock;
use crate::request::Request;

/// A recording that is played, and how far it is.
pub(in crate::agent) struct Playing {
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
    facts: u32,
    /// Something waits for what the recording does not have.
    stuck: bool,
    mismatch: Option<ReplayMismatch>,
    requests: Vec<Request>,
}

/// How the loop was ended from outside.
#[derive(Clone)]
pub(in crate::agent) struct Ending {
    /// Whether the loop had been polled since the last event.
    pub(in crate::agent) polled: bool,
    /// `None` if it was interrupted, or its time was over.
    pub(in crate::agent) error: Option<Error>,
    pub(in crate::agent) time_up: Option<TimeUp>,
}

impl Playing {
    pub(super) fn new(read: &Arc<Read>) -> Self {
        Self { read: Arc::clone(read), state: Mutex::default() }
    }

    /// An event that the replay gives out.
    pub(super) fn event(&self, event: &Event) {
        if *event.innermost() == Event::Unknown {
            return;
        }
        let mut state = self.lock();
        if self.find(&state, |it| matches!(it, Entry::Asked(_)).then_some(())).is_some() {
            state.differ("request", &true, &());
        }
        let next = self.next_event(state.at);
        match next.map(|(at, recorded)| (at, recorded, recorded == event)) {
            Some((at, _, true)) => {
                (state.at, state.facts) = (at + 1, 0);
                state.taken.clear();
                state.events += 1;
            }
            Some((_, recorded, false)) => state.differ("event", recorded, event),
            None => state.differ("event", &(), event),
        }
    }

    /// Takes the first of what is between the last event and the next that fits.
    pub(super) fn take<T>(&self, fits: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        let (at, found) = self.find(&state, fits)?;
        state.taken.insert(at);
        Some(found)
    }

    /// What was known besides the state.
    pub(super) fn facts(&self) -> Outside {
        let mut state = self.lock();
        state.facts += 1;
        let now = state.facts;
        drop(state);
        let known = self.take(|entry| match entry {
            Entry::Noted(Noted::Facts { nth, outside }) if *nth == now => Some(*outside),
            _ => None,
        });
        known.unwrap_or_default()
    }

    /// Checks a request.
    pub(super) fn asked(&self, request: &Request) -> Result<(), Error> {
        let mut state = self.lock();
        let found = self.find(&state, |entry| match entry {
            Entry::Asked(whole) => Some(whole.differ(request, state.events)),
            _ => None,
        });
        let mismatch = match found {
            Some((at, None)) => {
                state.taken.insert(at);
                state.requests.push(request.clone());
                return Ok(());
            }
            Some((_, Some(mismatch))) => mismatch,
            None => ReplayMismatch::new(state.events, "request", &(), &true),
        };
        state.mismatch.get_or_insert(mismatch.clone());
        Err(mismatch.into_error())
    }

    /// How the loop was ended before the next event, if it was.
    pub(super) fn ending(&self) -> Option<Ending> {
        let state = self.lock();
        let ending = self.find(&state, |entry| match entry {
            Entry::Ended { polled, error, time_up } => {
                Some(Ending { polled: *polled, error: error.clone(), time_up: *time_up })
            }
            _ => None,
        });
        ending.map(|(_, ending)| ending)
    }

    /// The loop was ended.
    pub(super) fn ended(&self) {
        self.take(|entry| matches!(entry, Entry::Ended { .. }).then_some(()));
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
        for (at, entry) in self.read.entries.iter().enumerate().skip(*from) {
            match entry {
                Entry::Ended { .. } => break,
                Entry::Asked(_) | Entry::Noted(_) => {}
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
    pub(super) fn said(&self) -> Option<Event> {
        use AppendedWhy::{FollowUp, Steer};
        let (_, next) = self.next_event(self.lock().at)?;
        matches!(next, Event::Appended { why: Steer | FollowUp, .. }).then(|| next.clone())
    }

    /// What became void next.
    pub(super) fn tombstones(&self) -> Option<Tombstones> {
        match self.next_event(self.lock().at)?.1 {
            Event::Rewritten { why: RewrittenWhy::Tombstoned, from, to, items, .. } => {
                Some(Tombstones { from: *from, to: *to, items: items.clone() })
            }
            _ => None,
        }
    }

    /// The id of what is said next.
    pub(super) fn id(&self) -> String {
        let state = self.lock();
        let said = self.read.entries.iter().skip(state.at).find_map(|entry| match entry.event() {
            Some(Event::Appended { id, .. }) => Some(id.clone()),
            _ => None,
        });
        said.unwrap_or_default()
    }

    /// How the run ended, if it did.
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.read.entries.last().and_then(Entry::event).and_then(Event::finished)
    }

    /// What calls had put on record that were dropped.
    pub(super) fn reports(&self) -> Vec<(String, Report)> {
        let state = self.lock();
        let left = self.read.entries.iter().skip(state.at).filter_map(Entry::event);
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

    /// Whether nothing is left to play.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        self.next_event(state.at).is_none()
            && self.find(&state, |it| matches!(it, Entry::Ended { .. }).then_some(())).is_none()
    }

    /// Whether a request is left that was made behind the last event.
    pub(super) fn is_asked(&self) -> bool {
        let state = self.lock();
        self.find(&state, |entry| matches!(entry, Entry::Asked(_)).then_some(())).is_some()
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
        let mut entries = self.read.entries.iter().enumerate().skip(from);
        entries.find_map(|(at, entry)| Some((at, entry.event()?)))
    }

    /// The first of what is between the last event and the next that was not taken and fits.
    fn find<T>(&self, state: &State, fits: impl Fn(&Entry) -> Option<T>) -> Option<(usize, T)> {
        let entries = self.read.entries.iter().enumerate().skip(state.at);
        let between = entries.take_while(|(_, entry)| entry.event().is_none());
        let mut left = between.filter(|(at, _)| !state.taken.contains(at));
        left.find_map(|(at, entry)| Some((at, fits(entry)?)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of a user runs while the lock is held.
        lock(&self.state)
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
