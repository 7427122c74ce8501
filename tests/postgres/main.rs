//! `PostgresStore` with a real server, which the tests start themselves: `tests/postgres/run.sh`.
#![cfg(all(feature = "postgres", feature = "testing", unix))]

mod appends;
#[path = "../support/cases.rs"]
mod cases;
mod crash;
mod errors;
mod follow;
mod leases;
mod processes;
mod proxy;
mod race;
mod schema;
mod server;
#[path = "../support/session_race.rs"]
mod session_race;
mod sessions;
mod support;
mod tls;
