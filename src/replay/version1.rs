//! What recordings of version 1 have in lines of their own kinds, as the values that they are.
//!
//! ```text
//! {"type":"noted","run":1,"noted":{"of":"facts","nth":2,"steered":true}}
//! {"type":"noted","run":1,"noted":{"of":"notes","items":[…]}}
//! ```

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::{AppendedWhy, Event};
use crate::replay::entry::Entry;
use crate::world::Kind;

/// What no event tells. A tag that is not known is passed over.
#[derive(Deserialize)]
pub(super) struct Noted {
    of: String,
    /// The how many-th time that facts were asked for between two events.
    nth: Option<u32>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl Noted {
    pub(super) fn into_entry(self) -> Option<Entry> {
        let Self { of, nth, mut fields } = self;
        let (kind, value) = match of.as_str() {
            "facts" => (Kind::Facts, Value::Object(fields)),
            "prepared" => (Kind::Prepared, Value::Object(fields)),
            "at_stop" => (Kind::AtStop, Value::Object(fields)),
            "notes" => (Kind::Notes, fields.get_mut("items").map(Value::take).unwrap_or_default()),
            "should_stop" => (Kind::ShouldStop, Value::Bool(true)),
            "gave_way" => (Kind::GaveWay, Value::Bool(true)),
            "compacted" => (Kind::Compacted, json!({ "compaction": fields })),
            "not_compacted" => (Kind::Compacted, Value::Object(fields)),
            _ => return None,
        };
        Some(Entry::Value { kind, name: String::new(), nth, made: Ok(value.into()) })
    }
}

/// Puts the notes of hooks before the event that says them: earlier recordings have them after the turn
/// that hooks were told of. A request that is prepared again, since the one before gave way, gets the
/// number that it has.
pub(super) fn put_in_order(entries: &mut Vec<Entry>) {
    let mut notes = Vec::new();
    let mut gave_way = 0;
    for mut entry in std::mem::take(entries) {
        match &mut entry {
            Entry::Value { kind: Kind::Notes, .. } => {
                notes.push(entry);
                continue;
            }
            Entry::Value { kind: Kind::GaveWay, .. } => gave_way += 1,
            Entry::Value { kind: Kind::Prepared, nth, .. } => *nth = Some(gave_way + 1),
            Entry::Event { event, .. } => {
                gave_way = 0;
                if let Event::Appended { why: AppendedWhy::Hook, .. } = event
                    && !notes.is_empty()
                {
                    entries.push(notes.remove(0));
                }
            }
            _ => {}
        }
        entries.push(entry);
    }
}
