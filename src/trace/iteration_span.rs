//! The time of an iteration.

use serde::{Deserialize, Serialize};

use crate::event::Transition;
use crate::trace::StepTime;
use crate::trace::step_time::Moment;

/// An iteration of a run's loop that has ended: a request, the calls of the turn, and what precedes
/// and follows them, such as a compaction before the request and stop hooks after the turn.
///
/// The iterations of a run cover the whole time of the run. The first one begins with the run's
/// first event, and each of the others begins when the previous one ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IterationSpan {
    /// The number of the iteration's request, as in [`TraceEvent::turn`](crate::trace::TraceEvent),
    /// or 0 if the iteration sent no request.
    pub turn: u32,
    /// The ids of the calls that run the sub-agents, as in
    /// [`TraceEvent::within`](crate::trace::TraceEvent). The list is empty if this is an iteration of
    /// the run itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// The reason why another iteration followed, if the run reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued: Option<Transition>,
    /// When the iteration began and ended, if the trace [has a
    /// clock](crate::trace::Trace::with_clock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<StepTime>,
}

/// An iteration that has not ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenIteration {
    pub(super) began: Moment,
    /// The number of the iteration's request, or 0 if it has not sent one yet.
    pub(super) turn: u32,
}

impl OpenIteration {
    pub(super) fn new(began: Moment) -> Self {
        Self { began, turn: 0 }
    }

    pub(super) fn end(
        self,
        ended: Moment,
        within: &[String],
        continued: Option<Transition>,
    ) -> IterationSpan {
        let (turn, within) = (self.turn, within.to_vec());
        IterationSpan { turn, within, continued, time: self.began.until(ended) }
    }
}
