//! Encodes a request's options.

use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::provider::codec::body::{ObjectWriter, ensure_options_unset, unsupported_error};
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::codec::schema::{json_instruction, to_anthropic_output_schema};
use crate::request::{
    Effort, Options, Output, Reasoning, ReasoningSummary, ServiceTier, ToolChoice, ToolNames,
};

/// The value of `max_tokens` for requests that do not set a limit, because the API requires a
/// value.
const DEFAULT_MAX_TOKENS: u32 = 8192;

/// The minimum thinking budget, in tokens. The budget "must be ≥ 1024 and less than `max_tokens`".
const MIN_THINKING_BUDGET: u32 = 1024;

pub(super) const WIRE_NAME: &str = "Anthropic Messages";

/// The names that the API uses for the effort levels.
const EFFORT_NAMES: EffortNames =
    EffortNames { xhigh: "xhigh", max: "max", ..EffortNames::LOW_MEDIUM_HIGH };

/// Returns whether a request offers an MCP server or server tools. In the extra fields, they are
/// recognized by their `type`.
pub(super) fn offers_server_tools(options: &Options) -> bool {
    let extra = &options.extra;
    let is_native = |tool: &Value| tool["type"].as_str().is_some_and(|kind| kind != "custom");
    let tools = extra.get("tools").and_then(Value::as_array);
    !options.server_tools.is_empty()
        || tools.is_some_and(|tools| tools.iter().any(is_native))
        || extra.contains_key("mcp_servers")
}

/// The fields of the request body that depend on more than one option.
pub(super) struct Settings<'a> {
    max_tokens: u32,
    tool_choice: ObjectWriter,
    thinking: Option<Thinking>,
    output_config: ObjectWriter,
    service_tier: Option<&'a str>,
    /// The instruction to answer with JSON, if the API cannot express the output schema.
    pub(super) output_instruction: Option<String>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Disabled,
    Enabled {
        budget_tokens: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        block_binding: Option<BlockBinding>,
    },
    Adaptive {
        /// Specifies whether the response includes thinking text. By default, models with adaptive
        /// thinking do not return thinking text.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        block_binding: Option<BlockBinding>,
    },
}

/// Specifies "What happens when a thinking block this request sends back fails the conversation
/// check",
/// <https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/fix-bound-to-a-different-conversation>.
#[derive(Serialize)]
struct BlockBinding {
    prefix_mismatch_behavior: &'static str,
}

