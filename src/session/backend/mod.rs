//! Parts for stores: what every store has to check, and a thread for storage that blocks.
//!
//! A store that is implemented synchronously, for example over files or an embedded database,
//! implements [`BlockingStore`]. A [`StoreThread`] runs its operations on a thread of its own, and
//! [`impl_blocking_store!`] implements [`Store`](super::Store) with
//! both:
//!
//! ```
//! use std::collections::HashMap;
//! use std::time::SystemTime;
//!
//! use turnstream::session::backend::{
//!     self, BlockingStore, LocalLeases, StoreThread, impl_blocking_store,
//! };
//! use turnstream::session::{Entry, Lease, SessionInfo, Store};
//! use turnstream::{Error, ErrorKind, Item};
//!
//! #[derive(Default)]
//! struct Sessions {
//!     entries: HashMap<String, Vec<Entry>>,
//!     leases: LocalLeases,
//! }
//!
//! impl BlockingStore for Sessions {
//!     fn append(
//!         &mut self,
//!         lease: Option<&Lease>,
//!         id: &str,
//!         expected: u64,
//!         entries: Vec<Entry>,
//!     ) -> Result<u64, Error> {
//!         backend::ensure_id_not_empty(id)?;
//!         lease.map_or(Ok(()), |lease| self.leases.check(id, lease))?;
//!         let found = self.entries.get(id).map_or(0, |entries| entries.len() as u64);
//!         backend::ensure_expected_version(id, expected, found)?;
//!         let added = entries.len() as u64;
//!         if added > 0 {
//!             self.entries.entry(id.to_owned()).or_default().extend(entries);
//!         }
//!         Ok(found + added)
//!     }
//!
//!     fn lease(&mut self, id: &str) -> Result<Lease, Error> {
//!         self.leases.take(id)
//!     }
//!
//!     fn load(&mut self, id: &str, from: u64) -> Result<Option<Vec<Entry>>, Error> {
//!         let from = usize::try_from(from).unwrap_or(usize::MAX);
//!         let found = self.entries.get(id);
//!         Ok(found.map(|entries| entries.iter().skip(from).cloned().collect()))
//!     }
//!     # fn list(&mut self) -> Result<Vec<SessionInfo>, Error> { unimplemented!() }
//!     # fn fork(&mut self, _: &str, _: u64, _: &str) -> Result<(), Error> { unimplemented!() }
//!     # fn delete(&mut self, _: &str) -> Result<bool, Error> { unimplemented!() }
//!     # fn prune(&mut self, _: SystemTime) -> Result<Vec<String>, Error> { unimplemented!() }
//!     // `list`, `fork`, `delete` and `prune` follow.
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
mod store_thread;

pub use blocking_store::{BlockingStore, StoreFuture, impl_blocking_store};
pub(super) use checks::{corrupt_data_error, outcome_unknown_error, store_error};
pub use checks::{
    ensure_expected_version, ensure_fork_point_exists, ensure_has_no_forks, ensure_id_not_empty,
    ensure_session_absent,
};
pub use entry_json::entry_to_json_line;
pub use file_name::file_name_from_id;
pub(super) use file_name::{SESSION_FILE_SUFFIX, id_from_file_name};
pub use local_leases::LocalLeases;
pub use lock_file::LockFile;
#[cfg(feature = "sqlite")]
pub(super) use lock_file::first_epoch;
pub(super) use lock_file::{LockRemoval, remove_unused_lock};
pub use private_files::resolve_links;
pub(super) use private_files::{FileId, create_private_dir, private_file_options, sync_parent_dir};
pub use prune::prunable_ids;
pub use store_thread::StoreThread;
