//! Removes the items that have become tombstones from a client's messages.

use std::borrow::Cow;

use serde_json::Value;

use super::content::content_to_json;
use crate::item::{History, Item, ItemKind, escape_call_id};

/// Removes items from the client's messages after the items at `from` became `items`, some of which
/// are tombstones. A message of which nothing is left is removed as well.
///
/// A history contains no message ids. So the messages are found by comparing them with the history:
/// a call and a result by the id of the call, and other messages by their order and their whole
/// content. Without a history, only `items` are compared.
///
/// Reasoning messages stay, without their text, because a client keeps reasoning messages that are
/// missing from a snapshot.
pub(super) fn remove_tombstones(
    messages: &mut Vec<Value>,
    history: Option<&History>,
    from: usize,
    items: &[Item],
) {
    let is_range = |history: &&History| {
        history
            .iter()
            .skip(from)
            .take(items.len())
            .map(|item| &item.kind)
            .eq(items.iter().map(|item| &item.kind))
    };
    // The history of a reader that is late may already have been compacted.
    let history = history.filter(is_range);
    let shown = match history {
        Some(history) => shown_items(history.iter(), from..from + items.len()),
        None => shown_items(items.iter(), 0..items.len()),
    };
    let groups = groups(&shown);
    let first = groups.iter().position(Group::has_removed).unwrap_or(groups.len());
    let mut left = &groups[first..];
    let mut end = messages.len();
    let mut comparisons = 0;
    while !left.is_empty() && end > 0 && comparisons < MAX_TOTAL {
        let count = (MAX_COMPARISONS / end).clamp(1, left.len());
        comparisons += count * end;
        let (earlier, later) = left.split_at(left.len() - count);
        for (group, at) in later.iter().zip(align(later, &messages[..end])).rev() {
            let at = match history {
                Some(_) => at,
                None => at.or_else(|| group.find_part(&messages[..end])),
            };
            let Some(at) = at.filter(|at| *at < end) else { continue };
            end = at;
            if group.has_removed() {
                group.remove_from(messages, at);
            }
        }
        left = earlier;
    }
}

/// The maximum number of comparisons of a group and a message that are made at once. A longer
/// history is compared in several parts.
const MAX_COMPARISONS: usize = 1_000_000;

/// The number of comparisons after which older groups are no longer compared.
const MAX_TOTAL: usize = 4 * MAX_COMPARISONS;

/// Returns the position of the message of each group, if it has one. As many groups as possible
/// have a message, in the same order. Of equal messages, the last ones are chosen.
fn align(groups: &[Group<'_, '_>], messages: &[Value]) -> Vec<Option<usize>> {
    let groups: Vec<_> = groups.iter().map(WantedMessage::of).collect();
    let width = messages.len() + 1;
    // At `g * width + m`: how many of the first `g` groups can have one of the first `m` messages.
    let mut best = vec![0_u32; (groups.len() + 1) * width];
    for (g, group) in groups.iter().enumerate() {
        for (m, message) in messages.iter().enumerate() {
            let both = best[g * width + m] + u32::from(group.is_in(message));
            let one = best[g * width + m + 1].max(best[(g + 1) * width + m]);
            best[(g + 1) * width + m + 1] = both.max(one);
        }
    }
    let mut found = vec![None; groups.len()];
    let (mut g, mut m) = (groups.len(), messages.len());
    while g > 0 && m > 0 {
        let count = best[g * width + m];
        if count == best[(g - 1) * width + m - 1] + 1 && groups[g - 1].is_in(&messages[m - 1]) {
            (g, m) = (g - 1, m - 1);
            found[g] = Some(m);
        } else if count == best[(g - 1) * width + m] {
            g -= 1;
        } else {
            m -= 1;
        }
    }
    found
}

/// An item that the client shows.
struct ShownItem<'a> {
    item: &'a Item,
    /// Whether the item has just become a tombstone.
    is_removed: bool,
    /// Whether the item is the last one of its turn.
    ends_turn: bool,
}

