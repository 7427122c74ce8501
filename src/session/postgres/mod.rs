//! A store in a PostgreSQL database.
//!
//! An append passes through three modules. `store` contains the public methods, `session_tables`
//! contains the statements for each operation, and `database` contains the connection pool and the
//! retries after a connection breaks. Leases and followers each have their own connection.

mod append_id;
mod connection_string;
mod connector;
mod database;
mod error;
mod follow;
mod leases;
mod options;
mod schema;
mod server_certificate;
mod session_tables;
mod statements;
mod store;

pub use error::{PostgresError, PostgresErrorKind};
pub use options::PostgresOptions;
pub use store::PostgresStore;
