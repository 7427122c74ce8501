//! The supervisor.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use futures::stream::{SelectAll, StreamExt};

use crate::env::{Deadline, DeadlineOutcome, TimeLimit};
use crate::error::Error;
use crate::supervise::activity::Activity;
use crate::supervise::restarting_run::{RestartingRun, StartFn};
use crate::supervise::silence_clock::SilenceClock;
use crate::supervise::slot::{Slot, SlotStream};
use crate::supervise::supervisor_handle::{Command, Shared};
use crate::supervise::{Restart, Supervised, SupervisedStream, SupervisorHandle};

/// A stream of the events of many runs, each with the run's key; see the
/// [module](crate::supervise).
///
/// The key, such as a session id, is cloned for each event: an `Arc<str>` is cheaper than a
/// `String`. Runs that are ready are polled in turn, so runs that are always ready get equal
/// shares.
///
/// The stream ends once all runs have ended and no [handle](Self::handle) is left. After further
/// runs have been inserted, it can be polled again. Dropping the supervisor drops all runs.
///
/// To limit the tokens, the cost or the concurrency of all runs together, give all agents the same
/// [`Pool`](crate::agent::Pool).
#[must_use = "streams do nothing unless polled"]
pub struct Supervisor<K> {
    /// The streams of all runs. Unlike `StreamMap`, which polls each stream that waits at every
    /// event, this type polls only the streams that have been woken.
    streams: SelectAll<SlotStream>,
    runs: HashMap<u64, SupervisedRun<K>>,
    /// The reports to yield before the streams are polled.
    due: VecDeque<(K, Supervised)>,
    restart: Restart,
    silence: Option<SilenceLimit>,
    silence_clock: SilenceClock,
    /// Fires when a run can have become silent. `None` before the first wait and after it has
    /// fired.
    silence_timer: Option<Deadline>,
    shared: Arc<Shared<K>>,
}

/// The shortest time between two checks for silent runs.
const MIN_SILENCE_WAIT: Duration = Duration::from_millis(1);

/// A run, as far as the supervisor knows it.
struct SupervisedRun<K> {
    key: K,
    slot: Slot,
    activity: Activity,
    /// The time on the silence clock from which the run is silent.
    silent_from: Duration,
    /// Whether the current silence was reported.
    is_reported: bool,
}

#[derive(Clone, Copy, Debug)]
struct SilenceLimit {
    limit: Duration,
    action: OnSilence,
}

/// The action of a [supervisor](Supervisor) on a run that has been silent for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnSilence {
    /// The silence is reported.
    Report,
    /// The silence is reported, and the run is [interrupted](crate::RunHandle::interrupt). A stream
    /// that is not a run of an agent, and a run that is still silent after the same time, is
    /// dropped. This counts as a failure of the run.
    Interrupt,
}

impl<K: Hash + Eq + Clone> Default for Supervisor<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Hash + Eq + Clone> Supervisor<K> {
    /// Creates a supervisor without runs, which starts no run again and has no limit for silence.
    pub fn new() -> Self {
        Self {
            streams: SelectAll::new(),
            runs: HashMap::new(),
            due: VecDeque::new(),
            restart: Restart::Never,
            silence: None,
            silence_clock: SilenceClock::default(),
            silence_timer: None,
            shared: Arc::new(Shared::new()),
        }
    }

    /// Sets when runs that are inserted later are started again. The default is
    /// [`Restart::Never`].
    pub fn with_restart(mut self, policy: Restart) -> Self {
        self.restart = policy;
        self
    }

    /// Sets how long a run may be silent, that is, yield no event, and what happens then. By
    /// default, there is no limit.
    ///
    /// A run is not silent while a tool or a sub-agent runs, while a call waits for a verdict,
    /// during the delay before a request is retried, and while it waits to be started again. The
    /// time between a wake-up and the next poll of the supervisor does not count either. Waiting
    /// for a [pool](crate::agent::Pool), a hook or a compaction counts as silence.
    ///
    /// Silence is measured while the supervisor waits. If some run always has an event, or if the
    /// consumer is slower than the runs, the supervisor never waits and reports no silence.
    ///
    /// The limit uses tokio's timer. Outside a tokio runtime, and in a runtime without timers, it
    /// is checked only when the supervisor is polled for another reason.
    pub fn with_silence_limit(mut self, limit: Duration, action: OnSilence) -> Self {
        self.silence = Some(SilenceLimit { limit, action });
        self
    }

    /// Inserts a run. `start` is called by the next poll, and again each time that the run is
    /// started again. It receives the number of the attempt, counted from 1, and returns a
    /// [`Run`](crate::Run), a [`SessionRun`](crate::session::SessionRun) or a
    /// [`SupervisedStream`]. If `start` or the run panics, the run has failed.
    ///
    /// # Errors
    ///
    /// Returns a [`Conflict`](crate::ErrorKind::Conflict) error if a run with this key is
    /// supervised. After the run has ended, the key can be used again.
    pub fn insert<R: Into<SupervisedStream>>(
        &mut self,
        key: K,
        mut start: impl FnMut(u32) -> R + Send + 'static,
    ) -> Result<(), Error> {
        self.shared.insert(key, Box::new(move |attempt| start(attempt).into()))?;
        self.perform_commands();
        Ok(())
    }

