//! The keys of effects.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The key of an effect or of a drawn value. The key is the same in every attempt at a run.
///
/// The key is displayed as `run/iteration/kind/nth`, or as `run/iteration/kind:name/nth` if it has
/// a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectKey {
    /// The run, identified by the id of its starting history and the number of items in that
    /// history. Two runs on clones of one history have the same value; [fork](crate::History::fork)
    /// the history to distinguish the runs.
    pub run: Arc<str>,
    /// The number of iterations of the loop's body so far; 0 before the first iteration.
    pub iteration: u32,
    /// The kind of effect or value.
    pub kind: EffectKind,
    /// The name that your own loop body gave to a step; empty for all other effects.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// The number of this effect among the effects of this kind and name in the iteration, counted
    /// from 1.
    pub nth: u32,
}

/// The kind of an effect or of a drawn value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectKind {
    /// An effect in which hooks prepare a request.
    Prepared,
    /// An effect in which the run waits for its pool. The value is whether the run had to stop
    /// waiting without sending the request.
    GaveWay,
    /// An effect that consists of a request and its turn.
    Turn,
    /// An effect in which the tool calls of a turn run.
    Tools,
    /// An effect in which a history is compacted.
    Compacted,
    /// An effect in which validations and stop hooks run after the model has stopped.
    AtStop,
    /// An effect in which hooks decide whether the run stops after this turn.
    ShouldStop,
    /// An effect in which the agent's [tool sources](crate::tool::ToolSource) list their tools. The
    /// value contains the tool lists that changed.
    ToolsListed,
    /// An effect that is a step of your own loop body.
    Step,
    /// An effect in which the run waits for verdicts.
    Suspended,
    /// A drawn value: an id.
    Id,
    /// A drawn value: requests of the run's owner, such as an interrupt, and the limits that are
    /// reached.
    Facts,
    /// A drawn value: messages of observing hooks for the next request.
    Notes,
    /// A drawn value: input that the run's owner sent for the next request.
    Said,
    /// A drawn value: items that the run's owner marks as void.
    Tombstones,
    /// A drawn value: reports that tool calls had recorded before they were dropped.
    Reports,
    /// A drawn value: input that arrived too late to be used.
    Undelivered,
}

impl EffectKind {
    /// Returns the kind's name in snake case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::GaveWay => "gave_way",
            Self::Turn => "turn",
            Self::Tools => "tools",
            Self::Compacted => "compacted",
            Self::AtStop => "at_stop",
            Self::ShouldStop => "should_stop",
            Self::ToolsListed => "tools_listed",
            Self::Step => "step",
            Self::Suspended => "suspended",
            Self::Id => "id",
            Self::Facts => "facts",
            Self::Notes => "notes",
            Self::Said => "said",
            Self::Tombstones => "tombstones",
            Self::Reports => "reports",
            Self::Undelivered => "undelivered",
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
