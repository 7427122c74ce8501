//! Warns while a tool of a run blocks its thread.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::agent::RunHandle;
use crate::error::catch_panic;
use crate::hub::run::registry::HubRun;

/// A report of a tool that blocks the thread on which its run is polled, so that other tasks cannot
/// run there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingTool {
    /// The id of the run.
    pub run: String,
    /// The name of the tool.
    pub tool: String,
    /// How long the poll of the tool has lasted so far.
    pub elapsed: Duration,
}

/// The setting for warnings about tools that block their thread.
#[derive(Clone)]
pub(in crate::hub) struct BlockingToolWarning {
    pub(in crate::hub) limit: Duration,
    pub(in crate::hub) warn: Arc<dyn Fn(BlockingTool) + Send + Sync>,
}

impl BlockingToolWarning {
    /// Looks for blocking tools of a run until the run has ended. Each poll is reported once.
    pub(in crate::hub) async fn watch(self, hub_run: Weak<HubRun>) {
        let mut ticks = interval((self.limit / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = None;
        loop {
            ticks.tick().await;
            let Some(hub_run) = hub_run.upgrade().filter(|hub_run| !hub_run.has_ended()) else {
                return;
            };
            let Some(poll) = hub_run.handle.as_ref().and_then(RunHandle::open_poll) else {
                continue;
            };
            if poll.elapsed >= self.limit && reported != Some(poll.number) {
                reported = Some(poll.number);
                let run = hub_run.run.to_string();
                let blocking = BlockingTool { run, tool: poll.tool, elapsed: poll.elapsed };
                // A panic must not end the warnings.
                let _ = catch_panic(|| (self.warn)(blocking));
            }
        }
    }
}

impl fmt::Debug for BlockingToolWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingToolWarning").field("limit", &self.limit).finish_non_exhaustive()
    }
}
