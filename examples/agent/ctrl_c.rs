//! Ctrl-C, again and again, without missing one.

use std::future::pending;
use std::pin::Pin;

/// Listens for Ctrl-C. From its first poll on, the key no longer ends the program by itself.
pub(crate) struct CtrlC {
    next_press: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl CtrlC {
    pub(crate) fn new() -> Self {
        Self { next_press: Box::pin(wait_for_ctrl_c()) }
    }

    /// Waits for the key. Dropping the future loses nothing: the listener stays.
    pub(crate) async fn pressed(&mut self) {
        self.next_press.as_mut().await;
        self.next_press = Box::pin(wait_for_ctrl_c());
    }
}

async fn wait_for_ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Where it cannot be listened to, the key ends the program.
        pending::<()>().await;
    }
}
