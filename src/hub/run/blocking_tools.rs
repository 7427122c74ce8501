//! Warns while a tool of a run blocks its thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::agent::RunHandle;
use crate::hub::run::registry::Registry;

/// A tool that blocks the thread on which its run is polled.
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
    /// Looks for blocking tools until the hub is dropped. Each poll of a tool is reported once.
    pub(in crate::hub) async fn watch(self, registry: Weak<Registry>) {
        let mut ticks = interval((self.limit / 2).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported: HashMap<Arc<str>, u64> = HashMap::new();
        loop {
            ticks.tick().await;
            let Some(registry) = registry.upgrade() else { return };
            let runs = registry.runs();
            drop(registry);
            let mut open = HashMap::new();
            for place in runs {
                let Some(poll) = place.handle.as_ref().and_then(RunHandle::open_poll) else {
                    continue;
                };
                if poll.elapsed < self.limit {
                    continue;
                }
                if reported.get(&place.run) != Some(&poll.number) {
                    let run = place.run.to_string();
                    (self.warn)(BlockingTool { run, tool: poll.tool, elapsed: poll.elapsed });
                }
                open.insert(Arc::clone(&place.run), poll.number);
            }
            reported = open;
        }
    }
}

impl fmt::Debug for BlockingToolWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingToolWarning").field("limit", &self.limit).finish_non_exhaustive()
    }
}
