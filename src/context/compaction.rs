//! A planned replacement of history items, and a check that the replacement is valid.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::context::was_reactively_compacted;
use crate::error::{Error, ErrorKind};
use crate::item::{History, Item};
use crate::turn::Turn;
use crate::usage::Usage;

/// A range of history items, along with the items that replace it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// The index of the first item to replace.
    pub from: usize,
    /// One past the index of the last item to replace.
    pub to: usize,
    /// The replacement items.
    pub items: Vec<Item>,
    /// The tokens used to create the compaction, including the tokens used for discarded attempts.
    pub usage: Usage,
    /// The model that wrote the replacement, if a model was called.
    pub model: Option<String>,
}

impl Compaction {
    /// Creates a compaction that replaces the items `from..to` with `items` and reports no token
    /// usage.
    pub fn new(from: usize, to: usize, items: Vec<Item>) -> Self {
        Self { from, to, items, ..Self::default() }
    }

    /// Replaces the items in `history`, without [validation](Self::validate). A range that extends
    /// beyond the end of the history is clamped to the history's length.
    pub fn apply(&self, history: &mut History) {
        history.rewrite(self.from..self.to, self.items.iter().cloned());
    }

    /// Checks that this compaction can be applied to the history.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error in the following cases, in
    /// which the caller must leave the history unchanged.
    ///
    /// - The range is outside the history.
    /// - The history is [settled](History::is_settled), but would not be settled after the
    ///   compaction, for example because the compaction removes a call but not the call's result.
    /// - The compaction prevents pending calls from being [resumed](crate::Agent::resume), for
    ///   example because it removes the end of the turn that contains them.
    /// - A new call has an id that is already used in the history outside the range.
    /// - The compaction removes the note that marks a
    ///   [reactive](crate::context::mark_reactive_compaction) compaction, without which the history
    ///   would be compacted reactively again and again.
    pub fn validate(&self, history: &History) -> Result<(), Error> {
        if self.from > self.to || self.to > history.len() {
            let (from, to, len) = (self.from, self.to, history.len());
            return Err(invalid_request(format!("{from}..{to} is not a range of {len} entries")));
        }
        let replaced: HashSet<&str> = (history.iter().take(self.to).skip(self.from))
            .filter_map(Item::as_tool_call)
            .map(|call| call.call_id.as_str())
            .collect();
        let mut calls = self.items.iter().filter_map(Item::as_tool_call);
        let stolen = calls.find(|call| {
            !replaced.contains(&*call.call_id) && history.has_used_call_id(&call.call_id)
        });
        if let Some(call) = stolen {
            return Err(invalid_request(format!(
                "the call id `{}` is already in use",
                call.call_id
            )));
        }
        let mut rewritten = history.clone();
        self.apply(&mut rewritten);
        let would_unsettle = if history.is_settled() {
            !rewritten.is_settled()
        } else {
            is_settled_but_for_void_calls(history) && !is_settled_but_for_void_calls(&rewritten)
        };
        if would_unsettle {
            return Err(invalid_request("a call would be separated from its result"));
        }
        let can_resume = |history: &History| Turn::from_history(history).is_ok();
        let waits = !history.is_settled() && !history.unanswered_calls().is_empty();
        if waits && can_resume(history) && !can_resume(&rewritten) {
            return Err(invalid_request("the pending calls could not be resumed"));
        }
        if was_reactively_compacted(history) && !was_reactively_compacted(&rewritten) {
            return Err(invalid_request("the note of an earlier compaction would be lost"));
        }
        Ok(())
    }
}

/// Returns whether the history is settled, apart from the calls of interrupted turns, which are
/// void.
fn is_settled_but_for_void_calls(history: &History) -> bool {
    let is_void = |item: &Item| item.interrupted && item.as_tool_call().is_some();
    let valid = history.iter().filter(|item| !is_void(item)).cloned();
    History::from_items(history.id(), valid).is_settled()
}

fn invalid_request(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}
