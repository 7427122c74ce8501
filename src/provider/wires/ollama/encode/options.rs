//! Encodes a request's options.

use crate::error::Error;
use crate::provider::codec::body::{ObjectWriter, unsupported_error};
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::wires::ollama::{Chat, Think};
use crate::request::{Options, Output, Reasoning};

/// The name of Ollama's API in error messages.
pub(super) const WIRE_NAME: &str = "Ollama";

/// The largest supported seed. The server parses numbers as doubles, which cannot represent every
/// larger integer exactly.
const MAX_SEED: u64 = (1 << 53) - 1;

/// Sets the fields for the output format and for reasoning in the request body. The other options
/// are set in the `options` field, under the names used by the server's `api.Options` type.
pub(super) fn write_options(
    body: ObjectWriter,
    options: &Options,
    chat: &Chat,
) -> Result<ObjectWriter, Error> {
    if options.seed.is_some_and(|seed| seed > MAX_SEED) {
        return Err(unsupported_error(WIRE_NAME, "seed"));
    }
    // The server converts a schema to a grammar, supports references in the schema, and ignores
    // unknown keywords.
    let body = match &options.output {
        Output::Text => body,
        Output::Json => body.set("format", "json"),
        Output::Schema(output) => body.set("format", &output.schema),
    };
    let body = match options.reasoning {
        None => body,
        Some(Reasoning::Off) => body.set("think", false),
        Some(Reasoning::Budget(_)) => return Err(unsupported_error(WIRE_NAME, "reasoning")),
        Some(Reasoning::Effort(effort)) => match chat.think {
            Think::Levels => body.set("think", EffortNames::LOW_MEDIUM_HIGH.name_of(effort)),
            Think::Boolean => body.set("think", true),
        },
    };
    let of_model = ObjectWriter::default()
        .set_some("num_ctx", chat.num_ctx)
        .set_some("num_predict", options.max_output_tokens)
        .set_some("temperature", options.temperature)
        .set_some("top_p", options.top_p)
        .set_some("top_k", options.top_k)
        .set_some("seed", options.seed)
        .set_some("frequency_penalty", options.frequency_penalty)
        .set_some("presence_penalty", options.presence_penalty)
        .set_list("stop", &options.stop_sequences);
    let body = body
        .set_some("logprobs", options.logprobs.map(|_| true))
        .set_some("top_logprobs", options.logprobs);
    Ok(body.set_some("keep_alive", chat.keep_alive).set_object("options", of_model))
}
