//! Code that the tests and examples of several packages share. This package is not published.
//!
//! | module | contents |
//! |---|---|
//! | [`cases`] | a sample of the cases of a long test, or all of them |
//! | [`conversations`] | runs of every kind, as their events |
//! | [`crash`] | a program that kills its own process in the middle of a session, for any store |
//! | [`hub_suite`] | the claims that hold for hubs with any log and inbox |
//! | `postgres` | a PostgreSQL server that a test starts, kills and restarts |
//! | [`programs`] | the examples as programs |
//! | `redis` | a Redis or Valkey server, likewise |
//! | [`seeded_random`] | random numbers from a seed |
//! | [`session_race`] | processes that compete for the same sessions |
//! | [`store_suite`] | the claims that hold for stores, beyond those of `session_suite!` |
//! | [`stored_format`] | example files of stored data |
//! | [`temp_folder`] | a folder for the files of one test |
//! | [`terminal`] | a program on a pseudoterminal |

#![expect(clippy::missing_panics_doc, reason = "a test panics if it lacks what it needs")]

pub mod cases;
pub mod conversations;
pub mod crash;
pub mod hub_suite;
#[cfg(unix)]
pub mod postgres;
pub mod programs;
pub mod redis;
pub mod seeded_random;
pub mod session_race;
pub mod store_suite;
pub mod stored_format;
pub mod temp_folder;
pub mod terminal;