/// Returns the items without those that had become tombstones before. The tombstones in the range
/// are new.
fn shown_items<'a>(
    items: impl Iterator<Item = &'a Item>,
    range: std::ops::Range<usize>,
) -> Vec<ShownItem<'a>> {
    let mut shown: Vec<ShownItem<'a>> = Vec::new();
    for (at, item) in items.enumerate() {
        let is_removed = item.tombstone && range.contains(&at);
        if item.tombstone && !is_removed {
            continue;
        }
        shown.push(ShownItem { item, is_removed, ends_turn: item.turn.is_some() });
    }
    // The metadata of a turn has moved to its last item that is not a tombstone.
    let is_tail = |shown: &ShownItem<'_>| {
        shown.is_removed && shown.item.is_model_output() && !shown.ends_turn
    };
    for at in 1..shown.len() {
        if !shown[at - 1].ends_turn || !is_tail(&shown[at]) {
            continue;
        }
        let end = at + shown[at..].iter().take_while(|shown| is_tail(shown)).count();
        if shown.get(end).is_none_or(|next| !next.item.is_model_output()) {
            (shown[at - 1].ends_turn, shown[end - 1].ends_turn) = (false, true);
        }
    }
    shown
}

/// Consecutive items that are one message of the client, apart from reasoning.
struct Group<'a, 'i>(&'a [ShownItem<'i>]);

fn groups<'a, 'i>(shown: &'a [ShownItem<'i>]) -> Vec<Group<'a, 'i>> {
    let is_one_turn = |item: &ShownItem<'i>, next: &ShownItem<'i>| {
        item.item.is_model_output() && next.item.is_model_output() && !item.ends_turn
    };
    shown.chunk_by(is_one_turn).map(Group).collect()
}

impl Group<'_, '_> {
    fn has_removed(&self) -> bool {
        self.0.iter().any(|shown| shown.is_removed)
    }

    /// Returns the position of the message that contains the text of this part of a turn. If only a
    /// part of the turn is known, no message consists of this text.
    fn find_part(&self, messages: &[Value]) -> Option<usize> {
        let is_part = self.0.iter().all(|shown| shown.item.is_model_output() && shown.is_removed);
        let text = self.text(|_| true);
        let contains = |message: &Value| {
            let content = message["content"].as_str().unwrap_or_default();
            let contains = content.starts_with(&text) || content.ends_with(&text);
            message["role"] == "assistant" && contains && !is_of_sub_agent(message)
        };
        match is_part && !text.is_empty() {
            true => messages.iter().rposition(contains),
            false => None,
        }
    }

