//! Code that the tests and examples of several packages share. This package is not published.
//!
//! | module | contents |
//! |---|---|
//! | [`buffer`] | a writer whose content can be read |
//! | [`cases`] | a sample of the cases of a long test, or all of them |
//! | [`clock`] | a runtime whose clock is paused |
//! | [`compaction`] | compactors, and histories for them |
//! | [`corpus`] | the folder of recorded streams |
//! | [`crash`] | a program that kills its own process in the middle of a session, for any store |
//! | [`items`] | histories with turns, calls and results, and compactions of them |
//! | [`models`] | providers that use a wire without a network |
//! | `postgres` | a PostgreSQL server that a test starts, kills and restarts |
//! | [`partial_json`] | the relation between a value that has not ended and the complete value |
//! | [`ports`] | ports for servers that a test starts |
//! | [`programs`] | the examples as programs |
//! | [`providers`] | requests, errors and usage for tests of providers |
//! | [`random_agent`] | a model, tools and hooks that behave at random, by seed |
//! | `redis` | a Redis or Valkey server, likewise |
//! | [`replays`] | every run of a test suite is replayed when it has ended |
//! | [`runs`] | runs pulled to an event or to their end |
//! | [`seeded_random`] | random numbers from a seed |
//! | [`seeds`] | one check for many seeds, with all its failures |
//! | [`sent_at`] | a world whose requests are sent at a fixed time |
//! | [`session_race`] | processes that compete for the same sessions |
//! | [`mod@store_suite`] | the claims that hold for stores, beyond those of `session_suite!` |
//! | [`stored_format`] | example files of stored data |
//! | [`stores`] | a store that counts its entries and fails |
//! | [`temp_folder`] | a folder for the files of one test |
//! | [`terminal`] | a program on a pseudoterminal |
//! | [`tools`] | tool specs, tools that return a constant, counted tools |
//! | [`transitions`] | a state machine beside the table of its states |
//! | [`wires`] | encoding, decoding and framing on every wire |
//! | [`world`] | an agent with one tool, and a run that has ended |

#![allow(missing_docs, reason = "the names of most helpers say what they do")]
#![expect(clippy::missing_panics_doc, reason = "a test panics if it lacks what it needs")]

pub mod buffer;
pub mod cases;
pub mod clock;
pub mod compaction;
pub mod corpus;
pub mod crash;
pub mod items;
pub mod models;
pub mod partial_json;
pub mod ports;
#[cfg(unix)]
pub mod postgres;
pub mod programs;
pub mod providers;
pub mod random_agent;
pub mod redis;
pub mod replays;
pub mod runs;
pub mod seeded_random;
pub mod seeds;
pub mod sent_at;
pub mod session_race;
pub mod store_suite;
pub mod stored_format;
pub mod stores;
pub mod temp_folder;
pub mod terminal;
pub mod tools;
pub mod transitions;
pub mod wires;
pub mod world;
