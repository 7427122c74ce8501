//! A paused clock, which advances only when all tasks are idle.

use tokio::runtime::{Builder, Runtime};

/// A runtime on this thread whose clock is paused.
pub fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}
