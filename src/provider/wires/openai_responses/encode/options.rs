//! Encodes a request's options.

use serde_json::{Value, json};

use crate::error::Error;
use crate::provider::codec::body::{ensure_options_unset, unsupported_error};
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::codec::schema::to_openai_output_schema;
use crate::request::{Options, Output, Reasoning, ToolChoice, ToolNames};

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

/// Returns a request's `reasoning` object, which asks for a summary, because OpenAI returns no
/// other reasoning text.
pub(super) fn reasoning_options(reasoning: Reasoning) -> Result<Value, Error> {
    match reasoning {
        Reasoning::Off => Ok(json!({ "effort": EffortNames::OPENAI.off })),
        Reasoning::Budget(_) => Err(unsupported_error(WIRE_NAME, "reasoning")),
        Reasoning::Effort(effort) => {
            Ok(json!({ "effort": EffortNames::OPENAI.name_of(effort), "summary": "auto" }))
        }
    }
}

pub(super) fn text_options(output: &Output) -> Result<Option<Value>, Error> {
    let format = match output {
        Output::Text => return Ok(None),
        Output::Json => json!({ "type": "json_object" }),
        Output::Schema(output) => {
            let (schema, strict) = to_openai_output_schema(&output.schema)?;
            json!({
                "type": "json_schema",
                "name": output.name,
                "schema": schema,
                "strict": strict,
            })
        }
    };
    Ok(Some(json!({ "format": format })))
}

pub(super) fn tool_choice(choice: &ToolChoice, names: &ToolNames) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Tool(name) => {
            Some(json!({ "type": "function", "name": names.sent_name(name) }))
        }
    }
}
