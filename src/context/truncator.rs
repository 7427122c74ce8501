//! A compactor that shortens old turns by fixed rules, without calling a model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use futures::future::{BoxFuture, FutureExt, ready};
use serde_json::value::RawValue;

use crate::context::transcript::content_text;
use crate::context::{Compaction, Compactor};
use crate::error::Error;
use crate::item::{Content, History, Item, ItemFlag, ItemKind, ToolCall, ToolResult};
use crate::request::ClientTool;

/// The ratio of the length limit for results in the newest turns to the limit for results in old
/// turns.
const NEW_TURN_RESULT_LIMIT_FACTOR: usize = 8;

/// The maximum number of bytes in a result that is truncated because the history does not fit.
const AGED_RESULT_BYTES: usize = 1_024;

/// The minimum number of bytes in a prefix. A shorter prefix would not be informative.
const MIN_PREFIX_BYTES: usize = 16;

/// Shortens a history by fixed rules, without calling a model.
///
/// All messages from the user and the assistant are kept, and so is every call with its result. The
/// newest four turns also keep their reasoning and arguments. In all older turns,
///
/// - reasoning is truncated to its first 200 bytes; signed reasoning, which must not be changed, is
///   removed,
/// - long call arguments keep all of their fields, but long values are truncated to a prefix.
///
/// By default, results are not truncated. With
/// [`max_result_bytes`](Self::max_result_bytes), results are truncated to their head and
/// tail, and images and files in results are removed. In the newest turns, the limit is eight times
/// as high. If a turn contains provider-specific items, such as a call that the provider itself
/// ran, or the [approval](crate::Tool::mcp_approval) of such a call, these items and the turn's
/// reasoning and arguments are all kept. The provider may reject provider-specific items if the
/// turn's reasoning or arguments have changed.
///
/// Changed items are marked `compacted`, and items with this mark are not changed again. [`Ageing`]
/// uses a truncator even if the context window is not nearly full.
///
/// [`Ageing`]: crate::context::Ageing
///
/// ```
/// use turnstream::context::Truncator;
/// use turnstream::item::{StopReason, TurnInfo};
/// use turnstream::{History, Item};
///
/// let arguments = format!(r#"{{"path":"notes.md","text":"{}"}}"#, "x".repeat(9_000));
/// let done = || TurnInfo::new(StopReason::Stop);
/// let call = Item::tool_call("c1", "write", arguments).with_turn_info(done());
/// let result = turnstream::item::ToolResult::for_call(
///     call.as_tool_call().unwrap(),
///     turnstream::item::ResultKind::Ok,
///     "It is written.",
/// );
/// let mut history = History::from_items("h", [
///     Item::user("Write my notes."),
///     call,
///     Item::tool_result(result),
///     Item::text("Done.").with_turn_info(done()),
/// ]);
///
/// let shorten = Truncator { keep_turns: 1, ..Truncator::new() };
/// let compaction = shorten.plan_compaction(&history).unwrap();
/// compaction.apply(&mut history);
/// assert!(history.is_settled());
/// let call = history.iter().find_map(Item::as_tool_call).unwrap();
/// assert!(call.arguments.len() <= 1_024);
/// assert!(call.arguments.starts_with(r#"{"path":"notes.md","text":"xxx"#));
/// assert_eq!(shorten.plan_compaction(&history), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncator {
    /// The number of completed turns that count as new; 4 by default. At least one turn always
    /// counts as new, so that the newest turn keeps its reasoning together with its calls.
    pub keep_turns: usize,
    /// The maximum number of bytes of each result in old turns; a result in the newest turns may
    /// have eight times as many bytes. By default, results are not truncated.
    ///
    /// The limit in the newest turns is higher because the model has only just requested the
    /// results of these turns. Results in the newest turns are still limited, because a single huge
    /// result is the most common reason why a context window fills up.
    /// [`Toolkit::with_max_result_bytes`] limits results before they enter the history.
    ///
    /// [`Toolkit::with_max_result_bytes`]: crate::Toolkit::with_max_result_bytes
    pub max_result_bytes: Option<usize>,
    /// The maximum number of bytes in each call's arguments in old turns; 1,024 by default. Longer
    /// arguments are replaced by an object with the same fields, in which long values are truncated
    /// to a prefix. If that object is still too long, the arguments are replaced by an object that
    /// contains only their length and a prefix.
    pub max_arguments_bytes: usize,
    /// The maximum number of bytes in an old turn's reasoning; 200 by default. Longer reasoning is
    /// truncated to a prefix; if the maximum is 0, all reasoning in old turns is removed. Signed
    /// reasoning is always removed from old turns, because providers reject such reasoning if it
    /// has been changed.
    pub max_reasoning_bytes: usize,
}

