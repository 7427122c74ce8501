//! Whether a call may begin.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::de::IgnoredAny;

use crate::item::{ResultKind, ToolCall};
use crate::tool::running::{panicked, unfit};
use crate::tool::{Tool, ToolRun};

/// A call that may run, with the arguments that would, and its tool.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Its place among the calls of the turn.
    pub(super) at: usize,
    pub(super) call: ToolCall,
    pub(super) tool: Tool,
}

/// How a call that may not run is answered.
pub(super) type Refusal = (ResultKind, String);

impl ToolRun {
    /// Finds the tool of a call that may run as far as the turn, the kit and the arguments go.
    pub(super) fn examine(&self, at: usize, call: &ToolCall) -> Result<Tool, Refusal> {
        if let Some(veto) = self.turn.calls().veto() {
            return Err((veto.kind, veto.why.to_owned()));
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if at > 0 && self.kit.is_single_action() {
            let why = "Not run: one call in a reply, please. Call it again if it is still needed.";
            return Err((ResultKind::Skipped, why.to_owned()));
        }
        if self.is_used(&call.call_id) {
            let why = "Not run: another call has this id. Call the tool again.";
            return Err((ResultKind::Skipped, why.to_owned()));
        }
        let Some(tool) = self.kit.get(&call.name) else {
            let why = format!("There is no tool `{}`. {}", call.name, self.kit.names());
            return Err((ResultKind::UnknownTool, why));
        };
        fits(tool, call).map_err(|misfit| match misfit {
            Misfit::Arguments(why) => (ResultKind::InvalidArguments, unfit(call, &why)),
            Misfit::Panic(why) => (ResultKind::Panic, why),
        })?;
        if self.kit.is_dry_run() && !tool.runs_dry() {
            let (name, arguments) = (&call.name, call.arguments_or_empty());
            let why =
                format!("Not run: this is a dry run. `{name}` would be called with {arguments}");
            return Err((ResultKind::Skipped, why));
        }
        Ok(tool.clone())
    }

    /// Whether another call has this id, or ever had.
    fn is_used(&self, call_id: &str) -> bool {
        match self.resumed {
            false => self.history.holds_call_id(call_id),
            // The call itself is in the history.
            true => self.history.call_ids().filter(|held| *held == call_id).nth(1).is_some(),
        }
    }
}

/// Why arguments do not fit.
pub(super) enum Misfit {
    Arguments(String),
    Panic(String),
}

/// Whether the arguments of a call are a JSON object that fits the tool.
pub(super) fn fits(tool: &Tool, call: &ToolCall) -> Result<(), Misfit> {
    let arguments = call.arguments_or_empty();
    if let Err(error) = serde_json::from_str::<IgnoredAny>(arguments) {
        return Err(Misfit::Arguments(format!("not JSON: {error}")));
    }
    if !arguments.starts_with('{') {
        return Err(Misfit::Arguments("not a JSON object".to_owned()));
    }
    match catch_unwind(AssertUnwindSafe(|| tool.handler().check(arguments))) {
        Ok(fits) => fits.map_err(Misfit::Arguments),
        Err(payload) => Err(Misfit::Panic(panicked(&*payload))),
    }
}
