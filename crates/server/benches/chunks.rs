//! A chunk of text on each wire, as a program that only uses `serde` would define it.

use serde::{Deserialize, Serialize};

/// Chat Completions.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChatChunk<'a> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    service_tier: &'a str,
    system_fingerprint: &'a str,
    #[serde(borrow)]
    choices: Vec<ChatChoice<'a>>,
}

#[derive(Serialize, Deserialize)]
struct ChatChoice<'a> {
    index: u32,
    #[serde(borrow)]
    delta: ChatDelta<'a>,
    logprobs: Option<bool>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct ChatDelta<'a> {
    content: &'a str,
}

/// Responses.
#[derive(Serialize, Deserialize)]
pub(crate) struct ResponsesChunk<'a> {
    item_id: &'a str,
    output_index: u32,
    delta: &'a str,
    content_index: u32,
    r#type: &'a str,
    sequence_number: u64,
}

/// Anthropic Messages.
#[derive(Serialize, Deserialize)]
pub(crate) struct AnthropicChunk<'a> {
    r#type: &'a str,
    index: u32,
    #[serde(borrow)]
    delta: AnthropicDelta<'a>,
}

#[derive(Serialize, Deserialize)]
struct AnthropicDelta<'a> {
    r#type: &'a str,
    text: &'a str,
}

/// Gemini.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeminiChunk<'a> {
    model_version: &'a str,
    response_id: &'a str,
    #[serde(borrow)]
    candidates: Vec<GeminiCandidate<'a>>,
    usage_metadata: GeminiUsage,
}

#[derive(Serialize, Deserialize)]
struct GeminiCandidate<'a> {
    #[serde(borrow)]
    content: GeminiContent<'a>,
    index: u32,
}

#[derive(Serialize, Deserialize)]
struct GeminiContent<'a> {
    #[serde(borrow)]
    parts: Vec<GeminiPart<'a>>,
    role: &'a str,
}

#[derive(Serialize, Deserialize)]
struct GeminiPart<'a> {
    text: &'a str,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsage {
    prompt_token_count: u64,
    total_token_count: u64,
}

/// Ollama.
#[derive(Serialize, Deserialize)]
pub(crate) struct OllamaChunk<'a> {
    model: &'a str,
    created_at: &'a str,
    #[serde(borrow)]
    message: OllamaMessage<'a>,
    done: bool,
}

#[derive(Serialize, Deserialize)]
struct OllamaMessage<'a> {
    role: &'a str,
    content: &'a str,
}
