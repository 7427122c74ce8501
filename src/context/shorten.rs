//! The plain compactor: old turns without their bulk, by rule and without a model.

use std::borrow::Cow;

use futures::future::{BoxFuture, FutureExt, ready};
use serde_json::json;

use crate::context::{Compaction, Compactor};
use crate::error::Error;
use crate::item::{
    Content, History, Item, ItemKind, Mark, Media, MediaSource, Part, ToolCall, ToolResult,
};

/// How much longer the results of the newest turns may be than those of old ones.
const NEWEST: usize = 8;

/// Shortens a history by rule, without asking a model.
///
/// All that the user and the assistant said stays, and so does every call with its result. In
/// turns older than the newest four
///
/// - reasoning goes,
/// - results of tools are clipped to their head and tail, and what is no text in them goes,
/// - long arguments of calls are replaced by a word on how long they were.
///
/// In the newest turns only results are clipped, to eight times the length: one huge result is what
/// most often fills a context window. What the provider itself ran in a turn is kept, and then the
/// reasoning and the arguments of that turn too, since the one may be refused without the other.
///
/// What is changed is marked `compacted`; what is so marked is left alone.
///
/// ```
/// use turnstream::context::Shorten;
/// use turnstream::item::{ResultKind, ToolCall, ToolResult};
/// use turnstream::{History, Item};
///
/// let call = ToolCall { call_id: "c1".into(), name: "read".into(), arguments: "{}".into() };
/// let result = ToolResult::answering(&call, ResultKind::Ok, "x".repeat(2_000_000));
/// let mut history = History::from_items("h", [
///     Item::user("What is in the file?"),
///     Item::tool_call("c1", "read", "{}"),
///     Item::tool_result(result),
/// ]);
///
/// let compaction = Shorten::new().shorten(&history).unwrap();
/// compaction.apply(&mut history);
/// assert!(history.is_lawful());
/// let result = history.last().unwrap().as_tool_result().unwrap();
/// assert!(result.content.text().len() <= 8 * 1_024);
/// assert_eq!(Shorten::new().shorten(&history), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shorten {
    keep_turns: usize,
    max_result_bytes: usize,
    max_arguments_bytes: usize,
}

impl Default for Shorten {
    fn default() -> Self {
        Self { keep_turns: 4, max_result_bytes: 1_024, max_arguments_bytes: 1_024 }
    }
}

impl Shorten {
    /// Makes one with the numbers above, and 1,024 bytes for a result and for arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many of the newest completed turns count as new; 4 unless set, and at least 1: the
    /// reasoning of the newest turn goes with its calls.
    pub fn keep_turns(mut self, turns: usize) -> Self {
        self.keep_turns = turns;
        self
    }

    /// Sets how many bytes a result of an old turn may have; 1,024 unless set. One of the newest
    /// turns may have eight times as many.
    pub fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.max_result_bytes = bytes;
        self
    }

    /// Sets how many bytes the arguments of a call of an old turn may have; 1,024 unless set.
    pub fn max_arguments_bytes(mut self, bytes: usize) -> Self {
        self.max_arguments_bytes = bytes;
        self
    }

    /// What to replace, or `None` if nothing gets shorter.
    pub fn shorten(&self, history: &History) -> Option<Compaction> {
        let items: Vec<&Item> = history.iter().collect();
        let old = self.old(&items);
        let mut own = vec![false; old];
        mark_own(&items[..old], &mut own);
        let change = |(at, item): (usize, &&Item)| match item.tombstone || item.compacted {
            true => Change::None,
            false if at < old => self.in_old(item, own[at]),
            false => self.in_new(item),
        };
        let changes: Vec<Change> = items.iter().enumerate().map(change).collect();
        let from = changes.iter().position(Change::is_some)?;
        let to = changes.iter().rposition(Change::is_some)? + 1;
        let replaced = changes.into_iter().zip(&items).take(to).skip(from);
        let items = replaced.filter_map(|(change, item)| change.made_of(item)).collect();
        Some(Compaction::new(from, to, items))
    }

    /// How many entries belong to old turns: all up to the results of the newest old one.
    fn old(&self, items: &[&Item]) -> usize {
        let mut ends = items.iter().enumerate().rev().filter(|(_, item)| item.turn.is_some());
        let Some((end, _)) = ends.nth(self.keep_turns.max(1)) else { return 0 };
        let behind = items.iter().skip(end + 1);
        end + 1
            + behind.take_while(|item| item.tombstone || item.as_tool_result().is_some()).count()
    }

    fn in_old(&self, item: &Item, beside_own: bool) -> Change {
        match &item.kind {
            ItemKind::ToolResult(result) => clipped(item, result, self.max_result_bytes),
            ItemKind::Reasoning { .. } | ItemKind::ToolCall(_) if beside_own => Change::None,
            ItemKind::Reasoning { text } => without_thought(item, text),
            ItemKind::ToolCall(call) => self.without_arguments(item, call),
            ItemKind::System { .. }
            | ItemKind::User { .. }
            | ItemKind::Text { .. }
            | ItemKind::Other => Change::None,
        }
    }

    fn in_new(&self, item: &Item) -> Change {
        match &item.kind {
            ItemKind::ToolResult(result) => {
                clipped(item, result, self.max_result_bytes.saturating_mul(NEWEST))
            }
            ItemKind::System { .. }
            | ItemKind::User { .. }
            | ItemKind::Text { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::ToolCall(_)
            | ItemKind::Other => Change::None,
        }
    }

    fn without_arguments(&self, item: &Item, call: &ToolCall) -> Change {
        let len = call.arguments.len();
        let arguments = json!({ "shortened": format!("{len} bytes") }).to_string();
        if len <= self.max_arguments_bytes || len <= arguments.len() {
            return Change::None;
        }
        let kind = ItemKind::ToolCall(ToolCall { arguments, ..call.clone() });
        // What the provider keeps of a call may be bound to its arguments.
        Change::To(Item { kind, provider_data: None, ..item.clone() })
    }
}

