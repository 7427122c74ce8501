//! [guide-many-machines]: turnstream
//! [turnstream]: turnstream
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
mod context;
mod engine;
mod errors;
mod inbox;
mod messages;
mod session;
mod state;
mod tools;
mod worker;
mod worker_settings;

pub use client::Client;
pub use worker::Worker;
