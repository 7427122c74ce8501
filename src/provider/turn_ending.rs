//! The words with which servers end a turn.
//!
//! Each wire reads the words that its own vendor uses, and passes every other word to
//! [`TurnEnding::from_word`], because gateways pass on the words of other servers.

use crate::error::{Error, ErrorKind};
use crate::item::StopReason;

/// The meaning of the word with which a server ends a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TurnEnding {
    /// The model stopped for this reason.
    Stopped(StopReason),
    /// The server gave up before the turn was complete. The kind decides whether the request is
    /// sent again.
    Failed(ErrorKind),
}

impl TurnEnding {
    /// Reads a word that is not one of the wire's own. An unknown word becomes
    /// [`StopReason::Other`].
    pub(super) fn from_word(word: &str) -> Self {
        Self::Stopped(match word {
            "stop" | "end" | "eos" | "eos_token" | "end_turn" | "stop_sequence" => StopReason::Stop,
            "tool_calls" | "function_call" | "tool_use" => StopReason::ToolCalls,
            // Mistral reports `model_length`, and OpenAI reports `max_messages`.
            "length" | "max_tokens" | "max_output_tokens" | "model_length" | "max_messages" => {
                StopReason::MaxTokens
            }
            "content_filter" | "sensitive" => StopReason::ContentFilter,
            "model_context_window_exceeded" => StopReason::ContextWindow,
            // vLLM and SGLang report `abort` if the server cancels the request.
            "error" | "abort" | "network_error" => return Self::Failed(ErrorKind::Server),
            "insufficient_system_resource" => return Self::Failed(ErrorKind::Overloaded),
            other => StopReason::Other(other.to_owned()),
        })
    }

    /// Returns the stop reason, or the error of a turn that the server gave up. `word` is the
    /// server's word.
    pub(super) fn into_stop_reason(self, word: &str) -> Result<StopReason, Error> {
        match self {
            Self::Stopped(reason) => Ok(reason),
            Self::Failed(kind) => {
                let message = format!("the provider broke off with finish reason `{word}`");
                Err(Error::new(kind, message))
            }
        }
    }
}
