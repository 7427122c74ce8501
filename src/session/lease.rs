//! The exclusive right to run a session.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use crate::error::{Error, ErrorKind};

/// Represents the exclusive right to run a session. Only one run can hold the lease at a time.
/// Clones share the lease, and dropping the last clone releases the lease.
///
/// [`Session::run`](crate::session::Session::run) and [`resume`](crate::session::Session::resume)
/// acquire the lease with [`Store::lease`](crate::session::Store::lease) before they read the
/// entries, and the run then writes with
/// [`Store::append_leased`](crate::session::Store::append_leased). Once a run has acquired the
/// lease, no other run is executing the session's open calls: the run that started these calls has
/// ended or has lost its lease.
///
/// Each lease has an epoch, a number that is higher than the epochs of all earlier leases on the
/// same session. A store rejects appends under any lease except the latest, so a process that has
/// not noticed the loss of its lease cannot write to the session.
#[derive(Clone)]
pub struct Lease {
    epoch: u64,
    hold: Arc<dyn Any + Send + Sync>,
    lost: Option<Shared<BoxFuture<'static, ()>>>,
}

impl Lease {
    /// Creates a lease that stores `hold` and drops it together with the last clone of the lease.
    /// Dropping `hold` must release the lease in the store.
    pub fn new(epoch: u64, hold: impl Any + Send + Sync) -> Self {
        Self { epoch, hold: Arc::new(hold), lost: None }
    }

    /// Creates a lease for a store that does not support leases. The lease has epoch 0 and does not
    /// exclude other runs.
    pub(crate) fn unguarded() -> Self {
        Self::new(0, ())
    }

    /// Sets a future that completes when the lease is lost. The session's run is dropped when this
    /// future completes.
    pub fn with_loss(self, lost: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { lost: Some(lost.boxed().shared()), ..self }
    }

    /// Returns the lease's epoch. All earlier leases on the session have lower epochs.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the `hold` value that was passed to [`new`](Self::new), if the value has type `T`.
    pub fn hold<T: Any>(&self) -> Option<&T> {
        (*self.hold).downcast_ref()
    }

    /// Polls for the loss of the lease. Returns `Poll::Ready` once the loss has been detected.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.lost {
            // A `Shared` future must not be polled again after it has completed.
            Some(lost) if lost.peek().is_some() => Poll::Ready(()),
            Some(lost) => lost.poll_unpin(cx),
            None => Poll::Pending,
        }
    }
}

impl_debug!(Lease(it), epoch = it.epoch);

/// The source of a [`Conflict`](ErrorKind::Conflict) error that is returned if another run, in this
/// process or another process, holds the session's lease. The failed call wrote nothing and started
/// nothing.
///
/// The other run may change the session and the session's
/// [`state`](crate::session::Session::state). Before you try again, call
/// [`Session::reload`](crate::session::Session::reload).
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
/// assert_eq!(error.find_source::<AlreadyLeased>().unwrap().id, "s");
/// # run.outcome().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another run has the lease of the session `{id}`")]
pub struct AlreadyLeased {
    /// The session's id.
    pub id: String,
}

impl From<AlreadyLeased> for Error {
    fn from(leased: AlreadyLeased) -> Self {
        Self::new(ErrorKind::Conflict, leased.to_string()).with_source(leased)
    }
}

/// The source of a [`Conflict`](ErrorKind::Conflict) error that is returned if the run has lost its
/// session's lease.
///
/// When the lease is lost, the run is dropped: its tools are cancelled, and no results are written
/// for its open calls. Another process may continue the session.
/// [`Session::resume`](crate::session::Session::resume) acquires a new lease, or fails with
/// [`AlreadyLeased`] if another run already holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the session `{id}` is lost")]
pub struct LeaseLost {
    /// The session's id.
    pub id: String,
    /// The epoch of the lost lease.
    pub epoch: u64,
}

impl From<LeaseLost> for Error {
    fn from(lost: LeaseLost) -> Self {
        Self::new(ErrorKind::Conflict, lost.to_string()).with_source(lost)
    }
}
