//! Runs that outlive their readers: the events that a reader receives from any number on, the
//! effects of a drop, the delivery of commands, and the end of a run without readers.
//!
//! Most tests apply to every log: they are those of `hub_suite` in `crates/testing`, which
//! `crates/redis/tests` runs with Redis.

#![cfg(feature = "http")]

mod backend;
mod blocking_tools;
mod numbers;
mod outages;
mod shut_down;
mod slow_readers;

turnstream_testing::hub_suite!(in_memory, paused, crate::backend::InMemory);
