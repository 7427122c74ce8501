//! From a request to a body.

mod blocks;
mod cache;
mod messages;
mod options;

use serde::Serialize;

use self::cache::EncodedPrefix;
use self::messages::InputItems;
use self::options::{
    reasoning_options, refuse_unsupported, supports_reasoning, text_options, tool_choice,
};
use crate::error::Error;
use crate::item::RawJson;
use crate::provider::body::ObjectWriter;
use crate::provider::encode_context::EncodeContext;
use crate::provider::openai_responses::passthrough::PROVIDER_NAME;
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
/// [Deferred](crate::tool::ToolSpec::deferred) tools are sent with `defer_loading`, and the vendor's search of them,
/// `tool_search`, is sent first. Its calls and what it has found go back as they came.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) for an option that the wire does not have:
/// `stop_sequences`, `top_k`, `seed`, `frequency_penalty`, `presence_penalty`, and a budget of
/// `reasoning`. [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if there is nothing to send.
pub fn encode(request: &Request, model: &str) -> Result<Vec<u8>, Error> {
    request.validate()?;
    let options = &request.options;
    refuse_unsupported(options)?;
    let context = EncodeContext::<EncodedPrefix>::from_request(request, PROVIDER_NAME, model, ());
    let mut input = InputItems::new(context.encoder_state());
    for (at, item) in context.items_to_encode() {
        input.push(item, at, model)?;
    }
    context.ensure_not_empty(input.is_empty(), "message")?;
    input.push_instruction(context.volatile_system())?;
    let functions = request.tools.iter().map(|tool| Tool::Function {
        name: &tool.name,
        description: &tool.description,
        parameters: &tool.parameters,
        strict: false,
        defer_loading: tool.deferred,
    });
    let search = request.tools.iter().any(|tool| tool.deferred).then_some(Tool::ToolSearch);
    let tools: Vec<_> = search.into_iter().chain(functions).collect();
    let include = supports_reasoning(model).then_some(["reasoning.encrypted_content"]);
    let instructions = Some(context.stable_system()).filter(|text| !text.is_empty());
    let metadata = (!options.metadata.is_empty()).then_some(&options.metadata);
    let body = ObjectWriter::for_request()
        .set("model", model)
        .set("stream", true)
        .set("store", false)
        .set_some("include", include)
        .set_some("max_output_tokens", options.max_output_tokens)
        .set_some("temperature", options.temperature)
        .set_some("top_p", options.top_p)
        .set_some("reasoning", options.reasoning.map(reasoning_options).transpose()?)
        .set_some("text", text_options(&options.output)?)
        .set_some("instructions", instructions)
        .set_list("tools", &tools)
        .set_some("tool_choice", tool_choice(&options.tool_choice))
        .set_some("parallel_tool_calls", options.parallel_tool_calls)
        .set_some("metadata", metadata)
        .set_some("safety_identifier", options.user.as_ref());
    context.write_body(body, input.finish(), &options.extra)
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    /// The vendor's own search of deferred tools, <https://developers.openai.com/api/docs/guides/tools-tool-search>.
    ToolSearch,
    Function {
        name: &'a str,
        description: &'a str,
        parameters: &'a RawJson,
        /// The wire's own default is true, and changes the schema.
        strict: bool,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        defer_loading: bool,
    },
}
