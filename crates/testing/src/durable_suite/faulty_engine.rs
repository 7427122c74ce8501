//! An engine for tests that simulates lost attempts.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, poll_fn};
use turnstream::durable::{
    AttemptLost, Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest,
};
use turnstream::error::Error;
use turnstream::item::{PendingCall, RawJson, ToolResult};
use turnstream::session::Entry;

use crate::lock::lock_ignoring_poison;

/// A plan for tests that determines when attempts at a run are lost. Clones share the same plan.
///
/// Each [loss](Loss) ends one attempt: the first loss ends the first attempt, and so on. Attempts
/// after the last planned loss are not lost. The plan also counts attempts and operations.
#[derive(Clone, Debug, Default)]
pub struct LossPlan(Arc<PlanInner>);

#[derive(Debug, Default)]
struct PlanInner {
    losses: Mutex<Vec<Loss>>,
    attempts: AtomicUsize,
    operations: AtomicUsize,
}

/// The point at which an attempt is lost: an operation, and a moment before, during or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The index of the operation within the attempt, counted from 0.
    pub operation: usize,
    /// The moment of the loss, relative to the operation.
    pub moment: LossMoment,
}

/// The moment at which an attempt is lost, relative to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossMoment {
    /// The attempt is lost before the operation starts, and the engine is not called.
    Before,
    /// The attempt is lost once the operation has been polled this many times; 0 has the same
    /// effect as `Before`. The engine may or may not have recorded the operation.
    After(usize),
    /// The attempt is lost after the engine has recorded the operation, so that only the engine's
    /// response is lost.
    Kept,
}

impl LossPlan {
    /// Creates a plan in which no attempt is lost.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a plan with the given losses. The first loss ends the first attempt, the second loss
    /// ends the second attempt, and so on.
    pub fn with_losses(losses: impl IntoIterator<Item = Loss>) -> Self {
        let losses: Vec<Loss> = losses.into_iter().collect();
        Self(Arc::new(PlanInner { losses: Mutex::new(losses), ..PlanInner::default() }))
    }

    /// Wraps the engine that runs the next attempt, and loses the attempt at the planned moment.
    pub fn wrap<E: Engine>(&self, engine: E) -> FaultyEngine<E> {
        self.0.attempts.fetch_add(1, Ordering::Relaxed);
        self.0.operations.store(0, Ordering::Relaxed);
        let mut losses = lock_ignoring_poison(&self.0.losses);
        let loss = (!losses.is_empty()).then(|| losses.remove(0));
        drop(losses);
        FaultyEngine { engine, plan: self.clone(), loss, operation: 0, is_lost: false }
    }

    /// Returns the number of attempts made so far, that is, of calls to [`wrap`](Self::wrap).
    pub fn attempts(&self) -> usize {
        self.0.attempts.load(Ordering::Relaxed)
    }

    /// Returns the number of operations called by the last attempt, from which a test knows where
    /// losses are possible.
    pub fn operations(&self) -> usize {
        self.0.operations.load(Ordering::Relaxed)
    }
}

/// Wraps an engine, and simulates the loss of the engine's attempt as planned in a [`LossPlan`].
/// The operation in which the loss occurs and all later operations fail with [`AttemptLost`].
pub struct FaultyEngine<E> {
    engine: E,
    plan: LossPlan,
    loss: Option<Loss>,
    operation: usize,
    is_lost: bool,
}

impl<E: Engine> FaultyEngine<E> {
    /// Performs an operation, or simulates the loss of the attempt if a loss is planned for this
    /// operation.
    fn lossy<'a, T: Send + 'a>(
        &'a mut self,
        operation: impl FnOnce(&'a mut E) -> BoxFuture<'a, Result<T, Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, Error>> {
        let number = self.operation;
        self.operation += 1;
        self.plan.0.operations.fetch_add(1, Ordering::Relaxed);
        let moment = self.loss.filter(|loss| loss.operation == number).map(|loss| loss.moment);
        let was_lost = self.is_lost;
        self.is_lost |= moment.is_some();
        let engine = &mut self.engine;
        async move {
            if was_lost {
                return Err(AttemptLost.into());
            }
            let Some(moment) = moment else { return operation(engine).await };
            let polls = match moment {
                LossMoment::Before => 0,
                LossMoment::After(polls) => polls,
                LossMoment::Kept => usize::MAX,
            };
            if polls > 0 {
                let mut running = operation(engine);
                let mut polled = 0;
                poll_fn(|cx| {
                    polled += 1;
                    match running.poll_unpin(cx) {
                        Poll::Ready(_) => Poll::Ready(()),
                        Poll::Pending if polled >= polls => Poll::Ready(()),
                        Poll::Pending => Poll::Pending,
                    }
                })
                .await;
            }
            Err(AttemptLost.into())
        }
        .boxed()
    }
}

impl<E: Engine> StepRunner for FaultyEngine<E> {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        self.lossy(move |engine| engine.step(name, step))
    }
}

impl<E: Engine> Engine for FaultyEngine<E> {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        self.lossy(move |engine| engine.take_commands(undelivered_bytes))
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.lossy(move |engine| engine.wait_for_commands(awaited, limit, is_enough))
    }

    fn can_call_tools(&self) -> bool {
        self.engine.can_call_tools()
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        self.lossy(move |engine| engine.call_tools(calls))
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        self.lossy(move |engine| engine.save(from, entries))
    }

    fn finish(&mut self, put_back: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        self.lossy(move |engine| engine.finish(put_back))
    }
}

impl<E> fmt::Debug for FaultyEngine<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyEngine")
            .field("loss", &self.loss)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}
