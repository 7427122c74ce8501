//! The requests and the complete responses of the wires.

pub(crate) mod anthropic;
pub(crate) mod gemini;
pub(crate) mod ollama;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;

use serde_json::Value;
use turnstream::provider::server::Wire;
use turnstream::ui::ClientLimits;
use turnstream::{Error, ErrorKind};

use crate::fields::{Fields, invalid};
use crate::model_request::ModelRequest;

/// The fields of a body that a response repeats, on any wire.
const REPEATED: [&str; 13] = [
    "include",
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
];

/// Reads a request. `model` is the name of the model if it stands in the path.
pub(crate) fn parse_request(
    wire: Wire,
    body: Value,
    model: Option<String>,
    limits: &ClientLimits,
) -> Result<ModelRequest, Error> {
    let body = if wire == Wire::Gemini { gemini::with_camel_case(body) } else { body };
    let repeated = REPEATED.iter().map(|name| ((*name).to_owned(), body[name].clone()));
    let repeated = if body.is_object() { repeated.collect() } else { Value::Null };
    let mut fields = Fields::of(body, "")?;
    let model = match model {
        Some(model) => model,
        None => fields.required_text("model")?,
    };
    let mut request = ModelRequest::new(model, repeated);
    let read = match wire {
        Wire::OpenAiChat => openai_chat::read,
        Wire::OpenAiResponses => openai_responses::read,
        Wire::Anthropic => anthropic::read,
        Wire::Gemini => gemini::read,
        Wire::Ollama => ollama::read,
        other => {
            let message = format!("the {other} wire is not served");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    };
    read(&mut fields, &mut request, limits)?;
    fields.finish()?;
    if request.tools.len() > limits.max_tools {
        let message = format!("a request may have at most {} tools", limits.max_tools);
        return Err(invalid("tools", &message));
    }
    Ok(request)
}
