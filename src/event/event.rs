//! What a run gives out.

use serde::{Deserialize, Serialize};

use crate::event::{AppendReason, Outcome, RewriteReason, Transition};
use crate::item::{History, Item, PendingCall, RawJson, ToolCall, ToolResult};
use crate::turn::{Text, Turn, TurnEvent};
use crate::usage::Usage;

/// One event of a run.
///
/// ```
/// use turnstream::{Event, event::Transition};
///
/// let event = Event::Continued { reason: Transition::NextTurn };
/// let line = serde_json::to_string(&event)?;
/// assert_eq!(line, r#"{"type":"continued","reason":"next_turn"}"#);
/// assert_eq!(serde_json::from_str::<Event>(&line)?, event);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Items entered the history.
    Appended {
        /// Where they come from.
        why: AppendReason,
        /// The receipt of whoever handed them in, else drawn.
        id: String,
        /// The items.
        items: Vec<Item>,
    },
    /// Entries `from..to` of the history were replaced. A compaction that came to nothing and was paid for
    /// replaces none of them: `from` is `to`, and there are no items.
    Rewritten {
        /// What for.
        why: RewriteReason,
        /// The first entry that was replaced.
        from: usize,
        /// The first entry behind them that stays.
        to: usize,
        /// What stands there now.
        items: Vec<Item>,
        /// The tokens that it took to find out what stands there, void attempts included. They count
        /// for the run. Not written where there are none.
        usage: Usage,
    },
    /// A request is about to be sent.
    TurnStarted {
        /// Which model call of the run it is, from 1.
        turn: u32,
        /// The model that is asked. A provider made of several names its first; which one has
        /// answered is in the [turn](Turn::model).
        model: String,
        /// Why the run went on; `None` for the first.
        transition: Option<Transition>,
    },
    /// The turn streams.
    Turn(TurnEvent),
    /// Tools run.
    Tool(ToolEvent),
    /// An event of a sub-agent, which runs as the tool call `call_id`.
    Nested {
        /// The parent's call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The sub-agent's event.
        event: Box<Event>,
    },
    /// The run goes on.
    Continued {
        /// Why.
        reason: Transition,
    },
    /// The run is over. The last event; if the run failed, its error follows as the stream's `Err`.
    Finished(Box<Outcome>),
    /// An event of a later version. Never written, and every fold ignores it.
    Unknown,
}

/// What happens while tools run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum ToolEvent {
    /// Somebody has to approve the call before it runs.
    #[serde(rename = "approval_requested")]
    ApprovalRequested(ToolCall),
    /// The tool runs.
    #[serde(rename = "tool_started")]
    Started {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
    },
    /// The tool says how far it is.
    #[serde(rename = "tool_progress")]
    Progress {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// Whatever the tool says.
        data: RawJson,
    },
    /// The sub-agent that runs as this call was suspended, since calls of its own wait for a verdict
    /// or a result from outside. The call stays open until the run is [resumed](crate::Agent::resume):
    /// then it starts once more, and its sub-agent continues. If the run does not end as `pending`, the
    /// call is answered like every other that has no result.
    #[serde(rename = "tool_suspended")]
    Suspended {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The calls that wait, as the sub-agent sees them.
        pending: Vec<PendingCall>,
        /// What the sub-agent did until here. The run's history keeps it beside the call.
        nested: Box<History>,
    },
    /// The call has its result. No event of the call follows.
    #[serde(rename = "tool_output")]
    Output(ToolResult),
    /// An event of a sub-agent that runs as this call. As an [`Event`] it is [`Event::Nested`].
    #[serde(rename = "nested")]
    Nested {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The sub-agent's event.
        event: Box<Event>,
    },
}

impl Event {
    /// The piece of text, where this is one.
    pub fn text_delta(&self) -> Option<&Text> {
        match self {
            Self::Turn(event) => event.text_delta(),
            _ => None,
        }
    }

