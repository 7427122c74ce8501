//! What holders of a run can do to it while it goes on.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use futures::task::AtomicWaker;

use crate::agent::Input;
use crate::env::Ids;
use crate::event::Undelivered;
use crate::item::History;
use crate::story::Journal;
use crate::usage::Usage;

/// The cell that a run and its handles share. Its lock is never held across an await.
pub(super) struct Control {
    interrupted: AtomicBool,
    waker: AtomicWaker,
    steered: Mutex<Steered>,
}

#[derive(Default)]
struct Steered {
    waiting: VecDeque<Undelivered>,
    over: bool,
}

impl Control {
    pub(super) fn new() -> Self {
        Self {
            interrupted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
            steered: Mutex::default(),
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Is called before a poll that may be pending, so that an interrupt wakes it.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn is_steered(&self) -> bool {
        self.with(|steered| !steered.waiting.is_empty())
    }

    pub(super) fn next_steered(&self) -> Option<Undelivered> {
        self.with(|steered| steered.waiting.pop_front())
    }

    /// Nothing is taken any more; gives back what waits.
    pub(super) fn close(&self) -> Vec<Undelivered> {
        drop(self.waker.take());
        self.with(|steered| {
            steered.over = true;
            std::mem::take(&mut steered.waiting).into()
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Steered) -> T) -> T {
        f(&mut self.steered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Proof that something was taken in. Its id comes back in `appended`, or in the outcome's
/// `undelivered`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// The id.
    pub id: String,
}

/// Does to a run from elsewhere what its holder can do between two pulls. Cheap to clone.
///
/// It holds nothing that runs: dropping it cancels nothing, and a run does not wait for it.
#[derive(Clone)]
pub struct RunHandle {
    pub(super) control: Arc<Control>,
    pub(super) journal: Journal,
    pub(super) ids: Arc<dyn Ids>,
}

impl RunHandle {
    /// Ends the run: with its next poll it drops what streams or runs, answers the open calls as
    /// interrupted and finishes. Done twice, or too late, it changes nothing.
    pub fn interrupt(&self) {
        self.control.interrupted.store(true, Ordering::Release);
        self.control.waker.wake();
    }

    /// Says something before the next request. If the model stops by itself first, it gets one
    /// more turn, unless the cap is reached.
    ///
    /// # Errors
    ///
    /// Gives the items back if the run is over.
    pub fn steer(&self, input: impl Into<Input>) -> Result<Receipt, Undelivered> {
        let id = self.ids.draw();
        let undelivered = Undelivered { id: id.clone(), items: input.into().0 };
        let says_nothing = undelivered.items.is_empty();
        self.control.with(|steered| match steered.over {
            true => Err(undelivered),
            false if says_nothing => Ok(Receipt { id }),
            false => {
                steered.waiting.push_back(undelivered);
                Ok(Receipt { id })
            }
        })
    }

    /// The history as it is now; see [`Journal::history`].
    pub fn history(&self) -> History {
        self.journal.history()
    }

    /// What the run has cost so far.
    pub fn usage(&self) -> Usage {
        self.journal.usage()
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("interrupted", &self.control.is_interrupted())
            .finish_non_exhaustive()
    }
}