impl Compactor for Shorten {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        ready(Ok(self.shorten(history))).boxed()
    }
}

/// What becomes of an entry.
enum Change {
    None,
    Gone,
    To(Item),
}

impl Change {
    fn is_some(&self) -> bool {
        match self {
            Self::None => false,
            Self::Gone | Self::To(_) => true,
        }
    }

    fn made_of(self, item: &Item) -> Option<Item> {
        match self {
            Self::None => Some(item.clone()),
            Self::Gone => None,
            Self::To(item) => Some(item.marked(Mark::Compacted)),
        }
    }
}

/// Marks the entries of turns in which there is an item of the provider's own.
fn mark_own(items: &[&Item], own: &mut [bool]) {
    let mut start = 0;
    let mut found = false;
    for (at, item) in items.iter().enumerate() {
        let speaks_model = match &item.kind {
            ItemKind::Text { .. } | ItemKind::Reasoning { .. } | ItemKind::ToolCall(_) => true,
            ItemKind::Other => {
                found = true;
                true
            }
            ItemKind::System { .. } | ItemKind::User { .. } | ItemKind::ToolResult(_) => false,
        };
        if item.turn.is_some() || !speaks_model {
            own[start..=at].fill(found);
            (start, found) = (at + 1, false);
        }
    }
    own[start..].fill(found);
}

/// Nothing is left of a thought but what its turn is known by, where it carries that.
fn without_thought(item: &Item, text: &str) -> Change {
    if item.turn.is_none() {
        return Change::Gone;
    }
    if text.is_empty() && item.provider_data.is_none() {
        return Change::None;
    }
    let kind = ItemKind::Reasoning { text: String::new() };
    Change::To(Item { kind, provider_data: None, ..item.clone() })
}

fn clipped(item: &Item, result: &ToolResult, max: usize) -> Change {
    if size(&result.content) <= max {
        return Change::None;
    }
    let words = match &result.content {
        Content::Text(text) => Content::Text(text.clone()),
        Content::Parts(parts) => Content::Text(parts.iter().map(part_words).collect()),
    };
    let content = words.clipped(max, None).unwrap_or(words);
    // What says how much is missing may be longer than what is.
    if content.text_len() >= size(&result.content) {
        return Change::None;
    }
    let kind = ItemKind::ToolResult(ToolResult { content, ..result.clone() });
    Change::To(Item { kind, ..item.clone() })
}

/// The bytes of a content, those of images and files included.
fn size(content: &Content) -> usize {
    match content {
        Content::Text(text) => text.len(),
        Content::Parts(parts) => parts.iter().map(part_size).sum(),
    }
}

fn part_size(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        Part::Image(Media { source, .. }) | Part::File(Media { source, .. }) => match source {
            MediaSource::Data(text) | MediaSource::Url(text) => text.len(),
        },
    }
}

fn part_words(part: &Part) -> Cow<'_, str> {
    match part {
        Part::Text { text } => text.into(),
        Part::Image(media) | Part::File(media) => {
            format!("\n[{} left out]\n", media.media_type).into()
        }
    }
}
