//! `SqliteStore`: the claims for all stores, and those about its file.

mod crash;
mod files;
mod leases;
mod processes;
mod read_only;
mod removal;
mod sessions;
mod stored_format;
