//! The chunks of a message stream, as defined in the `ui-message-chunks.ts` file of the `ai`
//! package.
//!
//! Because the first releases of versions 5 and 6 reject unknown fields, chunks contain only fields
//! that all releases support.

use std::borrow::Cow;

use serde::Serialize;

use crate::item::RawJson;
use crate::usage::Usage;

/// A chunk of the message stream. Fields that are `None` are omitted, because clients reject
/// `null`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum Chunk<'a> {
    Start {
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_metadata: Option<StartMetadata<'a>>,
    },
    StartStep,
    FinishStep,
    /// Added in version 7 of `ai`.
    ResetStep,
    TextStart {
        id: &'a str,
    },
    TextDelta {
        id: &'a str,
        delta: &'a str,
    },
    TextEnd {
        id: &'a str,
    },
    ReasoningStart {
        id: &'a str,
    },
    ReasoningDelta {
        id: &'a str,
        delta: &'a str,
    },
    ReasoningEnd {
        id: &'a str,
    },
    SourceUrl {
        source_id: &'a str,
        url: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    ToolInputStart {
        tool_call_id: &'a str,
        tool_name: &'a str,
        #[serde(skip_serializing_if = "is_false")]
        dynamic: bool,
    },
    ToolInputDelta {
        tool_call_id: &'a str,
        input_text_delta: &'a str,
    },
    ToolInputAvailable {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: RawJson,
        #[serde(skip_serializing_if = "is_false")]
        dynamic: bool,
    },
    /// Added in a later 5.x release of `ai`, so it does not exist in version 5.0.0.
    ToolInputError {
        tool_call_id: &'a str,
        tool_name: &'a str,
        input: RawJson,
        error_text: &'a str,
        #[serde(skip_serializing_if = "is_false")]
        dynamic: bool,
    },
    /// Added in version 6 of `ai`.
    ToolApprovalRequest {
        approval_id: &'a str,
        tool_call_id: &'a str,
    },
    /// Added in version 7 of `ai`.
    ToolApprovalResponse {
        approval_id: &'a str,
        approved: bool,
    },
    ToolOutputAvailable {
        tool_call_id: &'a str,
        output: RawJson,
        #[serde(skip_serializing_if = "is_false")]
        dynamic: bool,
    },
    ToolOutputError {
        tool_call_id: &'a str,
        error_text: &'a str,
        #[serde(skip_serializing_if = "is_false")]
        dynamic: bool,
    },
    /// Added in version 6 of `ai`.
    ToolOutputDenied {
        tool_call_id: &'a str,
    },
    /// Added in version 7 of `ai`.
    SteeringMessage {
        id: &'a str,
        parts: Vec<MessagePart<'a>>,
    },
    MessageMetadata {
        message_metadata: EndMetadata<'a>,
    },
    Error {
        error_text: &'a str,
    },
    Abort,
    Finish {
        /// The finish reason. This field does not exist in version 5.0.0 of `ai`, and its value
        /// `interrupted` was added in version 7.
        #[serde(skip_serializing_if = "Option::is_none")]
        finish_reason: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_metadata: Option<EndMetadata<'a>>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(mark: &bool) -> bool {
    !mark
}

/// A custom data part, which replaces the data of any existing part with the same type and id.
#[derive(Debug, Serialize)]
pub(super) struct DataChunk<'a, T> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    pub(super) data: T,
    /// Whether the client receives the data without adding it to the message.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) transient: bool,
}

/// A part of a user message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum MessagePart<'a> {
    Text { text: Cow<'a, str> },
    File { media_type: &'a str, url: Cow<'a, str> },
}

/// The metadata sent at the start of a message.
#[derive(Debug, Serialize)]
pub(super) struct StartMetadata<'a> {
    pub(super) model: &'a str,
}

/// The metadata sent at the end of a message.
#[derive(Debug, Serialize)]
pub(super) struct EndMetadata<'a> {
    pub(super) reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<&'a str>,
    pub(super) turns: u32,
    pub(super) usage: TokenCounts,
    /// The cost of the run and of its sub-agents, in millionths of the currency unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<u64>,
}

/// Token counts, with the same names as in `LanguageModelUsage` in the `ai` package. The counts
/// include the tokens used by sub-agents.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are those of the client")]
pub(super) struct TokenCounts {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    reasoning_tokens: u64,
    cached_input_tokens: u64,
}

impl From<Usage> for TokenCounts {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            total_tokens: usage.total(),
            reasoning_tokens: usage.reasoning_tokens,
            cached_input_tokens: usage.cache_read_input_tokens,
        }
    }
}
