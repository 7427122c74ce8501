//! Replays a recording.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::FusedStream;
use futures::{Stream, StreamExt};

use crate::agent::{Agent, Input, Run, RunContext, State, loop_body};
use crate::error::Error;
use crate::event::{AppendReason, Event, ToolEvent};
use crate::item::{INTERRUPTED_MID_EXECUTION, TIMED_OUT_MID_EXECUTION};
use crate::journal::Journal;
use crate::replay::ReplayPoint;
use crate::replay::recording::Recording;
use crate::replay::recording_entry::ends_step;
use crate::replay::run_player::RunPlayer;
use crate::request::Request;
use crate::stream::Step;

/// Replays a recording: a stream of the events that the agent's own loop produces when it receives
/// the recorded values.
///
/// A replay sends no requests, runs no tools and does not wait. The state of the replay can be
/// inspected between polls. [`play_until`](Self::play_until) replays up to a given step.
///
/// If the recorded run failed, the replay ends in the same way: with `Finished`, followed by an
/// `Err` that contains the run's error. If the replay differs from the recording, the stream ends
/// at the first difference with an `Err` of kind
/// [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) whose source is a
/// [`ReplayMismatch`](super::ReplayMismatch).
///
/// Dropping the replay drops its body, and with it any effects that a custom body performs on its
/// own. The recording does not change.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use futures::StreamExt;
/// use turnstream::replay::{Recorder, ReplayMismatch};
/// use turnstream::provider::Scripted;
/// use turnstream::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let kept = Arc::new(Mutex::new(None));
/// let keep = Arc::clone(&kept);
/// let recorder = Recorder::to_callback(move |run| *keep.lock().unwrap() = Some(run.recording));
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// agent.clone().with_recorder(&recorder).run("Hi").outcome().await;
/// let recording = kept.lock().unwrap().take().unwrap();
///
/// let mut rerun = recording.replay(&agent);
/// assert!(rerun.play_until(1).await?);
/// assert_eq!(rerun.journal().history().len(), 2);
///
/// // Another system prompt makes another request.
/// let mut rerun = recording.replay(&agent.with_system("Be brief."));
/// let error = rerun.play_until(1).await.unwrap_err();
/// assert_eq!(error.kind(), turnstream::ErrorKind::ReplayMismatch);
/// let mismatch = error.find_source::<ReplayMismatch>().unwrap();
/// assert_eq!((mismatch.turn, &*mismatch.part), (1, "request.system.stable"));
/// # Ok(())
/// # }
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct ReplayRun {
    recording: Recording,
    run: Run,
    player: RunPlayer,
    steps_played: usize,
    is_terminated: bool,
}

impl Recording {
    /// Replays the run using the agent's own loop, without accessing the network or running tools.
    ///
    /// `agent` must be built in the same way as the recorded agent. The replay uses the settings of
    /// `agent`, and calls its provider only to get the provider's name. Tools, tool sources, hooks,
    /// validations and the compactor are not called, since the recording contains their results.
    /// Ids are taken from the recording, and no time passes. The same agent produces the same
    /// events and requests; any difference is reported as a
    /// [`ReplayMismatch`](super::ReplayMismatch).
    ///
    /// If the recorded run was interrupted, its replay is interrupted at the same event. If the
    /// recorded run was dropped, its replay ends where the recording ends, without a `Finished`
    /// event.
    pub fn replay(&self, agent: &Agent) -> ReplayRun {
        self.replay_with_body(agent, loop_body)
    }

    /// Replays a run with a custom body, started by [`Agent::run_with_body`].
    ///
    /// The body itself runs again. The inputs that the body receives from [`RunContext`] are
    /// replayed, but any other external calls that the body makes are executed again.
    pub fn replay_with_body<B, St>(&self, agent: &Agent, body: B) -> ReplayRun
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        ReplayRun::new(self, agent, body)
    }
}

