//! The tools that an agent has.

use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::item::History;
use crate::request::ToolSpec;
use crate::tool::{Tool, ToolRun};
use crate::turn::Turn;

/// At most so many calls of a turn run at once, unless told otherwise.
const AT_ONCE: usize = 4;

/// The tools that an agent has, and how many may run at once. Cheap to clone.
///
/// ```
/// use turnstream::tool::{Tool, ToolSpec, Toolkit};
///
/// let spec = ToolSpec {
///     name: "now".into(),
///     description: "Tells the time".into(),
///     parameters: serde_json::json!({ "type": "object" }),
/// };
/// let kit = Toolkit::new([Tool::raw(spec, |_args, _cx| async { "noon" })?]);
/// assert_eq!(kit.specs().len(), 1);
/// # Ok::<(), turnstream::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Toolkit {
    tools: Arc<[Tool]>,
    specs: Arc<[ToolSpec]>,
    at_once: usize,
}

impl Default for Toolkit {
    fn default() -> Self {
        Self::new([])
    }
}

impl Toolkit {
    /// Makes a kit. Of two tools with one name the later one is kept, in the place of the first.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let mut kept: Vec<Tool> = Vec::new();
        for tool in tools {
            match kept.iter_mut().find(|kept| kept.name() == tool.name()) {
                Some(kept) => *kept = tool,
                None => kept.push(tool),
            }
        }
        let specs = kept.iter().map(|tool| tool.spec().clone()).collect();
        Self { tools: kept.into(), specs, at_once: AT_ONCE }
    }

    /// Sets how many calls of a turn may run at once; 4 unless set.
    ///
    /// Sub-agents inside tools multiply it.
    pub fn at_once(mut self, calls: NonZeroUsize) -> Self {
        self.at_once = calls.get();
        self
    }

    /// What the model is told of the tools, in order.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// Runs the calls of a turn that follows `history`.
    ///
    /// Every call gets exactly one result, whatever happens: what may not run is answered without
    /// running. Calls run at once as far as the kit allows, and their events come as they happen;
    /// read the results back in call order with [`ToolRun::then_next`].
    ///
    /// Nothing runs before the first poll, and dropping the run drops every tool that is running.
    pub fn run(&self, history: &History, turn: &Arc<Turn>) -> ToolRun {
        ToolRun::new(self, history.clone(), Arc::clone(turn))
    }

    pub(super) fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name() == name)
    }

    pub(super) fn names(&self) -> String {
        match &*self.tools {
            [] => "There are no tools.".to_owned(),
            tools => {
                let names: Vec<_> = tools.iter().map(|tool| format!("`{}`", tool.name())).collect();
                format!("The tools are: {}.", names.join(", "))
            }
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.at_once
    }
}
