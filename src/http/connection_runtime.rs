//! The tokio runtime that drives a connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::{Handle, Id, RuntimeFlavor};

use crate::error::{Error, ErrorKind};

/// Returns the current tokio runtime, or an error if the caller is not running in a tokio runtime.
pub(super) fn current_runtime() -> Result<Handle, Error> {
    Handle::try_current().map_err(|error| {
        let message = "an HTTP request needs a tokio runtime, and it was polled outside of any";
        Error::new(ErrorKind::Connect, message).with_source(error).with_retryable(false)
    })
}

/// Identifies the runtime from which a request was sent. On this runtime, reqwest has spawned a
/// task that transfers the connection's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionRuntime {
    /// The runtime's id if it is a current-thread runtime, whose tasks run only while the runtime
    /// is polled. A multi-thread runtime drives the connection on its own threads, regardless of
    /// where the response is read.
    current_thread_runtime: Option<Id>,
}

impl ConnectionRuntime {
    pub(super) fn for_handle(runtime: &Handle) -> Self {
        let is_current_thread = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self { current_thread_runtime: is_current_thread.then(|| runtime.id()) }
    }

    /// Returns an error if waiting for the connection might never end. This is the case if the
    /// connection is driven by a current-thread runtime other than the current runtime, because it
    /// is unknown whether another thread is running that runtime.
    pub(super) fn ensure_driven(self) -> Result<(), Error> {
        let Some(id) = self.current_thread_runtime else { return Ok(()) };
        if Handle::try_current().is_ok_and(|current| current.id() == id) {
            return Ok(());
        }
        let message = "the request was sent from another tokio runtime, a current-thread one, which \
                       drives its connection only while it runs: read the answer in that runtime, \
                       or use a multi-thread one";
        Err(Error::new(ErrorKind::Connect, message))
    }

    /// Waits for `future`, which makes progress only while the connection is driven.
    pub(super) async fn drive<F: Future>(self, future: F) -> Result<F::Output, Error> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => match self.ensure_driven() {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        })
        .await
    }
}
