//! The serialized form of a history.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::item::history::History;
use crate::item::{Item, PendingCall};

#[derive(Serialize)]
struct SerializedHistory<'a> {
    id: &'a str,
    items: Vec<&'a Item>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retired_call_ids: Vec<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    nested: &'a BTreeMap<String, History>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pending: Vec<&'a PendingCall>,
}

#[derive(Deserialize)]
struct DeserializedHistory {
    id: Arc<str>,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    retired_call_ids: Vec<String>,
    #[serde(default)]
    nested: BTreeMap<String, History>,
    #[serde(default)]
    pending: Vec<PendingCall>,
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SerializedHistory {
            id: &self.id,
            items: self.iter().collect(),
            retired_call_ids: self.index.call_ids.retired_ids().collect(),
            nested: &self.index.nested_histories,
            pending: self.index.verdict_requests.values().collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = DeserializedHistory::deserialize(deserializer)?;
        let mut history = Self::from_items(read.id, read.items);
        for call_id in read.retired_call_ids.into_iter().rev() {
            history.retire_call_id(call_id);
        }
        for (call_id, nested) in read.nested {
            history.set_nested_history(&call_id, nested);
        }
        history.set_pending_calls(&read.pending);
        Ok(history)
    }
}
