//! Where the conversation is stored.

use std::path::Path;
use std::sync::Arc;

use turnstream::env::{Ids, SystemIds};
use turnstream::session::{Conflict, JsonLinesStore, MemoryStore, Session, SessionState, Store};
use turnstream::{Error, ErrorKind};

/// Checks whether the format of a file is supported, by its name. An error is one line for the
/// user.
pub fn check_file_format(file: &str) -> Result<(), String> {
    match is_sqlite(file) && cfg!(not(feature = "sqlite")) {
        true => Err(format!(
            "`{file}` names an SQLite file, which needs the feature `sqlite`; with any other \
             extension, it is stored as JSON lines"
        )),
        false => Ok(()),
    }
}

/// Whether the name of a file says that it is a file of SQLite.
fn is_sqlite(file: &str) -> bool {
    let ending = Path::new(file).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    ["db", "sqlite"].iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Opens the session in the file, or one in memory if no file is given.
pub(crate) async fn open(file: Option<&str>) -> Result<Session, Error> {
    let Some(file) = file else {
        return Session::open(MemoryStore::new(), SystemIds.next_id()).await;
    };
    #[cfg(feature = "sqlite")]
    if is_sqlite(file) {
        let folder = Path::new(file).parent().filter(|folder| *folder != Path::new(""));
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(|error| {
                let message = format!("`{}` cannot be created: {error}", folder.display());
                Error::new(ErrorKind::Store, message)
            })?;
        }
        return Session::open(turnstream_sqlite::SqliteStore::open(file)?, "agent").await;
    }
    let (store, id) = JsonLinesStore::open_file(file)?;
    Session::open(store, id).await
}

/// Opens a store for several sessions: in a folder, in a file of SQLite, or in memory if no path is
/// given.
///
/// # Errors
///
/// Returns a [`Store`](ErrorKind::Store) error if the store cannot be opened.
pub fn open_store(path: Option<&str>) -> Result<Arc<dyn Store>, Error> {
    let Some(path) = path else { return Ok(Arc::new(MemoryStore::new())) };
    #[cfg(feature = "sqlite")]
    if is_sqlite(path) {
        return Ok(Arc::new(turnstream_sqlite::SqliteStore::open(path)?));
    }
    if !is_sqlite(path) && Path::new(path).is_file() {
        let message = format!("`{path}` is a file; a folder is needed for several sessions");
        return Err(Error::new(ErrorKind::Store, message));
    }
    Ok(Arc::new(JsonLinesStore::open(path)?))
}

/// A notice about a session that is continued; `None` if its last run finished.
pub(crate) fn resume_notice(state: &SessionState) -> Option<String> {
    let names = |names: Vec<&str>| {
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    match state {
        SessionState::Idle => None,
        SessionState::Pending { calls } => Some(format!(
            "the last run is waiting for approval of {}",
            names(calls.iter().map(|call| &*call.name).collect())
        )),
        SessionState::Unfinished { open_calls: open } if open.is_empty() => {
            Some("the last run did not finish: its answer is missing".to_owned())
        }
        SessionState::Unfinished { open_calls: open } => Some(format!(
            "the last run did not finish: results are missing for {} (running, or waiting for \
             approval); only calls of read-only tools run again",
            names(open.iter().map(|call| &*call.name).collect())
        )),
    }
}

/// Describes a failure of the store for the user.
pub(crate) fn store_error_message(error: &Error) -> String {
    match error.find_source::<Conflict>() {
        Some(_) => "another program has written to the session; start again to continue from there"
            .to_owned(),
        None => error.message().to_owned(),
    }
}
