//! What to replace so that a history gets shorter, and the law of doing so.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use serde_json::json;

use crate::error::{Error, ErrorKind};
use crate::item::{History, Item, ItemKind, Mark, ProviderData};

/// What stands behind what a reactive compaction replaced.
const NOTE: &str = "The conversation up to here was shortened to fit the context window.";
/// Whose data the note carries: no wire's, so that none of it is sent.
const NOTE_PROVIDER: &str = "turnstream";

/// Says what to replace so that a history gets shorter.
///
/// An agent asks it when a request did not fit the model's context window, and makes a history
/// shorter at most once.
pub trait Compactor: Send + Sync {
    /// What to replace, or `None` if nothing gets shorter.
    ///
    /// The history is cheap to clone into the future, which owns what it needs. Dropping the
    /// future, as an interrupt does, must cancel what it does. It is waited for as long as it takes:
    /// one that asks a model or a server has a time limit of its own.
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>>;
}

impl<C: Compactor + ?Sized> Compactor for Arc<C> {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        (**self).compact(history)
    }
}

/// Makes a compactor of a function that needs not wait.
///
/// ```
/// use futures::executor::block_on;
/// use turnstream::context::{Compaction, Compactor, compact_with};
/// use turnstream::{History, Item};
///
/// // Forgets all but the newest entry.
/// let forget = compact_with(|history: &History| {
///     let to = history.len().saturating_sub(1);
///     Ok((to > 0).then(|| Compaction { from: 0, to, items: Vec::new() }))
/// });
/// let mut history = History::from_items("h", ["one", "two", "three"].map(Item::user));
/// let compaction = block_on(forget.compact(&history))?.unwrap();
/// compaction.check(&history)?;
/// compaction.apply(&mut history);
/// assert_eq!(history.len(), 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
pub fn compact_with<F>(f: F) -> CompactWith<F>
where
    F: Fn(&History) -> Result<Option<Compaction>, Error> + Send + Sync,
{
    CompactWith(f)
}

/// Compactor for the [`compact_with`] function.
#[derive(Clone, Copy)]
pub struct CompactWith<F>(F);

impl<F> fmt::Debug for CompactWith<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactWith").finish_non_exhaustive()
    }
}

impl<F> Compactor for CompactWith<F>
where
    F: Fn(&History) -> Result<Option<Compaction>, Error> + Send + Sync,
{
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        ready((self.0)(history)).boxed()
    }
}

/// A part of a history, and what stands in for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compaction {
    /// The first entry that is replaced.
    pub from: usize,
    /// The first behind it that is not.
    pub to: usize,
    /// What stands there instead.
    pub items: Vec<Item>,
}

impl Compaction {
    /// Replaces the entries, without a [check](Self::check).
    pub fn apply(&self, history: &mut History) {
        history.rewrite(self.from..self.to, self.items.iter().cloned());
    }

    /// Whether the history may be rewritten so.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest), and the history is to be left as it is, when
    ///
    /// - the range is not one of the history's,
    /// - a lawful history would not be [lawful](History::is_lawful) any more, for example because
    ///   a call goes and its result stays,
    /// - a call comes in under an id that the history knows from elsewhere,
    /// - the note that a [reactive](reactive) compaction left would go: without it the history
    ///   would be compacted again and again.
    pub fn check(&self, history: &History) -> Result<(), Error> {
        if self.from > self.to || self.to > history.len() {
            let (from, to, len) = (self.from, self.to, history.len());
            return Err(refused(format!("{from}..{to} is no range of {len} entries")));
        }
        let replaced: HashSet<&str> = (history.iter().take(self.to).skip(self.from))
            .filter_map(Item::as_tool_call)
            .map(|call| call.call_id.as_str())
            .collect();
        let mut calls = self.items.iter().filter_map(Item::as_tool_call);
        let stolen = calls.find(|call| {
            !replaced.contains(&*call.call_id) && history.holds_call_id(&call.call_id)
        });
        if let Some(call) = stolen {
            return Err(refused(format!("the call id `{}` is taken", call.call_id)));
        }
        let mut rewritten = history.clone();
        self.apply(&mut rewritten);
        if history.is_lawful() && !rewritten.is_lawful() {
            return Err(refused("a call and its result would be parted"));
        }
        if was_compacted(history) && !was_compacted(&rewritten) {
            return Err(refused("the note of an earlier compaction would be lost"));
        }
        Ok(())
    }
}

fn refused(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}

/// The same compaction with a note behind what it replaces, by which [`was_compacted`] knows that
/// this history was compacted because it did not fit.
///
/// The note is a user's item, which every wire takes between any two turns. It never stands inside
/// a turn or between a call and its result: the range is widened to the next place where it may.
pub fn reactive(mut compaction: Compaction, history: &History) -> Compaction {
    let items: Vec<&Item> = history.iter().collect();
    let live = |item: &&Item| !item.tombstone;
    loop {
        let kept = items.iter().copied().take(compaction.from);
        let before = kept.chain(&compaction.items).rfind(live);
        let behind = items.get(compaction.to..).unwrap_or_default();
        if may_stand_between(before, behind.iter().copied().find(live)) {
            break;
        }
        compaction.items.extend(behind.first().map(|item| (*item).clone()));
        compaction.to += 1;
    }
    compaction.items.push(note());
    compaction
}

/// Whether what is between these two is a boundary of turns.
fn may_stand_between(before: Option<&Item>, behind: Option<&Item>) -> bool {
    let (Some(before), Some(behind)) = (before, behind) else { return true };
    let is_outside =
        |item: &Item| matches!(item.kind, ItemKind::User { .. } | ItemKind::System { .. });
    let ends = before.turn.is_some() || before.as_tool_result().is_some() || is_outside(before);
    behind.as_tool_result().is_none() && (ends || is_outside(behind))
}

/// Whether the history holds the note of a [reactive] compaction.
pub fn was_compacted(history: &History) -> bool {
    history.holds_compacted() && history.newest_first().any(is_note)
}

fn note() -> Item {
    let data = ProviderData {
        provider: NOTE_PROVIDER.to_owned(),
        model: String::new(),
        value: json!({ "compaction": "reactive" }).into(),
    };
    let item = Item { provider_data: Some(Arc::new(data)), ..Item::user(NOTE) };
    item.marked(Mark::Compacted)
}

fn is_note(item: &Item) -> bool {
    let Some(data) = &item.provider_data else { return false };
    item.compacted
        && data.provider == NOTE_PROVIDER
        && data.value.to_value()["compaction"] == "reactive"
}
