//! The axes of the matrix.

use std::fmt;

/// Defines an enum, and the list of its variants.
macro_rules! axis {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $name {
            $($(#[$of])* $variant,)*
        }

        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

/// The machine that drives the run, and keeps its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Machine {
    /// An agent's run. The program keeps the history.
    Agent,
    /// A run in a session. The store keeps the entries.
    Session,
    /// An attempt at a durable run. Its tools run in the steps of the run.
    Durable,
    /// The same, except that a turn's calls are executed separately from the run.
    DurableWithWorker,
}

axis! {
    /// Who runs the call.
    Who {
        /// A tool that must not run twice.
        Tool,
        IdempotentTool,
        ExclusiveTool,
        /// A tool that the model calls through `call_tool`.
        SearchedTool,
        /// The program, outside of the run.
        ExternalTool,
        /// A tool that a durable engine runs separately from the run.
        ToolElsewhere,
        IdempotentToolElsewhere,
        SubAgent,
        /// A tool of the sub-agent that must not run twice.
        ToolOfSubAgent,
        IdempotentToolOfSubAgent,
        ExternalToolOfSubAgent,
    }
}

axis! {
    /// How far the run has come.
    Stage {
        /// No request is open, and each call has its result.
        BeforeRequest,
        /// The model answers.
        TurnStreams,
        /// The turn is complete, and no call has started or waits for a verdict.
        BeforeTools,
        ToolsRun,
        /// Calls wait for verdicts, and no tool runs.
        WaitsForVerdicts,
        /// The store or the engine writes.
        Saving,
        /// The run has ended, and its calls wait.
        Suspended,
        /// The time limit has dropped the calls, and a last turn without tools follows.
        WrappingUp,
    }
}

axis! {
    /// How far a call of a complete turn has come.
    CallState {
        NotStarted,
        WaitsForVerdict,
        /// A verdict allows the call, or contains its result, and the call has not started.
        Approved,
        /// A verdict denies the call, and the run has not reported it.
        DeniedUnreported,
        /// The run has reported the start, and the tool has not begun.
        Starting,
        Running,
        /// The tool has returned, and the run has not reported it.
        DoneUnreported,
        /// The tool was dropped.
        CutOff,
        /// The run has reported the result of a call that ran.
        Reported,
        /// The run has reported that the call did not run, or was cut off.
        ReportedWithoutResult,
        /// The call is for the program to answer.
        External,
        /// The call runs a sub-agent whose own calls wait.
        Suspended,
    }
}

axis! {
    /// The cause that interrupts the run.
    Cause {
        /// The run is dropped, or its process is killed.
        Drop,
        Interrupt,
        StopAfterTurn,
        TimeLimit,
        /// A time limit with time for a last turn.
        WrapUp,
        ProviderFails,
        ToolPanics,
        /// A hook panics before or after the next call.
        HookFails,
        /// The next write of the store or the engine fails.
        WriteFails,
    }
}

axis! {
    /// How the program continues.
    Then {
        /// It answers the calls that wait, or continues the unfinished run or attempt.
        Resume,
        /// It starts a run with new input.
        NewInput,
        /// It submits the verdicts again that it has submitted before.
        SameVerdicts,
    }
}

/// Where a call is when its run is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    pub(crate) machine: Machine,
    pub(crate) stage: Stage,
    pub(crate) state: CallState,
    pub(crate) who: Who,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, stage, state, who } = self;
        write!(f, "{machine:?} / {stage:?} / {state:?} / {who:?}")
    }
}

