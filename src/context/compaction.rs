//! What to replace so that a history gets shorter, and the law of doing so.

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::context::was_reactively_compacted;
use crate::error::{Error, ErrorKind};
use crate::item::{History, Item};
use crate::turn::Turn;
use crate::usage::Usage;

/// A part of a history, and what stands in for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compaction {
    /// The first entry that is replaced.
    pub from: usize,
    /// The first behind it that is not.
    pub to: usize,
    /// What stands there instead.
    pub items: Vec<Item>,
    /// The tokens that it took to make it, void attempts included.
    pub usage: Usage,
    /// The model that has made it, where one was asked.
    pub model: Option<String>,
}

impl Compaction {
    /// Replaces the entries `from..to` by these, at no cost.
    pub fn new(from: usize, to: usize, items: Vec<Item>) -> Self {
        Self { from, to, items, ..Self::default() }
    }

    /// Replaces the entries, without a [check](Self::validate).
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
    /// - a lawful history would not be [lawful](History::is_settled) any more, for example because
    ///   a call goes and its result stays,
    /// - calls wait for their results and could not be [resumed](crate::Agent::resume) any more, for
    ///   example because the end of their turn goes,
    /// - a call comes in under an id that the history knows from elsewhere,
    /// - the note that a [reactive](crate::context::mark_reactive_compaction) compaction left would go: without it the history
    ///   would be compacted again and again.
    pub fn validate(&self, history: &History) -> Result<(), Error> {
        if self.from > self.to || self.to > history.len() {
            let (from, to, len) = (self.from, self.to, history.len());
            return Err(invalid_request(format!("{from}..{to} is no range of {len} entries")));
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
            return Err(invalid_request(format!("the call id `{}` is taken", call.call_id)));
        }
        let mut rewritten = history.clone();
        self.apply(&mut rewritten);
        if history.is_settled() && !rewritten.is_settled() {
            return Err(invalid_request("a call and its result would be parted"));
        }
        let can_resume = |history: &History| Turn::from_history(history).is_ok();
        let waits = !history.is_settled() && !history.unanswered_calls().is_empty();
        if waits && can_resume(history) && !can_resume(&rewritten) {
            return Err(invalid_request("the calls that wait could not be resumed"));
        }
        if was_reactively_compacted(history) && !was_reactively_compacted(&rewritten) {
            return Err(invalid_request("the note of an earlier compaction would be lost"));
        }
        Ok(())
    }
}

fn invalid_request(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidRequest, format!("the compaction cannot be used: {what}"))
}
