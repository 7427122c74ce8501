//! Encodes a request's options for a dialect.

use serde_json::{Value, json};

use crate::error::Error;
use crate::provider::codec::body::{
    ObjectWriter, ensure_options_unset, has_extra_tools, unsupported_error,
};
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::codec::schema::{to_openai_output_schema, to_plain_output_schema};
use crate::provider::wires::openai::openai_efforts;
use crate::provider::wires::openai_chat::dialect::{
    Dialect, OutputForms, ReasoningSetting, ToolChoices,
};
use crate::request::{Options, Output, Reasoning, ServiceTier, ToolChoice, ToolNames, Verbosity};

/// The name of the Chat Completions API in error messages.
pub(super) const WIRE_NAME: &str = "Chat Completions";

/// Returns the option, or an error if it is set but the dialect does not support it.
fn ensure_supported<T>(option: Option<T>, name: &str, is_known: bool) -> Result<Option<T>, Error> {
    match option.is_none() || is_known {
        true => Ok(option),
        false => Err(unsupported_error(WIRE_NAME, name)),
    }
}

/// Sets the fields for all options except tool options.
pub(super) fn set_options(
    body: ObjectWriter,
    options: &Options,
    model: &str,
    dialect: &Dialect,
) -> Result<ObjectWriter, Error> {
    let top_k = ensure_supported(options.top_k, "top_k", dialect.supports_top_k)?;
    let seed = ensure_supported(options.seed, "seed", dialect.seed_field.is_some())?;
    if options.stop_sequences.len() > dialect.max_stop_sequences {
        return Err(unsupported_error(WIRE_NAME, "stop_sequences"));
    }
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("reasoning_summary", options.reasoning_summary.is_some()),
            ("citations", options.citations),
        ],
    )?;
    let user = ensure_supported(options.user.as_ref(), "user", dialect.user_field.is_some())?;
    let metadata = (!options.metadata.is_empty()).then_some(&options.metadata);
    let metadata = ensure_supported(metadata, "metadata", dialect.supports_metadata)?;
    let body = body
        .set_some(dialect.max_tokens_field, options.max_output_tokens)
        .set_some("temperature", options.temperature)
        .set_some("top_p", options.top_p)
        .set_some("top_k", top_k)
        .set_some(dialect.seed_field.unwrap_or_default(), seed)
        .set_some("frequency_penalty", options.frequency_penalty)
        .set_some("presence_penalty", options.presence_penalty)
        .set_list("stop", &options.stop_sequences);
    let body = set_reasoning(body, options.reasoning, model, dialect)?
        .set_some("response_format", response_format(&options.output, dialect)?)
        .set_some(dialect.user_field.unwrap_or_default(), user)
        .set_some("metadata", metadata);
    set_openai_options(body, options, dialect)
}

/// Sets the fields that only OpenAI and a few other servers have.
fn set_openai_options(
    body: ObjectWriter,
    options: &Options,
    dialect: &Dialect,
) -> Result<ObjectWriter, Error> {
    let verbosity = ensure_supported(options.verbosity, "verbosity", dialect.supports_verbosity)?;
    let logprobs = ensure_supported(options.logprobs, "logprobs", dialect.supports_logprobs)?;
    let cache_key = ensure_supported(
        options.prompt_cache_key.as_ref(),
        "prompt_cache_key",
        dialect.supports_prompt_cache_key,
    )?;
    let retention = ensure_supported(
        options.prompt_cache_retention,
        "prompt_cache_retention",
        dialect.supports_prompt_cache_key,
    )?;
    let standard = dialect.standard_service_tier;
    let tier = ensure_supported(options.service_tier.as_ref(), "service_tier", standard.is_some())?;
    let tier = tier.map(|tier| match tier {
        ServiceTier::Standard => standard.unwrap_or_default(),
        tier => tier.as_str(),
    });
    Ok(body
        .set_some("verbosity", verbosity.map(Verbosity::name))
        .set_some("logprobs", logprobs.map(|_| true))
        .set_some("top_logprobs", logprobs)
        .set_some("service_tier", tier)
        .set_some("prompt_cache_key", cache_key)
        .set_some("prompt_cache_retention", retention))
}

