//! Whether a call may begin.

use crate::error::{Error, catch_panic};
use crate::item::{ResultKind, ToolCall, check_json, clipped};
use crate::tool::pass::guarded;
use crate::tool::running::{panicked, unfit};
use crate::tool::{PreparedCall, Tool, ToolRun};

/// A call that may run, with the arguments that would, and its tool.
pub(super) struct Candidate {
    /// Its place among the calls of the turn.
    pub(super) at: usize,
    pub(super) call: ToolCall,
    pub(super) tool: Tool,
    pub(super) prepared: PreparedCall,
    /// Its sub-agent was suspended, and continues.
    pub(super) continues: bool,
}

/// How much the model is told of its own arguments. They are in its context already.
const MAX_REASON: usize = 2 << 10;
/// How much of the name of a tool that does not exist is repeated.
const MAX_NAME: usize = 200;

/// How a call that may not run is answered.
pub(super) type Refusal = (ResultKind, String);

impl ToolRun {
    /// Finds the tool of a call that may run as far as the turn, the kit and the arguments go. If
    /// they had to be repaired, the call has the repaired ones.
    ///
    /// # Errors
    ///
    /// What the gate ends the run with.
    pub(super) fn examine(
        &mut self,
        at: usize,
        call: &mut ToolCall,
    ) -> Result<Result<(Tool, PreparedCall), Refusal>, Error> {
        let tool = match self.find(at, call) {
            Ok(tool) => tool,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let prepared = match prepare(&tool, call) {
            Err(Misfit::Arguments(why)) => self.repair(&tool, call, why)?,
            prepared => prepared,
        };
        Ok(match prepared {
            Ok(prepared) => self.for_real(&tool, call).map(|()| (tool, prepared)),
            Err(Misfit::Arguments(why)) => Err((ResultKind::InvalidArguments, unfit(call, &why))),
            Err(Misfit::Panic(why)) => Err((ResultKind::Panic, why)),
        })
    }

    /// Finds the tool of a call that may run as far as the turn and the kit go.
    fn find(&self, at: usize, call: &ToolCall) -> Result<Tool, Refusal> {
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
            let name = clipped(call.name.clone(), MAX_NAME);
            let why = format!("There is no tool `{name}`. {}", self.kit.names());
            return Err((ResultKind::UnknownTool, why));
        };
        if let Some(why) = self.agent_refusal.filter(|_| tool.runs_agents()) {
            return Err((ResultKind::Denied, why.to_owned()));
        }
        Ok(tool.clone())
    }

    /// Asks the gate for arguments in the place of those that do not fit, and checks them once.
    fn repair(
        &mut self,
        tool: &Tool,
        call: &mut ToolCall,
        why: String,
    ) -> Result<Result<PreparedCall, Misfit>, Error> {
        let Some(gate) = &mut self.gate else { return Ok(Err(Misfit::Arguments(why))) };
        let Some(arguments) = guarded(|| gate.repair(call, &why)).flatten()? else {
            return Ok(Err(Misfit::Arguments(why)));
        };
        let repaired = ToolCall { arguments, ..call.clone() };
        Ok(match prepare(tool, &repaired) {
            Ok(prepared) => {
                *call = repaired;
                Ok(prepared)
            }
            // The model reads of what it wrote.
            Err(Misfit::Arguments(_)) => Err(Misfit::Arguments(why)),
            Err(Misfit::Panic(panic)) => Err(Misfit::Panic(panic)),
        })
    }

    /// Holds back a call that would change something in a dry run.
    fn for_real(&self, tool: &Tool, call: &ToolCall) -> Result<(), Refusal> {
        if self.kit.is_dry_run() && !tool.runs_dry() {
            let name = &call.name;
            let arguments = clipped(call.arguments_or_empty().to_owned(), MAX_REASON);
            let why =
                format!("Not run: this is a dry run. `{name}` would be called with {arguments}");
            return Err((ResultKind::Skipped, why));
        }
        Ok(())
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

/// Makes a call ready to begin, if its arguments are a JSON object that fits the tool.
pub(super) fn prepare(tool: &Tool, call: &ToolCall) -> Result<PreparedCall, Misfit> {
    let arguments = call.arguments_or_empty();
    if let Err(error) = check_json(&call.arguments) {
        return Err(Misfit::Arguments(format!("not JSON: {error}")));
    }
    if !arguments.starts_with('{') {
        return Err(Misfit::Arguments("not a JSON object".to_owned()));
    }
    match catch_panic(|| tool.handler.prepare(arguments)) {
        Ok(prepared) => prepared.map_err(|why| Misfit::Arguments(reason(why))),
        Err(message) => Err(Misfit::Panic(reason(panicked(&message)))),
    }
}

/// Why arguments do not fit, in a bearable length: what is wrong with them may repeat all of them.
fn reason(why: String) -> String {
    clipped(why, MAX_REASON)
}
