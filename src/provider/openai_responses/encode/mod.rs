//! From a request to a body.

mod blocks;
mod cache;
mod messages;
mod options;

use serde::Serialize;
use serde_json::Value;

use self::cache::CacheKey;
use self::messages::Input;
use self::options::{may_reason, reasoning, refuse_unsupported, text, tool_choice};
use crate::error::{Error, ErrorKind};
use crate::provider::context::Context;
use crate::request::Request;

/// Writes the body of a request to the Responses wire.
///
/// Nothing is stored by the provider (`store` is false): each request holds all of its input, with
/// the reasoning as the provider encrypted it. The stable zone of the system prompt becomes
/// `instructions`, instructions in between messages of the `developer`; the volatile zone is such a
/// message, too, and stands last, so that the input before it stays the beginning of the next one.
///
/// Reasoning and the ids of items go back to the model that wrote them, and only together: where
/// a reasoning item is missing or would stand at the end of its turn, what followed it goes without
/// its id. Other models get the words and the calls.
///
/// Encrypted reasoning is asked for (`include`) unless the model's name says that it does not
/// reason, because such models refuse to be asked. [`extra`](crate::request::Options::extra) can set `include`
/// otherwise. [`cache`](crate::request::Options::cache) does nothing: the provider caches by itself.
///
/// # Errors
///
/// [`Unsupported`](ErrorKind::Unsupported) for an option that the wire does not have:
/// `stop_sequences`, `top_k`, `seed`, `frequency_penalty`, `presence_penalty`, and a budget of
/// `reasoning`. [`InvalidRequest`](ErrorKind::InvalidRequest) if there is nothing to send.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    request.check()?;
    let options = &request.options;
    refuse_unsupported(options)?;
    let context = Context::of(request, CacheKey(model.to_owned()));
    let mut input = Input::new(context.state());
    for (at, item) in context.items() {
        input.push(item, at, model)?;
    }
    if input.is_empty() && context.encoded() == 0 {
        let message = "there is nothing to send: every message is empty";
        return Err(Error::new(ErrorKind::InvalidRequest, message));
    }
    input.instruct(context.volatile())?;
    let tools = request.tools.iter().map(|tool| Tool {
        r#type: "function",
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.parameters,
        strict: false,
    });
    let body = Body {
        model,
        stream: true,
        store: false,
        include: match may_reason(model) {
            true => &["reasoning.encrypted_content"],
            false => &[],
        },
        max_output_tokens: options.max_output_tokens,
        temperature: options.temperature,
        top_p: options.top_p,
        reasoning: options.reasoning.map(reasoning).transpose()?,
        text: text(&options.output)?,
        instructions: context.stable(),
        tools: tools.collect(),
        tool_choice: tool_choice(&options.tool_choice),
        parallel_tool_calls: options.parallel_tool_calls,
        metadata: &options.metadata,
        safety_identifier: options.user.as_deref(),
        input: [],
    };
    let array = input.finish();
    context.write(&body, array, &options.extra)
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'a [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    metadata: &'a std::collections::BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<&'a str>,
    /// They are written apart.
    input: [(); 0],
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// The wire's own default is true, and changes the schema.
    strict: bool,
}
