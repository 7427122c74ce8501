//! Stores the tools that a run's tool sources listed most recently.

use std::sync::{Arc, Mutex};

use crate::agent::source_tools::SourceTools;
use crate::error::catch_panic;
use crate::lock::lock_ignoring_poison;
use crate::tool::{Tool, Toolkit};

/// Stores the tools that a run's tool sources listed most recently. The lock is never held across
/// an `.await`.
#[derive(Default)]
pub(super) struct ListedTools(Mutex<ListedState>);

#[derive(Default)]
struct ListedState {
    /// The tools from the last listing; `None` until the first listing.
    current: Option<Arc<CurrentTools>>,
    /// The iteration in which the tools were last listed.
    iteration: u32,
    /// Messages that the model must receive before the next request.
    notices: Vec<String>,
}

/// The tools from all sources, and a toolkit that contains these tools and the agent's own tools.
pub(super) struct CurrentTools {
    pub(super) sources: Vec<SourceTools>,
    toolkit: Toolkit,
}

impl ListedTools {
    /// Returns the tools from all sources, or `None` before the first listing.
    pub(super) fn current(&self) -> Option<Arc<CurrentTools>> {
        lock_ignoring_poison(&self.0).current.clone()
    }

    /// Returns the agent's own tools and the tools from its sources, or `None` before the first
    /// listing.
    pub(super) fn toolkit(&self) -> Option<Toolkit> {
        let listed = lock_ignoring_poison(&self.0);
        listed.current.as_ref().map(|current| current.toolkit.clone())
    }

    /// Returns the iteration in which the tools were last listed, or `None` before the first
    /// listing.
    pub(super) fn last_iteration(&self) -> Option<u32> {
        let listed = lock_ignoring_poison(&self.0);
        listed.current.as_ref().map(|_| listed.iteration)
    }

    /// Removes and returns the messages that the model must receive before the next request.
    pub(super) fn take_notice(&self) -> Option<String> {
        let notices = std::mem::take(&mut lock_ignoring_poison(&self.0).notices);
        (!notices.is_empty()).then(|| notices.join("\n"))
    }

    /// Stores the tools that a listing returned. The toolkit is rebuilt only if the tools have
    /// changed.
    pub(super) fn replace(
        &self,
        own: &Toolkit,
        sources: Vec<SourceTools>,
        iteration: u32,
        notice: Option<String>,
    ) {
        let unchanged = self.current().filter(|current| is_run_alike(&current.sources, &sources));
        let toolkit = match unchanged {
            Some(current) => current.toolkit.clone(),
            None => own.merged_with(sources.iter().flat_map(|source| source.tools.iter().cloned())),
        };
        let mut listed = lock_ignoring_poison(&self.0);
        listed.notices.extend(notice);
        listed.iteration = iteration;
        let replaced = listed.current.replace(Arc::new(CurrentTools { sources, toolkit }));
        drop(listed);
        // Tools are user code, which may panic when dropped.
        let _ = catch_panic(|| drop(replaced));
    }
}

/// Returns whether two listings contain the same tools with the same descriptions.
fn is_run_alike(before: &[SourceTools], now: &[SourceTools]) -> bool {
    let is_same =
        |(before, now): (&Tool, &Tool)| before.is_run_like(now) && before.is_described_like(now);
    let is_alike = |(before, now): (&SourceTools, &SourceTools)| {
        before.tools.len() == now.tools.len() && before.tools.iter().zip(&now.tools).all(is_same)
    };
    before.iter().zip(now).all(is_alike)
}
