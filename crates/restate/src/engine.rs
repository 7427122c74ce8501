//! The Restate engine for durable runs.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use restate_sdk::prelude::*;
use turnstream::Error;
use turnstream::durable::storage::{
    CommandWaiter, SegmentWrite, SessionSegments, SessionStatus, WaitAnswer,
};
use turnstream::durable::{Engine, StepFuture, StepRunner, StoredCommand, ToolCallRequest};
use turnstream::item::{PendingCall, RawJson, ToolResult};
use turnstream::session::Entry;

use crate::context::PerformStep;
use crate::errors::from_context;
use crate::inbox::{Finish, InboxClient, Take, start_timer};
use crate::state::{STATUS, read_session};
use crate::tools::{ToolsClient, ToolsRequest};

/// The engine for a single attempt at a run, which uses the handler's context and the state of the
/// session's object.
pub(crate) struct RestateEngine<'a, 'ctx> {
    ctx: &'a ObjectContext<'ctx>,
    /// The agent's name.
    agent: String,
    segments: SessionSegments,
    /// All of the session's entries.
    entries: Vec<Entry>,
    /// The status that this handler has written.
    status: SessionStatus,
    /// How many times the run has waited for commands so far.
    waits: u32,
    is_finished: bool,
}

impl<'a, 'ctx> RestateEngine<'a, 'ctx> {
    /// Creates the engine and reads the session's entries.
    pub(crate) async fn open(ctx: &'a ObjectContext<'ctx>, agent: String) -> Result<Self, Error> {
        let (segments, entries) = read_session(ctx).await?;
        let status = SessionStatus::default();
        Ok(Self { ctx, agent, segments, entries, status, waits: 0, is_finished: false })
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Writes and returns the session's status. `run` is the id of the active run, if any.
    pub(crate) fn set_status(&mut self, run: Option<&str>) -> &SessionStatus {
        self.status = SessionStatus::from_entries(self.entries.clone(), run.map(str::to_owned));
        self.ctx.set(STATUS, Json(self.status.clone()));
        &self.status
    }

    /// Adds the calls for whose verdicts the run is waiting to the session's status, or removes
    /// them.
    fn set_awaited_calls(&mut self, calls: &[PendingCall]) {
        if self.status.awaited_calls != calls {
            self.status.awaited_calls = calls.to_vec();
            self.ctx.set(STATUS, Json(self.status.clone()));
        }
    }

    fn write(&self, writes: Vec<SegmentWrite>) {
        for SegmentWrite { key, value } in writes {
            match value {
                Some(value) => self.ctx.set(&key, value.into_bytes()),
                None => self.ctx.clear(&key),
            }
        }
    }

    fn inbox(&self) -> InboxClient<'ctx> {
        self.ctx.object_client(self.ctx.key())
    }

    async fn take(&self, undelivered_bytes: Option<usize>) -> Result<Vec<StoredCommand>, Error> {
        let run = self.ctx.invocation_id().to_owned();
        let taken = self.inbox().take(Json(Take { run, undelivered_bytes })).call().await;
        taken.map(Json::into_inner).map_err(|error| from_context(&error))
    }

