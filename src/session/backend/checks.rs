//! Checks and errors shared by all stores.

use std::error::Error as StdError;
use std::fmt::Display;

use crate::error::{Error, ErrorKind};
use crate::session::Conflict;

/// Checks that a session id is not empty.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if it is.
pub fn ensure_id_not_empty(id: &str) -> Result<(), Error> {
    match id.is_empty() {
        true => Err(Error::new(ErrorKind::InvalidRequest, "a session needs an id")),
        false => Ok(()),
    }
}

/// Checks that the version which an append expects is the session's current version, `found`.
///
/// # Errors
///
/// Returns an error with a [`Conflict`] as its source if it is not.
pub fn ensure_expected_version(id: &str, expected: u64, found: u64) -> Result<(), Error> {
    match expected == found {
        true => Ok(()),
        false => Err(Conflict { id: id.to_owned(), expected, found }.into()),
    }
}

/// Checks that the session `id` has reached the version `at`, so that it can be forked there. Pass
/// the session's own version, or `None` if the session does not exist.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error otherwise.
pub fn ensure_fork_point_exists(id: &str, at: u64, version: Option<u64>) -> Result<(), Error> {
    match version {
        Some(version) if at <= version => Ok(()),
        Some(version) => {
            let message = format!("the session `{id}` has {version} entries, not {at}");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        None => Err(Error::new(ErrorKind::InvalidRequest, format!("there is no session `{id}`"))),
    }
}

/// Checks that the id of a fork is not in use. `version` is the version of the session with this
/// id, if there is one.
///
/// # Errors
///
/// Returns an error with a [`Conflict`] as its source if there is one.
pub fn ensure_session_absent(new: &str, version: Option<u64>) -> Result<(), Error> {
    match version {
        Some(found) => Err(Conflict { id: new.to_owned(), expected: 0, found }.into()),
        None => Ok(()),
    }
}

/// Checks that a session has no forks before it is deleted, for stores whose forks share the
/// session's entries. `fork` is the id of a fork, if there is one.
///
/// # Errors
///
/// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if there is one.
pub fn ensure_has_no_forks(id: &str, fork: Option<impl Display>) -> Result<(), Error> {
    match fork {
        Some(fork) => {
            let message =
                format!("`{fork}` was forked from the session `{id}` and would lose entries");
            Err(Error::new(ErrorKind::InvalidRequest, message))
        }
        None => Ok(()),
    }
}

/// Creates the error for an operation that failed in the underlying storage, of kind
/// [`Store`](ErrorKind::Store). `what` failed, such as `cannot write the session`, and nothing was
/// written.
pub fn store_error(what: impl Display, source: impl StdError + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Store, format!("{what}: {source}")).with_source(source)
}

/// Creates the error for corrupt data, that is, data that a store never writes, of kind
/// [`Store`](ErrorKind::Store).
pub fn corrupt_data_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Store, message)
}

/// Creates the error for an operation after which it is unknown whether the underlying storage was
/// changed, of kind [`OutcomeUnknown`](ErrorKind::OutcomeUnknown).
pub fn outcome_unknown_error(
    what: impl Display,
    source: impl StdError + Send + Sync + 'static,
) -> Error {
    let message = format!("{what}: {source}; it is unknown whether this change was made");
    Error::new(ErrorKind::OutcomeUnknown, message).with_source(source)
}
