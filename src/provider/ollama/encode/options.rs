//! From the options of a request to the fields of a body.

use serde::Serialize;
use serde_json::Value;

use super::WIRE;
use crate::error::Error;
use crate::provider::fields::unsupported;
use crate::provider::ollama::{Chat, Think};
use crate::request::{Effort, Options, Output, Reasoning};

/// The largest seed: the server reads numbers as doubles, and larger ones could be the same.
const MAX_SEED: u64 = (1 << 53) - 1;

/// The `options` of a body, as the server's `api.Options` names them.
#[derive(Default, PartialEq, Serialize)]
pub(super) struct ModelOptions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_predict: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
}

impl ModelOptions<'_> {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The form of the answer.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Format<'a> {
    Word(&'static str),
    Schema(&'a Value),
}

/// The value of `think`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Thinking {
    Switch(bool),
    Level(&'static str),
}

pub(super) fn model_options<'a>(
    options: &'a Options,
    chat: &Chat,
) -> Result<ModelOptions<'a>, Error> {
    if options.seed.is_some_and(|seed| seed > MAX_SEED) {
        return Err(unsupported(WIRE, "seed"));
    }
    Ok(ModelOptions {
        num_ctx: chat.num_ctx(),
        num_predict: options.max_output_tokens,
        temperature: options.temperature,
        top_p: options.top_p,
        top_k: options.top_k,
        seed: options.seed,
        frequency_penalty: options.frequency_penalty,
        presence_penalty: options.presence_penalty,
        stop: &options.stop_sequences,
    })
}

/// The server turns a schema into a grammar; it takes references, and drops what it does not know.
pub(super) fn format(output: &Output) -> Option<Format<'_>> {
    match output {
        Output::Text => None,
        Output::Json => Some(Format::Word("json")),
        Output::Schema(output) => Some(Format::Schema(&output.schema)),
    }
}

pub(super) fn thinking(asked: Reasoning, written: Think) -> Result<Thinking, Error> {
    let level = match asked {
        Reasoning::Off => return Ok(Thinking::Switch(false)),
        Reasoning::Budget(_) => return Err(unsupported(WIRE, "reasoning")),
        Reasoning::Effort(Effort::Minimal | Effort::Low) => "low",
        Reasoning::Effort(Effort::Medium) => "medium",
        Reasoning::Effort(Effort::High | Effort::Max) => "high",
    };
    Ok(match written {
        Think::Levels => Thinking::Level(level),
        Think::Switch => Thinking::Switch(true),
    })
}
