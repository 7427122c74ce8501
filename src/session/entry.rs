//! Session entries.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{AppendReason, EndReason, RewriteReason};
use crate::item::{Grant, History, Item, PendingCall, RawJson};

/// An entry in a session. Entries are stored in the order in which they were created.
///
/// An entry is serialized as a flat JSON object with a `type` field. For an entry that contains an
/// item, `type` is the item's type. Each other kind of entry has a distinct `type`. Deserializing
/// an unknown `type` fails, because a reader that skipped the entry would lose data.
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
    /// The items `from..to` in the history were replaced. The entries for the replaced items stay
    /// in the store.
    Rewritten {
        /// The reason for the rewrite.
        why: RewriteReason,
        /// The index of the first replaced item, in the history before the rewrite.
        from: usize,
        /// One past the index of the last replaced item, in the history before the rewrite.
        to: usize,
        /// The replacement items.
        items: Vec<Item>,
    },
    /// The items before this entry were added by a run that had already started, for example
    /// because the run was steered. Items without such an entry are the input of a run, or come
    /// from the model or a tool. The entry does not change the history.
    Appended {
        /// The source of the items.
        why: AppendReason,
        /// The id of the event that added the items. For steering input and a follow-up, this is
        /// the id of the receipt.
        id: String,
        /// The number of items, each of which is an entry.
        count: usize,
    },
    /// A run ended while calls were waiting for a verdict or an external result. None of these
    /// calls has started, unless an earlier crash left the call open and its tool, or the tool of
    /// the sub-agent that made the call, is [idempotent](crate::Tool::idempotent).
    Pending {
        /// The pending calls. Each call contains the arguments that its tool would receive. A call
        /// from a sub-agent also includes the path to that call.
        calls: Vec<PendingCall>,
    },
    /// A sub-agent that had been started by an open call was suspended, or has ended, in which case
    /// the call's result follows.
    Nested {
        /// The id of the call that started the sub-agent.
        call_id: String,
        /// The sub-agent's history so far.
        history: History,
        /// The reason why the sub-agent's run ended. `None` if it was suspended or cut off.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_reason")]
        reason: Option<EndReason>,
    },
    /// The session's open calls were resumed. After this entry, each open call may have started,
    /// even if the call was [pending](Self::Pending) or left open by a crash.
    ///
    /// If the process crashes, the calls in `idempotent` may be started again, but no other calls.
    ///
    /// When the session is loaded, the results that follow this entry are placed after the results
    /// that precede it, regardless of the order of their calls. For this reason, an entry of this
    /// kind is also written between the results of calls that were not interrupted.
    Resumed {
        /// The ids of the open calls whose tools have been [idempotent](crate::Tool::idempotent)
        /// each time they were started.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        idempotent: Vec<String>,
    },
    /// A call was approved with a grant for the rest of the session. The entry does not change the
    /// history.
    GrantAdded {
        /// The grant, whose [path](Grant::agent_path) starts at the session's agent.
        grant: Box<Grant>,
    },
    /// A grant of the session was revoked. The entry does not change the history.
    GrantRevoked {
        /// The id of the grant.
        grant_id: String,
    },
    /// An item was added, for example a message or a result. A turn's results are stored in the
    /// order in which they arrived, but are loaded in the order of their calls.
    #[serde(untagged)]
    Item(Item),
}

/// Writes the name of a reason. The phase of an interrupt is not stored.
#[expect(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn write_reason<S: Serializer>(reason: &Option<EndReason>, to: S) -> Result<S::Ok, S::Error> {
    reason.map(EndReason::as_str).serialize(to)
}

/// The type from which entries other than items are deserialized.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StoredEntry {
    Rewritten {
        why: RewriteReason,
        from: usize,
        to: usize,
        items: Vec<Item>,
    },
    Appended {
        why: AppendReason,
        id: String,
        count: usize,
    },
    Pending {
        calls: Vec<PendingCall>,
    },
    Nested {
        call_id: String,
        history: History,
        #[serde(default)]
        reason: Option<String>,
    },
    Resumed {
        #[serde(default)]
        idempotent: Vec<String>,
    },
    GrantAdded {
        grant: Box<Grant>,
    },
    GrantRevoked {
        grant_id: String,
    },
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
            "rewritten" | "appended" | "pending" | "nested" | "resumed" | "grant_added"
            | "grant_revoked" => json.deserialize_as().map(|read| match read {
                StoredEntry::Rewritten { why, from, to, items } => {
                    Self::Rewritten { why, from, to, items }
                }
                StoredEntry::Appended { why, id, count } => Self::Appended { why, id, count },
                StoredEntry::Pending { calls } => Self::Pending { calls },
                StoredEntry::Nested { call_id, history, reason } => {
                    let reason = reason.map(|name| EndReason::named(&name, None));
                    Self::Nested { call_id, history, reason }
                }
                StoredEntry::Resumed { idempotent } => Self::Resumed { idempotent },
                StoredEntry::GrantAdded { grant } => Self::GrantAdded { grant },
                StoredEntry::GrantRevoked { grant_id } => Self::GrantRevoked { grant_id },
            }),
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
