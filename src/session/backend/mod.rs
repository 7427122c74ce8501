//! Parts for stores: what every store has to check, and a thread for storage that blocks.
//!
//! A store that is implemented synchronously, for example over files or an embedded database,
//! implements [`BlockingStore`]. A [`StoreThread`] runs its operations on a thread of its own, and
//! [`impl_blocking_store!`] implements [`Store`](super::Store) with
//! both:
//!
//! ```
//! use std::cmp::Reverse;
//! use std::collections::HashMap;
//! use std::time::SystemTime;
//!
//! use turnstream::session::backend::{
//!     self, BlockingStore, LocalLeases, StoreThread, impl_blocking_store,
//! };
//! use turnstream::session::{Entry, ForkOrigin, Lease, SessionInfo, Store};
//! use turnstream::{Error, ErrorKind, Item};
//!
//! #[derive(Default)]
//! struct Sessions {
//!     sessions: HashMap<String, (SessionInfo, Vec<Entry>)>,
//!     leases: LocalLeases,
//! }
//!
//! impl Sessions {
//!     fn version(&self, id: &str) -> Option<u64> {
//!         self.sessions.get(id).map(|(info, _)| info.version)
//!     }
//!
//!     fn write(&mut self, id: &str, origin: Option<ForkOrigin>, entries: Vec<Entry>) {
//!         let (version, updated_at) = (entries.len() as u64, SystemTime::now());
//!         let info = SessionInfo { id: id.into(), version, origin, updated_at, read_error: None };
//!         self.sessions.insert(id.to_owned(), (info, entries));
//!     }
//! }
//!
//! impl BlockingStore for Sessions {
//!     fn append(
//!         &mut self,
//!         lease: Option<&Lease>,
//!         id: &str,
//!         expected: u64,
//!         added: Vec<Entry>,
//!     ) -> Result<u64, Error> {
//!         backend::ensure_id_not_empty(id)?;
//!         lease.map_or(Ok(()), |lease| self.leases.check(id, lease))?;
//!         backend::ensure_expected_version(id, expected, self.version(id).unwrap_or(0))?;
//!         let version = expected + added.len() as u64;
//!         if version > expected {
//!             let found = self.sessions.remove(id);
//!             let (origin, mut entries) =
//!                 found.map_or((None, vec![]), |(info, entries)| (info.origin, entries));
//!             entries.extend(added);
//!             self.write(id, origin, entries);
//!         }
//!         Ok(version)
//!     }
//!
//!     fn lease(&mut self, id: &str) -> Result<Lease, Error> {
//!         backend::ensure_id_not_empty(id)?;
//!         self.leases.take(id)
//!     }
//!
//!     fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
//!         let from = usize::try_from(from).unwrap_or(usize::MAX);
//!         let found = self.sessions.get(id);
//!         Ok(found.map(|(_, entries)| entries.iter().skip(from).cloned().collect()))
//!     }
//!
//!     fn list(&mut self) -> Result<Vec<SessionInfo>, Error> {
//!         let mut found: Vec<_> = self.sessions.values().map(|(info, _)| info.clone()).collect();
//!         found.sort_by_key(|info| Reverse(info.updated_at));
//!         Ok(found)
//!     }
//!
//!     fn fork(&mut self, id: &str, at: u64, new: &str) -> Result<(), Error> {
//!         backend::ensure_id_not_empty(new)?;
//!         backend::ensure_fork_point_exists(id, at, self.version(id))?;
//!         backend::ensure_session_absent(new, self.version(new))?;
//!         let count = usize::try_from(at).unwrap_or(usize::MAX);
//!         let entries = self.load(id, 0)?.unwrap_or_default().into_iter().take(count);
//!         let origin = ForkOrigin { id: id.to_owned(), at };
//!         self.write(new, Some(origin), entries.collect());
//!         Ok(())
//!     }
//! }
//!
//! struct MyStore {
//!     sessions: StoreThread<Sessions>,
//! }
//! impl_blocking_store!(MyStore, sessions);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let store = MyStore { sessions: StoreThread::new("my-store", Sessions::default()) };
//! assert_eq!(store.append("chat", 0, vec![Item::user("Hi!").into()]).await?, 1);
//! let error = store.append("chat", 0, vec![Item::user("Hi!").into()]).await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Conflict);
//! # Ok(())
//! # }
//! ```
//!
//! The example `own_store` is a complete store that passes the test suite for stores.

mod blocking_store;
mod checks;
mod entry_json;
mod file_name;
mod local_leases;
mod lock_file;
mod private_files;
mod prune;

pub use blocking_store::{BlockingStore, StoreFuture, impl_blocking_store};
pub use checks::{
    corrupt_data_error, ensure_expected_version, ensure_fork_point_exists, ensure_has_no_forks,
    ensure_id_not_empty, ensure_session_absent, outcome_unknown_error, store_error,
};
pub use entry_json::entry_to_json_line;
pub use file_name::file_name_from_id;
pub(super) use file_name::{SESSION_FILE_SUFFIX, id_from_file_name};
pub use local_leases::LocalLeases;
pub use lock_file::LockFile;
pub(super) use lock_file::{LockRemoval, remove_unused_lock};
pub use private_files::resolve_links;
pub(super) use private_files::{FileId, create_private_dir, private_file_options, sync_parent_dir};
pub use prune::prunable_ids;

pub use crate::store_thread::StoreThread;
