//! The JSON format for the content of log entries. Later versions may only add to the format.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind};
use crate::event::Event;
use crate::hub::{LogContent, Snapshot};
use crate::item::{History, PendingCall};

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
struct EntryOwned<'a> {
    v: u32,
    r#type: String,
    #[serde(borrow, default)]
    event: Option<&'a RawValue>,
    #[serde(borrow, default)]
    snapshot: Option<&'a RawValue>,
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

/// Encodes the content of an entry as JSON. Of an error that ended the run, the kind and the
/// message are kept, but not the sources.
///
/// # Errors
///
/// Returns a [`Store`](ErrorKind::Store) error if the content cannot be written as JSON.
pub fn content_to_json(content: &LogContent) -> Result<String, Error> {
    let content = match content {
        LogContent::Event(event) => ContentRef::Event { event: WireEvent(event) },
        LogContent::Snapshot(snapshot) => ContentRef::Snapshot {
            snapshot: SnapshotRef {
                run: snapshot.run(),
                start: snapshot.start(),
                starts_at: snapshot.starts_at(),
                events: snapshot.events().iter().map(|event| WireEvent(event)).collect(),
                pending: snapshot.pending_before(),
            },
        },
        LogContent::End(error) => ContentRef::End { error: error.as_ref() },
    };
    serde_json::to_string(&EntryRef { v: VERSION, content }).map_err(|error| {
        Error::new(ErrorKind::Store, "an entry of a log is not JSON").with_source(error)
    })
}

/// Decodes the content of an entry. Returns `None` if the JSON is not the content of an entry, or
/// was written in a later version of the format.
pub fn content_from_json(json: &[u8]) -> Option<LogContent> {
    let read: EntryOwned<'_> = serde_json::from_slice(json).ok()?;
    if read.v > VERSION {
        return None;
    }
    match read.r#type.as_str() {
        "event" => {
            let event = serde_json::from_str(read.event?.get()).ok()?;
            Some(LogContent::Event(Arc::new(event)))
        }
        "snapshot" => {
            let read: SnapshotOwned = serde_json::from_str(read.snapshot?.get()).ok()?;
            let run = read.run.map(Arc::from);
            let snapshot =
                Snapshot::from_parts(run, read.start, read.starts_at, read.events, read.pending);
            Some(LogContent::Snapshot(Arc::new(snapshot)))
        }
        "end" => Some(LogContent::End(read.error)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        contents.map(|content| content_to_json(&content).unwrap()).collect()
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
            let read = content_from_json(line.as_bytes()).unwrap();
            assert_eq!(content_to_json(&read).unwrap(), line);
        }
    }
}