impl Default for Truncator {
    fn default() -> Self {
        Self {
            keep_turns: 4,
            max_result_bytes: None,
            max_arguments_bytes: 1_024,
            max_reasoning_bytes: 200,
        }
    }
}

impl Truncator {
    /// Creates a truncator with the default limits: four turns count as new, and in old turns,
    /// reasoning is limited to 200 bytes and each call's arguments to 1,024 bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans which items to replace. Returns `None` if no item would become shorter.
    pub fn plan_compaction(&self, history: &History) -> Option<Compaction> {
        let items: Vec<&Item> = history.iter().collect();
        compaction_from_changes(self.plan_changes(&items), &items)
    }

    /// Plans which items to replace, as [`plan_compaction`](Self::plan_compaction) does. If the
    /// shortened history still does not fit, long results are truncated as well, from the oldest
    /// result on, until the history fits or only the results of the newest turn are left. Results
    /// that an earlier compaction has changed are not changed again.
    pub(crate) fn plan_to_fit(
        &self,
        history: &History,
        fits: impl Fn(&History) -> bool,
    ) -> Option<Compaction> {
        let items: Vec<&Item> = history.iter().collect();
        let end = Self { keep_turns: 1, ..*self }.old_item_count(&items);
        let short = Self { max_result_bytes: Some(AGED_RESULT_BYTES), ..*self };
        let truncated = items.iter().enumerate().take(end).filter_map(|(at, item)| {
            let result = item.as_tool_result().filter(|_| !item.tombstone && !item.compacted)?;
            match short.truncate_result(item, result, 1) {
                ItemChange::Replace(truncated) => Some((at, truncated)),
                ItemChange::Keep | ItemChange::Remove => None,
            }
        });
        let truncated: Vec<(usize, Item)> = truncated.collect();
        let plan = |result_count: usize| {
            let mut changes = self.plan_changes(&items);
            for (at, item) in truncated.iter().take(result_count) {
                changes[*at] = ItemChange::Replace(item.clone());
            }
            compaction_from_changes(changes, &items)
        };
        let is_enough = |result_count: usize| {
            let mut shorter = history.clone();
            if let Some(compaction) = plan(result_count) {
                compaction.apply(&mut shorter);
            }
            fits(&shorter)
        };
        // With more truncated results, the history is shorter, so this is a binary search.
        let (mut enough, mut too_few) = (truncated.len(), 0);
        while too_few < enough {
            let middle = usize::midpoint(too_few, enough);
            match is_enough(middle) {
                true => enough = middle,
                false => too_few = middle + 1,
            }
        }
        plan(enough)
    }

    /// Determines the change to each item.
    fn plan_changes(&self, items: &[&Item]) -> Vec<ItemChange> {
        let old = self.old_item_count(items);
        let mut own = vec![false; old];
        mark_turns_with_provider_items(&items[..old], &mut own);
        let change = |(at, item): (usize, &&Item)| match item.tombstone || item.compacted {
            true => ItemChange::Keep,
            false if at < old => self.change_in_old_turn(item, own[at]),
            false => self.change_in_new_turn(item),
        };
        items.iter().enumerate().map(change).collect()
    }

