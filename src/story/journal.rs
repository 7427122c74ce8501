//! The fold of a run's events, for everybody who wants to look.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::event::{Event, Outcome, Phase, Reason, Undelivered};
use crate::item::{History, Item};
use crate::story::fold::Fold;
use crate::usage::Usage;

/// What the events so far have made of the history they began with. Clones share it.
///
/// It is in memory and does no I/O. Whoever holds it can look at any time, also after the stream
/// was dropped: a turn that is still open is shown as interrupted, and results that are there
/// stand in call order. What it shows can be sent after [`History::settled`].
///
/// ```
/// use turnstream::{Event, History, Item, Journal, event::AppendedWhy};
///
/// let journal = Journal::new(History::with_id("h"));
/// journal.observe(&Event::Appended {
///     why: AppendedWhy::Input,
///     id: "i".to_owned(),
///     items: vec![Item::user("hello")],
/// });
/// assert_eq!(journal.history().len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<Fold>>);

impl Journal {
    /// Begins with what is there.
    pub fn new(history: History) -> Self {
        Self(Arc::new(Mutex::new(Fold::new(history))))
    }

    /// Takes the next event. Taps do this; call it for events that pass no tap.
    pub fn observe(&self, event: &Event) {
        self.with(|fold| fold.observe(event));
    }

    /// The history as it is now.
    pub fn history(&self) -> History {
        self.with(|fold| fold.history())
    }

    /// What was added since the beginning.
    pub fn new_items(&self) -> Vec<Item> {
        self.with(|fold| fold.new_items())
    }

    /// What all requests cost so far, void and unfinished attempts included.
    pub fn usage(&self) -> Usage {
        self.with(|fold| fold.usage())
    }

    /// Whether the model speaks or tools are due.
    pub fn phase(&self) -> Phase {
        self.with(|fold| fold.phase())
    }

    /// Whether every call of a completed turn has its result.
    pub fn is_answered(&self) -> bool {
        self.with(|fold| fold.is_answered())
    }

    /// Whether a turn has begun and is not complete.
    pub fn is_open(&self) -> bool {
        self.with(|fold| fold.is_open())
    }

    /// The next event of an ending, already observed: a made-up result for each call that has
    /// none, then `Finished`.
    pub(crate) fn close(
        &self,
        reason: Reason,
        error: Option<&Error>,
        undelivered: impl FnOnce() -> Vec<Undelivered>,
    ) -> Event {
        self.with(|fold| {
            let event = match fold.missing_output() {
                Some(output) => Event::Tool(output),
                None => {
                    let outcome = fold.outcome(reason, error.cloned(), undelivered());
                    Event::Finished(Box::new(outcome))
                }
            };
            fold.observe(&event);
            event
        })
    }

    /// How it would end now.
    pub fn outcome(&self, reason: Reason, error: Option<Error>) -> Outcome {
        self.with(|fold| fold.outcome(reason, error, Vec::new()))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Fold) -> T) -> T {
        // Nothing of a user runs while the lock is held.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
