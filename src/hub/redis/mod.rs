//! Logs and inboxes in Redis, for a hub on many machines.
//!
//! [`RedisEvents`] is a log, an inbox and a directory of runs. Processes whose hubs use one server, and whose sessions
//! are in one store, act as [one hub](crate::hub#on-many-machines). Valkey is a free server with the same protocol;
//! Redis itself is not under a BSD licence from version 7.4. The server must be version 6.2 or later, without cluster
//! mode. An address with `rediss://` needs the crate's feature `rustls`.
//!
//! Redis only passes events on; the sessions are stored elsewhere. The Redis server therefore needs no persistence, and
//! may lose all its data at any time.
//!
//! # Keys
//!
//! The prefix of all keys is `turnstream` by default. Each key except `turnstream:active` expires on its own.
//!
//! | key | type | content |
//! |---|---|---|
//! | `turnstream:{run}:log` | stream | the entries, with ids `{epoch}-{number}` and JSON in the field `e` |
//! | `turnstream:{run}:owner` | string | the epoch and token of the attempt that may append |
//! | `turnstream:{run}:alive` | string | the process of the run; expires when the process has died |
//! | `turnstream:{run}:inbox` | stream | the waiting commands |
//! | `turnstream:{run}:open` | string | the token of the process that takes the commands; expires when it has died |
//! | `turnstream:{run}:answer:{id}` | string | the answer to a command, for a minute |
//! | `turnstream:{run}:claim` | string | the process that resumes the session of a lost run |
//! | `turnstream:{key}:runs` | hash | the last run of a key |
//! | `turnstream:active` | hash | the runs that have not ended, with their keys |
//!
//! A run needs memory for its last snapshots and for at most as many entries as its hub's capacity. An entry has about
//! 150 bytes, so that 1,024 entries and a short history take about 200 kB.

mod connection;
mod directory;
mod entry_json;
mod events;
mod follower;
mod heartbeat;
mod inbox;
mod inner;
mod keys;
mod log;
mod mirror;
mod outbox;
mod scripts;
mod settings;
mod wakeups;

pub use events::RedisEvents;
