//! Logs and inboxes in Redis, for a hub over many machines.
//!
//! [`RedisEvents`] is a log, an inbox and a directory of runs: processes whose hubs have one on the same server, and
//! whose sessions are in one store, are [one hub](crate::hub#on-many-machines). Valkey is the free server that speaks
//! the same protocol; Redis itself is not under a BSD licence from 7.4 on. Version 6.2 or later is needed, without
//! cluster mode. An address `rediss://` needs the crate's feature `rustls`.
//!
//! Redis is where events pass through, and not where sessions are kept: it needs no persistence, and may lose
//! everything at any time.
//!
//! # Keys
//!
//! `turnstream` is the prefix unless another is set. Each key but the last one expires on its own.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `turnstream:{run}:log` | stream | the entries, with ids `{epoch}-{number}` and JSON in the field `e` |
//! | `turnstream:{run}:owner` | string | the epoch of the attempt that may append |
//! | `turnstream:{run}:alive` | string | the process of the run; expires when the process has died |
//! | `turnstream:{run}:inbox` | stream | the commands that wait |
//! | `turnstream:{run}:open` | string | who takes the commands; expires when the process has died |
//! | `turnstream:{run}:answer:{id}` | string | the answer to a command, for a minute |
//! | `turnstream:{run}:claim` | string | the process that resumes the session of a lost run |
//! | `turnstream:{key}:runs` | hash | the last run of a key |
//! | `turnstream:active` | hash | the runs that have not ended, with their keys |
//!
//! A run takes as much memory as its last snapshots and at most as many entries as the capacity of its hub, about
//! 150 bytes each: some 200 kB with 1,024 entries and a short history.

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
