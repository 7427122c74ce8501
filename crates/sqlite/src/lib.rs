//! Stores the sessions of `turnstream`'s agents in a single SQLite file.
//!
//! [`SqliteStore`] implements [`Store`](turnstream::session::Store) with leases: only one process
//! at a time can run a session, and if this process is killed, another one can resume the session
//! immediately.
//!
//! ```
//! use turnstream::Agent;
//! use turnstream::provider::Scripted;
//! use turnstream::session::Session;
//! use turnstream_sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), turnstream::Error> {
//! # let folder = std::env::temp_dir().join(format!("sqlite-crate-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let path = folder.join("sessions.db");
//! let store = SqliteStore::open(path)?;
//! let session = Session::open(store.clone(), "chat").await?;
//! let agent = Agent::new(Scripted::new(["Hello!"]));
//! session.run(&agent, "Hi!").await?.outcome().await?;
//!
//! // Later, or in another process:
//! let session = Session::open(store, "chat").await?;
//! assert_eq!(session.history().len(), 2);
//! # drop(session);
//! # std::fs::remove_dir_all(folder).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! The docs of [`SqliteStore`] describe the file, its locks and the store's thread. The [`guide`]
//! covers durability, damage and limits.
//!
//! # Implementation
//!
//! An append passes through three modules. `store` contains the public methods, `session_tables`
//! contains the statements for each operation, and `database` contains the connection, and opens
//! the file again if it was replaced. `schema` creates and migrates the tables.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod database;
mod database_files;
mod schema;
mod session_tables;
mod store;

pub use store::SqliteStore;

/// The guide to sessions in SQLite: durability, damage and limits.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/sqlite.md")]
pub mod guide {}

/// The README's example, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
