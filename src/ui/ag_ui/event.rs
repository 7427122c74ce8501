//! The events of AG-UI 1.0, as defined in <https://ag-ui.com/spec/1.0/schema.json>.

use serde::Serialize;
use serde_json::Value;

use crate::usage::Usage;

/// An AG-UI event. Fields that are `None` are omitted, because clients reject `null`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub(super) enum AgUiEvent<'a> {
    RunStarted {
        thread_id: &'a str,
        run_id: &'a str,
        protocol_version: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_run_id: Option<&'a str>,
    },
    RunFinished {
        thread_id: &'a str,
        run_id: &'a str,
        /// The outcome, or `None` if calls to the client's tools are pending.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        usage: Vec<TokenUsage<'a>>,
    },
    RunError {
        message: &'a str,
        code: &'a str,
        usage: Vec<TokenUsage<'a>>,
    },
    StepStarted {
        step_name: &'a str,
    },
    StepFinished {
        step_name: &'a str,
    },
    TextMessageStart {
        message_id: &'a str,
        role: &'static str,
    },
    TextMessageContent {
        message_id: &'a str,
        delta: &'a str,
    },
    TextMessageEnd {
        message_id: &'a str,
    },
    ReasoningStart {
        message_id: &'a str,
    },
    ReasoningMessageStart {
        message_id: &'a str,
        role: &'static str,
    },
    ReasoningMessageContent {
        message_id: &'a str,
        delta: &'a str,
    },
    ReasoningMessageEnd {
        message_id: &'a str,
    },
    ReasoningEnd {
        message_id: &'a str,
    },
    ToolCallStart {
        tool_call_id: &'a str,
        tool_call_name: &'a str,
        parent_message_id: &'a str,
    },
    ToolCallArgs {
        tool_call_id: &'a str,
        delta: &'a str,
    },
    ToolCallEnd {
        tool_call_id: &'a str,
    },
    ToolCallResult {
        message_id: &'a str,
        tool_call_id: &'a str,
        content: &'a Value,
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<&'a Value>,
    },
    StateSnapshot {
        snapshot: Value,
    },
    /// Changes the state by operations of JSON Patch, as specified in RFC 6902.
    StateDelta {
        delta: Value,
    },
    MessagesSnapshot {
        messages: Vec<Value>,
    },
    ActivitySnapshot {
        message_id: &'a str,
        activity_type: &'static str,
        content: Value,
    },
    SubagentStarted {
        subagent_run_id: &'a str,
        name: &'a str,
        parent_tool_call_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_subagent_run_id: Option<&'a str>,
    },
    SubagentFinished {
        subagent_run_id: &'a str,
        outcome: SubagentOutcome,
    },
    SubagentError {
        subagent_run_id: &'a str,
        message: &'a str,
    },
    Custom {
        name: &'static str,
        value: Value,
    },
}

/// An event, with the id of the sub-agent's run to which it belongs, if any.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaggedEvent<'a> {
    #[serde(flatten)]
    pub(super) event: AgUiEvent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subagent_run_id: Option<&'a str>,
}

/// The outcome of a run that did not fail.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum Outcome {
    Success,
    Interrupt { interrupts: Vec<Interrupt> },
    Cancelled,
}

/// The outcome of a sub-agent that did not fail.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum SubagentOutcome {
    Success,
    Suspended { interrupt_ids: Vec<String> },
}

/// A call that is waiting for an answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interrupt {
    pub(super) id: String,
    pub(super) reason: &'static str,
    pub(super) tool_call_id: String,
    pub(super) response_schema: Value,
    pub(super) metadata: Value,
}

/// Token counts. The totals include cached tokens and reasoning tokens.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenUsage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<&'a str>,
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
    reasoning_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
}

impl<'a> TokenUsage<'a> {
    pub(super) fn new(model: Option<&'a str>, usage: Usage) -> Self {
        // Counts are limited to the largest safe integer in JavaScript.
        let bounded = |count: u64| count.min((1 << 53) - 1);
        Self {
            model,
            input_tokens: bounded(usage.input_tokens),
            output_tokens: bounded(usage.output_tokens),
            total_tokens: bounded(usage.total()),
            reasoning_tokens: bounded(usage.reasoning_tokens),
            cached_input_tokens: bounded(usage.cache_read_input_tokens),
            cache_write_input_tokens: bounded(usage.cache_write_input_tokens),
        }
    }
}
