//! Defines the texts that the agent itself sends to the model.

use crate::item::{Item, ItemFlag};
use crate::request::ToolSpecs;

/// The message sent after a reply that contains neither text nor tool calls.
pub(super) const EMPTY_REPLY: &str = "Your last reply was empty. Call a tool, or answer with text.";

/// The message sent after the model's text was cut off by the output limit.
pub(super) const CONTINUE_TRUNCATED: &str =
    "You were cut off. Please continue from where you stopped.";

/// The message sent after the same calls have returned the same results several times.
pub(super) const REPEATED_CALLS: &str = "You keep making the same calls, and they return the same \
results each time. Try something else, or answer with what you know.";

/// The message sent before the wrap-up turn, in which no tools can be called.
pub(super) const WRAP_UP: &str = "The limit of this run is reached, and no tool can be called any \
     more. Answer now with what you have, and say what is missing.";

/// The result of each call that the model makes in the wrap-up turn.
pub(super) const NOT_RUN_DURING_WRAP_UP: &str = "Not run: the limit of this run is reached.";

/// Returns the reason that the `retracted` event gives for a failed turn.
pub(super) fn retraction_reason(error: &crate::error::Error) -> String {
    format!("the turn failed: {error}")
}

/// Returns the message to send after a reply that could not be decoded. It names the tools, because
/// the reply may have called a tool that does not exist.
pub(super) fn undecodable_reply_prompt(error: &crate::error::Error, tools: &ToolSpecs) -> String {
    format!(
        "Your last reply could not be read: {error}. Answer again, and write each call as its \
         tool requires. {}",
        tools.names_message()
    )
}

/// Returns the message to send after an answer has been rejected.
pub(super) fn rejected_answer_prompt(objection: &str) -> String {
    format!(
        "Your last answer cannot be used: {objection}. Answer again, with the whole answer and \
         nothing else."
    )
}

/// Returns the message that tells the model why the run was interrupted, if no result of a call
/// does.
pub(super) fn interrupt_notice(reason: &str) -> Item {
    Item::user(format!("The run was interrupted: {reason}")).with_flag(ItemFlag::Interrupted)
}

/// Returns the result text for calls that were not run because a budget was exceeded.
pub(super) fn not_run_over_budget(exceeded: &crate::event::BudgetExceeded) -> String {
    format!("Not run: a budget of this run is spent ({exceeded}).")
}