impl Position {
    /// All combinations of the axes.
    pub(crate) fn all_on(machine: Machine) -> impl Iterator<Item = Self> {
        let of_stage = move |stage: &'static Stage| {
            let of_state = move |state: &'static CallState| {
                let position =
                    move |who: &Who| Self { machine, stage: *stage, state: *state, who: *who };
                Who::ALL.iter().map(position)
            };
            CallState::ALL.iter().flat_map(of_state)
        };
        Stage::ALL.iter().flat_map(of_stage)
    }

    /// Why no call can be here when its run is interrupted for the first time.
    pub(crate) fn impossible(self) -> Option<&'static str> {
        use CallState as S;

        let Self { machine, stage, state, who } = self;
        let is_external = matches!(who, Who::ExternalTool | Who::ExternalToolOfSubAgent);
        let is_elsewhere = matches!(who, Who::ToolElsewhere | Who::IdempotentToolElsewhere);
        let is_inner = matches!(
            who,
            Who::ToolOfSubAgent | Who::IdempotentToolOfSubAgent | Who::ExternalToolOfSubAgent
        );
        let is_reported = matches!(state, S::Reported | S::ReportedWithoutResult);
        let is_answered = matches!(state, S::Approved | S::DeniedUnreported);
        let is_at_work = matches!(state, S::Starting | S::Running | S::DoneUnreported);
        let is_durable = machine.is_durable();
        match (stage, state) {
            _ if is_elsewhere && machine != Machine::DurableWithWorker => {
                Some("only a worker runs calls elsewhere")
            }
            _ if is_external && (is_at_work || matches!(state, S::NotStarted | S::CutOff)) => {
                Some("an external call does not run")
            }
            (_, S::WaitsForVerdict) if is_external => Some("no event contains the request"),
            (_, S::External) if !is_external => Some("the run itself runs the call"),
            (_, S::Suspended) if who != Who::SubAgent => Some("only sub-agents are suspended"),
            (_, S::CutOff) if who == Who::SubAgent => {
                Some("a sub-agent counts as running until its call is reported")
            }
            (stage, S::CutOff) if stage != Stage::WrappingUp => {
                Some("nothing has dropped the tool yet")
            }
            (Stage::Saving, _) if machine == Machine::Agent => Some("the run writes nothing"),
            (Stage::BeforeRequest | Stage::TurnStreams, _) if !is_reported => {
                Some("the next request needs the results of all calls")
            }
            (Stage::BeforeTools, state) if !matches!(state, S::NotStarted | S::External) => {
                Some("at this stage, no call has been touched")
            }
            (Stage::BeforeTools, _) if is_inner => Some("the sub-agent has not started"),
            (Stage::WaitsForVerdicts, _) if is_at_work => Some("no tool runs at this stage"),
            (Stage::Suspended, state) if is_at_work || is_answered || state == S::NotStarted => {
                Some("a run ends only once all calls are reported or wait")
            }
            (_, S::DoneUnreported)
                if who != Who::SubAgent && (machine == Machine::Agent || is_inner) =>
            {
                Some("a result is reported by the poll that observes it")
            }
            (Stage::ToolsRun, S::DoneUnreported)
                if who != Who::SubAgent && machine == Machine::Session =>
            {
                Some("the store writes the result in the poll that observes it")
            }
            (Stage::Saving, S::NotStarted | S::Starting) if is_inner && is_durable => {
                Some("an engine records the results of all calls together")
            }
            (_, S::NotStarted | S::Starting)
                if is_inner && machine == Machine::DurableWithWorker =>
            {
                Some("no other call pauses the attempt: those calls have ended elsewhere")
            }
            (_, S::DeniedUnreported) if is_elsewhere => Some("the call runs nowhere"),
            (Stage::Saving, S::Running)
                if who == Who::ExclusiveTool && machine == Machine::Session =>
            {
                Some("no result arrives while an exclusive call runs")
            }
            (Stage::Saving, S::Running) if is_durable && who != Who::SubAgent => {
                Some("an engine records the results of all calls together")
            }
            (Stage::WaitsForVerdicts, S::NotStarted) if is_durable => {
                Some("a durable run examines all calls before one starts")
            }
            (Stage::WaitsForVerdicts, S::ReportedWithoutResult) if is_durable => {
                Some("the verdicts of a durable run arrive together")
            }
            (Stage::WaitsForVerdicts, S::Reported) if is_durable && is_external => {
                Some("the verdicts of a durable run arrive together")
            }
            (Stage::ToolsRun, S::ReportedWithoutResult) if is_durable && !is_inner => {
                Some("the results of calls that had to wait are recorded together")
            }
            (Stage::ToolsRun, S::Reported) if is_durable && who == Who::ExternalTool => {
                Some("the results of calls that had to wait are recorded together")
            }
            (Stage::WaitsForVerdicts, _)
                if is_inner && (is_answered || is_reported && is_external) =>
            {
                (!is_durable).then_some("the sub-agent is suspended, or runs")
            }
            (Stage::WaitsForVerdicts, S::NotStarted | S::ReportedWithoutResult) if is_inner => {
                Some("the sub-agent is suspended, or runs")
            }
            (Stage::WaitsForVerdicts, _) if who == Who::ExternalTool && !is_durable => {
                (state != S::External).then_some("the run does not wait for external results")
            }
            _ => None,
        }
    }
}

