//! How a model is asked, in the words of this wire.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::generation::Generation;
use crate::error::Error;
use crate::provider::fields::unsupported;
use crate::provider::schema;
use crate::request::{Effort, Options, Output, Reasoning, Request, ToolChoice};

/// How this wire is called in an error.
const WIRE: &str = "Gemini";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    function_calling_config: CallingConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallingConfig<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<Cow<'a, Value>>,
}

impl GenerationConfig<'_> {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

pub(super) fn tool_config(request: &Request) -> Result<Option<ToolConfig<'_>>, Error> {
    if request.options.parallel_tool_calls == Some(false) {
        return Err(unsupported(WIRE, "parallel_tool_calls"));
    }
    let (mode, allowed_function_names) = match &request.options.tool_choice {
        ToolChoice::Auto => return Ok(None),
        // Without tools there is nothing to forbid.
        ToolChoice::None if request.tools.is_empty() => return Ok(None),
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some([name.as_str()])),
    };
    let function_calling_config = CallingConfig { mode, allowed_function_names };
    Ok(Some(ToolConfig { function_calling_config }))
}

pub(super) fn generation_config(
    options: &Options,
    generation: Generation,
) -> Result<GenerationConfig<'_>, Error> {
    if options.user.is_some() {
        return Err(unsupported(WIRE, "user"));
    }
    if !options.metadata.is_empty() {
        return Err(unsupported(WIRE, "metadata"));
    }
    let seed = options.seed.map(i32::try_from).transpose();
    let (response_mime_type, response_json_schema) = match &options.output {
        Output::Text => (None, None),
        Output::Json => (Some("application/json"), None),
        Output::Schema(output) => (Some("application/json"), Some(schema::gemini(&output.schema)?)),
    };
    Ok(GenerationConfig {
        max_output_tokens: options.max_output_tokens,
        temperature: options.temperature,
        top_p: options.top_p,
        top_k: options.top_k,
        seed: seed.map_err(|_| unsupported(WIRE, "seed"))?,
        frequency_penalty: options.frequency_penalty,
        presence_penalty: options.presence_penalty,
        stop_sequences: &options.stop_sequences,
        thinking_config: options.reasoning.map(|reasoning| thinking(reasoning, generation)),
        response_mime_type,
        response_json_schema,
    })
}

/// Models before Gemini 3 refuse levels; for them the budgets are those that the vendor's own
/// compatible endpoint has for the same words,
/// <https://ai.google.dev/gemini-api/docs/openai#thinking>.
fn thinking(reasoning: Reasoning, generation: Generation) -> ThinkingConfig {
    let shown = ThinkingConfig { include_thoughts: true, ..ThinkingConfig::default() };
    let (level, budget) = match reasoning {
        // "include_thoughts is only enabled when thinking is enabled."
        Reasoning::Off => {
            return ThinkingConfig { thinking_budget: Some(0), ..ThinkingConfig::default() };
        }
        Reasoning::Budget(tokens) => {
            return ThinkingConfig { thinking_budget: Some(tokens), ..shown };
        }
        Reasoning::Effort(Effort::Minimal) => ("minimal", 1_024),
        Reasoning::Effort(Effort::Low) => ("low", 1_024),
        Reasoning::Effort(Effort::Medium) => ("medium", 8_192),
        // The most that the wire has a word for.
        Reasoning::Effort(Effort::High | Effort::Max) => ("high", 24_576),
    };
    match generation {
        Generation::Second => ThinkingConfig { thinking_budget: Some(budget), ..shown },
        Generation::Third => ThinkingConfig { thinking_level: Some(level), ..shown },
    }
}
