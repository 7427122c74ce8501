//! The entries, and what is known besides.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::env::Ids;
use crate::item::history::call_ids::{CallIds, SeenCallIds};
use crate::item::history::encode_cache::{EncodeCache, EncodedChunk};
use crate::item::history::items::Items;
use crate::item::history::node::{Node, iter_chain};
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
    pub(super) index: Arc<HistoryIndex>,
    /// What encoders wrote of it. It is no part of what is said: equality, `Debug` and serde pass
    /// it over.
    pub(super) encode_cache: Arc<EncodeCache>,
}

/// What is known besides the entries.
#[derive(Clone, Default)]
pub(super) struct HistoryIndex {
    pub(super) call_ids: CallIds,
    /// The histories of suspended sub-agents, by the calls that they run as.
    pub(super) nested_histories: BTreeMap<String, History>,
}

impl History {
    /// Makes an empty history with an id drawn from `ids`.
    pub fn new(ids: &(impl Ids + ?Sized)) -> Self {
        Self::from_id(ids.next_id())
    }

    /// Makes an empty history with a known id, for example one that a store kept.
    pub fn from_id(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), tip: None, index: Arc::default(), encode_cache: Arc::default() }
    }

    /// Makes a history of items that were kept somewhere.
    ///
    /// Whatever is unlawful in them, a doubled id or a stray result, is repaired by
    /// [`settled`](Self::settled).
    pub fn from_items(id: impl Into<Arc<str>>, items: impl IntoIterator<Item = Item>) -> Self {
        let mut history = Self::from_id(id);
        history.extend(items);
        history
    }

    /// The id that tool calls derive their idempotency keys from.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The same entries under a new id, so that what follows is told apart from the original's.
    pub fn fork(&self, ids: &(impl Ids + ?Sized)) -> Self {
        self.fork_with_id(ids.next_id())
    }

    /// The same under an id that is known.
    pub(crate) fn fork_with_id(&self, id: impl Into<Arc<str>>) -> Self {
        let encoded = Arc::new(self.encode_cache.fork());
        Self { encode_cache: encoded, ..self.clone() }.with_id(id.into())
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
        self.push_with_seen_ids(item, &mut SeenCallIds::NotCollected);
    }

    fn extend_with_seen_ids(
        &mut self,
        items: impl IntoIterator<Item = Item>,
        mut seen: SeenCallIds,
    ) {
        for item in items {
            self.push_with_seen_ids(item, &mut seen);
        }
    }

    fn push_with_seen_ids(&mut self, item: Item, seen: &mut SeenCallIds) {
        let law = self.settle_state_after(&item, seen);
        match &item.kind {
            ItemKind::ToolCall(call) => self.index_mut().call_ids.used_ids.insert(&call.call_id),
            ItemKind::ToolResult(result) if !item.tombstone => {
                self.remove_nested_history(&result.call_id);
            }
            _ => {}
        }
        let len = self.len() + 1;
        let turns = self.completed_turns() + usize::from(item.turn.is_some());
        let compacted = item.compacted || self.has_compacted_items();
        let parent = self.tip.take();
        self.tip = Some(Arc::new(Node {
            item,
            parent,
            len,
            completed_turns: turns,
            has_compacted_items: compacted,
            settle_state: law,
        }));
    }

    /// The entries, oldest first. Making the iterator takes a pointer's worth of work an entry.
    pub fn iter(&self) -> Items<'_> {
        Items::from_newest_first(self.newest_first(), self.len())
    }

    /// The entries, newest first, without any work ahead.
    pub fn newest_first(&self) -> impl Iterator<Item = &Item> {
        self.nodes().map(|node| &node.item)
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        iter_chain(self.tip.as_ref())
    }

    /// The entries after the first `len`, each with its place: how many there are up to it.
    pub(crate) fn entries_after(&self, len: usize) -> impl Iterator<Item = (usize, &Item)> {
        let mut entries = Vec::with_capacity(self.len().saturating_sub(len));
        let behind = self.nodes().take_while(|node| node.len > len);
        entries.extend(behind.map(|node| (node.len, &node.item)));
        entries.into_iter().rev()
    }

    /// The entries that are not void, newest first.
    pub(crate) fn live_newest_first(&self) -> impl Iterator<Item = &Item> {
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
    /// use turnstream::event::EndReason;
    /// use turnstream::provider::{Reply, Scripted};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Scripted::new([Reply::new().refuse("No."), "Gladly.".into()]);
    /// let agent = Agent::new(model);
    /// let refused = agent.run("Do it").outcome().await;
    /// assert_eq!(refused.reason, EndReason::Refused);
    ///
    /// let before = refused.history.before_last_prompt().fork(&SystemIds);
    /// let outcome = agent.run_from(before, "Explain it").outcome().await;
    /// assert_eq!(outcome.reason, EndReason::Completed);
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
        self.clear_open_call_ids();
        let nested = self.index.nested_histories.clone();
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
                None => self.retire_call_id(call.call_id.clone()),
            }
        }
        drop(back);
        self.extend(items);
        self.extend(behind);
        self.restore_nested_histories(nested);
    }

    /// Whether an entry with this call id is here, or ever was.
    pub fn has_used_call_id(&self, call_id: &str) -> bool {
        self.index.call_ids.used_ids.may_contain(call_id)
            && self.used_call_ids().any(|held| held == call_id)
    }

    /// Every call id that is here or ever was, newest first.
    pub(crate) fn used_call_ids(&self) -> impl Iterator<Item = &str> {
        self.newest_first()
            .filter_map(Item::as_tool_call)
            .map(|call| call.call_id.as_str())
            .chain(self.index.call_ids.retired_ids())
    }

    /// How many completed turns are here.
    pub fn completed_turns(&self) -> usize {
        self.tip.as_ref().map_or(0, |node| node.completed_turns)
    }

    /// Whether an entry is marked as compacted.
    pub(crate) fn has_compacted_items(&self) -> bool {
        self.tip.as_ref().is_some_and(|node| node.has_compacted_items)
    }

    /// The calls of completed turns that have no result yet, in order.
    pub fn unanswered_calls(&self) -> Vec<ToolCall> {
        if self.is_settled() {
            return Vec::new();
        }
        let (lawful, law) = (self.settled_prefix(), self.settle_state());
        let tail: Vec<&Item> = self.entries_after(lawful.len()).map(|(_, item)| item).collect();
        settle::unanswered_calls(&tail, &lawful.prior_call_ids(law))
    }

    /// Whether it can be sent as it is: every tool call has exactly one result, directly behind
    /// its turn, no result is without its call, and no call belongs to an unfinished turn.
    pub fn is_settled(&self) -> bool {
        self.settle_state().is_settled()
    }

    /// Makes it lawful: answers every open call of a completed turn as interrupted, leaves out
    /// the calls of turns that never completed, and repairs doubled ids and stray or misplaced
    /// results of loaded histories.
    ///
    /// It depends on the entries alone, changes nothing when done twice, and gives a lawful
    /// history back as it is. Encoders and [`Agent::run_from`](crate::Agent::run_from) do it.
    pub fn settled(&self) -> Self {
        let law = self.settle_state();
        if law.is_settled() {
            return self.clone();
        }
        // What is lawful stays as it is, and is not looked at.
        let mut settled = self.settled_prefix();
        let tail: Vec<&Item> = self.entries_after(settled.len()).map(|(_, item)| item).collect();
        let mut items = settle::settle(&tail, &settled.prior_call_ids(law));
        self.attach_nested_reports(&mut items);
        if !law.is_invalid {
            settled.extend_with_seen_ids(items, SeenCallIds::AllDistinct);
            return settled;
        }
        settled.extend(items);
        // Calls of turns that never completed are left out; their ids are not.
        let held: HashSet<String> = settled.used_call_ids().map(str::to_owned).collect();
        for id in self.used_call_ids().filter(|id| !held.contains(*id)) {
            settled.retire_call_id(id.to_owned());
        }
        settled
    }

    /// The newest piece that is of entries of this history, by an encoder with this key.
    pub(crate) fn cached_encoding<K: PartialEq + Any>(&self, key: &K) -> Option<Arc<EncodedChunk>> {
        self.encode_cache.newest_chunk(key, self.tip.as_ref())
    }

    /// Remembers what an encoder wrote of the first `len` entries, after an older piece.
    pub(crate) fn cache_encoding<K: PartialEq + Any + Send + Sync>(
        &self,
        key: K,
        older: Option<&Arc<EncodedChunk>>,
        len: usize,
        bytes: Vec<u8>,
        state: impl Any + Send + Sync,
    ) {
        if let Some(node) = self.nodes().find(|node| node.len <= len) {
            let piece = EncodedChunk::new(node, older, len, bytes, Box::new(state));
            self.encode_cache.insert(key, older, piece);
        }
    }

    fn pop(&mut self) {
        let Some(node) = self.tip.take() else { return };
        if let ItemKind::ToolCall(call) = &node.item.kind {
            self.retire_call_id(call.call_id.clone());
            self.remove_nested_history(&call.call_id);
        }
        self.tip.clone_from(&node.parent);
        self.clear_open_call_ids();
    }

    pub(super) fn retire_call_id(&mut self, call_id: String) {
        self.index_mut().call_ids.retire(call_id);
    }

    pub(super) fn index_mut(&mut self) -> &mut HistoryIndex {
        Arc::make_mut(&mut self.index)
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
        self.extend_with_seen_ids(items, SeenCallIds::NotCollected);
    }
}

/// Equal entries in the same order under the same id, and equal histories of suspended sub-agents;
/// what was rewritten away does not count.
impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.len() == other.len()
            && self.common_prefix_len(other) == self.len()
            && self.index.nested_histories == other.index.nested_histories
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("History");
        shown.field("id", &self.id).field("items", &self.iter().collect::<Vec<_>>());
        if !self.index.nested_histories.is_empty() {
            shown.field("nested", &self.index.nested_histories);
        }
        shown.finish_non_exhaustive()
    }
}
