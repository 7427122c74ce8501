//! Events as flat JSON objects.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{AppendReason, Event, Outcome, RewriteReason, Transition};
use crate::item::{Item, RawJson};
use crate::usage::Usage;

/// The serialized form of events, except for variants whose content has its own serialized form.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventRef<'a> {
    Appended {
        why: AppendReason,
        id: &'a str,
        items: &'a [Item],
    },
    Rewritten {
        why: RewriteReason,
        from: usize,
        to: usize,
        items: &'a [Item],
        #[serde(skip_serializing_if = "is_zero_usage")]
        usage: Usage,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<&'a str>,
    },
    TurnStarted {
        turn: u32,
        model: &'a str,
        transition: Option<Transition>,
    },
    Nested {
        call_id: &'a str,
        name: &'a str,
        event: &'a Event,
    },
    HelperUsage {
        purpose: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<&'a str>,
        usage: Usage,
    },
    Continued {
        reason: Transition,
    },
    Finished {
        outcome: &'a Outcome,
    },
}

fn is_zero_usage(usage: &Usage) -> bool {
    *usage == Usage::default()
}

/// The form in which events are deserialized, except for variants whose content is deserialized
/// directly.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventOwned {
    Appended {
        why: AppendReason,
        #[serde(default)]
        id: String,
        items: Vec<Item>,
    },
    Rewritten {
        why: RewriteReason,
        from: usize,
        to: usize,
        items: Vec<Item>,
        #[serde(default)]
        usage: Usage,
        #[serde(default)]
        model: Option<String>,
    },
    TurnStarted {
        turn: u32,
        #[serde(default)]
        model: String,
        #[serde(default)]
        transition: Option<Transition>,
    },
    Nested {
        call_id: String,
        #[serde(default)]
        name: String,
        event: Box<Event>,
    },
    HelperUsage {
        purpose: String,
        #[serde(default)]
        model: Option<String>,
        usage: Box<Usage>,
    },
    Continued {
        reason: Transition,
    },
    Finished {
        outcome: Box<Outcome>,
    },
}

impl From<EventOwned> for Event {
    fn from(read: EventOwned) -> Self {
        match read {
            EventOwned::Appended { why, id, items } => Self::Appended { why, id, items },
            EventOwned::Rewritten { why, from, to, items, usage, model } => {
                Self::Rewritten { why, from, to, items, usage: Box::new(usage), model }
            }
            EventOwned::TurnStarted { turn, model, transition } => {
                Self::TurnStarted { turn, model, transition }
            }
            // An unknown inner event makes the outer event unknown, because unknown events cannot
            // be serialized again.
            EventOwned::Nested { event, .. } if *event == Self::Unknown => Self::Unknown,
            EventOwned::Nested { call_id, name, event } => Self::Nested { call_id, name, event },
            EventOwned::HelperUsage { purpose, model, usage } => {
                Self::HelperUsage { purpose, model, usage }
            }
            EventOwned::Continued { reason } => Self::Continued { reason },
            EventOwned::Finished { outcome } => Self::Finished(outcome),
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self {
            Self::Turn(event) => return event.serialize(serializer),
            Self::Tool(event) => return event.serialize(serializer),
            Self::Unknown => {
                use serde::ser::Error as _;
                return Err(S::Error::custom("an unknown event is never written"));
            }
            Self::Appended { why, id, items } => EventRef::Appended { why: *why, id, items },
            Self::Rewritten { why, from, to, items, usage, model } => EventRef::Rewritten {
                why: *why,
                from: *from,
                to: *to,
                items,
                usage: **usage,
                model: model.as_deref(),
            },
            Self::TurnStarted { turn, model, transition } => {
                EventRef::TurnStarted { turn: *turn, model, transition: *transition }
            }
            Self::Nested { call_id, name, event } => EventRef::Nested { call_id, name, event },
            Self::HelperUsage { purpose, model, usage } => {
                EventRef::HelperUsage { purpose, model: model.as_deref(), usage: **usage }
            }
            Self::Continued { reason } => EventRef::Continued { reason: *reason },
            Self::Finished(outcome) => EventRef::Finished { outcome },
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;

        #[derive(Deserialize)]
        struct Tag {
            r#type: String,
        }

        // `type` determines how the other fields are parsed, so the event is first read as raw
        // JSON.
        let json = RawJson::deserialize(deserializer)?;
        let Tag { r#type } = json.deserialize_as().map_err(D::Error::custom)?;
        match r#type.as_str() {
            "text_delta"
            | "reasoning_delta"
            | "refusal_delta"
            | "tool_call_start"
            | "tool_call_args_delta"
            | "tool_call_end"
            | "usage_update"
            | "retrying"
            | "retracted"
            | "turn_complete" => json.deserialize_as().map(Self::Turn),
            "approval_requested" | "tool_started" | "tool_progress" | "tool_suspended"
            | "tool_output" | "grant_added" | "grant_revoked" => {
                json.deserialize_as().map(Self::Tool)
            }
            "appended" | "rewritten" | "turn_started" | "nested" | "helper_usage" | "continued"
            | "finished" => json.deserialize_as::<EventOwned>().map(Self::from),
            _ => Ok(Self::Unknown),
        }
        .map_err(D::Error::custom)
    }
}
