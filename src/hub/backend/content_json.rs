//! The JSON format for the content of log entries. Later versions may only add to the format.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use crate::error::Error;
use crate::event::Event;
use crate::hub::{LogContent, Snapshot};
use crate::item::{History, PendingCall, RawJson};

/// The version of the JSON format. Readers reject later versions.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct EntryRef<'a> {
    v: u32,
    #[serde(flatten)]
    content: ContentRef<'a>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentRef<'a> {
    Event { event: WireEvent<'a> },
    Snapshot { snapshot: SnapshotRef<'a> },
    End { error: Option<&'a Error> },
}

#[derive(Serialize)]
struct SnapshotRef<'a> {
    run: Option<&'a str>,
    start: &'a History,
    starts_at: Option<u64>,
    events: Vec<WireEvent<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pending: &'a [PendingCall],
}

/// An event in its serialized form. Unknown events are also kept, so that the entry numbers in a
/// log have no gaps.
struct WireEvent<'a>(&'a Event);

impl Serialize for WireEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.without_nesting() {
            Event::Unknown => json!({ "type": "unknown" }).serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

/// The fields of all entry types. The values of these fields are parsed once the entry's type is
/// known.
#[derive(Deserialize)]
struct EntryOwned {
    v: u32,
    r#type: String,
    #[serde(default)]
    event: Option<RawJson>,
    #[serde(default)]
    snapshot: Option<RawJson>,
    #[serde(default)]
    error: Option<Error>,
}

#[derive(Deserialize)]
struct SnapshotOwned {
    #[serde(default)]
    run: Option<String>,
    start: History,
    #[serde(default)]
    starts_at: Option<u64>,
    #[serde(deserialize_with = "shared_events")]
    events: Vec<Arc<Event>>,
    #[serde(default)]
    pending: Vec<PendingCall>,
}

fn shared_events<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Arc<Event>>, D::Error> {
    Ok(Vec::<Event>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
}

/// Of an error that ended the run, the kind and the message are serialized, but not the sources.
impl Serialize for LogContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let content = match self {
            Self::Event(event) => ContentRef::Event { event: WireEvent(event) },
            Self::Snapshot(snapshot) => ContentRef::Snapshot {
                snapshot: SnapshotRef {
                    run: snapshot.run(),
                    start: snapshot.start(),
                    starts_at: snapshot.starts_at(),
                    events: snapshot.events().iter().map(|event| WireEvent(event)).collect(),
                    pending: snapshot.pending_before(),
                },
            },
            Self::End(error) => ContentRef::End { error: error.as_ref() },
        };
        EntryRef { v: VERSION, content }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LogContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let read = EntryOwned::deserialize(deserializer)?;
        if read.v > VERSION {
            return Err(D::Error::custom("an entry of a later version"));
        }
        let missing = || D::Error::custom("an entry without its content");
        match read.r#type.as_str() {
            "event" => {
                let event = read.event.ok_or_else(missing)?;
                Ok(Self::Event(Arc::new(event.deserialize_as().map_err(D::Error::custom)?)))
            }
            "snapshot" => {
                let read = read.snapshot.ok_or_else(missing)?;
                let read: SnapshotOwned = read.deserialize_as().map_err(D::Error::custom)?;
                let SnapshotOwned { run, start, starts_at, events, pending } = read;
                let run = run.map(Arc::from);
                let snapshot = Snapshot::from_parts(run, start, starts_at, events, pending);
                Ok(Self::Snapshot(Arc::new(snapshot)))
            }
            "end" => Ok(Self::End(read.error)),
            _ => Err(D::Error::custom("not the content of an entry")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::item::{Item, ToolCall};

    /// An entry of each kind.
    fn entries() -> Vec<String> {
        let event = |json| Arc::new(serde_json::from_value::<Event>(json).unwrap());
        let events = vec![
            event(json!({ "type": "text_delta", "index": 0, "text": "Hi" })),
            Arc::new(Event::Unknown),
        ];
        let (call_id, name, arguments) = ("c1".into(), "look".into(), "{}".into());
        let pending = vec![ToolCall { call_id, name, arguments }.into()];
        let start = History::from_items("h", [Item::user("Hi")]);
        let snapshot =
            Snapshot::from_parts(Some("r".into()), start, Some(3), events.clone(), pending);
        let failed = Error::new(ErrorKind::Store, "the store failed");
        let contents = events.into_iter().map(LogContent::Event).chain([
            LogContent::Snapshot(Arc::new(snapshot)),
            LogContent::End(None),
            LogContent::End(Some(failed)),
        ]);
        contents.map(|content| serde_json::to_string(&content).unwrap()).collect()
    }

    /// The stored form of [`entries`].
    const STORED: &str = include_str!("../../../tests/stored_formats/hub_log.jsonl");

    #[test]
    fn log_entries_are_written_in_their_stored_format() {
        assert_eq!(entries(), STORED.lines().collect::<Vec<_>>());
    }

    #[test]
    fn stored_log_entries_are_read() {
        for line in STORED.lines() {
            let read = serde_json::from_str::<LogContent>(line).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), line);
        }
    }
}
