//! Logs and inboxes in Redis, for hubs on several machines.
//!
//! [`RedisEvents`] provides logs, inboxes and a directory of runs. If the hubs in several processes
//! use the same server and keep their sessions in the same store, they act as [one
//! hub](crate::hub#on-many-machines). Valkey is a free server with the same protocol; Redis itself
//! is no longer released under a BSD license as of version 7.4. The server must be version 6.2 or
//! later, without cluster mode. Addresses that start with `rediss://` require this crate's `rustls`
//! feature.
//!
//! Redis only passes events on; the sessions are stored elsewhere. The Redis server therefore needs
//! no persistence, and may lose all of its data at any time.
//!
//! # Keys
//!
//! By default, all keys start with the prefix `turnstream`. Every key except `turnstream:active`
//! has an expiry time.
//!
//! | key | type | content |
//! |---|---|---|
//! | `turnstream:{run}:log` | stream | the entries, with ids `{epoch}-{number}` and JSON in the field `e` |
//! | `turnstream:{run}:owner` | string | the epoch and token of the attempt that may append |
//! | `turnstream:{run}:alive` | string | the process of the run; expires when the process has died |
//! | `turnstream:{run}:inbox` | stream | the waiting commands |
//! | `turnstream:{run}:open` | string | the token of the process that takes the commands; expires when it has died |
//! | `turnstream:{run}:answer:{id}` | string | the answer to a command, for a minute |
//! | `turnstream:{run}:claim` | string | the process that resumes a lost run's session |
//! | `turnstream:{key}:runs` | hash | the last run of a key |
//! | `turnstream:active` | hash | the runs that have not ended, with their keys |
//!
//! A run needs memory for its most recent snapshots and for its entries, whose number is limited by
//! the hub's capacity. An entry takes about 150 bytes, so 1,024 entries and a short history take
//! about 200 kB.

mod connection;
mod directory;
mod events;
mod follower;
mod heartbeat;
mod inbox;
mod inner;
mod keys;
mod log;
mod mirror;
mod options;
mod outbox;
mod scripts;
mod stream_entry;
mod wakeups;

pub use events::RedisEvents;
pub use options::RedisOptions;
