//! `PostgresStore`. Most tests need a server, which they start themselves:
//! `crates/postgres/tests/run.sh`.
#![cfg(unix)]

mod appends;
mod crash;
mod errors;
mod follow;
mod leases;
mod processes;
mod proxy;
mod race;
mod schema;
mod sessions;
mod stored_format;
mod support;
mod tls;
