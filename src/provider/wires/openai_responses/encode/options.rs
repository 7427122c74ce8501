//! Encodes a request's options.

use serde_json::{Value, json};

use crate::error::Error;
use crate::provider::codec::body::{ObjectWriter, ensure_options_unset, unsupported_error};
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::codec::schema::to_openai_output_schema;
use crate::request::{
    Options, Output, Reasoning, ReasoningSummary, ToolChoice, ToolNames, Verbosity,
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
pub(super) fn reasoning_options(options: &Options) -> Result<ObjectWriter, Error> {
    let (effort, summary) = match options.reasoning {
        None => (None, None),
        Some(Reasoning::Off) => (Some(EffortNames::OPENAI.off), None),
        Some(Reasoning::Budget(_)) => return Err(unsupported_error(WIRE_NAME, "reasoning")),
        Some(Reasoning::Effort(effort)) => {
            (Some(EffortNames::OPENAI.name_of(effort)), Some(ReasoningSummary::Auto))
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
    reasoning.into_iter().chain(logprobs).collect()
}

pub(super) fn tool_choice(choice: &ToolChoice, names: &ToolNames) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Tool(name) => {
            Some(json!({ "type": "function", "name": names.sent_name(name) }))
        }
        ToolChoice::Allowed { names: allowed, required } => {
            let function = |name| json!({ "type": "function", "name": names.sent_name(name) });
            let tools: Vec<_> = allowed.iter().map(|name| function(name)).collect();
            let mode = if *required { "required" } else { "auto" };
            Some(json!({ "type": "allowed_tools", "mode": mode, "tools": tools }))
        }
    }
}
