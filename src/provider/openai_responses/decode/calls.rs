//! One function call while it streams, and several in one: a wrapper that models write now and then
//! though it was not declared.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::frames::WireItem;
use super::text::Agreement;
use crate::error::Error;
use crate::provider::openai::{arguments, malformed_arguments};
use crate::turn::TurnBuilder;

/// The names under which the wrapper was seen.
const WRAPPERS: &[&str] = &["parallel", "multi_tool_use.parallel", "multi_tool_use_parallel"];

/// A function call: what is known of it, and how much of that the turn knows.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Arguments that it began with; deltas win over them.
    initial: String,
    /// Whether the turn knows of it.
    pub(super) started: bool,
    end: End,
    /// A piece of its arguments was none, and their whole was not told since.
    broken: bool,
    /// It may wrap others, so that nothing is said of it before its end.
    pub(super) held: bool,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// Its own end was seen.
    Whole,
    /// The provider says that it was cut off.
    CutOff,
}

impl Call {
    /// Takes what an item tells of the call beside its arguments.
    pub(super) fn describe(&mut self, item: &WireItem<'_>, declared: &[String]) {
        if self.id.is_empty() {
            item.call_id.or_empty().clone_into(&mut self.id);
        }
        self.rename(item.name.or_empty(), declared);
    }

    pub(super) fn rename(&mut self, name: &str, declared: &[String]) {
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
            // No declared tool has the name of the wrapper.
            self.held = WRAPPERS.contains(&name)
                && !declared.is_empty()
                && !declared.iter().any(|tool| tool == name);
        }
    }

    /// The item as it is added.
    pub(super) fn begin(
        &mut self,
        item: &WireItem<'_>,
        declared: &[String],
        key: u32,
        turn: &mut TurnBuilder,
    ) {
        self.describe(item, declared);
        self.initial = arguments(item.arguments).unwrap_or_default().into_owned();
        self.start(key, turn);
    }

    /// A piece of the arguments; `None` if there was something that is no text.
    pub(super) fn delta(&mut self, piece: Option<&str>, key: u32, turn: &mut TurnBuilder) {
        // Its arguments were told as a whole already.
        if self.end != End::Open {
            return;
        }
        let Some(piece) = piece else {
            self.broken = true;
            return;
        };
        self.arguments.push_str(piece);
        match self.started {
            true => turn.push_tool_call_args(key, piece),
            false => self.start(key, turn),
        }
    }

    /// Its own end, with all of its arguments where the event tells them; `None` if there was
    /// something that is no text.
    ///
    /// An end without arguments leaves those that streamed, or those that it began with.
    pub(super) fn finish(
        &mut self,
        told: Option<Cow<'_, str>>,
        cut_off: bool,
        key: u32,
        turn: &mut TurnBuilder,
    ) -> Result<Agreement, Error> {
        let told = told.ok_or_else(malformed_arguments)?;
        if self.end == End::Open && self.arguments.is_empty() && told.is_empty() {
            let initial = std::mem::take(&mut self.initial);
            self.delta(Some(&initial), key, turn);
        }
        let agreement = match &*told {
            "" => Agreement::Agrees,
            told => {
                self.broken = false;
                self.compare(told, key, turn)
            }
        };
        match (cut_off, self.end) {
            (true, _) => self.end = End::CutOff,
            (false, End::Open) if self.broken => return Err(malformed_arguments()),
            (false, End::Open) => {
                self.end = End::Whole;
                // One that differs is said again, and ends then; one that is unsaid is said later.
                if self.started && agreement == Agreement::Agrees {
                    turn.end_tool_call(key);
                }
            }
            (false, End::Whole | End::CutOff) => {}
        }
        Ok(agreement)
    }

    fn compare(&mut self, text: &str, key: u32, turn: &mut TurnBuilder) -> Agreement {
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        match text.strip_prefix(self.arguments.as_str()) {
            Some("") => Agreement::Agrees,
            Some(rest) if self.end == End::Open => {
                self.delta(Some(rest), key, turn);
                Agreement::Agrees
            }
            _ if value(text).is_some_and(|told| value(&self.arguments) == Some(told)) => {
                Agreement::Agrees
            }
            _ => {
                text.clone_into(&mut self.arguments);
                // What nobody saw need not be taken back.
                if self.started { Agreement::Differs } else { Agreement::Agrees }
            }
        }
    }

    /// Whether it is written to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.end == End::Whole && !self.name.is_empty()
    }

    /// Says everything: late, or once more after a retraction. Nothing without a name.
    pub(super) fn say(&mut self, key: u32, turn: &mut TurnBuilder) {
        if self.name.is_empty() {
            return;
        }
        self.started = true;
        turn.start_tool_call(key, &self.id, &self.name);
        turn.push_tool_call_args(key, &self.arguments);
        if self.end == End::Whole {
            turn.end_tool_call(key);
        }
    }

    fn start(&mut self, key: u32, turn: &mut TurnBuilder) {
        if self.started || self.held || self.name.is_empty() || self.id.is_empty() {
            return;
        }
        self.say(key, turn);
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Wrapper<'a> {
    tool_uses: Vec<Use<'a>>,
}

/// A call inside the wrapper.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct Use<'a> {
    recipient_name: String,
    pub(super) parameters: &'a RawValue,
}

impl Use<'_> {
    pub(super) fn name(&self) -> &str {
        self.recipient_name.strip_prefix("functions.").unwrap_or(&self.recipient_name)
    }
}

/// The calls inside the wrapper: all of them calls of declared tools with an object as arguments,
/// or none.
pub(super) fn expanded<'a>(arguments: &'a str, declared: &[String]) -> Option<Vec<Use<'a>>> {
    let Wrapper { tool_uses } = serde_json::from_str(arguments).ok()?;
    let fits = |one: &Use<'_>| {
        one.parameters.get().starts_with('{') && declared.iter().any(|tool| tool == one.name())
    };
    (!tool_uses.is_empty() && tool_uses.iter().all(fits)).then_some(tool_uses)
}
