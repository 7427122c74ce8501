//! What every store says no to, in the same words.

use std::error::Error as StdError;
use std::fmt::Display;

use crate::error::{Error, ErrorKind};
use crate::session::Conflict;

/// A session without a name would be found by nobody.
pub(super) fn ensure_id_not_empty(id: &str) -> Result<(), Error> {
    match id.is_empty() {
        true => Err(Error::new(ErrorKind::InvalidRequest, "a session needs an id")),
        false => Ok(()),
    }
}

/// An append follows the version that is there.
pub(super) fn ensure_expected_version(id: &str, expected: u64, found: u64) -> Result<(), Error> {
    match expected == found {
        true => Ok(()),
        false => Err(Conflict { id: id.to_owned(), expected, found }.into()),
    }
}

/// A fork takes over what is there.
pub(super) fn ensure_fork_point_exists(
    id: &str,
    at: u64,
    version: Option<u64>,
) -> Result<(), Error> {
    match version {
        Some(version) if at <= version => Ok(()),
        Some(version) => {
            let message = format!("the session `{id}` has {version} entries, not {at}");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        None => Err(Error::new(ErrorKind::InvalidRequest, format!("there is no session `{id}`"))),
    }
}

/// A fork is a session of its own.
pub(super) fn ensure_session_absent(new: &str, version: Option<u64>) -> Result<(), Error> {
    match version {
        Some(found) => Err(Conflict { id: new.to_owned(), expected: 0, found }.into()),
        None => Ok(()),
    }
}

/// A fork is nothing without what it was forked from.
pub(super) fn ensure_has_no_forks(id: &str, fork: Option<impl Display>) -> Result<(), Error> {
    match fork {
        Some(fork) => {
            let message =
                format!("`{fork}` was forked from the session `{id}` and would lose entries");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        None => Ok(()),
    }
}

/// Something below the store failed.
pub(super) fn store_error(
    what: impl Display,
    source: impl StdError + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::Store, format!("{what}: {source}")).with_source(source)
}

/// What is kept is not what a store writes.
pub(super) fn corrupt_data_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Store, message)
}
