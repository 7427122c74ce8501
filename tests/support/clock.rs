//! A clock that moves only when every task waits for it.

use tokio::runtime::{Builder, Runtime};

/// A runtime on this thread whose clock is paused.
pub(crate) fn paused_runtime() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}
