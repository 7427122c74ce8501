//! The keys of effects.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Identifies an effect or a recorded nondeterministic value. The key of an effect or value is the
/// same in every attempt at a run.
///
/// A key is displayed as `run/iteration/kind/nth`, or as `run/iteration/kind:name/nth` if it
/// contains a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectKey {
    /// The run, identified by the id of the history with which it starts and the number of items in
    /// that history. Two runs that start from clones of the same history have the same `run` value.
    /// To distinguish such runs, [fork](crate::History::fork) the history.
    pub run: Arc<str>,
    /// The number of iterations that the run's loop has started so far, or 0 before the first
    /// iteration.
    pub iteration: u32,
    /// The kind of effect or recorded value.
    pub kind: EffectKind,
    /// The name that a custom loop body gave to a step. The name is empty for effects other than
    /// steps.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// The position of this effect among the iteration's effects with the same kind and name,
    /// starting at 1.
    pub nth: u32,
}

/// The kind of an effect or of a recorded nondeterministic value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectKind {
    /// An effect in which hooks prepare a request.
    PreparedRequest,
    /// An effect in which the run waits for tokens and a slot from its shared pool. The effect's
    /// value indicates whether the run stopped waiting without sending the request.
    PoolWait,
    /// An effect in which a request is sent and the resulting turn is received.
    Turn,
    /// An effect in which a turn's tool calls are executed.
    ToolCalls,
    /// An effect in which the provider counts the tokens of a request, if the
    /// [window](crate::context::Window::with_provider_counts) asks for it.
    TokenCount,
    /// An effect in which the history is compacted.
    Compaction,
    /// An effect in which validations and stop hooks are executed after the model has stopped.
    StopReview,
    /// An effect in which hooks decide whether the run stops after the current turn.
    ShouldStop,
    /// An effect in which the agent's [tool sources](crate::tool::ToolSource) list their tools. The
    /// effect's value contains the lists that have changed since the previous listing.
    ToolListing,
    /// An effect in which a custom loop body performs a step.
    Step,
    /// An effect in which the run waits for verdicts.
    Suspension,
    /// A recorded value: the error because of which the run refuses its input. Drawn only if the
    /// input contains images or files.
    RefusedInput,
    /// A recorded value: a generated id.
    Id,
    /// A recorded value: the time of a request, in milliseconds since 1970. Drawn only if
    /// [prices](crate::usage::Prices::with_source) may depend on the time.
    RequestTime,
    /// A recorded value: requests from the run's owner, such as an interrupt, and limits that the
    /// run has reached.
    Facts,
    /// A recorded value: messages from observing hooks, to be added to the next request.
    HookMessages,
    /// A recorded value: input that the run's owner sent for the next request.
    DeliveredInput,
    /// A recorded value: items that the run's owner marked as tombstones, a grant that the owner
    /// revoked, or usage that a hook has reported.
    Tombstones,
    /// A recorded value: the effect reports and known results of tool calls that were dropped.
    DroppedCalls,
    /// A recorded value: input that arrived too late to be used.
    UndeliveredInput,
}

impl EffectKind {
    /// Returns the name of the kind in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreparedRequest => "prepared_request",
            Self::PoolWait => "pool_wait",
            Self::Turn => "turn",
            Self::ToolCalls => "tool_calls",
            Self::TokenCount => "token_count",
            Self::Compaction => "compaction",
            Self::StopReview => "stop_review",
            Self::ShouldStop => "should_stop",
            Self::ToolListing => "tool_listing",
            Self::Step => "step",
            Self::Suspension => "suspension",
            Self::RefusedInput => "refused_input",
            Self::Id => "id",
            Self::RequestTime => "request_time",
            Self::Facts => "facts",
            Self::HookMessages => "hook_messages",
            Self::DeliveredInput => "delivered_input",
            Self::Tombstones => "tombstones",
            Self::DroppedCalls => "dropped_calls",
            Self::UndeliveredInput => "undelivered_input",
        }
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, iteration, kind, name, nth } = self;
        write!(f, "{run}/{iteration}/{}", kind.as_str())?;
        if !name.is_empty() {
            write!(f, ":{name}")?;
        }
        write!(f, "/{nth}")
    }
}
