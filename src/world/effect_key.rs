//! The keys of effects.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The key of an effect or of a drawn value. It is the same in every attempt at a run.
///
/// It is displayed as `run/iteration/kind/nth`, or `run/iteration/kind:name/nth` with a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectKey {
    /// The run, identified by the id of its starting history and the number of items in it. Two
    /// runs on clones of one history have the same value; [fork](crate::History::fork) the history
    /// to distinguish them.
    pub run: Arc<str>,
    /// The number of iterations of the loop's body so far; 0 before the first one.
    pub iteration: u32,
    /// The kind of effect or value.
    pub kind: EffectKind,
    /// The name that your own loop body gave a step; empty otherwise.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// The number of this effect among those of this kind and name in the iteration, from 1.
    pub nth: u32,
}

/// The kind of an effect or of a drawn value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectKind {
    /// Effect: hooks prepare a request.
    Prepared,
    /// Effect: the run waits for its pool; the value is whether it had to stop waiting without
    /// sending.
    GaveWay,
    /// Effect: a request and its turn.
    Turn,
    /// Effect: the tool calls of a turn run.
    Tools,
    /// Effect: a history is compacted.
    Compacted,
    /// Effect: validations and stop hooks run after the model stopped.
    AtStop,
    /// Effect: hooks decide whether the run stops after this turn.
    ShouldStop,
    /// Effect: the agent's [tool sources](crate::tool::ToolSource) list their tools; the value has
    /// the lists that changed.
    ToolsListed,
    /// Effect: a step of your own loop body.
    Step,
    /// Effect: the run waits for verdicts.
    Suspended,
    /// Drawn: an id.
    Id,
    /// Drawn: requests of the run's owner, such as an interrupt, and the limits that are reached.
    Facts,
    /// Drawn: messages of observing hooks for the next request.
    Notes,
    /// Drawn: input that the run's owner sent for the next request.
    Said,
    /// Drawn: items that the run's owner marks as void.
    Tombstones,
    /// Drawn: reports that tool calls had recorded before they were dropped.
    Reports,
    /// Drawn: input that arrived too late to be used.
    Undelivered,
}

impl EffectKind {
    /// The kind's name in snake case.
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
