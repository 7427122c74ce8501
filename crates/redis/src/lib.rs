//! Logs and inboxes in Redis, for hubs on several machines.
//!
//! [`RedisEvents`] provides logs, inboxes and a directory of runs. If the hubs in several processes
//! use the same server and keep their sessions in the same store, they act as [one
//! hub](turnstream::hub#on-many-machines).
//!
//! ```no_run
//! use turnstream::hub::Hub;
//! use turnstream_redis::RedisEvents;
//!
//! # async fn example() -> Result<(), turnstream::Error> {
//! let events = RedisEvents::connect("redis://127.0.0.1/").await?;
//! let hub = Hub::builder().with_backend(events.clone(), events).build();
//! # Ok(())
//! # }
//! ```
//!
//! Valkey is a free server with the same protocol; Redis itself has used different licenses since
//! version 7.4. The server must be version 6.2 or later, without cluster mode.
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
//!
//! # Setup
//!
//! - Programs that share a server need different [prefixes](RedisOptions::with_prefix), unless they
//!   share their sessions.
//! - Persistence is not needed.
//! - A log is kept until its hub removes it, by default a minute after the run has ended, or for
//!   [ten minutes](RedisOptions::with_expiry) if the run's process was killed.
//!
//! # Limits
//!
//! | limit | default | set by | when it is reached |
//! |---|---|---|---|
//! | commands queued for a run | 1,000 | [`RedisOptions::with_max_waiting_commands`] | further commands are rejected, except 16 more interrupts |
//! | size of the commands queued for a run | 16 MiB; a single command may be larger | | further commands are rejected, except interrupts |
//! | time without a heartbeat until a run is considered lost | 5 s | [`RedisOptions::with_lease`] | [`Hub::lost_runs`](turnstream::hub::Hub::lost_runs) lists the run |
//! | how long a log is kept after its last entry | 10 min | [`RedisOptions::with_expiry`] | the log is removed |
//! | time for a run to accept a command | 10 s | [`RedisOptions::with_answer_limit`] | a `timeout` error |
//! | time to connect, and time for a response | 1 s | | the log is considered unavailable |
//! | time without a new attempt after a failed attempt to connect | 200 ms | | commands fail immediately |
//! | how long a claim of a lost run lasts | 30 s | | another hub may claim the run |
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `rustls` | yes | addresses that start with `rediss://`: TLS through rustls, with the platform's certificates |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod connection;
mod directory;
mod events;
mod follower;
mod heartbeat;
mod inbox;
mod keys;
mod lock;
mod log;
mod mirror;
mod options;
mod outbox;
mod scripts;
mod shared_state;
mod stream_entry;
mod wakeups;

pub use events::RedisEvents;
pub use options::RedisOptions;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
