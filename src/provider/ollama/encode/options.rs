//! From the options of a request to the fields of a body.

use crate::error::Error;
use crate::provider::body::{ObjectWriter, unsupported_error};
use crate::provider::effort_names::EffortNames;
use crate::provider::ollama::{Chat, Think};
use crate::request::{Options, Output, Reasoning};

/// The name of this wire in errors.
pub(super) const WIRE_NAME: &str = "Ollama";

/// The largest seed: the server reads numbers as doubles, and larger ones could be the same.
const MAX_SEED: u64 = (1 << 53) - 1;

/// Adds the form of the answer, the reasoning, and `options` as the server's `api.Options` names
/// them.
pub(super) fn write_options(
    body: ObjectWriter,
    options: &Options,
    chat: &Chat,
) -> Result<ObjectWriter, Error> {
    if options.seed.is_some_and(|seed| seed > MAX_SEED) {
        return Err(unsupported_error(WIRE_NAME, "seed"));
    }
    // The server turns a schema into a grammar; it takes references, and drops what it does not know.
    let body = match &options.output {
        Output::Text => body,
        Output::Json => body.set("format", "json"),
        Output::Schema(output) => body.set("format", &output.schema),
    };
    let body = match options.reasoning {
        None => body,
        Some(Reasoning::Off) => body.set("think", false),
        Some(Reasoning::Budget(_)) => return Err(unsupported_error(WIRE_NAME, "reasoning")),
        Some(Reasoning::Effort(effort)) => match chat.think() {
            Think::Levels => body.set("think", EffortNames::LOW_MEDIUM_HIGH.name_of(effort)),
            Think::Boolean => body.set("think", true),
        },
    };
    let of_model = ObjectWriter::default()
        .set_some("num_ctx", chat.num_ctx())
        .set_some("num_predict", options.max_output_tokens)
        .set_some("temperature", options.temperature)
        .set_some("top_p", options.top_p)
        .set_some("top_k", options.top_k)
        .set_some("seed", options.seed)
        .set_some("frequency_penalty", options.frequency_penalty)
        .set_some("presence_penalty", options.presence_penalty)
        .set_list("stop", &options.stop_sequences);
    Ok(body.set_some("keep_alive", chat.keep_alive()).set_object("options", of_model))
}
