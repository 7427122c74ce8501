//! Resumes the runs of a process that was killed, and runs that have lost their lease.

use std::convert::Infallible;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

use futures::future::select;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::time::{sleep, timeout};
use turnstream::session::SessionState;
use turnstream::{Error, ErrorKind};

use super::chat_server::ChatServer;
use super::starts::{RETRY_DELAY, STORE_RETRY_DELAY, is_busy_elsewhere, is_transient};

/// The interval at which the server checks for runs whose process has died.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long resuming a lost run's session is retried: the session's lease ends when the database
/// has noticed that the process is gone.
const RESUME_LIMIT: Duration = Duration::from_secs(25);

impl ChatServer {
    /// Resumes the runs of processes that were killed, if the [hub](Self::with_hub) is shared, and
    /// the runs of this process that have lost their lease on the session. A run that is resumed
    /// has the budget of the agent, and does not count as a run of its principal. Sessions that
    /// wait for a verdict continue to wait.
    ///
    /// The returned future never completes. Dropping it ends the search; runs that were resumed
    /// continue. Drop it before [`shut_down`](Self::shut_down): a process that shuts down would
    /// claim lost runs that other processes can resume.
    pub async fn resume_lost_runs(&self) -> Infallible {
        let mut resuming = FuturesUnordered::new();
        loop {
            let looked = pin!(timeout(LOOK_EVERY, self.0.sessions.lost_leases.added()));
            let resumed = pin!(async {
                while resuming.next().await.is_some() {}
                pending::<()>().await;
            });
            select(looked, resumed).await;
            let claiming = async {
                for session in self.0.sessions.lost_leases.take() {
                    resuming.push(self.log_panics(self.resume_in_time(session)));
                }
                // While the events are unavailable, the lost runs are unknown.
                for lost in self.0.hub.lost_runs().await.unwrap_or_default() {
                    if self.0.hub.claim_lost_run(&lost).await.unwrap_or(false) {
                        resuming.push(self.log_panics(self.resume_in_time(lost.key)));
                    }
                }
            };
            self.log_panics(claiming).await;
        }
    }

    /// Awaits a future in which code of the app runs, such as its agent or its log. A panic there
    /// must not end the server.
    async fn log_panics(&self, future: impl Future<Output = ()>) {
        if AssertUnwindSafe(future).catch_unwind().await.is_err() {
            let panicked = Error::new(ErrorKind::Panic, "resuming lost runs has panicked");
            // The log itself may be what panics.
            drop(catch_unwind(AssertUnwindSafe(|| self.log(&panicked))));
        }
    }

    async fn resume_in_time(&self, session: String) {
        match timeout(RESUME_LIMIT, self.resume_session(&session)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.log_with_context(&format!("{session} cannot be resumed"), &error);
            }
            Err(_) => {
                let message = format!("{session} could not be resumed in time");
                self.log(&Error::new(ErrorKind::Timeout, message));
            }
        }
    }

    /// Resumes a session when its lease has ended, unless there is nothing left to do.
    async fn resume_session(&self, session: &str) -> Result<(), Error> {
        loop {
            match self.try_to_resume(session).await {
                Err(error) if is_busy_elsewhere(&error) => sleep(RETRY_DELAY).await,
                Err(error) if is_transient(&error) => {
                    self.log_with_context(&format!("{session} is not resumed yet"), &error);
                    sleep(STORE_RETRY_DELAY).await;
                }
                resumed => return resumed,
            }
        }
    }

    async fn try_to_resume(&self, session: &str) -> Result<(), Error> {
        let open = self.0.sessions.open(&self.0.hub, session).await?;
        let _starting = open.starting.lock().await;
        open.session.reload().await?;
        match open.session.state() {
            SessionState::Unfinished { .. } => self.resume_lost(&open).await,
            SessionState::Idle | SessionState::Pending { .. } => Ok(()),
        }
    }
}
