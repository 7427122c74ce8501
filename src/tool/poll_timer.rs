//! Measures the polls of a run's tools, to find tools that block the thread.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::item::ToolCall;
use crate::lock::lock_ignoring_poison;

/// Measures each poll of a run's tools.
pub(crate) struct PollTimer {
    limit: Duration,
    on_long_poll: Box<OnLongPoll>,
    /// The place where observers on other threads see the poll, if there are any.
    current: Option<Arc<CurrentPoll>>,
}

type OnLongPoll = dyn Fn(&ToolCall, Duration) + Send + Sync;

/// The poll of a tool that has not returned yet, for observers on other threads.
#[derive(Default)]
pub(crate) struct CurrentPoll(Mutex<PollState>);

#[derive(Default)]
struct PollState {
    /// The number of polls so far.
    count: u64,
    /// The tool that is being polled, and the time at which the poll began.
    tool: Option<(String, Instant)>,
}

/// A poll of a tool that has not returned yet.
pub(crate) struct OpenPoll {
    /// The number of the poll within its run.
    pub(crate) number: u64,
    pub(crate) tool: String,
    pub(crate) elapsed: Duration,
}

impl PollTimer {
    /// Creates a timer that calls `on_long_poll` after each poll that took at least `limit`.
    pub(crate) fn new(
        limit: Duration,
        current: Option<Arc<CurrentPoll>>,
        on_long_poll: impl Fn(&ToolCall, Duration) + Send + Sync + 'static,
    ) -> Self {
        Self { limit, on_long_poll: Box::new(on_long_poll), current }
    }

    /// Measures a poll of the call's tool. `poll` must not panic.
    pub(super) fn measure<T>(&self, call: &ToolCall, poll: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        if let Some(current) = &self.current {
            current.begin(&call.name, began);
        }
        let polled = poll();
        if let Some(current) = &self.current {
            current.end();
        }
        let elapsed = began.elapsed();
        if elapsed >= self.limit {
            (self.on_long_poll)(call, elapsed);
        }
        polled
    }
}

impl CurrentPoll {
    /// Returns the poll that has not returned yet, if any.
    pub(crate) fn open_poll(&self) -> Option<OpenPoll> {
        let state = lock_ignoring_poison(&self.0);
        let (tool, began) = state.tool.as_ref()?;
        Some(OpenPoll { number: state.count, tool: tool.clone(), elapsed: began.elapsed() })
    }

    fn begin(&self, tool: &str, began: Instant) {
        let mut state = lock_ignoring_poison(&self.0);
        state.count += 1;
        state.tool = Some((tool.to_owned(), began));
    }

    fn end(&self) {
        lock_ignoring_poison(&self.0).tool = None;
    }
}

impl fmt::Debug for PollTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollTimer").field("limit", &self.limit).finish_non_exhaustive()
    }
}
