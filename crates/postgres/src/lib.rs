//! Stores the sessions of `turnstream`'s agents in a PostgreSQL database, which several processes
//! and machines can share.
//!
//! [`PostgresStore`] implements [`Store`](turnstream::session::Store) with leases: only one process
//! at a time can run a session, and if this process is killed, another one can resume the session
//! immediately.
//!
//! ```no_run
//! # // It needs a server.
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream::session::Session;
//! use turnstream_postgres::PostgresStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! let store = PostgresStore::connect("postgres://app@db.example/app?sslmode=verify-full").await?;
//! let session = Session::open(store, "chat").await?;
//! let agent = Agent::new(Scripted::new(["Hello!"]));
//! let outcome = session.run(&agent, "Hi!").await?.outcome().await?;
//! println!("{}", outcome.text);
//! # Ok(())
//! # }
//! ```
//!
//! To create the tables with another role than the program's, run the script of
//! [`migrations_sql`](PostgresStore::migrations_sql), which needs no server:
//!
//! ```
//! use turnstream_postgres::PostgresStore;
//!
//! let script = PostgresStore::migrations_sql("turnstream")?;
//! assert!(script.contains(r#"CREATE TABLE "turnstream".session"#));
//! # Ok::<(), turnstream::Error>(())
//! ```
//!
//! The docs of [`PostgresStore`] describe durability, leases, privileges and tasks. The [`guide`]
//! covers the setup of several processes, failures and limits.
//!
//! # Implementation
//!
//! An append passes through three modules. `store` contains the public methods, `session_tables`
//! contains the statements for each operation, and `database` contains the connection pool and the
//! retries after a connection breaks. Leases and followers each have their own connection.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `rustls` | yes | TLS through rustls, with the platform's certificates |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod append_id;
mod connection_string;
mod connector;
mod database;
mod error;
mod follow;
mod leases;
#[cfg(not(feature = "rustls"))]
mod no_tls;
mod options;
mod schema;
#[cfg(feature = "rustls")]
mod server_certificate;
mod session_tables;
mod statements;
mod store;

mod fnv;
mod lock;

pub use error::{PostgresError, PostgresErrorKind};
pub use options::PostgresOptions;
pub use store::PostgresStore;

/// The guide to sessions in PostgreSQL: setup, several processes, failures and limits.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/postgres.md")]
pub mod guide {}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
