//! A store in a PostgreSQL database.
//!
//! An append goes through `store`, `session_tables` and `database`: the public methods, the statements of one
//! call, and the connection that runs them, with another try after it broke. Leases and followers have a connection
//! of their own each.

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