/// The beta feature that enables `block_binding`.
pub(super) const BLOCK_BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Parts of the names of the models that think only on request. For such a model, setting
/// `thinking` in order to control earlier thinking blocks would also turn thinking on. Newer models
/// think by default.
const OPT_IN_THINKING_MODELS: [&str; 5] =
    ["claude-2", "claude-3", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4"];

impl<'a> Settings<'a> {
    /// Derives the settings from a request's options. `has_tools` specifies whether the request
    /// body declares any tools.
    pub(super) fn from_options(
        options: &'a Options,
        has_tools: bool,
        names: &ToolNames,
    ) -> Result<Self, Error> {
        ensure_options_unset(
            WIRE_NAME,
            &[
                ("seed", options.seed.is_some()),
                ("frequency_penalty", options.frequency_penalty.is_some()),
                ("presence_penalty", options.presence_penalty.is_some()),
                ("metadata", !options.metadata.is_empty()),
                ("verbosity", options.verbosity.is_some()),
                ("logprobs", options.logprobs.is_some()),
                ("prompt_cache_key", options.prompt_cache_key.is_some()),
                ("prompt_cache_retention", options.prompt_cache_retention.is_some()),
            ],
        )?;
        let service_tier = options.service_tier.as_ref().map(service_tier_name).transpose()?;
        let display = thinking_display(options)?;
        check_thinking_options(options, options.reasoning)?;
        let max_output = options.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        let (thinking, effort, max_tokens) = match options.reasoning {
            None => (None, None, max_output),
            Some(Reasoning::Off) => (Some(Thinking::Disabled), None, max_output),
            Some(Reasoning::Effort(effort)) => {
                let display = Some(display.unwrap_or("summarized"));
                let thinking = Thinking::Adaptive { display, block_binding: None };
                (Some(thinking), Some(EFFORT_NAMES.name_of(effort)), max_output)
            }
            // The limit includes thinking tokens. If the thinking budget leaves no tokens for the
            // answer, the budget is added to the limit.
            Some(Reasoning::Budget(budget_tokens)) => {
                let raised = max_output.saturating_add(budget_tokens);
                let max_tokens = if budget_tokens < max_output { max_output } else { raised };
                let thinking = Thinking::Enabled { budget_tokens, display, block_binding: None };
                (Some(thinking), None, max_tokens)
            }
        };
        let format = ObjectWriter::default();
        let (format, output_instruction) = match &options.output {
            Output::Text => (format, None),
            Output::Json => return Err(unsupported_error(WIRE_NAME, "output")),
            // The API refuses citations beside a schema, since they would interrupt the JSON,
            // <https://platform.claude.com/docs/en/build-with-claude/citations>.
            Output::Schema(_) if options.citations => {
                return Err(unsupported_error(WIRE_NAME, "citations"));
            }
            Output::Schema(output) => match to_anthropic_output_schema(&output.schema) {
                Ok(schema) => (format.set("type", "json_schema").set("schema", schema), None),
                Err(error) => (format, Some(json_instruction(&output.schema).ok_or(error)?)),
            },
        };
        let output_config =
            ObjectWriter::default().set_some("effort", effort).set_object("format", format);
        let tool_choice = tool_choice(options, has_tools, names)?;
        Ok(Self {
            max_tokens,
            tool_choice,
            thinking,
            output_config,
            service_tier,
            output_instruction,
        })
    }

    /// Adds the fields derived from the options to the request body.
    pub(super) fn write_into(self, body: ObjectWriter, options: &Options) -> ObjectWriter {
        body.set("max_tokens", self.max_tokens)
            .set_some("temperature", options.temperature)
            .set_some("top_p", options.top_p)
            .set_some("top_k", options.top_k)
            .set_list("stop_sequences", &options.stop_sequences)
            .set_object("tool_choice", self.tool_choice)
            .set_some("thinking", self.thinking)
            .set_object("output_config", self.output_config)
            .set_some("service_tier", self.service_tier)
            .set_some("metadata", options.user.as_ref().map(|user| json!({ "user_id": user })))
    }

    /// Asks the API not to show the model any thinking block whose preceding context has changed.
    /// Returns `false` if the required `thinking` setting cannot be added to the request.
    pub(super) fn set_drop_block(&mut self, options: &Options, model: &str) -> bool {
        if options.extra.contains_key("thinking") {
            return false;
        }
        let drop = Some(BlockBinding { prefix_mismatch_behavior: "drop_block" });
        match &mut self.thinking {
            Some(
                Thinking::Enabled { block_binding, .. } | Thinking::Adaptive { block_binding, .. },
            ) => *block_binding = drop,
            Some(Thinking::Disabled) => return false,
            // "Adding it changes nothing else, since models with preserved thinking use adaptive
            // thinking by default."
            None => {
                let by_default = Some(Reasoning::Effort(Effort::High));
                let when_asked = OPT_IN_THINKING_MODELS.iter().any(|name| model.contains(name));
                if when_asked || check_thinking_options(options, by_default).is_err() {
                    return false;
                }
                self.thinking = Some(Thinking::Adaptive { display: None, block_binding: drop });
            }
        }
        true
    }
}

/// Returns an error if any option is set that the API does not accept together with thinking. The
/// API reports that "`temperature` may only be set to 1 when thinking is enabled or in adaptive
/// mode", "`top_k` must be unset", and "`top_p` must be greater than or equal to 0.95 or unset".
/// The API does not accept a forced tool call together with a thinking budget, because only
/// "adaptive thinking supports forced tool use".
fn check_thinking_options(options: &Options, reasoning: Option<Reasoning>) -> Result<(), Error> {
    let budget = match reasoning {
        None | Some(Reasoning::Off) => return Ok(()),
        Some(Reasoning::Effort(_)) => None,
        Some(Reasoning::Budget(budget)) => Some(budget),
    };
    let forces = match &options.tool_choice {
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed { .. } => false,
        ToolChoice::Required | ToolChoice::Tool(_) => true,
    };
    let warm = options.temperature.is_some_and(|warmth| (warmth - 1.0).abs() > f32::EPSILON);
    for (parameter, is_refused, why) in [
        (
            "reasoning",
            budget.is_some_and(|budget| budget < MIN_THINKING_BUDGET),
            "the budget must be at least 1024",
        ),
        ("temperature", warm, "with thinking it must be 1"),
        ("top_k", options.top_k.is_some(), "it cannot be set with thinking"),
        (
            "top_p",
            options.top_p.is_some_and(|p| p < 0.95),
            "with thinking it must be at least \
        0.95",
        ),
        (
            "tool_choice",
            forces && budget.is_some(),
            "a call cannot be forced with a thinking \
        budget",
        ),
    ] {
        if is_refused {
            return Err(refused_option_error(parameter, why));
        }
    }
    Ok(())
}

/// Returns the API's name for a service tier.
fn service_tier_name(tier: &ServiceTier) -> Result<&str, Error> {
    match tier {
        ServiceTier::Auto => Ok("auto"),
        ServiceTier::Standard => Ok("standard_only"),
        ServiceTier::Other(name) => Ok(name),
        ServiceTier::Flex | ServiceTier::Priority => {
            Err(unsupported_error(WIRE_NAME, "service_tier"))
        }
    }
}

/// Returns the value of `thinking.display`, if the options set it.
fn thinking_display(options: &Options) -> Result<Option<&'static str>, Error> {
    let display = match options.reasoning_summary {
        None => return Ok(None),
        Some(ReasoningSummary::Off) => "omitted",
        Some(ReasoningSummary::Auto) => "summarized",
        Some(ReasoningSummary::Concise | ReasoningSummary::Detailed) => {
            return Err(unsupported_error(WIRE_NAME, "reasoning_summary"));
        }
    };
    match options.reasoning {
        Some(_) => Ok(Some(display)),
        None => Err(refused_option_error("reasoning_summary", "it requires `reasoning`")),
    }
}