    /// Returns the text of those items of the group that pass the filter.
    fn text(&self, filter: impl Fn(&ShownItem<'_>) -> bool) -> String {
        self.0
            .iter()
            .filter(|shown| filter(shown))
            .filter_map(|shown| shown.item.as_text())
            .collect()
    }

    /// Returns the ids of calls, as the client knows them.
    fn call_ids(
        &self,
        filter: impl Fn(&ShownItem<'_>) -> bool,
    ) -> impl Iterator<Item = Cow<'_, str>> {
        let calls = self.0.iter().filter(move |shown| filter(shown));
        calls.filter_map(|shown| Some(escape_call_id(&shown.item.as_tool_call()?.call_id)))
    }

    fn removed_reasoning(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|shown| shown.is_removed).filter_map(|shown| match &shown.item.kind {
            ItemKind::Reasoning { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Removes the group's tombstones from the message at `at` and from its reasoning messages.
    fn remove_from(&self, messages: &mut Vec<Value>, at: usize) {
        if !self.0.iter().any(|shown| shown.item.is_model_output()) {
            messages.remove(at);
            return;
        }
        self.empty_reasoning(&mut messages[..=at]);
        let message = &mut messages[at];
        if message["role"] != "assistant" {
            return;
        }
        self.remove_text(message);
        if let Some(calls) = message["toolCalls"].as_array_mut() {
            let removed: Vec<_> = self.call_ids(|shown| shown.is_removed).collect();
            calls.retain(|call| !removed.iter().any(|id| call["id"] == **id));
        }
        let has_calls = message["toolCalls"].as_array().is_some_and(|calls| !calls.is_empty());
        if !has_calls && message["content"].as_str().is_none_or(str::is_empty) {
            messages.remove(at);
        }
    }

    /// Removes the text of reasoning from the messages up to that of the turn, which is the last
    /// one.
    fn empty_reasoning(&self, messages: &mut [Value]) {
        let id = messages.last().and_then(|message| message["id"].as_str()).unwrap_or_default();
        // The ids of a turn's reasoning begin with the id of its message.
        let own_ids = format!("{id}-r");
        for text in self.removed_reasoning() {
            let is_it =
                |message: &Value| message["role"] == "reasoning" && message["content"] == text;
            let is_own = |message: &Value| {
                is_it(message) && message["id"].as_str().is_some_and(|id| id.starts_with(&own_ids))
            };
            let found = messages.iter().rposition(is_own);
            let Some(at) = found.or_else(|| messages.iter().rposition(is_it)) else { continue };
            if let Some(fields) = messages[at].as_object_mut() {
                fields.insert("content".to_owned(), "".into());
                fields.shift_remove("encryptedValue");
            }
        }
    }

    /// Removes the text of the tombstones from the message's content.
    fn remove_text(&self, message: &mut Value) {
        let Some(content) = message["content"].as_str() else { return };
        let left = if content == self.text(|_| true) {
            self.text(|shown| !shown.is_removed)
        } else {
            let removed = self.0.iter().filter(|shown| shown.is_removed);
            let texts = removed.filter_map(|shown| shown.item.as_text());
            texts.fold(content.to_owned(), |left, text| left.replacen(text, "", 1))
        };
        if let Some(fields) = message.as_object_mut() {
            match left.is_empty() {
                true => drop(fields.shift_remove("content")),
                false => drop(fields.insert("content".to_owned(), left.into())),
            }
        }
    }
}

/// The message that a group is for the client, in a form that is compared quickly.
enum WantedMessage<'a> {
    User {
        text: String,
        content: Value,
    },
    Result {
        id: Cow<'a, str>,
    },
    Call {
        id: Cow<'a, str>,
    },
    Text(String),
    /// Nothing but reasoning is in the group.
    Reasoning(Vec<&'a str>),
    None,
}

impl<'a> WantedMessage<'a> {
    fn of(group: &'a Group<'_, '_>) -> Self {
        match group.0.first().map(|shown| &shown.item.kind) {
            Some(ItemKind::User { content }) => {
                Self::User { text: content.text(), content: content_to_json(content) }
            }
            Some(ItemKind::ToolResult(result)) => {
                Self::Result { id: escape_call_id(&result.call_id) }
            }
            Some(ItemKind::System { .. }) | None => Self::None,
            Some(
                ItemKind::Text { .. }
                | ItemKind::Reasoning { .. }
                | ItemKind::ToolCall(_)
                | ItemKind::Other,
            ) => match (group.call_ids(|_| true).next(), group.text(|_| true)) {
                (Some(id), _) => Self::Call { id },
                (None, text) if text.is_empty() => {
                    Self::Reasoning(group.removed_reasoning().collect())
                }
                (None, text) => Self::Text(text),
            },
        }
    }

    fn is_in(&self, message: &Value) -> bool {
        if is_of_sub_agent(message) {
            return false;
        }
        let has_role = |role: &str| message["role"] == role;
        let calls = || message["toolCalls"].as_array().map_or(&[][..], Vec::as_slice);
        match self {
            Self::User { text, content } => {
                has_role("user") && is_content(&message["content"], text, content)
            }
            Self::Result { id } => message["toolCallId"] == **id,
            Self::Call { id } => calls().iter().any(|call| call["id"] == **id),
            Self::Text(text) => {
                has_role("assistant") && calls().is_empty() && message["content"] == **text
            }
            Self::Reasoning(texts) => {
                has_role("reasoning") && texts.iter().any(|text| message["content"] == **text)
            }
            Self::None => false,
        }
    }
}

/// Returns whether a message comes from a sub-agent, whose history is another one.
fn is_of_sub_agent(message: &Value) -> bool {
    !message["subagentRunId"].is_null()
}

/// Returns whether a message of the user has this content. Only the text and the data of parts are
/// compared.
fn is_content(message: &Value, text: &str, content: &Value) -> bool {
    // Input that was sent during a run is shown without its files.
    *message == *text || parts(message).eq(parts(content))
}

/// Returns the type and the data of each part of a message's content.
fn parts(content: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = match content.as_array() {
        Some(parts) => parts.as_slice(),
        None => std::slice::from_ref(content),
    };
    all.iter().map(|part| {
        let kind = part["type"].as_str().unwrap_or_default();
        match &part["source"]["value"] {
            _ if part.is_string() => ("text", part),
            Value::Null => (kind, &part["text"]),
            data => (kind, data),
        }
    })
}