    /// Returns the number of items up to and including the last result of the newest turn that
    /// counts as old.
    fn old_item_count(&self, items: &[&Item]) -> usize {
        let mut ends = items.iter().enumerate().rev().filter(|(_, item)| item.turn.is_some());
        let Some((end, _)) = ends.nth(self.keep_turns.max(1)) else { return 0 };
        let behind = items.iter().skip(end + 1);
        end + 1
            + behind.take_while(|item| item.tombstone || item.as_tool_result().is_some()).count()
    }

    fn change_in_old_turn(&self, item: &Item, beside_own: bool) -> ItemChange {
        match &item.kind {
            ItemKind::ToolResult(result) => self.truncate_result(item, result, 1),
            ItemKind::Reasoning { .. } | ItemKind::ToolCall(_) if beside_own => ItemChange::Keep,
            ItemKind::Reasoning { text } => self.truncate_reasoning(item, text),
            ItemKind::ToolCall(call) => self.truncate_arguments(item, call),
            ItemKind::System { .. }
            | ItemKind::User { .. }
            | ItemKind::Text { .. }
            | ItemKind::Other => ItemChange::Keep,
        }
    }

    fn change_in_new_turn(&self, item: &Item) -> ItemChange {
        let clipped = |result| self.truncate_result(item, result, NEW_TURN_RESULT_LIMIT_FACTOR);
        item.as_tool_result().map_or(ItemChange::Keep, clipped)
    }

    fn truncate_result(&self, item: &Item, result: &ToolResult, times: usize) -> ItemChange {
        let Some(max) = self.max_result_bytes.map(|max| max.saturating_mul(times)) else {
            return ItemChange::Keep;
        };
        if result.content.byte_len() <= max {
            return ItemChange::Keep;
        }
        let text = Content::from(content_text(&result.content, " left out"));
        let content = text.truncate_middle(max, None).unwrap_or(text);
        // The text that reports the omitted length may be longer than the omitted text.
        if content.text_len() >= result.content.byte_len() {
            return ItemChange::Keep;
        }
        let kind = ItemKind::ToolResult(ToolResult { content, ..result.clone() });
        ItemChange::Replace(Item { kind, ..item.clone() })
    }

    fn truncate_reasoning(&self, item: &Item, text: &str) -> ItemChange {
        let is_signed = item.provider_data.is_some();
        let max = if is_signed { 0 } else { self.max_reasoning_bytes };
        if text.len() <= max && !is_signed {
            return ItemChange::Keep;
        }
        if max == 0 {
            // If this item carries the turn's info, only the info is kept.
            return if item.turn.is_some() {
                ItemChange::Replace(strip_reasoning_text(item))
            } else {
                ItemChange::Remove
            };
        }
        let kind = ItemKind::Reasoning { text: truncated_prefix(text, max) };
        ItemChange::Replace(Item { kind, ..item.clone() })
    }

    fn truncate_arguments(&self, item: &Item, call: &ToolCall) -> ItemChange {
        let Some(arguments) = shorten_arguments(call, self.max_arguments_bytes) else {
            return ItemChange::Keep;
        };
        let kind = ItemKind::ToolCall(ToolCall { arguments, ..call.clone() });
        // The provider data of a call may depend on the call's arguments.
        ItemChange::Replace(Item { kind, provider_data: None, ..item.clone() })
    }
}

impl Compactor for Truncator {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        ready(Ok(self.plan_compaction(history))).boxed()
    }
}

/// The change to make to an item.
enum ItemChange {
    Keep,
    Remove,
    Replace(Item),
}

impl ItemChange {
    fn is_modification(&self) -> bool {
        match self {
            Self::Keep => false,
            Self::Remove | Self::Replace(_) => true,
        }
    }

    fn apply_to(self, item: &Item) -> Option<Item> {
        match self {
            Self::Keep => Some(item.clone()),
            Self::Remove => None,
            Self::Replace(item) => Some(item.with_flag(ItemFlag::Compacted)),
        }
    }
}

