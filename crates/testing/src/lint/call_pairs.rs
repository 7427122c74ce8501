//! Checks that calls and results come in pairs, for wire formats whose messages contain both.

use serde_json::Value;

use super::violations::{Violations, as_list};

/// Checks that all calls in a message are answered immediately after the message, and that each
/// answer belongs to one of the message's calls. `called` returns a call's key, which is its id or
/// name. `answered` returns the key of the call that a result answers.
pub(super) fn check_pairs<'a>(
    messages: &'a [Value],
    called: fn(&'a Value) -> &'a str,
    answered: fn(&'a Value) -> &'a str,
    bad: &mut Violations,
) {
    let mut open: Vec<&'a str> = Vec::new();
    let mut called_at = 0;
    let close = |open: &[&str], at: usize, bad: &mut Violations| {
        bad.require(open.is_empty()).or_push(format_args!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: \
             {} (messages[{at}])",
            open.join(", ")
        ));
    };
    for (at, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            let id = answered(message);
            match open.iter().position(|open| *open == id) {
                Some(place) => drop(open.remove(place)),
                None => bad.push(format_args!(
                    "Invalid parameter: messages with role 'tool' must be a response to a \
                     preceeding message with 'tool_calls'. (messages[{at}], tool_call_id '{id}')"
                )),
            }
            continue;
        }
        close(&open, called_at, bad);
        (open, called_at) = (as_list(&message["tool_calls"]).iter().map(called).collect(), at);
    }
    close(&open, called_at, bad);
}
