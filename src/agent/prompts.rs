//! What the agent says to the model by itself.

/// Said when a reply has neither words nor calls.
pub(super) const EMPTY_REPLY: &str = "Your last reply was empty. Call a tool, or answer in words.";

/// Said when the output limit cut off a text.
pub(super) const CONTINUE_TRUNCATED: &str =
    "You were cut off. Please continue from where you stopped.";

/// Said when the same calls gave the same results again and again.
pub(super) const REPEATED_CALLS: &str = "You keep making the same calls, and they give the same results \
     each time. Try something else, or answer with what you know.";

/// Said before the last turn, which has no tools.
pub(super) const WRAP_UP: &str = "The limit of this run is reached, and no tool can be called any \
     more. Answer now with what you have, and say what is missing.";

/// Answers the calls of that turn.
pub(super) const NOT_RUN_DURING_WRAP_UP: &str = "Not run: the limit of this run is reached.";

/// Why a turn is taken back when another attempt is made.
pub(super) fn retraction_reason(error: &crate::error::Error) -> String {
    format!("the turn failed: {error}")
}

/// Said when a reply could not be read at all.
pub(super) fn undecodable_reply_prompt(error: &crate::error::Error) -> String {
    format!("Your last reply was lost: {error}. Answer again, and write calls as their tools ask.")
}

/// Said when an answer was rejected.
pub(super) fn rejected_answer_prompt(objection: &str) -> String {
    format!(
        "Your last answer cannot be used: {objection}. Answer again, with the whole answer and \
         nothing else."
    )
}

/// Answers calls that a budget does not allow.
pub(super) fn not_run_over_budget(exceeded: &crate::event::BudgetExceeded) -> String {
    format!("Not run: a budget of this run is spent ({exceeded}).")
}
