//! Tests of the server, with the crate's own providers as clients. `clients.rs` runs the vendors'
//! own clients.

mod chat;
mod clients;
mod connections;
mod hostile;
mod load;
mod requests;
mod server;
mod wires;
