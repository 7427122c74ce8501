//! AG-UI.

mod grammar;
mod projection;
mod streams;
mod with_clients;
