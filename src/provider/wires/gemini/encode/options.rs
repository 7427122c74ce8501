//! Encodes a request's options.

use super::generation::ModelGeneration;
use crate::error::Error;
use crate::provider::codec::body::{ObjectWriter, ensure_options_unset, unsupported_error};
use crate::provider::codec::schema;
use crate::provider::wires::gemini::host::Host;
use crate::request::{
    Effort, Options, Output, Reasoning, ReasoningSummary, Request, ServiceTier, ToolChoice,
    ToolNames,
};

/// The name of the Gemini API in error messages.
pub(super) const WIRE_NAME: &str = "Gemini";

/// Returns whether a request continues a prefix that Google has stored,
/// <https://ai.google.dev/api/caching>.
pub(in crate::provider::wires::gemini) fn uses_cached_content(options: &Options) -> bool {
    options.extra.get("cachedContent").is_some_and(|name| !name.is_null())
}

pub(super) fn tool_config(request: &Request, names: &ToolNames) -> Result<ObjectWriter, Error> {
    let options = &request.options;
    let one_at_most = options.parallel_tool_calls == Some(false);
    ensure_options_unset(WIRE_NAME, &[("parallel_tool_calls", one_at_most)])?;
    let config = ObjectWriter::default();
    let config = match &options.tool_choice {
        ToolChoice::Auto => config,
        // Without tools, there is nothing to forbid.
        ToolChoice::None if !request.tools.has_declared() => config,
        ToolChoice::None => config.set("mode", "NONE"),
        ToolChoice::Required => config.set("mode", "ANY"),
        ToolChoice::Tool(name) => {
            config.set("mode", "ANY").set("allowedFunctionNames", [names.sent_name(name)])
        }
        // An empty list would allow all tools.
        ToolChoice::Allowed { names: allowed, .. } if allowed.is_empty() => {
            config.set("mode", "NONE")
        }
        ToolChoice::Allowed { names: allowed, required } => {
            let allowed: Vec<_> = allowed.iter().map(|name| names.sent_name(name)).collect();
            let mode = if *required { "ANY" } else { "VALIDATED" };
            config.set("mode", mode).set("allowedFunctionNames", allowed)
        }
    };
    Ok(ObjectWriter::default().set_object("functionCallingConfig", config))
}

pub(super) fn generation_config(
    options: &Options,
    generation: ModelGeneration,
) -> Result<ObjectWriter, Error> {
    let has_metadata = !options.metadata.is_empty();
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("user", options.user.is_some()),
            ("metadata", has_metadata),
            ("verbosity", options.verbosity.is_some()),
            ("citations", options.citations),
            ("prompt_cache_key", options.prompt_cache_key.is_some()),
            ("prompt_cache_retention", options.prompt_cache_retention.is_some()),
        ],
    )?;
    let seed = options.seed.map(i32::try_from).transpose();
    let (mime_type, schema) = match &options.output {
        Output::Text => (None, None),
        Output::Json => (Some("application/json"), None),
        Output::Schema(output) => {
            (Some("application/json"), Some(schema::to_gemini_schema(&output.schema)?))
        }
    };
    let thinking = thinking_config(options, generation)?;
    Ok(ObjectWriter::default()
        .set_some("maxOutputTokens", options.max_output_tokens)
        .set_some("temperature", options.temperature)
        .set_some("topP", options.top_p)
        .set_some("topK", options.top_k)
        .set_some("seed", seed.map_err(|_| unsupported_error(WIRE_NAME, "seed"))?)
        .set_some("frequencyPenalty", options.frequency_penalty)
        .set_some("presencePenalty", options.presence_penalty)
        .set_list("stopSequences", &options.stop_sequences)
        .set_some("responseLogprobs", options.logprobs.map(|_| true))
        .set_some("logprobs", options.logprobs)
        .set_object("thinkingConfig", thinking)
        .set_some("responseMimeType", mime_type)
        .set_some("responseJsonSchema", schema))
}

/// Returns the API's name for a request's service tier. The API does not choose a tier, and Vertex
/// AI reads the tier from headers.
pub(super) fn service_tier(options: &Options, host: Host) -> Result<Option<&str>, Error> {
    match &options.service_tier {
        Some(_) if host == Host::Vertex => Err(unsupported_error(WIRE_NAME, "service_tier")),
        Some(ServiceTier::Auto) => Err(unsupported_error(WIRE_NAME, "service_tier")),
        tier => Ok(tier.as_ref().map(ServiceTier::as_str)),
    }
}

/// Encodes the reasoning options. Models before Gemini 3 do not accept thinking levels, so an
/// effort level is sent to these models as a thinking budget. Each thinking budget equals the
/// budget that Google's OpenAI-compatible endpoint uses for the same level,
/// <https://ai.google.dev/gemini-api/docs/openai#thinking>.
fn thinking_config(options: &Options, generation: ModelGeneration) -> Result<ObjectWriter, Error> {
    let is_shown = match options.reasoning_summary {
        None => options.reasoning.map(|_| true),
        Some(ReasoningSummary::Off) => Some(false),
        Some(ReasoningSummary::Auto) => Some(true),
        Some(ReasoningSummary::Concise | ReasoningSummary::Detailed) => {
            return Err(unsupported_error(WIRE_NAME, "reasoning_summary"));
        }
    };
    let config = ObjectWriter::default();
    let shown = ObjectWriter::default().set_some("includeThoughts", is_shown);
    let (level, budget) = match options.reasoning {
        None => return Ok(shown),
        // "include_thoughts is only enabled when thinking is enabled."
        Some(Reasoning::Off) => return Ok(config.set("thinkingBudget", 0)),
        Some(Reasoning::Budget(tokens)) => return Ok(shown.set("thinkingBudget", tokens)),
        Some(Reasoning::Effort(Effort::Minimal)) => ("minimal", 1_024),
        Some(Reasoning::Effort(Effort::Low)) => ("low", 1_024),
        Some(Reasoning::Effort(Effort::Medium)) => ("medium", 8_192),
        // This is the API's highest level.
        Some(Reasoning::Effort(Effort::High | Effort::XHigh | Effort::Max)) => ("high", 24_576),
    };
    Ok(match generation {
        ModelGeneration::Gemini2OrEarlier => shown.set("thinkingBudget", budget),
        ModelGeneration::Gemini3OrLater => shown.set("thinkingLevel", level),
    })
}