/// Positions that are possible, and that no scenario reaches, with the reason.
const NOT_REACHED: &[(Machine, Stage, CallState, &[Who], &str)] = &[
    (
        Machine::Session,
        Stage::Saving,
        CallState::Starting,
        &[
            Who::IdempotentTool,
            Who::ExclusiveTool,
            Who::SearchedTool,
            Who::ToolOfSubAgent,
            Who::IdempotentToolOfSubAgent,
        ],
        "the result of another call must arrive in the poll after the start",
    ),
    (
        Machine::Session,
        Stage::Saving,
        CallState::NotStarted,
        &[Who::ToolOfSubAgent, Who::IdempotentToolOfSubAgent],
        "the result of another call must arrive in the poll after the sub-agent's turn",
    ),
    (
        Machine::Durable,
        Stage::ToolsRun,
        CallState::NotStarted,
        &[Who::IdempotentTool, Who::ExclusiveTool, Who::SearchedTool, Who::SubAgent],
        "only a call over the budget has not started then, and in the scenarios it is a plain one",
    ),
    (
        Machine::DurableWithWorker,
        Stage::ToolsRun,
        CallState::NotStarted,
        &[
            Who::Tool,
            Who::IdempotentTool,
            Who::ExclusiveTool,
            Who::SearchedTool,
            Who::IdempotentToolElsewhere,
            Who::SubAgent,
        ],
        "only a call over the budget has not started then, and in the scenarios it is a plain one",
    ),
];

impl Position {
    /// Why no scenario reaches this position, although it is possible.
    pub(crate) fn not_reached(self) -> Option<&'static str> {
        let is_it = |(machine, stage, state, whos, _): &&(_, _, _, &[Who], _)| {
            (*machine, *stage, *state) == (self.machine, self.stage, self.state)
                && whos.contains(&self.who)
        };
        NOT_REACHED.iter().find(is_it).map(|(.., why)| *why)
    }
}

impl Machine {
    pub(crate) fn is_durable(self) -> bool {
        matches!(self, Self::Durable | Self::DurableWithWorker)
    }
}

impl Who {
    pub(crate) fn is_idempotent(self) -> bool {
        matches!(
            self,
            Self::IdempotentTool | Self::IdempotentToolElsewhere | Self::IdempotentToolOfSubAgent
        )
    }
}

impl Cause {
    /// Why this cause cannot occur on this machine.
    pub(crate) fn impossible_on(self, machine: Machine) -> Option<&'static str> {
        match (self, machine) {
            (Self::WriteFails, Machine::Agent) => Some("an agent's run writes nothing"),
            _ => None,
        }
    }

    /// Whether the agent has hooks for this cause.
    pub(crate) fn prepares_hooks(self) -> bool {
        self == Self::HookFails
    }

    /// Whether the agent has settings for this cause.
    pub(crate) fn prepares_agent(self) -> bool {
        matches!(self, Self::HookFails | Self::TimeLimit | Self::WrapUp)
    }

    /// Returns whether a result that was not reported before this cause may be lost. A reported
    /// result is stored.
    pub(crate) fn loses_unreported_results(self, machine: Machine, who: Who) -> bool {
        match self {
            // The result of a sub-agent is reported one poll after the end of the sub-agent.
            Self::Drop | Self::WriteFails => machine != Machine::Agent || who == Who::SubAgent,
            _ => false,
        }
    }
}
