//! Helpers that the test binaries share. Each binary includes this module by its path.
//!
//! | module | helpers |
//! |---|---|
//! | `items` | histories with turns, calls and results, and compactions of them |
//! | `compaction` | compactors, and histories for them |
//! | `tools` | tool specs, tools that return a constant, counted tools |
//! | `providers` | requests, errors and usage for tests of providers |
//! | `models` | providers that use a wire without a network |
//! | `wires` | encoding, decoding and framing on every wire |
//! | `runs` | runs pulled to an event or to their end |
//! | `world` | an agent with one tool, and a run that has ended |
//! | `conversations` | runs of every kind, as their events |
//! | `random_agent` | a model, tools and hooks that behave at random, by seed |
//! | `cases` | a sample of the cases of a long test, or all of them |
//! | `clock` | a runtime whose clock is paused |
//! | `seeded_random` | random numbers from a seed |
//! | `seeds` | one check for many seeds, with all its failures |
//! | `replays` | every run of a test suite is replayed when it has ended |
//! | `stores` | stores that count and fail, and tools that record their keys |
//! | `buffer` | a writer whose content can be read |
//! | `corpus` | the folder of recorded streams |

#![allow(dead_code, unused_imports, reason = "each binary uses some of these helpers")]

pub(crate) mod buffer;
pub(crate) mod clock;
pub(crate) mod compaction;
pub(crate) mod corpus;
pub(crate) mod items;
pub(crate) mod models;
pub(crate) mod providers;
pub(crate) mod random_agent;
pub(crate) mod replays;
pub(crate) mod runs;
pub(crate) mod seeds;
pub(crate) mod stores;
pub(crate) mod tools;
pub(crate) mod wires;
pub(crate) mod world;

pub(crate) use turnstream_test_support::{cases, conversations, seeded_random};
