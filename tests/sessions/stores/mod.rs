//! Stores of sessions: what holds for each of them, and what the durable ones survive.

mod damage;
mod json_lines;
mod processes;
mod sample;
#[cfg(feature = "sqlite")]
mod sqlite;
mod suite;

use sample::InFolder;
use suite::suite;
#[cfg(feature = "sqlite")]
use turnstream::session::SqliteStore;
use turnstream::session::{JsonLinesStore, MemoryStore};

suite!(in_memory, super::MemoryStore::new);
suite!(in_json_lines, || super::InFolder::new(|folder| super::JsonLinesStore::open(folder.path())));
#[cfg(feature = "sqlite")]
suite!(in_sqlite, || super::InFolder::new(|folder| super::SqliteStore::open(folder.join("db"))));
#[cfg(feature = "sqlite")]
suite!(in_sqlite_in_memory, || super::SqliteStore::in_memory().unwrap());
