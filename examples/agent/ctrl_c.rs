//! A listener for Ctrl-C that misses no key press.

use std::future::pending;
use std::pin::Pin;

/// Listens for Ctrl-C. After the first poll, the key no longer ends the program on its own.
pub(crate) struct CtrlC {
    next_press: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl CtrlC {
    pub(crate) fn new() -> Self {
        Self { next_press: Box::pin(wait_for_ctrl_c()) }
    }

    /// Waits for the key. Dropping the future loses nothing: the listener stays registered.
    pub(crate) async fn pressed(&mut self) {
        self.next_press.as_mut().await;
        self.next_press = Box::pin(wait_for_ctrl_c());
    }
}

async fn wait_for_ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        // If the listener cannot be registered, the key ends the program.
        pending::<()>().await;
    }
}
