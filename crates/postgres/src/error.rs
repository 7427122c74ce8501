//! Database errors.
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Error as Postgres;
use turnstream::{Error, ErrorKind};

/// A database error, which is the source of a [`Store`](ErrorKind::Store) error from a
/// [`PostgresStore`](crate::PostgresStore).
///
/// A `PostgresError` is cheap to clone. Neither the error nor its sources contain the password.
///
/// ```
/// use turnstream::Error;
/// use turnstream_postgres::{PostgresError, PostgresErrorKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.find_source::<PostgresError>().map(PostgresError::kind) {
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

/// The kinds of database errors. Errors that call for the same action by an operator have the same
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PostgresErrorKind {
    /// No server could be reached within the time limit, or the server is starting up, is shutting
    /// down, or has no free connections.
    Unreachable,
    /// The server does not accept writes, because it is a standby, or because
    /// `default_transaction_read_only` is on (SQLSTATE 25006).
    ReadOnly,
    /// The server's disk is full (SQLSTATE 53100).
    DiskFull,
    /// The role lacks a privilege for the statement (SQLSTATE 42501).
    PermissionDenied,
    /// The server rejected the role or its password (SQLSTATE 28xxx).
    AuthenticationFailed,
    /// No encrypted connection could be opened, because the server's certificate is not trusted or
    /// was issued for another name, or because the server does not support TLS.
    Tls,
    /// A statement exceeded its time limit (SQLSTATE 57014) or waited too long for a lock (SQLSTATE
    /// 55P03).
    Timeout,
    /// The tables were created by a later version of this crate, the server is older than
    /// PostgreSQL 14, or the database's encoding is not UTF-8.
    UnsupportedDatabase,
    /// Any other database error; see [`sqlstate`](PostgresError::sqlstate).
    Other,
}

impl PostgresError {
    /// Returns the error's kind, which tells an operator what to do, such as to free space on the
    /// disk or to grant a privilege.
    pub fn kind(&self) -> PostgresErrorKind {
        self.kind
    }

    /// Returns the server's five-character error code (SQLSTATE), if the error came from the
    /// server.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    pub(crate) fn new(kind: PostgresErrorKind, message: impl Into<String>) -> Self {
        Self { kind, sqlstate: None, message: message.into(), source: None }
    }

    /// Creates the error to return if no response arrived within `limit`. The error's kind is
    /// `Unreachable`, because a server that receives a statement responds within this limit.
    pub(crate) fn no_answer(limit: Duration) -> Self {
        Self::new(PostgresErrorKind::Unreachable, format!("no answer within {limit:?}"))
    }

    pub(crate) fn add_context(&mut self, context: &str) {
        self.message = format!("{context}: {}", self.message);
    }

    /// Returns whether a retry may succeed without user intervention.
    pub(crate) fn is_transient(&self) -> bool {
        // 40001 is a serialization failure, and 40P01 a deadlock.
        self.kind == PostgresErrorKind::Unreachable
            || matches!(self.sqlstate(), Some("40001" | "40P01"))
    }

    /// Returns whether the server may have executed the statement. If the server responded with an
    /// error, the statement was not executed.
    pub(crate) fn leaves_outcome_open(&self) -> bool {
        self.kind == PostgresErrorKind::Unreachable
    }

    /// Converts this error to a store error with a description of the failed operation.
    pub(crate) fn into_store_error(self, what: impl fmt::Display) -> Error {
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
            // The error's `detail` field is omitted, because it quotes values from the database.
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
        // The server is shutting down or starting up, or has no free connections, or the connection
        // has been idle for too long.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "53300" => PostgresErrorKind::Unreachable,
        _ if sqlstate.starts_with("28") => PostgresErrorKind::AuthenticationFailed,
        _ if sqlstate.starts_with("08") => PostgresErrorKind::Unreachable,
        _ => PostgresErrorKind::Other,
    }
}

fn kind_without_sqlstate(error: &Postgres) -> PostgresErrorKind {
    // tokio-postgres distinguishes these kinds of errors only in the message.
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
