//! The errors of a store.
use std::error::Error as StdError;
use std::fmt::Display;

use turnstream::{Error, ErrorKind};

/// Creates the error for an operation that failed in the database.
pub(crate) fn store_error(
    what: impl Display,
    source: impl StdError + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::Store, format!("{what}: {source}")).with_source(source)
}

/// Creates the error for corrupt data, that is, data that the store never writes.
pub(crate) fn corrupt_data_error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Store, message)
}

/// Creates the error for an operation after which it is unknown whether the database was changed.
pub(crate) fn outcome_unknown_error(
    what: impl Display,
    source: impl StdError + Send + Sync + 'static,
) -> Error {
    let message = format!("{what}: {source}; it is unknown whether this change was made");
    Error::new(ErrorKind::OutcomeUnknown, message).with_source(source)
}