    /// The finished turn, where this is its end.
    pub fn turn_complete(&self) -> Option<&std::sync::Arc<Turn>> {
        match self {
            Self::Turn(event) => event.turn_complete(),
            _ => None,
        }
    }

    /// The result of a tool, where this is one.
    pub fn tool_output(&self) -> Option<&ToolResult> {
        match self {
            Self::Tool(ToolEvent::Output(result)) => Some(result),
            _ => None,
        }
    }

    /// The call that waits for an approval, if this event asks for one. A call of a sub-agent comes in
    /// `Nested`, and is not returned here: see [`approval_request`](Self::approval_request).
    pub fn as_approval_request(&self) -> Option<&ToolCall> {
        match self {
            Self::Tool(ToolEvent::ApprovalRequested(call)) => Some(call),
            _ => None,
        }
    }

    /// The call that waits for an approval, if this event asks for one, with the path to it if it is a
    /// sub-agent's. [`RunHandle::approve`](crate::RunHandle::approve) takes it.
    ///
    /// ```
    /// use turnstream::event::{Event, ToolEvent};
    /// use turnstream::item::ToolCall;
    ///
    /// let call = ToolCall { call_id: "c2".into(), name: "delete".into(), arguments: "{}".into() };
    /// let asks = Event::from(ToolEvent::ApprovalRequested(call));
    /// let (call_id, name) = ("c1".to_owned(), "cleaner".to_owned());
    /// let nested = Event::Nested { call_id, name, event: Box::new(asks) };
    /// assert_eq!(nested.approval_request().unwrap().path, ["c1"]);
    /// ```
    pub fn approval_request(&self) -> Option<PendingCall> {
        let mut path = Vec::new();
        let mut event = self;
        while let Self::Nested { call_id, event: inner, .. } = event {
            path.push(call_id.clone());
            event = inner;
        }
        let call = event.as_approval_request()?;
        Some(PendingCall { path, ..call.into() })
    }

    /// The event itself, taken out of all sub-agents that it is nested in.
    ///
    /// ```
    /// use turnstream::{Event, event::Transition};
    ///
    /// let event = Event::Continued { reason: Transition::NextTurn };
    /// let nested = Event::Nested {
    ///     call_id: "call_1_1".into(),
    ///     name: "research".into(),
    ///     event: Box::new(event.clone()),
    /// };
    /// assert_eq!(nested.without_nesting(), &event);
    /// assert_eq!(event.without_nesting(), &event);
    /// ```
    pub fn without_nesting(&self) -> &Self {
        let mut event = self;
        while let Self::Nested { event: inner, .. } = event {
            event = inner;
        }
        event
    }

    /// Whether items of the history are replaced. A `rewritten` event that only tells what a compaction
    /// that failed has cost replaces none.
    pub fn is_rewrite(&self) -> bool {
        matches!(self, Self::Rewritten { from, to, items, .. } if from < to || !items.is_empty())
    }

    /// Whether items are put into the history that no turn and no tool gave, or replaced.
    pub(crate) fn changes_items(&self) -> bool {
        matches!(self, Self::Appended { .. } | Self::Rewritten { .. })
    }

    /// The outcome, where this is the end of the run.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Finished(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl ToolEvent {
    /// The call that the event is about.
    pub fn call_id(&self) -> &str {
        match self {
            Self::ApprovalRequested(call) => &call.call_id,
            Self::Started { call_id, .. }
            | Self::Progress { call_id, .. }
            | Self::Suspended { call_id, .. }
            | Self::Nested { call_id, .. } => call_id,
            Self::Output(result) => &result.call_id,
        }
    }
}

impl From<TurnEvent> for Event {
    fn from(event: TurnEvent) -> Self {
        Self::Turn(event)
    }
}

impl From<ToolEvent> for Event {
    fn from(event: ToolEvent) -> Self {
        match event {
            ToolEvent::Nested { call_id, name, event } => Self::Nested { call_id, name, event },
            event => Self::Tool(event),
        }
    }
}
