//! The entries, and what is known besides.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::env::Ids;
use crate::item::history::call_ids::{CallIds, Seen};
use crate::item::history::encoded::{Encoded, Piece};
use crate::item::history::items::Items;
use crate::item::history::node::{Node, chain};
use crate::item::{Item, ItemKind, ToolCall, settle};

/// All that was said, oldest first.
///
/// A history is a chain of shared entries: cloning, forking and appending take constant time and
/// never copy what is there. It has an id, drawn once and stored with it, and it remembers every
/// call id that it ever held, also those of entries that were rewritten since.
///
/// ```
/// use turnstream::{History, Item, env::SystemIds};
///
/// let mut history = History::new(&SystemIds);
/// history.push(Item::user("hello"));
/// let before = history.clone();
/// history.push(Item::text("hello yourself"));
/// assert_eq!(before.len(), 1);
/// assert_eq!(history.len(), 2);
/// ```
#[derive(Clone)]
pub struct History {
    pub(super) id: Arc<str>,
    pub(super) tip: Option<Arc<Node>>,
    pub(super) beside: Arc<Beside>,
    /// What encoders wrote of it. It is no part of what is said: equality, `Debug` and serde pass
    /// it over.
    pub(super) encoded: Arc<Encoded>,
}

/// What is known besides the entries.
#[derive(Clone, Default)]
pub(super) struct Beside {
    pub(super) ids: CallIds,
    /// The histories of suspended sub-agents, by the calls that they run as.
    pub(super) nested: BTreeMap<String, History>,
}

impl History {
    /// Makes an empty history with an id drawn from `ids`.
    pub fn new(ids: &(impl Ids + ?Sized)) -> Self {
        Self::with_id(ids.draw())
    }

