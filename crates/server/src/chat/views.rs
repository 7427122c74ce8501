//! The JSON responses to the page, except for events.
//!
//! NOTE: the example `fleet` of the package `turnstream-restate` uses this file, `requests`,
//! `response` and `ended_runs` as well.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use turnstream::event::RewriteReason;
use turnstream::item::{Content, Item};
use turnstream::session::{Entry, Session, SessionInfo, SessionState, Store};
use turnstream::ui::ErrorTexts;
use turnstream::{Error, ErrorKind};

use super::ended_runs::{EndedRun, ended_runs, shown_item};
use super::failure::Failure;
use super::requests::MessagesQuery;

/// The maximum number of entries in a response.
const MAX_PAGE: usize = 200;

/// The number of sessions in one page of the list.
pub(crate) const LIST_PAGE: usize = 50;

/// The maximum number of characters in a title.
const MAX_TITLE: usize = 80;

/// A session in the list.
#[derive(Serialize)]
pub(crate) struct ListedSession {
    id: String,
    title: String,
    /// In milliseconds since the Unix epoch.
    updated_at: u64,
    entries: u64,
    forked_from: Option<String>,
    is_running: bool,
    /// Why the session cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_error: Option<String>,
}

impl ListedSession {
    pub(crate) fn new(
        info: &SessionInfo,
        title: String,
        is_running: bool,
        texts: &ErrorTexts,
    ) -> Self {
        // The error may contain the path of a file.
        let shown = |text: &String| {
            let error = Error::new(ErrorKind::Store, text.clone());
            texts.error(&error).message().to_owned()
        };
        Self {
            title,
            updated_at: to_ms(info.updated_at),
            entries: info.version,
            forked_from: info.origin.as_ref().map(|origin| origin.id.clone()),
            is_running,
            read_error: info.read_error.as_ref().map(shown),
            id: info.id.clone(),
        }
    }
}

/// A session's title.
#[derive(Clone)]
pub(crate) struct KnownTitle {
    pub(crate) text: String,
    /// The number of entries that were read to determine it.
    version: u64,
}

impl KnownTitle {
    /// Loads the title of a session, unless the known one is current. A known title changes only if
    /// items become tombstones, so otherwise only the new entries are read. Returns `None` if the
    /// session has no title or cannot be read.
    pub(crate) async fn load(
        store: &dyn Store,
        info: &SessionInfo,
        known: Option<Self>,
    ) -> Option<Self> {
        // A deleted session may have been created again.
        if let Some(known) = known.filter(|known| known.version <= info.version) {
            if known.version == info.version {
                return Some(known);
            }
            let new = store.load(&info.id, known.version).await.ok()??;
            let is_change = |entry: &Entry| {
                matches!(entry, Entry::Rewritten { why: RewriteReason::Tombstoned, .. })
            };
            if !new.iter().any(is_change) {
                let version = known.version + new.len() as u64;
                return Some(Self { version, ..known });
            }
        }
        let entries = store.load(&info.id, 0).await.ok()??;
        Some(Self { text: title(&entries)?, version: entries.len() as u64 })
    }
}

/// The beginning of the user's first message that is not a tombstone.
fn title(entries: &[Entry]) -> Option<String> {
    let mut messages: Vec<&Content> = Vec::new();
    let mut is_removed: Vec<bool> = Vec::new();
    // For each item of the history, the index of its message, if it is one of `messages`.
    let mut history: Vec<Option<usize>> = Vec::new();
    for entry in entries {
        match entry {
            Entry::Item(item) => {
                history.push(item.as_user().map(|_| messages.len()));
                messages.extend(item.as_user());
                is_removed.resize(messages.len(), item.tombstone);
            }
            Entry::Rewritten { from, to, items, .. } => {
                let to = (*to).min(history.len());
                let from = (*from).min(to);
                let mut replaced = history[from..to].iter().flatten();
                let mut indexes: Vec<Option<usize>> = Vec::new();
                for item in items {
                    let is_same = |index: &&usize| Some(messages[**index]) == item.as_user();
                    let rest = replaced.clone();
                    let index = replaced.find(is_same).copied();
                    if index.is_none() {
                        replaced = rest;
                    }
                    if let Some(index) = index.filter(|_| item.tombstone) {
                        is_removed[index] = true;
                    }
                    indexes.push(index);
                }
                history.splice(from..to, indexes);
            }
            _ => {}
        }
    }
    let first = is_removed.iter().position(|removed| !removed)?;
    let text = messages[first].text();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut title: String = text.chars().take(MAX_TITLE).collect();
    if title.len() < text.len() {
        title.push('…');
    }
    Some(title)
}

