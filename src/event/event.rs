//! The events of a run.

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
    /// Items were appended to the history.
    Appended {
        /// Where the items come from.
        why: AppendReason,
        /// The id of the receipt that the sender of the items got, or else a generated id.
        id: String,
        /// The items.
        items: Vec<Item>,
    },
    /// Entries `from..to` of the history were replaced. If a compaction failed but used tokens,
    /// nothing is replaced: `from` equals `to`, and `items` is empty.
    Rewritten {
        /// Why they were replaced.
        why: RewriteReason,
        /// The index of the first entry that was replaced.
        from: usize,
        /// The index after the last entry that was replaced.
        to: usize,
        /// The entries that replace them.
        items: Vec<Item>,
        /// The tokens used to make the replacement, void attempts included. They count for the run.
        /// Not serialized if it is zero.
        usage: Usage,
    },
    /// A request is about to be sent.
    TurnStarted {
        /// The number of this model call within the run, from 1.
        turn: u32,
        /// The requested model. A provider made of several providers reports the first one's model;
        /// the model that answered is in the [turn](Turn::model).
        model: String,
        /// Why the run continued; `None` for the first call.
        transition: Option<Transition>,
    },
    /// An event of the turn that streams.
    Turn(TurnEvent),
    /// An event of a tool call.
    Tool(ToolEvent),
    /// An event of a sub-agent that runs as the tool call `call_id`.
    Nested {
        /// The parent's call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The sub-agent's event.
        event: Box<Event>,
    },
    /// The run continues with another request.
    Continued {
        /// Why it continues.
        reason: Transition,
    },
    /// The run ended. This is the last event; if the run failed, the stream then yields its error.
    Finished(Box<Outcome>),
    /// An event of a later version. It is never serialized, and every fold ignores it.
    Unknown,
}

/// The events of tool calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum ToolEvent {
    /// The call must be approved before it runs.
    #[serde(rename = "approval_requested")]
    ApprovalRequested(ToolCall),
    /// The tool starts to run.
    #[serde(rename = "tool_started")]
    Started {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
    },
    /// The tool reports its progress.
    #[serde(rename = "tool_progress")]
    Progress {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The progress report, in the tool's own format.
        data: RawJson,
    },
    /// The sub-agent that runs as this call was suspended, because calls of its own wait for a
    /// verdict or an external result. The call stays open until the run is
    /// [resumed](crate::Agent::resume): the call then starts again, and its sub-agent continues. If
    /// the run ends with a reason other than `pending`, the call is answered like any other call
    /// without a result.
    #[serde(rename = "tool_suspended")]
    Suspended {
        /// The call.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The calls that wait, with paths relative to the sub-agent.
        pending: Vec<PendingCall>,
        /// The sub-agent's history so far. The run's history stores it with the call.
        nested: Box<History>,
    },
    /// The call has its result. This is the last event of the call.
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
    /// The piece of text, if this is a text delta.
    pub fn text_delta(&self) -> Option<&Text> {
        match self {
            Self::Turn(event) => event.text_delta(),
            _ => None,
        }
    }

    /// The finished turn, if this is its last event.
    pub fn turn_complete(&self) -> Option<&std::sync::Arc<Turn>> {
        match self {
            Self::Turn(event) => event.turn_complete(),
            _ => None,
        }
    }

    /// The result of a tool, if this event has one.
    pub fn tool_output(&self) -> Option<&ToolResult> {
        match self {
            Self::Tool(ToolEvent::Output(result)) => Some(result),
            _ => None,
        }
    }

    /// The call that waits for an approval, if this event requests one. Requests of a sub-agent's
    /// calls are wrapped in `Nested` and not returned here: see
    /// [`approval_request`](Self::approval_request).
    pub fn as_approval_request(&self) -> Option<&ToolCall> {
        match self {
            Self::Tool(ToolEvent::ApprovalRequested(call)) => Some(call),
            _ => None,
        }
    }

    /// The call that waits for an approval, if this event requests one, with the path to the call
    /// if it is a sub-agent's. Pass it to [`RunHandle::approve`](crate::RunHandle::approve).
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

    /// The innermost event, without the `Nested` wrappers of sub-agents.
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

    /// Whether the event replaces items of the history. A `rewritten` event that only reports the
    /// tokens of a failed compaction replaces none.
    pub fn is_rewrite(&self) -> bool {
        matches!(self, Self::Rewritten { from, to, items, .. } if from < to || !items.is_empty())
    }

    /// Whether the event appends or replaces items other than by a turn or a tool result.
    pub(crate) fn changes_items(&self) -> bool {
        matches!(self, Self::Appended { .. } | Self::Rewritten { .. })
    }

    /// The outcome, if this is the end of the run.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Finished(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl ToolEvent {
    /// The id of the call that the event is about.
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
