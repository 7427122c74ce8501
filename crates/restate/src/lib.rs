//! [guide-many-machines]: turnstream
//! [turnstream]: turnstream
#![doc = include_str!("../README.md")]

mod client;
mod context;
mod copies;
mod engine;
mod errors;
mod inbox;
mod messages;
mod session;
mod tools;
mod worker;

pub use client::Client;
pub use worker::Worker;