/// The position from which the list continues after a full page, as text: nanoseconds since the
/// Unix epoch, and the id of the last session.
pub(crate) fn next_position(page: &[SessionInfo]) -> Option<String> {
    let last = page.last().filter(|_| page.len() == LIST_PAGE)?;
    let since = last.updated_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(format!("{}.{}", since.as_nanos(), last.id))
}

pub(crate) fn parse_position(position: &str) -> Result<SessionInfo, Failure> {
    let parsed = position.split_once('.').and_then(|(nanos, id)| {
        let updated_at = UNIX_EPOCH.checked_add(Duration::from_nanos(nanos.parse().ok()?))?;
        Some(SessionInfo {
            id: id.to_owned(),
            version: 0,
            origin: None,
            updated_at,
            read_error: None,
        })
    });
    let message = "`after` needs the text `next` of the previous page";
    parsed.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, message))
}

/// Returns at most 200 entries before a number, without provider data, the ends of the runs that
/// have ended with one of them, and the events of these runs' sub-agents. `observed` are the runs
/// that this process has performed, with error messages hidden.
pub(crate) fn messages(
    entries: &[Entry],
    query: &MessagesQuery,
    session: &Session,
    observed: &[EndedRun],
    texts: &ErrorTexts,
) -> Value {
    let end = query.before.unwrap_or(usize::MAX).min(entries.len());
    let start = end.saturating_sub(query.limit.unwrap_or(100).clamp(1, MAX_PAGE));
    let shown: Vec<Value> = entries[start..end]
        .iter()
        .zip(start..)
        .map(|(entry, number)| json!({ "number": number, "entry": shown_entry(entry, texts) }))
        .collect();
    let is_shown = |run: &EndedRun| (start as u64 + 1..=end as u64).contains(&run.ends_at);
    let mut runs = ended_runs(entries, observed);
    runs.retain(is_shown);
    let ends: Vec<Value> =
        runs.iter().map(|run| json!({ "at": run.ends_at, "outcome": run.outcome })).collect();
    let nested: Vec<Value> = runs.into_iter().flat_map(|run| run.nested).collect();
    json!({
        "messages": shown,
        "ends": ends,
        "nested": nested,
        "total": entries.len(),
        "state": state_name(session),
    })
}

/// An entry as the page receives it.
fn shown_entry(entry: &Entry, texts: &ErrorTexts) -> Value {
    let shown = |item: &Item| shown_item(texts.item(item).as_ref().unwrap_or(item));
    match entry {
        Entry::Item(item) => shown(item),
        // The history of a suspended sub-agent.
        Entry::Nested { call_id, .. } => json!({ "type": "nested", "call_id": call_id }),
        Entry::Rewritten { items, .. } => {
            let items: Vec<Value> = items.iter().map(shown).collect();
            let mut entry = json!(entry);
            entry["items"] = items.into();
            entry
        }
        entry => json!(entry),
    }
}

fn state_name(session: &Session) -> &'static str {
    match session.state() {
        SessionState::Idle => "idle",
        SessionState::Pending { .. } => "pending",
        SessionState::Unfinished { .. } => "unfinished",
    }
}

fn to_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
