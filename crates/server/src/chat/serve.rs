//! Serves the chats until the program is asked to end.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::net::TcpListener;

use super::chat_server::ChatServer;
use crate::serve::{ConnectionLimits, serve, stop_signal};

/// The reason why [`ChatServer::serve`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeEnd {
    /// After a signal, all runs have ended, and all connections have been closed.
    Complete,
    /// A second signal arrived while runs or connections were active.
    SecondSignal,
}

impl ChatServer {
    /// Serves all routes until [Ctrl-C or SIGTERM](stop_signal), and [resumes lost
    /// runs](Self::resume_lost_runs) meanwhile. Then it [shuts down](Self::shut_down): active runs
    /// have this time to end, before they are interrupted.
    ///
    /// A second signal ends the returned future immediately. The program itself may continue: the
    /// end of a tokio runtime waits for tools that block a thread, and the signals no longer end
    /// the program. To end it in any case, call [`std::process::exit`], usually with the code 130.
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
    pub async fn serve(&self, listener: TcpListener, limit: Duration) -> ServeEnd {
        let second = async {
            stop_signal().await;
            stop_signal().await;
        };
        self.serve_until(listener, limit, stop_signal(), second).await
    }

    /// Serves until `first` completes, and shuts down until `second` does.
    async fn serve_until(
        &self,
        listener: TcpListener,
        limit: Duration,
        first: impl Future<Output = ()>,
        second: impl Future<Output = ()>,
    ) -> ServeEnd {
        let stop = async {
            // A lost run that is found later is left to other processes.
            select(pin!(first), pin!(self.resume_lost_runs())).await;
            self.shut_down(limit).await;
        };
        let served = pin!(serve(listener, self.router(), ConnectionLimits::default(), stop));
        match select(served, pin!(second)).await {
            Either::Left(_) => ServeEnd::Complete,
            Either::Right(_) => ServeEnd::SecondSignal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Instant, sleep};
    use turnstream::provider::{Reply, Scripted};
    use turnstream::session::{MemoryStore, Store};
    use turnstream::{Agent, Error, Item};

    use super::*;
    use crate::listen;

    fn loopback() -> TcpListener {
        listen(([127, 0, 0, 1], 0).into()).unwrap()
    }

    /// A server of a model that never ends its answer, with an active run.
    async fn busy_server() -> ChatServer {
        let server = ChatServer::new(Agent::new(Scripted::from_fn(|_, _| Reply::new().hang())));
        let run = server.0.agent.run("Hi");
        server.0.hub.start("local/busy", run).await.unwrap().detach();
        server
    }

    /// A store with a session whose run was lost.
    async fn store_with_lost_run() -> MemoryStore {
        let store = MemoryStore::new();
        store.append("local/s", 0, vec![Item::user("Hi").into()]).await.unwrap();
        store
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_interrupts_the_runs_after_the_limit_and_completes() {
        let (server, began) = (busy_server().await, Instant::now());
        let limit = Duration::from_secs(10);
        let end = server.serve_until(loopback(), limit, ready(()), pending()).await;
        assert_eq!((end, began.elapsed()), (ServeEnd::Complete, limit));
        assert_eq!(server.0.hub.stats().runs, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_the_wait_for_the_runs() {
        let (server, began) = (busy_server().await, Instant::now());
        let (limit, second) = (Duration::from_mins(1), sleep(Duration::from_secs(1)));
        let end = server.serve_until(loopback(), limit, ready(()), second).await;
        assert_eq!(end, ServeEnd::SecondSignal);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn lost_runs_are_resumed_while_the_chats_are_served() {
        let store = store_with_lost_run().await;
        let server = ChatServer::new(Agent::new(Scripted::new(["Hello!"])));
        let server = server.with_store(store.clone());
        server.0.sessions.lost_leases.add("local/s");
        let first = sleep(Duration::from_secs(5));
        server.serve_until(loopback(), Duration::ZERO, first, pending()).await;
        let stored = serde_json::to_string(&store.load("local/s", 0).await.unwrap()).unwrap();
        assert!(stored.contains("Hello!"), "{stored}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_lost_run_is_resumed_after_the_first_signal() {
        let server = busy_server().await;
        let lose = async {
            sleep(Duration::from_secs(2)).await;
            server.0.sessions.lost_leases.add("local/s");
        };
        let limit = Duration::from_secs(10);
        tokio::join!(server.serve_until(loopback(), limit, ready(()), pending()), lose);
        assert_eq!(server.0.sessions.lost_leases.take().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_while_a_lost_run_is_resumed_does_not_end_the_server() {
        let (store, logged) = (store_with_lost_run().await, Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&logged);
        let server = ChatServer::new(Agent::new(Scripted::new(["Hello!"])))
            .with_store(store.clone())
            .with_error_log(move |_: &Error| {
                count.fetch_add(1, Ordering::SeqCst);
                panic!("a test's panic");
            });
        // The session cannot be resumed, which is logged.
        let _lease = store.lease("local/s").await.unwrap();
        server.0.sessions.lost_leases.add("local/s");
        let first = sleep(Duration::from_mins(1));
        let end = server.serve_until(loopback(), Duration::ZERO, first, pending()).await;
        assert_eq!((end, logged.load(Ordering::SeqCst)), (ServeEnd::Complete, 2));
    }
}
