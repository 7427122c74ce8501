//! From a request to a body.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::contents::{Contents, ToModel, opens_model};
use super::model::Generation;
use crate::error::{Error, ErrorKind};
use crate::provider::context::Context;
use crate::provider::fields::unsupported;
use crate::provider::schema;
use crate::request::{Effort, Options, Output, Reasoning, Request, ToolChoice, ToolSpec};

/// How this wire is called in an error.
const WIRE: &str = "Gemini";

/// Writes the body of a request to the Gemini wire. The model is not in it: it is in the address.
///
/// The words of one side are one content, so that the roles alternate. The results of a turn stand
/// together and in the order of its calls. Files in them stand in the result for Gemini 3 and
/// later, and behind the results for models before and where they are given by their address.
/// A call that nobody signed gets the signature by which Gemini 3 asks for none. The name of an
/// output schema and [`Options::cache`] do nothing here: the wire caches by itself.
///
/// # Errors
///
/// [`InvalidRequest`](ErrorKind::InvalidRequest) if every content is empty, and
/// [`Unsupported`](ErrorKind::Unsupported) for `user`, `metadata`, `parallel_tool_calls: Some(false)`
/// and a `seed` beyond 31 bits.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    request.check()?;
    let mut context = Context::of(request, ToModel(model.to_owned()));
    if !opens_model(context.peek()) {
        // What is encoded ends with the user, to whose content this may belong.
        context = context.anew();
    }
    let mut contents = Contents::new(model, context.state().is_some());
    for (at, item) in context.items() {
        contents.push(item, at);
    }
    let contents = contents.finish()?;
    if contents.is_empty() && context.encoded() == 0 {
        let message = "there is nothing to send: every content is empty";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    let zones = [context.stable(), context.volatile()];
    let system: Vec<_> =
        zones.iter().filter(|text| !text.trim().is_empty()).map(|text| Text { text }).collect();
    let body = Body {
        system_instruction: (!system.is_empty()).then_some(System { parts: system }),
        tools: tools(request)?,
        tool_config: tool_config(request)?,
        generation_config: generation_config(&request.options, Generation::of(model))?,
        contents: [],
    };
    context.write(&body, contents, &request.options.extra)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<System<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "GenerationConfig::is_empty")]
    generation_config: GenerationConfig<'a>,
    /// They are written apart.
    contents: [(); 0],
}

#[derive(Serialize)]
struct System<'a> {
    parts: Vec<Text<'a>>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    /// "This field is mutually exclusive with `parameters`", which takes a subset of JSON
    /// Schema in a form of its own.
    parameters_json_schema: Cow<'a, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
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
struct GenerationConfig<'a> {
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
    fn is_empty(&self) -> bool {
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

fn tools(request: &Request) -> Result<Vec<Tools<'_>>, Error> {
    let declared = request.tools.iter().map(declaration);
    let function_declarations = declared.collect::<Result<Vec<_>, _>>()?;
    match function_declarations.is_empty() {
        true => Ok(Vec::new()),
        false => Ok(vec![Tools { function_declarations }]),
    }
}

fn declaration(tool: &ToolSpec) -> Result<Declaration<'_>, Error> {
    let parameters_json_schema = schema::gemini(&tool.parameters)?;
    Ok(Declaration { name: &tool.name, description: &tool.description, parameters_json_schema })
}

fn tool_config(request: &Request) -> Result<Option<ToolConfig<'_>>, Error> {
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

fn generation_config(
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
