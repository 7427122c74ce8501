//! The AI SDK's UI message stream.

pub(crate) mod grammar;
mod projection;
mod requests;
mod streams;
mod with_clients;
