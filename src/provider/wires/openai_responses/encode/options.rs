//! Encodes a request's options.

use serde_json::{Value, json};

use super::client_tools::tool_reference;
use crate::error::Error;
use crate::provider::codec::body::{ObjectWriter, ensure_options_unset, unsupported_error};
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::codec::schema::to_openai_output_schema;
use crate::provider::wires::openai::{gpt_version, openai_efforts};
use crate::request::{
    Cache, Options, Output, Reasoning, ReasoningSummary, ServerTool, ToolChoice, ToolNames,
    ToolSpec, Verbosity,
};

/// The name of the Responses API in error messages.
pub(super) const WIRE_NAME: &str = "OpenAI Responses";

pub(super) fn refuse_unsupported(options: &Options) -> Result<(), Error> {
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("stop_sequences", !options.stop_sequences.is_empty()),
            ("top_k", options.top_k.is_some()),
            ("seed", options.seed.is_some()),
            ("frequency_penalty", options.frequency_penalty.is_some()),
            ("presence_penalty", options.presence_penalty.is_some()),
            ("citations", options.citations),
        ],
    )
}

/// Returns whether a model may support reasoning. Models without reasoning reject requests for
/// encrypted reasoning with the error "Encrypted content is not supported with this model".
/// OpenAI's models without reasoning are recognized by name. All other models are assumed to
/// support reasoning.
pub(super) fn supports_reasoning(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix("ft:").unwrap_or(name);
    let does_not = ["gpt-3.5", "gpt-4", "chatgpt-", "gpt-5-chat"];
    !does_not.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns a request's `reasoning` object. If an effort is set, the object asks for a summary
/// unless the options say otherwise, because OpenAI returns no other reasoning text.
pub(super) fn reasoning_options(options: &Options, model: &str) -> Result<ObjectWriter, Error> {
    let (effort, summary) = match options.reasoning {
        None => (None, None),
        Some(Reasoning::Off) => (Some(EffortNames::OPENAI.off), None),
        Some(Reasoning::Budget(_)) => return Err(unsupported_error(WIRE_NAME, "reasoning")),
        Some(Reasoning::Effort(effort)) => {
            (Some(openai_efforts(model).name_of(effort)), Some(ReasoningSummary::Auto))
        }
    };
    let summary = match options.reasoning_summary.filter(|_| effort != Some("none")).or(summary) {
        None | Some(ReasoningSummary::Off) => None,
        Some(ReasoningSummary::Auto) => Some("auto"),
        Some(ReasoningSummary::Concise) => Some("concise"),
        Some(ReasoningSummary::Detailed) => Some("detailed"),
    };
    Ok(ObjectWriter::default().set_some("effort", effort).set_some("summary", summary))
}

/// Returns a request's `text` object: the format and the length of the answer.
pub(super) fn text_options(options: &Options) -> Result<ObjectWriter, Error> {
    let format = match &options.output {
        Output::Text => None,
        Output::Json => Some(json!({ "type": "json_object" })),
        Output::Schema(output) => {
            let (schema, strict) = to_openai_output_schema(&output.schema)?;
            Some(json!({
                "type": "json_schema",
                "name": output.name,
                "schema": schema,
                "strict": strict,
            }))
        }
    };
    Ok(ObjectWriter::default()
        .set_some("format", format)
        .set_some("verbosity", options.verbosity.map(Verbosity::name)))
}

/// The data that is included in a response only if it is requested.
pub(super) fn included_data(options: &Options, model: &str) -> Vec<&'static str> {
    let reasoning = supports_reasoning(model).then_some("reasoning.encrypted_content");
    let logprobs = options.logprobs.map(|_| "message.output_text.logprobs");
    let has = |is_it: fn(&ServerTool) -> bool| options.server_tools.iter().any(is_it);
    let outputs = has(|tool| matches!(tool, ServerTool::CodeExecution(_)))
        .then_some("code_interpreter_call.outputs");
    let results =
        has(|tool| matches!(tool, ServerTool::FileSearch(_))).then_some("file_search_call.results");
    [reasoning, logprobs, outputs, results].into_iter().flatten().collect()
}

/// Returns a request's `prompt_cache_options` object. Models before GPT-5.6 and other servers do
/// not have it.
/// <https://developers.openai.com/api/docs/guides/prompt-caching>
pub(super) fn cache_options(options: &Options, model: &str, server: ServerKind) -> ObjectWriter {
    let has_durations =
        server == ServerKind::Vendor && gpt_version(model).is_some_and(|version| version >= (5, 6));
    let is_long = has_durations && options.cache == Cache::Long;
    ObjectWriter::default().set_some("ttl", is_long.then_some("12h"))
}

pub(super) fn tool_choice(
    choice: &ToolChoice,
    specs: &[ToolSpec],
    names: &ToolNames,
) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Tool(name) => Some(tool_reference(name, specs, names)),
        ToolChoice::Allowed { names: allowed, required } => {
            let tools = allowed.iter().map(|name| tool_reference(name, specs, names));
            let tools: Vec<_> = tools.collect();
            let mode = if *required { "required" } else { "auto" };
            Some(json!({ "type": "allowed_tools", "mode": mode, "tools": tools }))
        }
    }
}
