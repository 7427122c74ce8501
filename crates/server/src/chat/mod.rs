//! A chat back end: sessions, runs that outlive their readers, and approvals.

mod ag_ui;
mod ai_sdk;
mod call;
mod chat_server;
mod ended_runs;
mod failure;
mod limits;
mod listings;
mod lost_leases;
mod lost_runs;
mod message_queue;
mod open_session;
mod open_sessions;
mod queue_task;
mod queue_tasks;
mod request_keys;
mod requests;
mod response;
mod routes;
mod run_observer;
mod run_records;
#[cfg(feature = "serve")]
mod serve;
mod sessions;
mod start;
mod start_rate;
mod starts;
mod views;

pub use chat_server::{Busy, ChatServer};
pub use limits::ChatLimits;
#[cfg(feature = "serve")]
pub use serve::ServeEnd;
