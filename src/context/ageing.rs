//! Shortens old reasoning and tool arguments as a conversation grows, even if there is still room
//! in the context window.

use futures::future::{BoxFuture, FutureExt, ready};

use crate::context::{Compaction, Compactor, Truncator};
use crate::error::Error;
use crate::item::History;

/// Shortens the reasoning and call arguments of old turns as a conversation grows, regardless of
/// how full the context window is. See [`Agent::with_ageing`](crate::Agent::with_ageing).
///
/// A turn is old once a certain number of completed turns have followed it. A [`Truncator`]
/// shortens the old turns: messages from the user and the assistant are kept, as are tool results.
///
/// Each change to an item invalidates the provider's prompt cache from that item onwards. To avoid
/// frequent invalidation, several turns are shortened at once, so a run emits a `rewritten` event
/// only every few turns. Between two `rewritten` events, each request starts with all of the bytes
/// of the previous request's history.
///
/// The items to shorten depend only on the history. `Ageing` is also a [`Compactor`], so
/// [`Session::compact`](crate::session::Session::compact) can use it to shorten the old turns in an
/// idle session.
///
/// ```
/// use turnstream::context::Ageing;
/// use turnstream::item::{StopReason, TurnInfo};
/// use turnstream::{History, Item};
///
/// let turn = |n: usize| {
///     let thought = Item::reasoning("Hm. ".repeat(100));
///     let said = Item::text(format!("Answer {n}."));
///     [thought, said.with_turn_info(TurnInfo::new(StopReason::Stop))]
/// };
/// let ageing = Ageing::after_turns(2).with_interval(3);
/// let changed = |turns: usize| {
///     let history = History::from_items("h", (0..turns).flat_map(turn));
///     let compaction = ageing.plan_compaction(&history)?;
///     Some(compaction.items.iter().filter(|item| item.compacted).count())
/// };
/// assert_eq!((4..=8).map(changed).collect::<Vec<_>>(), [
///     None,
///     Some(3),
///     Some(3),
///     Some(3),
///     Some(6),
/// ]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing {
    min_turn_age: usize,
    interval_turns: usize,
    truncator: Truncator,
}

impl Ageing {
    /// Creates an `Ageing` that shortens a turn once at least `turns` more turns have been
    /// completed. By default, the turn is shortened after `2 * turns` further turns at the latest.
    /// The minimum for `turns` is 1.
    pub fn after_turns(turns: usize) -> Self {
        let turns = turns.max(1);
        Self { min_turn_age: turns, interval_turns: turns, truncator: Truncator::new() }
    }

    /// Sets after how many turns the next old turns are shortened, all of them in one step. The
    /// minimum is 1. The requests' cached prefix changes only once every `turns` turns. The default
    /// is the number passed to [`after_turns`](Self::after_turns).
    pub fn with_interval(mut self, turns: usize) -> Self {
        self.interval_turns = turns.max(1);
        self
    }

    /// Sets the truncator that shortens old turns; [`Truncator::new`] by default. The truncator's
    /// [`keep_turns`](Truncator::keep_turns) setting is ignored.
    pub fn with_truncator(mut self, shorten: Truncator) -> Self {
        self.truncator = shorten;
        self
    }

    /// Plans which items to replace. Returns `None` if no old turn would become shorter.
    pub fn plan_compaction(&self, history: &History) -> Option<Compaction> {
        let turns = history.completed_turns();
        let old = turns.checked_sub(self.min_turn_age)? / self.interval_turns * self.interval_turns;
        if old == 0 {
            return None;
        }
        Truncator { keep_turns: turns - old, ..self.truncator }.plan_compaction(history)
    }
}

impl Compactor for Ageing {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        ready(Ok(self.plan_compaction(history))).boxed()
    }
}
