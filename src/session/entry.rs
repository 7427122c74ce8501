//! One entry of a session.

use serde::{Deserialize, Deserializer, Serialize};

use crate::event::RewriteReason;
use crate::item::{History, Item, PendingCall, RawJson};

/// One entry of a session, in the order in which it happened.
///
/// Serialised, it is one flat object with a `type`: an item as it is, and the others beside it. A
/// `type` that is not known is an error: a reader that skipped it would lose what was said.
///
/// ```
/// use turnstream::Item;
/// use turnstream::session::Entry;
///
/// let entry = Entry::Item(Item::user("How many files?"));
/// let line = serde_json::to_string(&entry)?;
/// assert_eq!(line, r#"{"type":"user","content":"How many files?"}"#);
/// assert_eq!(serde_json::from_str::<Entry>(&line)?, entry);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// Entries `from..to` of the history were replaced. They stay in the store.
    Rewritten {
        /// What for.
        why: RewriteReason,
        /// The first item of the history, as it was until here, that was replaced.
        from: usize,
        /// The first behind them that was not.
        to: usize,
        /// What stands there instead.
        items: Vec<Item>,
    },
    /// A run ended with calls that wait for somebody outside. None of them has begun, unless a crash
    /// left it open before and its tool is [idempotent](crate::Tool::idempotent).
    Pending {
        /// The calls, as they would run, those of sub-agents with the path to them.
        calls: Vec<PendingCall>,
    },
    /// The sub-agent that ran as an open call was suspended.
    Nested {
        /// The call.
        call_id: String,
        /// What the sub-agent did until here.
        history: History,
    },
    /// The calls that are open go on: from here on each of them may have begun, also one that was
    /// [pending](Self::Pending) or that a crash has left open.
    ///
    /// What comes for them from here on is read back behind the results that came before, whatever
    /// the order of the calls. So it also stands between results of calls that just go on.
    Resumed,
    /// Something was said, or a call has its result. Results of one turn stand in the order in which
    /// they came, and are read back in the order of their calls.
    #[serde(untagged)]
    Item(Item),
}

/// The entries that are no items, read.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StoredEntry {
    Rewritten { why: RewriteReason, from: usize, to: usize, items: Vec<Item> },
    Pending { calls: Vec<PendingCall> },
    Nested { call_id: String, history: History },
    Resumed,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        #[derive(Deserialize)]
        struct Tag {
            r#type: String,
        }

        let json = RawJson::deserialize(deserializer)?;
        let Tag { r#type } = json.deserialize_as().map_err(D::Error::custom)?;
        let entry = match r#type.as_str() {
            "rewritten" | "pending" | "nested" | "resumed" => {
                json.deserialize_as().map(|read| match read {
                    StoredEntry::Rewritten { why, from, to, items } => {
                        Self::Rewritten { why, from, to, items }
                    }
                    StoredEntry::Pending { calls } => Self::Pending { calls },
                    StoredEntry::Nested { call_id, history } => Self::Nested { call_id, history },
                    StoredEntry::Resumed => Self::Resumed,
                })
            }
            _ => json.deserialize_as().map(Self::Item),
        };
        entry.map_err(D::Error::custom)
    }
}

impl From<Item> for Entry {
    fn from(item: Item) -> Self {
        Self::Item(item)
    }
}
