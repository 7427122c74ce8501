//! The tool calls in a turn, and whether they may run.

use std::iter::FilterMap;
use std::slice;

use crate::item::{Item, ResultKind, StopReason, ToolCall};
use crate::turn::Turn;
use crate::turn::turn::valid_call;

/// The tool calls in a complete turn.
///
/// A `Calls` value can be obtained only from [`Turn::calls`]. The calls may run only if a
/// [`TurnBuilder`](crate::turn::TurnBuilder) completed the turn after receiving a terminal marker.
/// The calls in a deserialized turn must not run.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    turn: &'a Turn,
    veto: Option<Veto>,
}

/// The reason why none of a turn's calls may run. Instead of running, each call gets a result with
/// this kind and message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Veto {
    /// The kind of result that the calls get.
    pub result_kind: ResultKind,
    /// The text of the results, which tells the model what happened and how to react.
    pub message: &'static str,
}

impl Turn {
    /// Returns the tool calls, along with the reason why they must not run, if any.
    pub fn calls(&self) -> Calls<'_> {
        Calls { turn: self, veto: veto_for(self) }
    }
}

impl<'a> Calls<'a> {
    /// Returns the reason why none of the calls may run, or `None` if they may run.
    pub fn veto(&self) -> Option<Veto> {
        self.veto
    }

    /// Returns an iterator over the calls, in the order in which the model wrote them.
    ///
    /// ```
    /// # use turnstream::Turn;
    /// fn names(turn: &Turn) -> Vec<&str> {
    ///     let mut names = Vec::new();
    ///     for call in turn.calls() {
    ///         names.push(call.name.as_str());
    ///     }
    ///     names
    /// }
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &'a ToolCall> + use<'a> {
        self.turn.tool_calls()
    }

    /// Returns the number of calls.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether the turn contains no calls. After such a turn, a hand-written loop usually
    /// ends.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Iterates over the calls in the order in which the model wrote them, like [`Calls::iter`].
impl<'a> IntoIterator for Calls<'a> {
    type Item = &'a ToolCall;
    type IntoIter = FilterMap<slice::Iter<'a, Item>, fn(&'a Item) -> Option<&'a ToolCall>>;

    fn into_iter(self) -> Self::IntoIter {
        self.turn.items().iter().filter_map(valid_call)
    }
}

fn veto_for(turn: &Turn) -> Option<Veto> {
    let (kind, why) = match turn.stop_reason() {
        StopReason::Stop | StopReason::ToolCalls => {
            if turn.built {
                return None;
            }
            (ResultKind::Skipped, "Not run: this turn was read from a recording, not from a model.")
        }
        StopReason::MaxTokens => (
            ResultKind::Truncated,
            "Not run: the reply was cut off by the output limit. Call the tool again, with shorter \
             arguments or fewer calls in one reply.",
        ),
        StopReason::ContextWindow => (
            ResultKind::Truncated,
            "Not run: the reply was cut off because the context window is full.",
        ),
        StopReason::ContentFilter => {
            (ResultKind::Skipped, "Not run: the reply was cut off by a content filter.")
        }
        StopReason::Refusal => (ResultKind::Skipped, "Not run: the reply is a refusal."),
        StopReason::Pause => (
            ResultKind::Skipped,
            "Not run: the provider paused the turn. Call the tool again if it is still needed.",
        ),
        StopReason::Interrupted => (ResultKind::Interrupted, "Not run: the reply was interrupted."),
        StopReason::Other(_) => (
            ResultKind::Skipped,
            "Not run: the reply ended for a reason that is not understood. Call the tool again if \
             it is still needed.",
        ),
    };
    Some(Veto { result_kind: kind, message: why })
}
