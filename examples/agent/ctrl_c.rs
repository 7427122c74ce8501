//! Ctrl-C, again and again, without missing one.

use std::future::pending;
use std::pin::Pin;

/// Listens for Ctrl-C. From its first poll on, the key no longer ends the program by itself.
pub(crate) struct CtrlC {
    next: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl CtrlC {
    pub(crate) fn new() -> Self {
        Self { next: Box::pin(listen()) }
    }

    /// Waits for the key. Dropping the future loses nothing: the listener stays.
    pub(crate) async fn pressed(&mut self) {
        self.next.as_mut().await;
        self.next = Box::pin(listen());
    }
}

async fn listen() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Where it cannot be listened to, the key ends the program.
        pending::<()>().await;
    }
}
