//! `PostgresStore` with a real server, which the tests start themselves: `tests/postgres/run.sh`.
#![cfg(all(feature = "postgres", feature = "testing", unix))]

mod appends;
mod errors;
mod follow;
mod leases;
mod processes;
mod proxy;
mod schema;
mod server;
mod sessions;
mod support;
mod tls;