/// Sets the fields for the tool definitions, which are already encoded, and for the options that
/// concern tool calls.
pub(super) fn set_tools(
    body: ObjectWriter,
    tools: Option<&[u8]>,
    options: &Options,
    dialect: &Dialect,
    tool_names: &ToolNames,
) -> Result<ObjectWriter, Error> {
    // "'tool_choice' is only allowed when 'tools' are specified". The same applies to
    // `parallel_tool_calls`.
    let declared = tools.is_some_and(|tools| !tools.is_empty()) || has_extra_tools(&options.extra);
    let tool_choice = match (&options.tool_choice, dialect.tool_choice) {
        (ToolChoice::Auto, _) => None,
        // Tools are omitted if the dialect does not support `tool_choice`.
        (ToolChoice::None, _) if !declared => None,
        (ToolChoice::None, _) => Some(json!("none")),
        (
            ToolChoice::Required,
            ToolChoices::Keywords
            | ToolChoices::KeywordsAndNamed
            | ToolChoices::KeywordsNamedAndAllowed,
        ) => Some(json!("required")),
        (ToolChoice::Allowed { names, required }, ToolChoices::KeywordsNamedAndAllowed) => {
            Some(allowed_tools(names, *required, tool_names))
        }
        (
            ToolChoice::Tool(name),
            ToolChoices::KeywordsAndNamed | ToolChoices::KeywordsNamedAndAllowed,
        ) => {
            let name = tool_names.sent_name(name);
            Some(json!({ "type": "function", "function": { "name": name } }))
        }
        (ToolChoice::Allowed { .. }, _)
        | (ToolChoice::Required, ToolChoices::None)
        | (ToolChoice::Tool(_), ToolChoices::None | ToolChoices::Keywords) => {
            return Err(unsupported_error(WIRE_NAME, "tool_choice"));
        }
    };
    // Parallel calls are allowed by default, so a dialect does not need a field to allow them.
    let several = options.parallel_tool_calls.filter(|_| declared);
    let several = several.filter(|several| !several || dialect.supports_parallel_tool_calls);
    let several =
        ensure_supported(several, "parallel_tool_calls", dialect.supports_parallel_tool_calls)?;
    let body = match tools {
        Some(tools) => body.set_encoded("tools", &[b"[", tools, b"]"]),
        None => body,
    };
    Ok(body.set_some("tool_choice", tool_choice).set_some("parallel_tool_calls", several))
}

/// Returns the `tool_choice` that allows only some tools.
fn allowed_tools(names: &[String], required: bool, tool_names: &ToolNames) -> Value {
    let function = |name: &String| json!({ "type": "function", "function": { "name": tool_names.sent_name(name) } });
    let tools: Vec<_> = names.iter().map(function).collect();
    let mode = if required { "required" } else { "auto" };
    json!({ "type": "allowed_tools", "allowed_tools": { "mode": mode, "tools": tools } })
}

fn set_reasoning(
    body: ObjectWriter,
    reasoning: Option<Reasoning>,
    model: &str,
    dialect: &Dialect,
) -> Result<ObjectWriter, Error> {
    let Some(reasoning) = reasoning else { return Ok(body) };
    let effort_name = |names: EffortNames| match reasoning {
        Reasoning::Off => Ok(names.off),
        Reasoning::Effort(effort) => Ok(names.name_of(effort)),
        Reasoning::Budget(_) => Err(unsupported_error(WIRE_NAME, "reasoning")),
    };
    Ok(match (dialect.reasoning_setting, reasoning) {
        (ReasoningSetting::None, _) => return Err(unsupported_error(WIRE_NAME, "reasoning")),
        (ReasoningSetting::Effort(names), _) => body.set("reasoning_effort", effort_name(names)?),
        (ReasoningSetting::OpenAiEffort, _) => {
            body.set("reasoning_effort", effort_name(openai_efforts(model))?)
        }
        (ReasoningSetting::Object(_), Reasoning::Budget(tokens)) => {
            body.set("reasoning", json!({ "max_tokens": tokens }))
        }
        (ReasoningSetting::Object(names), _) => {
            body.set("reasoning", json!({ "effort": effort_name(names)? }))
        }
        (ReasoningSetting::Thinking(_), Reasoning::Off) => {
            body.set("thinking", json!({ "type": "disabled" }))
        }
        (ReasoningSetting::Thinking(names), _) => body
            .set("reasoning_effort", effort_name(names)?)
            .set("thinking", json!({ "type": "enabled" })),
    })
}

fn response_format(output: &Output, dialect: &Dialect) -> Result<Option<Value>, Error> {
    let format = match (output, dialect.output_forms) {
        (Output::Text, _) => return Ok(None),
        (
            Output::Json,
            OutputForms::Object | OutputForms::ObjectAndSchema | OutputForms::ObjectAndStrictSchema,
        ) => {
            json!({ "type": "json_object" })
        }
        (Output::Schema(requested), OutputForms::Schema | OutputForms::ObjectAndSchema) => {
            let schema = to_plain_output_schema(&requested.schema);
            let schema = json!({ "name": requested.name, "schema": schema });
            json!({ "type": "json_schema", "json_schema": schema })
        }
        (Output::Schema(requested), OutputForms::ObjectAndStrictSchema) => {
            let (schema, strict) = to_openai_output_schema(&requested.schema)?;
            let schema = json!({ "name": requested.name, "schema": schema, "strict": strict });
            json!({ "type": "json_schema", "json_schema": schema })
        }
        (Output::Json, OutputForms::TextOnly | OutputForms::Schema)
        | (Output::Schema(_), OutputForms::TextOnly | OutputForms::Object) => {
            return Err(unsupported_error(WIRE_NAME, "output"));
        }
    };
    Ok(Some(format))
}
