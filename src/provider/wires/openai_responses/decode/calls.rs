//! Function calls that are being streamed, and wrapper calls, which combine several calls into one.
//! Models sometimes call a wrapper tool that the request does not declare.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::frames::WireItem;
use super::text::Comparison;
use crate::error::Error;
use crate::item::from_bounded_json;
use crate::provider::wires::openai::{arguments_text, malformed_arguments_error};
use crate::request::{ToolNames, ToolSpecs};
use crate::turn::TurnBuilder;

/// The names of the undeclared wrapper tools that models call.
const WRAPPER_TOOLS: &[&str] = &["parallel", "multi_tool_use.parallel", "multi_tool_use_parallel"];

/// The tools that a request declares, and the names under which the server sees them.
#[derive(Debug, Default)]
pub(super) struct DeclaredTools {
    pub(super) specs: ToolSpecs,
    pub(super) names: ToolNames,
}

/// The state of a function call that is being streamed.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The arguments from the start event, which any deltas override.
    initial_arguments: String,
    /// Whether the call has been added to the turn.
    pub(super) is_started: bool,
    end: CallEnd,
    /// Whether a piece of the arguments was malformed and the complete arguments have not arrived
    /// since.
    is_broken: bool,
    /// Whether this call may be a wrapper call, which must be complete before any part of it is
    /// emitted.
    pub(super) may_be_wrapper: bool,
}

/// Whether and how a call has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CallEnd {
    #[default]
    Open,
    /// The call's end event has been received.
    Complete,
    /// The provider has reported that the call was truncated.
    Truncated,
}

impl Call {
    /// Sets the call's id and name from an item.
    pub(super) fn update_identity(&mut self, item: &WireItem<'_>, declared: &DeclaredTools) {
        if self.id.is_empty() {
            item.call_id.or_empty().clone_into(&mut self.id);
        }
        self.set_name(item.name.or_empty(), declared);
    }

    pub(super) fn set_name(&mut self, name: &str, declared: &DeclaredTools) {
        if self.name.is_empty() {
            let name = declared.names.own_name(name);
            name.clone_into(&mut self.name);
            // A declared tool with this name is not a wrapper.
            self.may_be_wrapper = WRAPPER_TOOLS.contains(&name)
                && !declared.specs.is_empty()
                && !declared.specs.contains_name(name);
        }
    }

    /// Handles the start event for the call's item.
    pub(super) fn start_from_item(
        &mut self,
        item: &WireItem<'_>,
        declared: &DeclaredTools,
        key: u32,
        turn: &mut TurnBuilder,
    ) {
        self.update_identity(item, declared);
        self.initial_arguments = arguments_text(item.arguments).unwrap_or_default().into_owned();
        self.emit_start(key, turn);
    }

    /// Appends a piece to the call's arguments. `piece` is `None` if the received value is not a
    /// string.
    pub(super) fn push_delta(&mut self, piece: Option<&str>, key: u32, turn: &mut TurnBuilder) {
        // The complete arguments have already been received.
        if self.end != CallEnd::Open {
            return;
        }
        let Some(piece) = piece else {
            self.is_broken = true;
            return;
        };
        self.arguments.push_str(piece);
        match self.is_started {
            true => turn.push_tool_call_args(key, piece),
            false => self.emit_start(key, turn),
        }
    }

    /// Handles one of the call's end events. `final_arguments` contains the complete arguments, or
    /// is `None` if they are not a string.
    ///
    /// If the event contains no arguments, the streamed arguments or the arguments from the start
    /// event are used.
    pub(super) fn finish(
        &mut self,
        final_arguments: Option<Cow<'_, str>>,
        cut_off: bool,
        key: u32,
        turn: &mut TurnBuilder,
    ) -> Result<Comparison, Error> {
        let final_arguments = final_arguments.ok_or_else(malformed_arguments_error)?;
        if self.end == CallEnd::Open && self.arguments.is_empty() && final_arguments.is_empty() {
            let initial = std::mem::take(&mut self.initial_arguments);
            self.push_delta(Some(&initial), key, turn);
        }
        let agreement = match &*final_arguments {
            "" => Comparison::Equal,
            final_arguments => {
                self.is_broken = false;
                self.reconcile_arguments(final_arguments, key, turn)
            }
        };
        match (cut_off, self.end) {
            (true, _) => self.end = CallEnd::Truncated,
            (false, CallEnd::Open) if self.is_broken => return Err(malformed_arguments_error()),
            (false, CallEnd::Open) => {
                self.end = CallEnd::Complete;
                // A call with a mismatch is emitted and ended again later. A call that has not been
                // emitted yet is also ended later.
                if self.is_started && agreement == Comparison::Equal {
                    turn.end_tool_call(key);
                }
            }
            (false, CallEnd::Complete | CallEnd::Truncated) => {}
        }
        Ok(agreement)
    }

    fn reconcile_arguments(&mut self, text: &str, key: u32, turn: &mut TurnBuilder) -> Comparison {
        let value = |text: &str| from_bounded_json::<Value>(text).ok();
        match text.strip_prefix(self.arguments.as_str()) {
            Some("") => Comparison::Equal,
            Some(rest) if self.end == CallEnd::Open => {
                self.push_delta(Some(rest), key, turn);
                Comparison::Equal
            }
            _ if value(text)
                .is_some_and(|final_arguments| value(&self.arguments) == Some(final_arguments)) =>
            {
                Comparison::Equal
            }
            _ => {
                text.clone_into(&mut self.arguments);
                // Arguments that have not been emitted do not have to be retracted.
                if self.is_started { Comparison::Different } else { Comparison::Equal }
            }
        }
    }

    /// Returns whether both the call's name and an end event have been received.
    pub(super) fn is_complete(&self) -> bool {
        self.end == CallEnd::Complete && !self.name.is_empty()
    }

    /// Emits the complete call, for the first time or again after a retraction. Does nothing if the
    /// call has no name.
    pub(super) fn emit(&mut self, key: u32, turn: &mut TurnBuilder) {
        if self.name.is_empty() {
            return;
        }
        self.is_started = true;
        turn.start_tool_call(key, &self.id, &self.name);
        turn.push_tool_call_args(key, &self.arguments);
        if self.end == CallEnd::Complete {
            turn.end_tool_call(key);
        }
    }

    fn emit_start(&mut self, key: u32, turn: &mut TurnBuilder) {
        if self.is_started || self.may_be_wrapper || self.name.is_empty() || self.id.is_empty() {
            return;
        }
        self.emit(key, turn);
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct WrapperCall<'a> {
    tool_uses: Vec<WrappedToolUse<'a>>,
}

/// A tool call inside a wrapper call.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct WrappedToolUse<'a> {
    recipient_name: String,
    pub(super) parameters: &'a RawValue,
}

impl WrappedToolUse<'_> {
    pub(super) fn name(&self) -> &str {
        self.recipient_name.strip_prefix("functions.").unwrap_or(&self.recipient_name)
    }
}

/// Returns the calls inside a wrapper call. Returns `None` unless every inner call names a declared
/// tool and has a JSON object as its arguments.
pub(super) fn expand_wrapper<'a>(
    arguments: &'a str,
    declared: &DeclaredTools,
) -> Option<Vec<WrappedToolUse<'a>>> {
    let WrapperCall { tool_uses } = serde_json::from_str(arguments).ok()?;
    let fits = |one: &WrappedToolUse<'_>| {
        one.parameters.get().starts_with('{')
            && declared.specs.contains_name(declared.names.own_name(one.name()))
    };
    (!tool_uses.is_empty() && tool_uses.iter().all(fits)).then_some(tool_uses)
}
