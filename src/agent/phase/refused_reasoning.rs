//! Removes reasoning that the provider has refused from a history.

use crate::event::{Event, RewriteReason};
use crate::item::{History, Item};
use crate::provider::without_reasoning;
use crate::usage::Usage;

/// Returns the event that removes the reasoning of the model named `model` from a history, or
/// `None` if the history contains no such reasoning.
pub(in crate::agent) fn reasoning_removal(history: &History, model: &str) -> Option<Event> {
    let has_reasoning =
        |(_, item): &(usize, &Item)| !item.tombstone && without_reasoning(item, model).is_some();
    let mut affected = history.iter().enumerate().filter(has_reasoning).map(|(at, _)| at);
    let from = affected.next()?;
    let to = affected.next_back().unwrap_or(from) + 1;
    let rewritten = |item: &Item| match item.tombstone {
        true => item.clone(),
        false => without_reasoning(item, model).unwrap_or_else(|| item.clone()),
    };
    let items = history.iter().take(to).skip(from).map(rewritten).collect();
    let (why, usage) = (RewriteReason::ReasoningRefused, Usage::default());
    Some(Event::Rewritten { why, from, to, items, usage: usage.into(), model: None })
}