/// Creates the compaction that makes the changes, one for each item. Returns `None` if nothing
/// changes.
fn compaction_from_changes(mut changes: Vec<ItemChange>, items: &[&Item]) -> Option<Compaction> {
    let from = changes.iter().position(ItemChange::is_modification)?;
    let to = changes.iter().rposition(ItemChange::is_modification)? + 1;
    if !changes.iter().any(|change| matches!(change, ItemChange::Replace(_))) {
        // At least one item must carry the mark that shows that the history was shortened.
        changes[to - 1] = ItemChange::Replace(strip_reasoning_text(items[to - 1]));
    }
    let replaced = changes.into_iter().zip(items).take(to).skip(from);
    let items = replaced.filter_map(|(change, item)| change.apply_to(item)).collect();
    Some(Compaction::new(from, to, items))
}

/// Marks the items of all turns that contain a provider-specific item, or the approval of a call
/// that the provider runs.
fn mark_turns_with_provider_items(items: &[&Item], own: &mut [bool]) {
    let mut start = 0;
    let mut found = false;
    for (at, item) in items.iter().enumerate() {
        let speaks_model = match &item.kind {
            ItemKind::Text { .. } | ItemKind::Reasoning { .. } => true,
            ItemKind::ToolCall(call) => {
                // The provider's own items in later turns refer to the request for an approval.
                found |= item.provider_data.is_some() && ClientTool::is_approval_name(&call.name);
                true
            }
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

/// Creates a copy of a reasoning item without the text.
fn strip_reasoning_text(item: &Item) -> Item {
    let kind = ItemKind::Reasoning { text: String::new() };
    Item { kind, provider_data: None, ..item.clone() }
}

/// Returns the start of a text, limited to `max` bytes.
fn truncated_prefix(text: &str, max: usize) -> String {
    const ELLIPSIS: &str = "…";
    match (text.len() <= max, max.checked_sub(ELLIPSIS.len())) {
        (true, _) => text.to_owned(),
        (false, None) => text[..text.floor_char_boundary(max)].to_owned(),
        (false, Some(max)) => format!("{}{ELLIPSIS}", &text[..text.floor_char_boundary(max)]),
    }
}

/// If the arguments are longer than `max` bytes, returns a smaller object. Returns `None` if the
/// arguments are within the limit or would not become shorter.
///
/// The object is written by hand, so that its bytes do not depend on which features of `serde_json`
/// are enabled.
fn shorten_arguments(call: &ToolCall, max: usize) -> Option<String> {
    let (written, len) = (call.arguments_or_empty_object(), call.arguments.len());
    if len <= max {
        return None;
    }
    let halves = || std::iter::successors(Some(max), |max| Some(max / 2));
    let mut limits = halves().take_while(|limit| *limit >= MIN_PREFIX_BYTES);
    if let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(written) {
        let cut = limits.by_ref().map(|limit| {
            write_object(
                fields
                    .iter()
                    .map(|(name, value)| (name.as_str(), shorten_json_value(value, limit))),
            )
        });
        if let Some(arguments) = cut.into_iter().find(|cut| cut.len() <= max) {
            return Some(arguments);
        }
    }
    let note = || ("shortened", to_json_string(&format!("{len} bytes")));
    let limits = halves().take_while(|limit| *limit >= MIN_PREFIX_BYTES);
    let mut cut = limits.map(|limit| {
        write_object([("prefix", to_json_string(&truncated_prefix(written, limit))), note()])
    });
    let arguments = cut.find(|cut| cut.len() <= max).unwrap_or_else(|| write_object([note()]));
    (arguments.len() < len).then_some(arguments)
}

/// Returns the JSON value unchanged or, if it is longer than `max` bytes, a string that contains a
/// prefix of the value.
fn shorten_json_value(value: &RawValue, max: usize) -> String {
    let raw = value.get();
    if raw.len() <= max {
        return raw.to_owned();
    }
    let text = serde_json::from_str::<Cow<'_, str>>(raw).unwrap_or(Cow::Borrowed(raw));
    to_json_string(&truncated_prefix(&text, max))
}

fn write_object<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = String::from("{");
    for (name, value) in fields {
        let comma = if text.len() == 1 { "" } else { "," };
        // Writing to a string never fails.
        let _ = write!(text, "{comma}{}:{value}", to_json_string(name));
    }
    text + "}"
}

fn to_json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