    /// Removes a run and drops it, without reporting its end. Returns whether there was one.
    pub fn remove(&mut self, key: &K) -> bool {
        let (was_there, _) = self.shared.remove(key);
        self.perform_commands();
        was_there
    }

    /// Returns the number of runs that are supervised, including those that wait to be started
    /// again.
    pub fn len(&self) -> usize {
        self.shared.with(|state| state.keys.len())
    }

    /// Returns whether no run is supervised. The stream of such a supervisor ends, unless a
    /// [`SupervisorHandle`] exists, which could insert a run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a handle that inserts and removes runs while the supervisor is being polled.
    pub fn handle(&self) -> SupervisorHandle<K> {
        SupervisorHandle::new(&self.shared)
    }

    fn add(&mut self, number: u64, key: K, start: StartFn) {
        let slot = Slot::new(RestartingRun::new(start, self.restart));
        self.streams.push(SlotStream { number, slot: slot.clone() });
        let silent_from = self.silence_clock.waited;
        let activity = Activity::default();
        let run = SupervisedRun { key, slot, activity, silent_from, is_reported: false };
        self.runs.insert(number, run);
    }

    fn drop_run(&mut self, number: u64) {
        if let Some(run) = self.runs.remove(&number) {
            self.due.retain(|(other, _)| *other != run.key);
            run.slot.clear();
        }
    }

    /// Performs the commands of the handles.
    fn perform_commands(&mut self) {
        while let Some(command) = self.shared.with(|state| state.commands.pop_front()) {
            match command {
                Command::Insert(number, key, start) => self.add(number, key, start),
                Command::Remove(number) => self.drop_run(number),
            }
        }
    }

    /// Returns what a report of a run means for the consumer. `None` if the run was removed.
    fn observe(&mut self, number: u64, report: &Supervised) -> Option<K> {
        let run = self.runs.get_mut(&number)?;
        let allowance = match report {
            Supervised::Event(event) => run.activity.observe(event),
            Supervised::Restarting { delay, .. } => {
                run.activity = Activity::default();
                *delay
            }
            Supervised::Silent { .. } | Supervised::Ended(_) => Duration::ZERO,
        };
        run.silent_from = self.silence_clock.waited.saturating_add(allowance);
        run.is_reported = false;
        let key = run.key.clone();
        if matches!(report, Supervised::Ended(_)) {
            self.runs.remove(&number);
            self.shared.release(&key, number);
        }
        Some(key)
    }

    /// Adds a report for each run that has been silent for too long. Returns the time until the
    /// next run can have become silent.
    fn check_silence(&mut self, SilenceLimit { limit, action }: SilenceLimit) -> Duration {
        let now = self.silence_clock.waited;
        let mut next = limit;
        for run in self.runs.values_mut() {
            if run.is_reported || run.activity.is_waiting() {
                continue;
            }
            let remaining = run.silent_from.saturating_add(limit).saturating_sub(now);
            if !remaining.is_zero() {
                next = next.min(remaining);
                continue;
            }
            let waited = now.saturating_sub(run.silent_from);
            self.due.push_back((run.key.clone(), Supervised::Silent { waited }));
            match action {
                OnSilence::Report => run.is_reported = true,
                OnSilence::Interrupt => {
                    run.silent_from = now;
                    run.slot.end_silent(waited);
                }
            }
        }
        next
    }

    /// Waits until a run has been silent for too long, and adds the reports.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.silence else { return Poll::Pending };
        loop {
            let Some(timer) = &mut self.silence_timer else {
                let next = self.check_silence(limit);
                self.silence_timer =
                    Some(Deadline::new(TimeLimit::Default(next.max(MIN_SILENCE_WAIT))));
                if !self.due.is_empty() {
                    return Poll::Ready(());
                }
                continue;
            };
            match timer.poll(cx) {
                // No run can have become silent earlier: each event makes it later.
                Poll::Ready(DeadlineOutcome::TimeUp) => self.silence_timer = None,
                Poll::Ready(DeadlineOutcome::NoTimer) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Registers the waker for commands. Returns whether there is a command already, and whether
    /// handles can still send one.
    fn register_for_commands(&self, waker: &Waker) -> (bool, bool) {
        self.shared.with(|state| {
            if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                state.waker = Some(waker.clone());
            }
            (!state.commands.is_empty(), state.has_handles())
        })
    }
}

impl<K: Hash + Eq + Clone + Unpin> Stream for Supervisor<K> {
    type Item = (K, Supervised);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.silence_clock.resume();
        let waker = this.silence_clock.waker(cx);
        let cx = &mut Context::from_waker(&waker);
        loop {
            this.perform_commands();
            if let Some(report) = this.due.pop_front() {
                return Poll::Ready(Some(report));
            }
            let polled = this.streams.poll_next_unpin(cx);
            if let Poll::Ready(Some((number, report))) = polled {
                // The run may have been removed during the poll.
                this.perform_commands();
                if let Some(key) = this.observe(number, &report) {
                    return Poll::Ready(Some((key, report)));
                }
                continue;
            }
            let (has_command, has_handles) = this.register_for_commands(&waker);
            if has_command {
                continue;
            }
            if polled.is_ready() && !has_handles {
                return Poll::Ready(None);
            }
            if this.poll_silence(cx).is_pending() {
                this.silence_clock.pause();
                return Poll::Pending;
            }
        }
    }
}

impl<K> Drop for Supervisor<K> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<K> fmt::Debug for Supervisor<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}
