//! Why the database did not do something.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Error as Postgres;

use crate::error::{Error, ErrorKind};

/// The source of an error of kind [`Store`](ErrorKind::Store) from a
/// [`PostgresStore`](crate::session::PostgresStore): why the database did not do it.
///
/// It is cheap to clone, and neither it nor its sources show the password.
///
/// ```
/// use turnstream::Error;
/// use turnstream::session::{PostgresError, PostgresErrorKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match PostgresError::from_error(error).map(PostgresError::kind) {
///         Some(PostgresErrorKind::Unreachable) => "is the server running?",
///         Some(PostgresErrorKind::PermissionDenied) => "look at the GRANTs",
///         _ => "look at the message",
///     }
/// }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PostgresError {
    kind: PostgresErrorKind,
    sqlstate: Option<String>,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kinds of problems that an operator can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PostgresErrorKind {
    /// No server could be reached within the limit, or it is starting or shutting down, or it has no free connection.
    Unreachable,
    /// The server takes no writes: it is a standby, or `default_transaction_read_only` is on (SQLSTATE 25006).
    ReadOnly,
    /// The server's disk is full (SQLSTATE 53100).
    DiskFull,
    /// The role may not do this (SQLSTATE 42501).
    PermissionDenied,
    /// The server did not accept the role or its password (SQLSTATE 28xxx).
    AuthenticationFailed,
    /// No encrypted connection could be made: the certificate is not trusted, has another name, or the server has no
    /// TLS.
    Tls,
    /// A statement took longer than the limit (SQLSTATE 57014), or waited too long for a lock (55P03).
    Timeout,
    /// The tables are those of a later version of this crate, or the database cannot hold sessions: an older server
    /// than PostgreSQL 14, or another encoding than UTF-8.
    UnsupportedDatabase,
    /// Anything else; [`sqlstate`](PostgresError::sqlstate) may tell.
    Other,
}

impl PostgresError {
    /// Finds it in an error.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.find_source()
    }

    /// The kind of problem.
    pub fn kind(&self) -> PostgresErrorKind {
        self.kind
    }

    /// The five characters that the server calls the error by, if the error is the server's.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    pub(super) fn new(kind: PostgresErrorKind, message: impl Into<String>) -> Self {
        Self { kind, sqlstate: None, message: message.into(), source: None }
    }

    /// No answer within a time that the server would have kept, had it got the statement.
    pub(super) fn no_answer(limit: Duration) -> Self {
        Self::new(PostgresErrorKind::Unreachable, format!("no answer within {limit:?}"))
    }

    pub(super) fn add_context(&mut self, context: &str) {
        self.message = format!("{context}: {}", self.message);
    }

    /// Whether another try may succeed without anything being changed.
    pub(super) fn is_transient(&self) -> bool {
        // A deadlock, and a transaction that could not be brought into an order with others.
        self.kind == PostgresErrorKind::Unreachable
            || matches!(self.sqlstate(), Some("40001" | "40P01"))
    }

    /// Whether the server may have done what it was asked for. It has not if it answered with an error.
    pub(super) fn leaves_outcome_open(&self) -> bool {
        self.kind == PostgresErrorKind::Unreachable
    }

    /// As the error of a store, with what could not be done.
    pub(super) fn into_store_error(self, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Store, format!("{what}: {self}")).with_source(self)
    }
}

impl From<Postgres> for PostgresError {
    fn from(error: Postgres) -> Self {
        let sqlstate = error.code().map(|code| code.code().to_owned());
        let kind = match sqlstate.as_deref() {
            Some(sqlstate) => kind_of_sqlstate(sqlstate),
            None => kind_without_sqlstate(&error),
        };
        let message = match error.as_db_error() {
            // Not its detail, which quotes values.
            Some(error) => error.message().to_owned(),
            None => chain_message(&error),
        };
        Self { kind, sqlstate, message, source: Some(Arc::new(error)) }
    }
}

fn kind_of_sqlstate(sqlstate: &str) -> PostgresErrorKind {
    match sqlstate {
        "25006" => PostgresErrorKind::ReadOnly,
        "53100" => PostgresErrorKind::DiskFull,
        "42501" => PostgresErrorKind::PermissionDenied,
        "57014" | "55P03" => PostgresErrorKind::Timeout,
        // The server shuts down, starts, or has no free connection; the session was idle for too long.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "53300" => PostgresErrorKind::Unreachable,
        _ if sqlstate.starts_with("28") => PostgresErrorKind::AuthenticationFailed,
        _ if sqlstate.starts_with("08") => PostgresErrorKind::Unreachable,
        _ => PostgresErrorKind::Other,
    }
}

fn kind_without_sqlstate(error: &Postgres) -> PostgresErrorKind {
    // The crate does not say which it is in another way.
    let message = error.to_string();
    if message.starts_with("error performing TLS handshake") {
        return PostgresErrorKind::Tls;
    }
    if message.starts_with("authentication error") || message.starts_with("invalid configuration") {
        return PostgresErrorKind::AuthenticationFailed;
    }
    let is_io = StdError::source(error).is_some_and(<dyn StdError>::is::<std::io::Error>);
    let is_connecting = message.starts_with("error connecting to server")
        || message.starts_with("timeout waiting for server");
    match error.is_closed() || is_io || is_connecting {
        true => PostgresErrorKind::Unreachable,
        false => PostgresErrorKind::Other,
    }
}

fn chain_message(error: &Postgres) -> String {
    let mut message = error.to_string();
    let mut next = StdError::source(error);
    while let Some(source) = next {
        let text = source.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        next = source.source();
    }
    message
}
