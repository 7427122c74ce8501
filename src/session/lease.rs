//! The right to run a session.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use crate::error::{Error, ErrorKind};

/// The right to run a session, which at most one run has at a time. Clones share it, and dropping the last one gives
/// it back.
///
/// [`Session::run`](crate::session::Session::run) and [`resume`](crate::session::Session::resume) take it with
/// [`Store::lease`](crate::session::Store::lease) before they read what was left, and their run writes with
/// [`Store::append_leased`](crate::session::Store::append_leased). If the lease can be
/// taken, no other run executes the open calls of the session: the run that began them has ended or lost its lease.
///
/// Each lease has an epoch, higher than those of all leases of the session before it. A store rejects
/// appends under an older lease than the last one, so a process that has not noticed the loss of its lease cannot write.
#[derive(Clone)]
pub struct Lease {
    epoch: u64,
    hold: Arc<dyn Any + Send + Sync>,
    lost: Option<Shared<BoxFuture<'static, ()>>>,
}

impl Lease {
    /// A lease that is held as long as `hold` exists: dropping it has to give the lease back.
    pub fn new(epoch: u64, hold: impl Any + Send + Sync) -> Self {
        Self { epoch, hold: Arc::new(hold), lost: None }
    }

    /// The lease of a store that does not support leases: it does not exclude other runs. Its epoch is 0.
    pub fn unguarded() -> Self {
        Self::new(0, ())
    }

    /// Sets what tells that the lease is lost: a future that is ready from then on. The run of the session is dropped
    /// when it is ready.
    pub fn with_loss(self, lost: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { lost: Some(lost.boxed().shared()), ..self }
    }

    /// Its epoch. The leases that a session has had before have lower ones.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The value that was given to [`new`](Self::new), for the store.
    pub fn hold<T: Any>(&self) -> Option<&T> {
        (*self.hold).downcast_ref()
    }

    /// Ready when it is known to be lost.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.lost {
            // It may be polled again afterwards.
            Some(lost) if lost.peek().is_some() => Poll::Ready(()),
            Some(lost) => lost.poll_unpin(cx),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The source of an error of kind [`Conflict`](ErrorKind::Conflict): a run has the lease of the session, in this
/// process or in another one. Nothing was written, and nothing of the session runs because of the call.
///
/// Try again later, after [`Session::reload`](crate::session::Session::reload): the other run changes the session, and
/// what [`Session::state`](crate::session::Session::state) says of it.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::session::{AlreadyLeased, MemoryStore, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let session = Session::open(MemoryStore::new(), "s").await?;
/// let run = session.run(&agent, "Hi").await?;
///
/// let error = session.run(&agent, "Hi again").await.unwrap_err();
/// assert_eq!(AlreadyLeased::from_error(&error).unwrap().id, "s");
/// # run.outcome().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another run has the lease of the session `{id}`")]
pub struct AlreadyLeased {
    /// The session.
    pub id: String,
}

impl AlreadyLeased {
    /// Finds it in an error.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.find_source()
    }
}

impl From<AlreadyLeased> for Error {
    fn from(leased: AlreadyLeased) -> Self {
        Self::new(ErrorKind::Conflict, leased.to_string()).with_source(leased)
    }
}

/// The source of an error of kind [`Conflict`](ErrorKind::Conflict): the run has lost the lease of its session.
///
/// The run was dropped: its tools are cancelled, and it has written no results for its open calls. The session may
/// continue elsewhere. [`Session::resume`](crate::session::Session::resume) takes a new lease, or fails with
/// [`AlreadyLeased`] if another run has it by then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the session `{id}` is lost")]
pub struct LeaseLost {
    /// The session.
    pub id: String,
    /// The epoch of the lease that is lost.
    pub epoch: u64,
}

impl LeaseLost {
    /// Finds it in an error.
    pub fn from_error(error: &Error) -> Option<&Self> {
        error.find_source()
    }
}

impl From<LeaseLost> for Error {
    fn from(lost: LeaseLost) -> Self {
        Self::new(ErrorKind::Conflict, lost.to_string()).with_source(lost)
    }
}
