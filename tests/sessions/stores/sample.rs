//! What is stored, and a folder for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(unix)]
use std::time::SystemTime;
use std::{env, fs, process};

use futures::future::BoxFuture;
use serde_json::json;
#[cfg(unix)]
use turnstream::env::Clock;
use turnstream::event::RewrittenWhy;
use turnstream::item::{
    Json, Mark, Part, ProviderData, Report, ResultKind, SideEffect, StopReason, ToolCall,
    ToolResult, TurnInfo,
};
use turnstream::session::{Entry, Store};
use turnstream::{Error, Item, Usage};

use crate::support::stores::forward_to_inner;

pub(crate) fn said(text: &str) -> Entry {
    Item::user(text).into()
}

/// `n` entries that tell their number.
pub(crate) fn numbered(numbers: std::ops::Range<u64>) -> Vec<Entry> {
    numbers.map(|n| said(&n.to_string())).collect()
}

pub(crate) fn call(id: &str) -> ToolCall {
    ToolCall { call_id: id.into(), name: "read".into(), arguments: r#"{"path":"a.rs"}"#.into() }
}

/// One of every kind, with everything on it.
pub(crate) fn every_kind() -> Vec<Entry> {
    let turn = TurnInfo {
        usage: Usage::default(),
        model: Some("m".into()),
        response_id: Some("r".into()),
        stop_reason: StopReason::ToolCalls,
    };
    let mut last = Item::text("Let me look.").marked(Mark::Interrupted);
    last.turn = Some(Arc::new(turn));
    let value = Json::parse(r#"{"z":1,"a":[null,1.5e300]}"#).unwrap();
    let mut thought = Item::reasoning("");
    thought.provider_data =
        Some(Arc::new(ProviderData { provider: "anthropic".into(), model: "m".into(), value }));
    let result = ToolResult::answering(&call("c"), ResultKind::Timeout, vec![Part::from("cut")])
        .with_report(Report {
            side_effects: vec![SideEffect::changed("a.rs")],
            evidence: vec![Json::from(json!({ "exit_code": 1 }))],
        });
    let picture = vec![Part::image("image/png", "aGk="), Part::image_url("image/png", "https://x")];
    let items = vec![
        Item::system("Be brief."),
        Item::user(picture),
        thought,
        last,
        Item::tool_call("c", "read", "{not json"),
        Item::tool_result(result),
    ];
    let mut entries: Vec<Entry> = items.iter().cloned().map(Entry::Item).collect();
    entries.push(Entry::Rewritten { why: RewrittenWhy::Compacted, from: 1, to: 3, items });
    entries.push(Entry::Pending { calls: vec![call("c"), call("d")] });
    entries.push(Entry::Resumed);
    entries
}

/// A folder for one test, gone with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("turnstream-stores-{}-{number}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A clock that removes a file when it is asked, as somebody may in the middle of an append.
#[cfg(unix)]
pub(crate) struct Removes(pub(crate) PathBuf);

#[cfg(unix)]
impl Clock for Removes {
    fn now(&self) -> SystemTime {
        let _ = fs::remove_file(&self.0);
        SystemTime::UNIX_EPOCH
    }
}

/// Who may do what with a file.
#[cfg(unix)]
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[cfg(unix)]
pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A store whose folder goes with it.
#[derive(Clone)]
pub(crate) struct InFolder<S> {
    inner: S,
    _folder: Arc<Folder>,
}

impl<S> InFolder<S> {
    pub(crate) fn new(open: impl FnOnce(&Folder) -> Result<S, Error>) -> Self {
        let folder = Folder::new();
        Self { inner: open(&folder).unwrap(), _folder: Arc::new(folder) }
    }
}

impl<S: Store> Store for InFolder<S> {
    fn append<'a>(
        &'a self,
        id: &'a str,
        expected: u64,
        entries: Vec<Entry>,
    ) -> BoxFuture<'a, Result<u64, Error>> {
        self.inner.append(id, expected, entries)
    }

    forward_to_inner!();
}
