//! Converts value lines from version 1 of the recording format.
//!
//! ```text
//! {"type":"noted","run":1,"noted":{"of":"facts","nth":2,"steered":true}}
//! {"type":"noted","run":1,"noted":{"of":"notes","items":[…]}}
//! ```

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::{AppendReason, Event};
use crate::replay::recording_entry::RecordingEntry;
use crate::world::EffectKind;

/// A value line in version 1 of the recording format. Lines with an unknown tag are skipped.
#[derive(Deserialize)]
pub(super) struct ValueV1 {
    of: String,
    /// The number of times that facts had been requested since the last event, including the
    /// request that returned this value.
    nth: Option<u32>,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl ValueV1 {
    pub(super) fn into_entry(self) -> Option<RecordingEntry> {
        let Self { of, nth, mut fields } = self;
        let (kind, value) = match of.as_str() {
            "facts" => (EffectKind::Facts, Value::Object(fields)),
            "prepared" => (EffectKind::Prepared, Value::Object(fields)),
            "at_stop" => (EffectKind::AtStop, Value::Object(fields)),
            "notes" => {
                (EffectKind::Notes, fields.get_mut("items").map(Value::take).unwrap_or_default())
            }
            "should_stop" => (EffectKind::ShouldStop, Value::Bool(true)),
            "gave_way" => (EffectKind::GaveWay, Value::Bool(true)),
            "compacted" => (EffectKind::Compacted, json!({ "compaction": fields })),
            "not_compacted" => (EffectKind::Compacted, Value::Object(fields)),
            _ => return None,
        };
        Some(RecordingEntry::Value {
            kind,
            name: String::new(),
            occurrence: nth,
            result: Ok(value.into()),
        })
    }
}

/// Moves notes from hooks to the position before the event that contains them, because version 1
/// recorded notes after the turn that the hooks observed. If a request is prepared again because
/// the run stopped waiting for its pool, the later `prepared` value gets the number that the
/// current version of the format assigns to it.
pub(super) fn reorder_v1(entries: &mut Vec<RecordingEntry>) {
    let mut notes = Vec::new();
    let mut gave_way = 0;
    for mut entry in std::mem::take(entries) {
        match &mut entry {
            RecordingEntry::Value { kind: EffectKind::Notes, .. } => {
                notes.push(entry);
                continue;
            }
            RecordingEntry::Value { kind: EffectKind::GaveWay, .. } => gave_way += 1,
            RecordingEntry::Value { kind: EffectKind::Prepared, occurrence: nth, .. } => {
                *nth = Some(gave_way + 1);
            }
            RecordingEntry::Event { event, .. } => {
                gave_way = 0;
                if let Event::Appended { why: AppendReason::Hook, .. } = event
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
