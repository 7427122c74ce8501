//! Why a turn ended, <https://ai.google.dev/api/generate-content#FinishReason>.

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;

/// How much of a message is shown, in characters.
const LONGEST: usize = 500;

/// What the model's own word for an end means.
pub(super) fn reason(raw: &str, calls: bool) -> StopReason {
    match raw {
        // The wire has no word of its own for a turn that wants tools.
        "STOP" if calls => StopReason::ToolCalls,
        "STOP" => StopReason::Stop,
        // Gateways have one.
        "FUNCTION_CALL" | "TOOL_CALLS" => StopReason::ToolCalls,
        "MAX_TOKENS" => StopReason::MaxTokens,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "MODEL_ARMOR" => StopReason::ContentFilter,
        image if image.starts_with("IMAGE_") => StopReason::ContentFilter,
        other => StopReason::Other(other.to_owned()),
    }
}

/// The error of a turn that the model or the provider could not write, where it is one.
pub(super) fn generation_failed(raw: &str, message: &str) -> Option<Error> {
    let kind = match raw {
        "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS" => ErrorKind::GenerationFailed,
        // "Request has at least one thought signature missing."
        "MISSING_THOUGHT_SIGNATURE" => ErrorKind::InvalidRequest,
        _ => return None,
    };
    let message = match message {
        "" => format!("the model's turn could not be read: {raw}"),
        message => {
            format!("the model's turn could not be read: {raw}: {}", one_line(message))
        }
    };
    Some(Error::new(kind, message))
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}
