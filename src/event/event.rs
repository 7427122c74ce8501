//! The events that a run yields.

use serde::{Deserialize, Serialize};

use crate::event::{AppendReason, GrantChange, Outcome, RewriteReason, Transition};
use crate::item::{Grant, History, Item, PendingCall, RawJson, ToolResult};
use crate::turn::{Text, Turn, TurnEvent};
use crate::usage::Usage;

/// An event from a run.
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
        /// The source of the items.
        why: AppendReason,
        /// The id of the receipt that the sender of the items received, or a generated id if no
        /// receipt was issued.
        id: String,
        /// The items that were appended.
        items: Vec<Item>,
    },
    /// The history's entries `from..to` were replaced. If a compaction used tokens but failed, no
    /// entries are replaced; in this case, `from` equals `to`, and `items` is empty.
    Rewritten {
        /// The reason why the entries were replaced.
        why: RewriteReason,
        /// The index of the first entry that was replaced.
        from: usize,
        /// One past the index of the last entry that was replaced.
        to: usize,
        /// The replacement entries.
        items: Vec<Item>,
        /// The tokens used to create the replacement, including those used for discarded attempts.
        /// These tokens count towards the run's usage. The field is not serialized if the usage is
        /// zero.
        usage: Box<Usage>,
        /// The name of the model that wrote the replacement, if a model did and its name is known.
        model: Option<String>,
    },
    /// A request is about to be sent.
    TurnStarted {
        /// The number of this model call within the run, counted from 1.
        turn: u32,
        /// The requested model. If several providers are combined, this is the first provider's
        /// model; the model that actually answered is recorded in the [turn](Turn::model).
        model: String,
        /// The reason why the run sends another request; `None` for the first request.
        transition: Option<Transition>,
    },
    /// An event from the turn that is currently streaming.
    Turn(TurnEvent),
    /// An event from a tool call.
    Tool(ToolEvent),
    /// An event from a sub-agent that runs as the tool call `call_id`.
    Nested {
        /// The id of the tool call that runs the sub-agent.
        call_id: String,
        /// The name of the tool that runs the sub-agent.
        name: String,
        /// The sub-agent's event.
        event: Box<Event>,
    },
    /// A hook has sent a request of its own, and has
    /// [reported](crate::agent::State::report_helper) the tokens that the request used. These
    /// tokens count towards the run's usage.
    HelperUsage {
        /// The purpose of the request, as named by the hook.
        purpose: String,
        /// The name of the model that answered, if it is known.
        model: Option<String>,
        /// The tokens that the request used.
        usage: Box<Usage>,
    },
    /// The run continues with another request.
    Continued {
        /// The reason why the run continues.
        reason: Transition,
    },
    /// The run ended. This event is the run's last event. If the run failed, the stream yields the
    /// run's error after this event.
    Finished(Box<Outcome>),
    /// An event of a kind that was added in a later version. This variant is never serialized, and
    /// every consumer in this crate ignores unknown events.
    Unknown,
}

/// An event from a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum ToolEvent {
    /// The tool call must be approved before it runs. The call's
    /// [path](crate::item::PendingCall::path) is empty: it is the path within the agent that made
    /// the call.
    #[serde(rename = "approval_requested")]
    ApprovalRequested(Box<PendingCall>),
    /// The tool starts running.
    #[serde(rename = "tool_started")]
    Started {
        /// The id of the call.
        call_id: String,
        /// The name of the tool.
        name: String,
        /// The arguments that the tool receives, as a JSON string. They differ from those that the
        /// model wrote if a hook has repaired or rewritten them, and are the arguments that an
        /// approver has seen.
        #[serde(default)]
        arguments: String,
        /// The id of the [grant](Grant) that let the call run without a request for an approval.
        /// `None` if the call needed no approval, or was approved itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant_id: Option<Box<str>>,
    },
    /// A call was approved with a grant, which allows further calls to its tool. The
    /// [`agent_path`](Grant::agent_path) is empty: it is the path within the agent that made the
    /// call. [`Event::grant_change`](crate::Event::grant_change) returns the grant with its path.
    #[serde(rename = "grant_added")]
    GrantAdded {
        /// The id of the approved call.
        call_id: String,
        /// The grant.
        grant: Box<Grant>,
    },
    /// A grant was revoked. Only the run in which it was revoked reports this, not its sub-agents.
    #[serde(rename = "grant_revoked")]
    GrantRevoked {
        /// The id of the grant.
        grant_id: String,
    },
    /// The tool reports its progress.
    #[serde(rename = "tool_progress")]
    Progress {
        /// The id of the call.
        call_id: String,
        /// The name of the tool.
        name: String,
        /// The reported progress, in the tool's own format.
        data: RawJson,
    },
    /// The sub-agent that runs as this call was suspended, because some of its own calls are
    /// waiting for a verdict or an external result. The call stays open until the run is
    /// [resumed](crate::Agent::resume). When the run is resumed, the call starts again, and its
    /// sub-agent continues. If the run ends with a reason other than `pending`, the call gets a
    /// result in the same way as any other unanswered call.
    #[serde(rename = "tool_suspended")]
    Suspended {
        /// The id of the call.
        call_id: String,
        /// The name of the tool.
        name: String,
        /// The sub-agent's pending calls, with paths relative to the sub-agent.
        pending: Vec<PendingCall>,
        /// The sub-agent's history so far, which is stored with the call in the run's history.
        nested: Box<History>,
    },
    /// The tool call has a result. This event is the call's last event.
    #[serde(rename = "tool_output")]
    Output(ToolResult),
    /// An event from a sub-agent that runs as this call. This variant converts to
    /// [`Event::Nested`].
    #[serde(rename = "nested")]
    Nested {
        /// The id of the call.
        call_id: String,
        /// The name of the tool.
        name: String,
        /// The sub-agent's event.
        event: Box<Event>,
    },
}

