//! From a request to a body.

mod blocks;
mod cache;
mod generation;
mod messages;
mod options;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use self::cache::CacheKey;
use self::generation::Generation;
use self::messages::{Contents, opens_model};
use self::options::{GenerationConfig, ToolConfig, generation_config, tool_config};
use crate::error::{Error, ErrorKind};
use crate::provider::context::Context;
use crate::provider::schema;
use crate::request::{Request, ToolSpec};

/// Writes the body of a request to the Gemini wire. The model is not in it: it is in the address.
///
/// The words of one side are one content, so that the roles alternate. The results of a turn stand
/// together and in the order of its calls. Files in them stand in the result for Gemini 3 and
/// later, and behind the results for models before and where they are given by their address.
/// A call that nobody signed gets the signature by which Gemini 3 asks for none. The name of an
/// output schema and [`Options::cache`](crate::request::Options::cache) do nothing here: the wire caches by itself.
///
/// # Errors
///
/// [`InvalidRequest`](ErrorKind::InvalidRequest) if every content is empty, and
/// [`Unsupported`](ErrorKind::Unsupported) for `user`, `metadata`, `parallel_tool_calls: Some(false)`
/// and a `seed` beyond 31 bits.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    request.check()?;
    let mut context = Context::of(request, CacheKey(model.to_owned()));
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