    /// Makes an empty history with a known id, for example one that a store kept.
    pub fn with_id(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), tip: None, beside: Arc::default(), encoded: Arc::default() }
    }

    /// Makes a history of items that were kept somewhere.
    ///
    /// Whatever is unlawful in them, a doubled id or a stray result, is repaired by
    /// [`settled`](Self::settled).
    pub fn from_items(id: impl Into<Arc<str>>, items: impl IntoIterator<Item = Item>) -> Self {
        let mut history = Self::with_id(id);
        history.extend(items);
        history
    }

    /// The id that tool calls derive their idempotency keys from.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The same entries under a new id, so that what follows is told apart from the original's.
    pub fn fork(&self, ids: &(impl Ids + ?Sized)) -> Self {
        self.fork_as(ids.draw())
    }

    /// The same under an id that is known.
    pub(crate) fn fork_as(&self, id: impl Into<Arc<str>>) -> Self {
        let encoded = Arc::new(self.encoded.fork());
        Self { encoded, ..self.clone() }.renamed(id.into())
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.tip.as_ref().map_or(0, |node| node.len)
    }

    /// Whether nothing was said yet.
    pub fn is_empty(&self) -> bool {
        self.tip.is_none()
    }

    /// The newest entry.
    pub fn last(&self) -> Option<&Item> {
        self.tip.as_ref().map(|node| &node.item)
    }

    /// Appends an entry, in constant time.
    pub fn push(&mut self, item: Item) {
        self.append(item, &mut Seen::Unasked);
    }

    fn extend_seen(&mut self, items: impl IntoIterator<Item = Item>, mut seen: Seen) {
        for item in items {
            self.append(item, &mut seen);
        }
    }

    fn append(&mut self, item: Item, seen: &mut Seen) {
        let law = self.law_with(&item, seen);
        match &item.kind {
            ItemKind::ToolCall(call) => self.beside_mut().ids.known.insert(&call.call_id),
            ItemKind::ToolResult(result) if !item.tombstone => {
                self.forget_nested(&result.call_id);
            }
            _ => {}
        }
        let len = self.len() + 1;
        let turns = self.completed_turns() + usize::from(item.turn.is_some());
        let compacted = item.compacted || self.holds_compacted();
        let parent = self.tip.take();
        self.tip = Some(Arc::new(Node { item, parent, len, turns, compacted, law }));
    }

    /// The entries, oldest first. Making the iterator takes a pointer's worth of work an entry.
    pub fn iter(&self) -> Items<'_> {
        Items::reversed(self.newest_first(), self.len())
    }

    /// The entries, newest first, without any work ahead.
    pub fn newest_first(&self) -> impl Iterator<Item = &Item> {
        self.nodes().map(|node| &node.item)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        chain(self.tip.as_ref())
    }

    /// The entries after the first `len`, each with its place: how many there are up to it.
    pub(crate) fn behind(&self, len: usize) -> impl Iterator<Item = (usize, &Item)> {
        let mut entries = Vec::with_capacity(self.len().saturating_sub(len));
        let behind = self.nodes().take_while(|node| node.len > len);
        entries.extend(behind.map(|node| (node.len, &node.item)));
        entries.into_iter().rev()
    }

    /// The entries that are not void, newest first.
    pub(crate) fn newest_live(&self) -> impl Iterator<Item = &Item> {
        self.newest_first().filter(|item| !item.tombstone)
    }

    /// The first `len` entries; all of them where there are fewer.
    ///
    /// Call ids of what is cut off stay remembered.
    pub fn truncated(&self, len: usize) -> Self {
        let mut history = self.clone();
        while history.len() > len {
            history.pop();
        }
        history
    }

    /// What was there before the user's last words, for example to ask otherwise behind a refusal:
    /// some providers refuse again as long as the refused prompt is in the context.
    ///
    /// Several messages of the user in a row count as one, and so do those that a run has sent in the
    /// user's place, such as the request to continue a text that was cut off. An entry that stands in
    /// for what was folded away, such as a summary, is not a prompt. Without any prompt it is
    /// everything.
    ///
    /// [Fork](Self::fork) it, so that what follows is told apart from what followed before. The same of
    /// a stored session is [`Session::fork_before_last_prompt`].
    ///
    /// [`Session::fork_before_last_prompt`]: crate::session::Session::fork_before_last_prompt
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::env::SystemIds;
    /// use turnstream::event::Reason;
    /// use turnstream::provider::{Reply, Scripted};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Scripted::new([Reply::new().refuse("No."), "Gladly.".into()]);
    /// let agent = Agent::new(model);
    /// let refused = agent.run("Do it").outcome().await;
    /// assert_eq!(refused.reason, Reason::Refused);
    ///
    /// let before = refused.history.before_last_prompt().fork(&SystemIds);
    /// let outcome = agent.run_from(before, "Explain it").outcome().await;
    /// assert_eq!(outcome.reason, Reason::Completed);
    /// assert_eq!(outcome.history.len(), 2);
    /// # }
    /// ```
    pub fn before_last_prompt(&self) -> Self {
        let items: Vec<&Item> = self.iter().collect();
        let Some(end) = items.iter().rposition(|item| item.is_prompt()) else {
            return self.clone();
        };
        let of_prompt = |item: &&&Item| item.tombstone || item.is_prompt();
        let prompt = items[..=end].iter().rev().take_while(of_prompt).enumerate();
        // Invariant: the entry at `end` is the prompt's.
        let first = prompt.filter(|(_, item)| item.is_prompt()).last().map_or(0, |(n, _)| n);
        self.truncated(end - first)
    }

    /// Replaces the entries of a range. The ids of calls that do not come back stay remembered.
    ///
    /// A range that reaches beyond the end ends there.
    pub fn rewrite(&mut self, range: Range<usize>, items: impl IntoIterator<Item = Item>) {
        let to = range.end.min(self.len());
        let from = range.start.min(to);
        let behind: Vec<Item> = self.iter().skip(to).cloned().collect();
        // What is behind comes back: its ids are not retired.
        while self.len() > to {
            let Some(node) = self.tip.take() else { break };
            self.tip.clone_from(&node.parent);
        }
        self.forget_open();
        let nested = self.beside.nested.clone();
        let items: Vec<Item> = items.into_iter().collect();
        let mut back: HashMap<&str, usize> = HashMap::new();
        for call in items.iter().filter_map(Item::as_tool_call) {
            *back.entry(&call.call_id).or_default() += 1;
        }
        while self.len() > from {
            let Some(node) = self.tip.take() else { break };
            self.tip.clone_from(&node.parent);
            let Some(call) = node.item.as_tool_call() else { continue };
            // A call that comes back is the same call: another one with its id never was there.
            match back.get_mut(&*call.call_id).filter(|left| **left > 0) {
                Some(left) => *left -= 1,
                None => self.retire(call.call_id.clone()),
            }
        }
        drop(back);
        self.extend(items);
        self.extend(behind);
        self.restore_nested(nested);
    }

    /// Whether an entry with this call id is here, or ever was.
    pub fn holds_call_id(&self, call_id: &str) -> bool {
        self.beside.ids.known.may_hold(call_id) && self.call_ids().any(|held| held == call_id)
    }

    /// Every call id that is here or ever was, newest first.
    pub(crate) fn call_ids(&self) -> impl Iterator<Item = &str> {
        self.newest_first()
            .filter_map(Item::as_tool_call)
            .map(|call| call.call_id.as_str())
            .chain(self.beside.ids.retired())
    }

    /// How many completed turns are here.
    pub fn completed_turns(&self) -> usize {
        self.tip.as_ref().map_or(0, |node| node.turns)
    }

    /// Whether an entry is marked as compacted.
    pub(crate) fn holds_compacted(&self) -> bool {
        self.tip.as_ref().is_some_and(|node| node.compacted)
    }

    /// The calls of completed turns that have no result yet, in order.
    pub fn unanswered_calls(&self) -> Vec<ToolCall> {
        if self.is_lawful() {
            return Vec::new();
        }
        let (lawful, law) = (self.lawful_part(), self.law());
        let tail: Vec<&Item> = self.behind(lawful.len()).map(|(_, item)| item).collect();
        settle::unanswered(&tail, &lawful.before(law))
    }

    /// Whether it can be sent as it is: every tool call has exactly one result, directly behind
    /// its turn, no result is without its call, and no call belongs to an unfinished turn.
    pub fn is_lawful(&self) -> bool {
        self.law().is_kept()
    }

    /// Makes it lawful: answers every open call of a completed turn as interrupted, leaves out
    /// the calls of turns that never completed, and repairs doubled ids and stray or misplaced
    /// results of loaded histories.
    ///
    /// It depends on the entries alone, changes nothing when done twice, and gives a lawful
    /// history back as it is. Encoders and [`Agent::run_from`](crate::Agent::run_from) do it.
    pub fn settled(&self) -> Self {
        let law = self.law();
        if law.is_kept() {
            return self.clone();
        }
        // What is lawful stays as it is, and is not looked at.
        let mut settled = self.lawful_part();
        let tail: Vec<&Item> = self.behind(settled.len()).map(|(_, item)| item).collect();
        let mut items = settle::settle(&tail, &settled.before(law));
        self.put_on_record(&mut items);
        if !law.broken {
            settled.extend_seen(items, Seen::Distinct);
            return settled;
        }
        settled.extend(items);
        // Calls of turns that never completed are left out; their ids are not.
        let held: HashSet<String> = settled.call_ids().map(str::to_owned).collect();
        for id in self.call_ids().filter(|id| !held.contains(*id)) {
            settled.retire(id.to_owned());
        }
        settled
    }

    /// The newest piece that is of entries of this history, by an encoder with this key.
    pub(crate) fn encoded<K: PartialEq + Any>(&self, key: &K) -> Option<Arc<Piece>> {
        self.encoded.newest(key, self.tip.as_ref())
    }

    /// Remembers what an encoder wrote of the first `len` entries, after an older piece.
    pub(crate) fn remember<K: PartialEq + Any + Send + Sync>(
        &self,
        key: K,
        older: Option<&Arc<Piece>>,
        len: usize,
        bytes: Vec<u8>,
        state: impl Any + Send + Sync,
    ) {
        if let Some(node) = self.nodes().find(|node| node.len <= len) {
            let piece = Piece::new(node, older, len, bytes, Box::new(state));
            self.encoded.remember(key, older, piece);
        }
    }

    fn pop(&mut self) {
        let Some(node) = self.tip.take() else { return };
        if let ItemKind::ToolCall(call) = &node.item.kind {
            self.retire(call.call_id.clone());
            self.forget_nested(&call.call_id);
        }
        self.tip.clone_from(&node.parent);
        self.forget_open();
    }

    pub(super) fn retire(&mut self, call_id: String) {
        self.beside_mut().ids.retire(call_id);
    }

    pub(super) fn beside_mut(&mut self) -> &mut Beside {
        Arc::make_mut(&mut self.beside)
    }
}

impl<'a> IntoIterator for &'a History {
    type Item = &'a Item;
    type IntoIter = Items<'a>;

    fn into_iter(self) -> Items<'a> {
        self.iter()
    }
}

impl Extend<Item> for History {
    fn extend<T: IntoIterator<Item = Item>>(&mut self, items: T) {
        self.extend_seen(items, Seen::Unasked);
    }
}

/// Equal entries in the same order under the same id, and equal histories of suspended sub-agents;
/// what was rewritten away does not count.
impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.len() == other.len()
            && self.common_len(other) == self.len()
            && self.beside.nested == other.beside.nested
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("History");
        shown.field("id", &self.id).field("items", &self.iter().collect::<Vec<_>>());
        if !self.beside.nested.is_empty() {
            shown.field("nested", &self.beside.nested);
        }
        shown.finish_non_exhaustive()
    }
}