impl Event {
    /// Returns the new text, if this event is a text delta. Returns `None` for an event from a
    /// sub-agent, which is in [`Nested`](Self::Nested).
    pub fn text_delta(&self) -> Option<&Text> {
        match self {
            Self::Turn(event) => event.text_delta(),
            _ => None,
        }
    }

    /// Returns the complete turn, if this event completes a turn of this run, and not of a
    /// sub-agent.
    pub fn turn_complete(&self) -> Option<&std::sync::Arc<Turn>> {
        match self {
            Self::Turn(event) => event.turn_complete(),
            _ => None,
        }
    }

    /// Returns the tool result, if this event contains one of this run, and not of a sub-agent.
    pub fn tool_output(&self) -> Option<&ToolResult> {
        match self {
            Self::Tool(ToolEvent::Output(result)) => Some(result),
            _ => None,
        }
    }

    /// Returns the tool call awaiting approval, if this event is an approval request. If the call
    /// was made by a sub-agent, the returned value includes the path to the call. Pass the returned
    /// call to [`RunHandle::approve`](crate::RunHandle::approve).
    ///
    /// ```
    /// use turnstream::event::{Event, ToolEvent};
    ///
    /// let json = r#"{"approval_id":"a1","call_id":"c2","name":"delete","arguments":"{}"}"#;
    /// let asks = Event::from(ToolEvent::ApprovalRequested(serde_json::from_str(json)?));
    /// let (call_id, name) = ("c1".to_owned(), "cleaner".to_owned());
    /// let nested = Event::Nested { call_id, name, event: Box::new(asks) };
    /// assert_eq!(nested.approval_request().unwrap().path, ["c1"]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn approval_request(&self) -> Option<PendingCall> {
        let mut path = Vec::new();
        let mut event = self;
        while let Self::Nested { call_id, event: inner, .. } = event {
            path.push(call_id.clone());
            event = inner;
        }
        match event {
            Self::Tool(ToolEvent::ApprovalRequested(call)) => {
                Some(PendingCall { path, ..(**call).clone() })
            }
            _ => None,
        }
    }

    /// Returns the change of the run's grants, if this event reports one. The path of an added
    /// grant includes the sub-agents that the event has passed.
    ///
    /// ```
    /// use turnstream::event::{Event, GrantChange, ToolEvent};
    ///
    /// let json = r#"{"type":"grant_added","call_id":"c2","grant":{"v":1,"id":"a1","tool":"rm",
    ///     "definition":"…","scope":"any_arguments","duration":"session"}}"#;
    /// let added = serde_json::from_str(json)?;
    /// let (call_id, name) = ("c1".to_owned(), "cleaner".to_owned());
    /// let nested = Event::Nested { call_id, name, event: Box::new(added) };
    /// let Some(GrantChange::Added(grant)) = nested.grant_change() else { panic!("no grant") };
    /// assert_eq!((&*grant.id, &*grant.agent_path), ("a1", &["cleaner".to_owned()][..]));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn grant_change(&self) -> Option<GrantChange> {
        match self.without_nesting() {
            Self::Tool(ToolEvent::GrantAdded { grant, .. }) => {
                let mut agent_path = Vec::new();
                let mut event = self;
                while let Self::Nested { name, event: inner, .. } = event {
                    agent_path.push(name.clone());
                    event = inner;
                }
                agent_path.extend(grant.agent_path.iter().cloned());
                Some(GrantChange::Added(Box::new(Grant { agent_path, ..(**grant).clone() })))
            }
            Self::Tool(ToolEvent::GrantRevoked { grant_id }) => {
                Some(GrantChange::Revoked { grant_id: grant_id.clone() })
            }
            _ => None,
        }
    }

    /// Returns the innermost event, without the `Nested` wrappers of sub-agents.
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

    /// Returns whether the event replaces items in the history. A `rewritten` event that only
    /// reports the tokens used by a failed compaction does not replace any items. After a
    /// replacement, positions in the history that a reader has kept may be wrong.
    pub fn is_rewrite(&self) -> bool {
        matches!(self, Self::Rewritten { from, to, items, .. } if from < to || !items.is_empty())
    }

    /// Returns whether the event appends or replaces items, other than by adding a turn or a tool
    /// result.
    pub(crate) fn changes_items(&self) -> bool {
        matches!(self, Self::Appended { .. } | Self::Rewritten { .. })
    }

    /// Returns the run's outcome, if this event ends the run.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Finished(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl ToolEvent {
    /// Returns the id of the tool call to which the event belongs. The id is empty for a
    /// [`GrantRevoked`](Self::GrantRevoked), which belongs to no call.
    pub fn call_id(&self) -> &str {
        match self {
            Self::ApprovalRequested(call) => &call.call_id,
            Self::GrantRevoked { .. } => "",
            Self::Started { call_id, .. }
            | Self::GrantAdded { call_id, .. }
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
