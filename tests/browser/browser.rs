//! The page of the examples `web` and `fleet` in a real browser, against a model that says what a test tells it to.
//!
//! | module | claims |
//! |---|---|
//! | `streams` | text streams in; stop is not disconnect; a page that comes back has lost nothing |
//! | `approvals` | what is to be approved is shown exactly, and nothing runs before |
//! | `hostile_words` | what a model says does nothing to the page |
//! | `many` | many messages, many tabs, a tab that does not keep up |
//! | `cluster` | two servers that share their sessions and events are one |
//! | `fleet` | on Restate, a run continues whichever process is killed |
//! | `access` | by keys alone, on a phone, for a screen reader |
//! | `pictures` | the pictures of the README |
//!
//! Each test needs a browser, and is ignored without: `run.sh` installs one, starts its driver and runs them. Those of
//! `fleet` need a Restate server as well.

#![cfg(unix)]

mod access;
mod approvals;
mod cluster;
mod driver;
mod fleet;
mod fleet_process;
mod hostile_words;
mod many;
mod model;
mod page;
mod pictures;
#[path = "../postgres/server.rs"]
mod postgres_server;
#[path = "../redis/server.rs"]
mod redis_server;
mod server;
mod streams;