    async fn wait(
        &mut self,
        awaited: &[PendingCall],
        limit: Option<Duration>,
        number: u32,
        is_enough: &mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> Result<Vec<StoredCommand>, Error> {
        let run = self.ctx.invocation_id().to_owned();
        let timer = limit.map(|_| format!("{run}/{number}"));
        if let (Some(timer), Some(limit)) = (&timer, limit) {
            start_timer(self.ctx, timer, limit);
        }
        let mut commands = Vec::new();
        loop {
            commands.extend(self.take(None).await?);
            if is_enough(&commands) {
                break;
            }
            self.set_awaited_calls(awaited);
            let (id, woken) = self.ctx.awakeable::<()>();
            let waiter = CommandWaiter { id, timer: timer.clone() };
            let answer = self.inbox().wait(Json(waiter)).call().await;
            match answer.map_err(|error| from_context(&error))?.into_inner() {
                WaitAnswer::Ready => {}
                WaitAnswer::Expired => break,
                WaitAnswer::Waiting => woken.await.map_err(|error| from_context(&error))?,
            }
        }
        self.set_awaited_calls(&[]);
        Ok(commands)
    }

    /// Executes calls until each of them has a result. An interrupt of the run cancels the calls
    /// that have none, and the run continues once they have ended, so that no call runs beside a
    /// later run.
    async fn call(&self, calls: Vec<ToolCallRequest>) -> Result<Vec<ToolResult>, Error> {
        let tools = || self.ctx.service_client::<ToolsClient>();
        let mut sent = Vec::new();
        for call in &calls {
            // If the session was removed, a new run may request a call with the same id, so the key
            // includes the id of the run's invocation.
            let key = format!("{}/{}", self.ctx.invocation_id(), call.call.call_id);
            let (agent, call) = (self.agent.clone(), call.clone());
            let request = tools().call(Json(ToolsRequest::Call { agent, call }));
            sent.push(request.idempotency_key(key).call());
        }
        let session = self.ctx.key().to_owned();
        sent.push(tools().call(Json(ToolsRequest::Stop { session })).call());
        let (mut running, mut handles) = (DurableFuturesUnordered::new(), Vec::new());
        for call in sent {
            let handle = call.invocation_handle().await;
            handles.push(Some(handle.map_err(|error| from_context(&error))?));
            running.push(call);
        }
        let mut results: Vec<Option<ToolResult>> = vec![None; calls.len()];
        let (mut is_stopping, mut failure) = (false, None);
        while results.iter().any(Option::is_none) {
            match running.next().await {
                Ok(Some((index, answer))) => {
                    handles[index] = None;
                    let Some(call) = calls.get(index) else {
                        is_stopping = true;
                        handles.iter_mut().filter_map(Option::take).for_each(|call| call.cancel());
                        continue;
                    };
                    results[index] = Some(match answer {
                        Ok(Json(Some(result))) => result,
                        Ok(Json(None)) => call.interrupted_result(),
                        Err(_) if is_stopping => call.interrupted_result(),
                        Err(error) => call.failed_result(&from_context(&error)),
                    });
                }
                Ok(None) => break,
                // The run was cancelled. Restate has cancelled the calls as well.
                Err(error) => {
                    (is_stopping, failure) = (true, Some(from_context(&error)));
                    handles.clear();
                    handles.resize_with(calls.len() + 1, || None);
                }
            }
        }
        handles.into_iter().flatten().for_each(|stop| stop.cancel());
        if let Some(error) = failure {
            return Err(error);
        }
        let ended = results.into_iter().zip(&calls);
        Ok(ended
            .map(|(result, call)| result.unwrap_or_else(|| call.interrupted_result()))
            .collect())
    }

    /// Appends imported entries.
    pub(crate) fn import(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        let mut writes = self.segments.append(&entries)?;
        writes.extend(self.segments.merge()?);
        self.write(writes);
        self.entries.extend(entries);
        Ok(())
    }

    /// Waits until the server has stored all preceding writes. Otherwise, a tool could start before
    /// the server has received them.
    async fn wait_until_stored(&self) -> Result<(), Error> {
        let stored = self.ctx.run(async || Ok(())).name("stored").await;
        stored.map_err(|error| from_context(&error))
    }

    /// Ends a run of this session that an operator has killed.
    pub(crate) fn end_killed(&self, run: &str) {
        let finish = Finish { run: run.to_owned(), undelivered: Vec::new() };
        drop(self.inbox().finish(Json(finish)).send());
    }

    /// Ends the run: merges the small values that hold the session's newest entries into larger
    /// values, and returns the undelivered commands to the inbox.
    pub(crate) fn end(&mut self, undelivered: Vec<StoredCommand>) -> Result<(), Error> {
        if !std::mem::replace(&mut self.is_finished, true) {
            let writes = self.segments.merge()?;
            self.write(writes);
            let run = self.ctx.invocation_id().to_owned();
            drop(self.inbox().finish(Json(Finish { run, undelivered })).send());
        }
        Ok(())
    }
}

impl StepRunner for RestateEngine<'_, '_> {
    fn step<'a>(
        &'a mut self,
        name: &'static str,
        step: StepFuture,
    ) -> BoxFuture<'a, Result<RawJson, Error>> {
        self.ctx.perform(name, step)
    }
}

impl Engine for RestateEngine<'_, '_> {
    fn take_commands(
        &mut self,
        undelivered_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredCommand>, Error>> {
        async move { self.take(Some(undelivered_bytes)).await }.boxed()
    }

    fn wait_for_commands<'a>(
        &'a mut self,
        awaited: &'a [PendingCall],
        limit: Option<Duration>,
        is_enough: &'a mut (dyn FnMut(&[StoredCommand]) -> bool + Send),
    ) -> BoxFuture<'a, Result<Vec<StoredCommand>, Error>> {
        self.waits += 1;
        self.wait(awaited, limit, self.waits, is_enough).boxed()
    }

    fn can_call_tools(&self) -> bool {
        true
    }

    fn call_tools(
        &mut self,
        calls: Vec<ToolCallRequest>,
    ) -> BoxFuture<'_, Result<Vec<ToolResult>, Error>> {
        self.call(calls).boxed()
    }

    fn save(&mut self, from: u64, entries: Vec<Entry>) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            debug_assert_eq!(from, self.segments.version());
            // The approved calls start once this entry has been saved.
            let is_resumed = matches!(&entries[..], [Entry::Resumed { .. }]);
            let writes = self.segments.append(&entries)?;
            self.write(writes);
            self.entries.extend(entries);
            match is_resumed {
                true => self.wait_until_stored().await,
                false => Ok(()),
            }
        }
        .boxed()
    }

    fn finish(&mut self, undelivered: Vec<StoredCommand>) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.end(undelivered) }.boxed()
    }
}
