//! The AI SDK's UI message stream.

mod grammar;
mod projection;
mod requests;
mod streams;
mod with_clients;