fn refused_option_error(parameter: &str, why: &str) -> Error {
    let message = format!("the {WIRE_NAME} wire refuses `{parameter}`: {why}");
    Error::new(ErrorKind::InvalidRequest, message).with_parameter(parameter)
}

/// Returns a request's `tool_choice` object. The object is empty for a request without tools,
/// because "`tool_choice` may only be specified while providing `tools`".
fn tool_choice(
    options: &Options,
    has_tools: bool,
    names: &ToolNames,
) -> Result<ObjectWriter, Error> {
    let one_at_most = (options.parallel_tool_calls == Some(false)).then_some(true);
    let (kind, name, one_at_most) = match &options.tool_choice {
        ToolChoice::Auto if one_at_most.is_none() => return Ok(ObjectWriter::default()),
        ToolChoice::Auto => ("auto", None, one_at_most),
        ToolChoice::None => ("none", None, None),
        ToolChoice::Required => ("any", None, one_at_most),
        ToolChoice::Tool(name) => ("tool", Some(names.sent_name(name)), one_at_most),
        ToolChoice::Allowed { .. } => return Err(unsupported_error(WIRE_NAME, "tool_choice")),
    };
    match (has_tools, kind) {
        (true, _) => {
            let choice = ObjectWriter::default().set("type", kind).set_some("name", name);
            Ok(choice.set_some("disable_parallel_tool_use", one_at_most))
        }
        (false, "any" | "tool") => {
            Err(refused_option_error("tool_choice", "there is no tool to call"))
        }
        (false, _) => Ok(ObjectWriter::default()),
    }
}
