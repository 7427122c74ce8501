//! The names of effects.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of an effect or of a drawn value: the same in every attempt of a run.
///
/// It is shown as `run/iteration/kind/nth`, or `run/iteration/kind:name/nth` with a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectKey {
    /// The run: the id of the history that it began with, and how many items that had. Two runs on clones
    /// of one history have the same name; [fork](crate::History::fork) it to tell them apart.
    pub run: Arc<str>,
    /// How many times the body of the loop has begun; 0 before the first time.
    pub iteration: u32,
    /// What it does.
    pub kind: EffectKind,
    /// The name that a body of your own gave a step; empty otherwise.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub name: Arc<str>,
    /// Which effect of this kind and name it is in the iteration, from 1.
    pub nth: u32,
}

/// What an effect does, or what a drawn value tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EffectKind {
    /// Effect: hooks prepare a request.
    Prepared,
    /// Effect: the run waits for its pool; the value tells whether something else came up meanwhile.
    GaveWay,
    /// Effect: a request and its turn.
    Turn,
    /// Effect: the calls of a turn.
    Tools,
    /// Effect: a history is made shorter.
    Compacted,
    /// Effect: validations and stop hooks are asked when the model has stopped.
    AtStop,
    /// Effect: hooks are asked whether the run stops here.
    ShouldStop,
    /// Effect: the agent's [tool sources](crate::tool::ToolSource) list their tools; the value has the lists
    /// that have changed.
    ToolsListed,
    /// Effect: a step of a body of your own.
    Step,
    /// Effect: the wait for verdicts.
    Suspended,
    /// Drawn: an id.
    Id,
    /// Drawn: what holders of the run want, and which limits are reached.
    Facts,
    /// Drawn: what observing hooks want said in the next request.
    Notes,
    /// Drawn: what a holder of the run says before the next request.
    Said,
    /// Drawn: items that a holder makes void.
    Tombstones,
    /// Drawn: what calls that were dropped had put on record.
    Reports,
    /// Drawn: what holders said too late.
    Undelivered,
}

impl EffectKind {
    /// Its name in snake case.
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
