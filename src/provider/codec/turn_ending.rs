//! The words with which servers end a turn.
//!
//! Each wire reads the words that its own vendor uses, and passes every other word to
//! [`common_stop_reason`], because gateways pass on the words of other servers.

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;

/// Reads a word that is not one of the wire's own. An unknown word becomes [`StopReason::Other`].
///
/// # Errors
///
/// Returns an error if the word says that the server gave up before the turn was complete. The
/// error's kind decides whether the request is sent again.
pub(in crate::provider) fn common_stop_reason(word: &str) -> Result<StopReason, Error> {
    let gave_up =
        |kind| Err(Error::new(kind, format!("the provider broke off with finish reason `{word}`")));
    Ok(match word {
        "stop" | "end" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => StopReason::Stop,
        "tool_calls" | "function_call" | "tool_use" => StopReason::ToolCalls,
        // Mistral reports `model_length`, and OpenAI reports `max_messages`.
        "length" | "max_tokens" | "max_output_tokens" | "model_length" | "max_messages" => {
            StopReason::MaxTokens
        }
        "content_filter" | "sensitive" => StopReason::ContentFilter,
        "model_context_window_exceeded" => StopReason::ContextWindow,
        // vLLM and SGLang report `abort` if the server cancels the request.
        "error" | "abort" | "network_error" => return gave_up(ErrorKind::Server),
        "insufficient_system_resource" => return gave_up(ErrorKind::Overloaded),
        other => StopReason::Other(other.to_owned()),
    })
}
