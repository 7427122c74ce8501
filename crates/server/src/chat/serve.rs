//! Serves the chats until the program is asked to end.

use std::pin::pin;
use std::time::Duration;

use futures::future::select;
use tokio::net::TcpListener;

use super::chat_server::ChatServer;
use crate::serve::{ConnectionLimits, serve, stop_signal};

impl ChatServer {
    /// Serves all routes until [Ctrl-C or SIGTERM](stop_signal), and [resumes lost
    /// runs](Self::resume_lost_runs) meanwhile. Then it [shuts down](Self::shut_down): active runs
    /// have this time to end, before they are interrupted. A second signal ends it immediately.
    ///
    /// For other [`ConnectionLimits`] than the default ones, for further routers, or to stop
    /// otherwise, use the function [`serve`].
    ///
    /// Dropping the returned future closes all connections. The runs continue until the server is
    /// dropped.
    ///
    /// # Panics
    ///
    /// Panics if called outside of a tokio runtime with I/O and time.
    pub async fn serve(&self, listener: TcpListener, limit: Duration) {
        let stop = async {
            stop_signal().await;
            self.shut_down(limit).await;
        };
        let served = pin!(serve(listener, self.router(), ConnectionLimits::default(), stop));
        let stopped_twice = pin!(async {
            stop_signal().await;
            stop_signal().await;
        });
        let resumed = pin!(self.resume_lost_runs());
        select(served, select(stopped_twice, resumed)).await;
    }
}
