//! The AG-UI protocol.

mod grammar;
mod projection;
mod streams;
mod with_clients;
