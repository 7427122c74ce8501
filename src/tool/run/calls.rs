//! The calls of one turn, and what becomes of one of them.

use std::sync::Arc;

use crate::error::catch_panic;
use crate::item::{History, ResultKind, ToolCall, ToolResult, truncate_middle, validate_json};
use crate::tool::run::guarded_gate::GuardedGate;
use crate::tool::{PreparedCall, RunData, Tool, Toolkit};
use crate::turn::Turn;

/// How much the model is told of its own arguments. They are in its context already.
const MAX_REASON: usize = 2 << 10;

/// How much of the name of a tool that does not exist is repeated.
const MAX_NAME: usize = 200;

/// What a call of a sub-agent is answered with where none may run any more.
const TOO_DEEP: &str = "Denied: sub-agents run inside one another as deep as they may. Do it \
     yourself, with the other tools, or answer with what you have.";

/// The calls of one turn, with what is known of them from the start.
pub(super) struct Calls {
    pub(super) kit: Toolkit,
    /// What the run began with.
    pub(super) history: History,
    pub(super) turn: Arc<Turn>,
    /// The turn is in the history already.
    pub(super) resumed: bool,
    /// What each call is answered with instead of running.
    pub(super) refusal: Option<Refusal>,
    pub(super) refuses_agents: bool,
    /// What is handed to the tools.
    pub(super) data: RunData,
    /// What stands before the tools.
    pub(super) gate: GuardedGate,
}

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

/// A call that has its result.
pub(super) struct Ended {
    pub(super) at: usize,
    pub(super) call: ToolCall,
    pub(super) result: ToolResult,
}

/// How a call that may not run is answered.
pub(super) type Refusal = (ResultKind, String);

/// Why arguments do not fit.
pub(super) enum Misfit {
    Arguments(String),
    Panic(String),
}

impl Calls {
    pub(super) fn new(kit: &Toolkit, history: &History, turn: Arc<Turn>) -> Self {
        Self {
            kit: kit.clone(),
            history: history.clone(),
            turn,
            resumed: false,
            refusal: None,
            refuses_agents: false,
            data: RunData::new(),
            gate: GuardedGate::default(),
        }
    }

    /// Finds the tool of a call that may run as far as the turn and the kit go.
    pub(super) fn find(&self, at: usize, call: &ToolCall) -> Result<Tool, Refusal> {
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
            let name = truncate_middle(call.name.clone(), MAX_NAME);
            let why = format!("There is no tool `{name}`. {}", self.kit.names());
            return Err((ResultKind::UnknownTool, why));
        };
        if self.refuses_agents && tool.runs_agents() {
            return Err((ResultKind::Denied, TOO_DEEP.to_owned()));
        }
        Ok(tool.clone())
    }

    /// Whether another call has this id, or ever had.
    fn is_used(&self, call_id: &str) -> bool {
        match self.resumed {
            false => self.history.has_used_call_id(call_id),
            // The call itself is in the history.
            true => self.history.call_ids().filter(|held| *held == call_id).nth(1).is_some(),
        }
    }

    /// Holds back a call that would change something in a dry run.
    pub(super) fn for_real(&self, tool: &Tool, call: &ToolCall) -> Result<(), Refusal> {
        if self.kit.is_dry_run() && !tool.runs_dry() {
            let name = &call.name;
            let arguments = truncate_middle(call.arguments_or_empty().to_owned(), MAX_REASON);
            let why =
                format!("Not run: this is a dry run. `{name}` would be called with {arguments}");
            return Err((ResultKind::Skipped, why));
        }
        Ok(())
    }
}

impl Ended {
    pub(super) fn refused(at: usize, call: ToolCall, (kind, why): Refusal) -> Self {
        let result = ToolResult::for_call(&call, kind, why);
        Self { at, call, result }
    }
}

impl Candidate {
    pub(super) fn refused(self, kind: ResultKind, why: impl Into<String>) -> Ended {
        Ended::refused(self.at, self.call, (kind, why.into()))
    }
}

impl Misfit {
    /// What the call is answered with.
    pub(super) fn refusal(self, call: &ToolCall) -> Refusal {
        match self {
            Self::Arguments(why) => {
                let why = format!(
                    "The arguments of `{}` do not fit: {why}. Call it again with arguments that \
                     fit its schema.",
                    call.name
                );
                (ResultKind::InvalidArguments, why)
            }
            Self::Panic(why) => (ResultKind::Panic, why),
        }
    }
}

/// Makes a call ready to begin, if its arguments are a JSON object that fits the tool.
pub(super) fn prepare(tool: &Tool, call: &ToolCall) -> Result<PreparedCall, Misfit> {
    let arguments = call.arguments_or_empty();
    if let Err(error) = validate_json(&call.arguments) {
        return Err(Misfit::Arguments(format!("not JSON: {error}")));
    }
    if !arguments.starts_with('{') {
        return Err(Misfit::Arguments("not a JSON object".to_owned()));
    }
    // In a bearable length: what is wrong with arguments may repeat all of them.
    let reason = |why| truncate_middle(why, MAX_REASON);
    match catch_panic(|| tool.handler.prepare(arguments)) {
        Ok(prepared) => prepared.map_err(|why| Misfit::Arguments(reason(why))),
        Err(message) => Err(Misfit::Panic(reason(panicked(&message)))),
    }
}

pub(super) fn panicked(message: &str) -> String {
    format!("Error: the tool panicked: {message}")
}
