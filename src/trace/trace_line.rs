//! The lines of a written trace.

use serde::{Deserialize, Serialize};

use crate::trace::{IterationSpan, TraceEvent};

/// A line of a trace that was [written](super::Trace::write_to) as JSON lines.
///
/// The line of an iteration is its JSON with `"type":"iteration"`; that of a step has no `type`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceLine {
    /// A step.
    Step(Box<TraceEvent>),
    /// The end of an iteration.
    Iteration(IterationSpan),
}

impl TraceLine {
    /// Returns the step, unless the line is that of an iteration.
    pub fn into_step(self) -> Option<TraceEvent> {
        match self {
            Self::Step(step) => Some(*step),
            Self::Iteration(_) => None,
        }
    }

    /// Parses a line. Returns `None` if its type is unknown.
    pub(super) fn parse(line: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let LineType { kind } = serde_json::from_slice(line)?;
        Ok(match kind.as_deref() {
            None => Some(Self::Step(serde_json::from_slice(line)?)),
            Some(ITERATION) => Some(Self::Iteration(serde_json::from_slice(line)?)),
            Some(_) => None,
        })
    }
}

const ITERATION: &str = "iteration";

#[derive(Deserialize)]
struct LineType {
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

/// A line to be written.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
pub(super) enum LineRef<'a> {
    Step(&'a TraceEvent),
    Iteration(IterationLine<'a>),
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct IterationLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    span: &'a IterationSpan,
}

impl<'a> From<&'a TraceEvent> for LineRef<'a> {
    fn from(step: &'a TraceEvent) -> Self {
        Self::Step(step)
    }
}

impl<'a> From<&'a IterationSpan> for LineRef<'a> {
    fn from(span: &'a IterationSpan) -> Self {
        Self::Iteration(IterationLine { kind: ITERATION, span })
    }
}
