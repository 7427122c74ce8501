//! `PostgresStore` with a real server, which the tests start themselves: `tests/postgres/run.sh`.
#![cfg(all(feature = "postgres", feature = "testing", unix))]

mod appends;
mod crash;
mod errors;
mod follow;
mod leases;
mod processes;
mod proxy;
mod race;
mod schema;
#[path = "../support/session_race.rs"]
mod session_race;
mod sessions;
mod support;
mod tls;

use turnstream_test_support::{cases, postgres as server};