impl ReplayRun {
    pub(super) fn new<B, St>(recording: &Recording, agent: &Agent, body: B) -> Self
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let playing = RunPlayer::new(&recording.0);
        let input = match recording.events().next() {
            Some(Event::Appended { why: AppendReason::Input, items, .. }) => items.clone(),
            _ => Vec::new(),
        };
        let (world, history) = (playing.clone(), recording.history().clone());
        let agent = agent.without_side_effects().with_world(move |_, _| world.clone());
        let open_calls = history.unanswered_calls();
        let run = agent.replay_run(body, history, Input(input), recording.0.is_resuming);
        for call in open_calls {
            // Whether an earlier run may have started a call is not recorded, but its result tells.
            let started = recording.events().find_map(|event| match event {
                Event::Tool(ToolEvent::Output(result)) if result.call_id == call.call_id => {
                    let text = result.content.text();
                    // The text of an interrupted result may end with a reason.
                    let started = [INTERRUPTED_MID_EXECUTION, TIMED_OUT_MID_EXECUTION];
                    Some(started.iter().any(|start| text.starts_with(start)))
                }
                _ => None,
            });
            if let Some(started) = started {
                run.journal().set_may_have_started(&call.call_id, started);
            }
        }
        Self {
            recording: recording.clone(),
            run,
            player: playing,
            steps_played: 0,
            is_terminated: false,
        }
    }

    /// Replays to the end of the next step, and returns the event that ends this step. Returns
    /// `None` if the recording ends before the next step does.
    ///
    /// If the returned future is dropped, the replay continues from the event that it has reached.
    ///
    /// # Errors
    ///
    /// Returns an error at the first difference from the recorded run, or the error with which the
    /// recorded run ended.
    pub async fn next_step(&mut self) -> Result<Option<Event>, Error> {
        while let Some(event) = self.next().await {
            let event = event?;
            if ends_step(&event) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Replays until a total of `step` steps have been played. Returns `false` if the recording
    /// contains fewer steps.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`next_step`](Self::next_step).
    pub async fn play_until(&mut self, step: usize) -> Result<bool, Error> {
        while self.steps_played < step {
            if self.next_step().await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the run's journal at the current position, with the history and the usage up to
    /// there.
    pub fn journal(&self) -> &Journal {
        self.run.journal()
    }

    /// Returns the requests up to the current position, as they were passed to the provider. An
    /// encoder for a wire format, such as
    /// [`anthropic::encode`](crate::provider::anthropic::encode), turns a request into bytes.
    pub fn requests(&self) -> Vec<Request> {
        self.player.requests()
    }

    /// Returns the [replay point](Recording::at_step) for the last step that was played.
    pub fn replay_point(&self) -> ReplayPoint {
        self.recording.at_step(self.steps_played)
    }

    fn fail(&mut self, error: Error) -> Poll<Option<Result<Event, Error>>> {
        self.is_terminated = true;
        Poll::Ready(Some(Err(error)))
    }
}

impl Stream for ReplayRun {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.is_terminated {
            return Poll::Ready(None);
        }
        if this.player.is_over() && !this.run.has_pending_error() {
            this.is_terminated = true;
            // It is possible that no event follows the last request.
            if this.player.has_request_left() {
                let _ = this.run.poll_next_unpin(cx);
            }
            return Poll::Ready(None);
        }
        let polled = this.run.poll_next_unpin(cx);
        if let Some(mismatch) = this.player.mismatch() {
            return this.fail(mismatch.into_error());
        }
        match polled {
            Poll::Ready(Some(Ok(event))) => {
                this.steps_played += usize::from(ends_step(&event));
                Poll::Ready(Some(Ok(event)))
            }
            Poll::Pending if !this.player.take_waiting() => Poll::Pending,
            Poll::Ready(Some(Err(error))) => this.fail(error),
            Poll::Pending | Poll::Ready(None) => match this.player.missing_event() {
                Some(missing) => this.fail(missing.into_error()),
                None => {
                    this.is_terminated = true;
                    Poll::Ready(None)
                }
            },
        }
    }
}

impl FusedStream for ReplayRun {
    fn is_terminated(&self) -> bool {
        self.is_terminated
    }
}

impl_debug!(ReplayRun(it), steps_played = it.steps_played, is_terminated = it.is_terminated);
