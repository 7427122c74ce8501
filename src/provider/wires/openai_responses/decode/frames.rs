//! The fields that the decoder reads from the API's events. Every field is optional, and malformed
//! values are treated as absent.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::codec::lenient::{
    self, Lenient, LenientList, LenientNumber, LenientStr, RareObject, RawList,
};
use crate::provider::wires::openai::TokenDetails;
use crate::provider::wires::openai_responses::passthrough::MessagePart;
use crate::turn::TurnBuilder;
use crate::usage::{Billing, Usage};

/// An event of any type. Fields that belong to other event types are absent.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Event<'a> {
    pub(super) r#type: LenientStr<'a>,
    pub(super) output_index: LenientNumber,
    pub(super) item_id: LenientStr<'a>,
    pub(super) content_index: LenientNumber,
    pub(super) summary_index: LenientNumber,
    /// The delta, which is a string in every event that the decoder reads.
    pub(super) delta: Option<&'a RawValue>,
    pub(super) text: LenientStr<'a>,
    pub(super) refusal: LenientStr<'a>,
    pub(super) name: LenientStr<'a>,
    pub(super) arguments: Option<&'a RawValue>,
    pub(super) item: Option<&'a RawValue>,
    pub(super) part: RareObject<MessagePart<'a>>,
    pub(super) response: RareObject<Response<'a>>,
    pub(super) error: Option<&'a RawValue>,
    /// The choices in a Chat Completions chunk. The presence of this field identifies such a chunk,
    /// which has no type.
    pub(super) choices: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Response<'a> {
    pub(super) id: LenientStr<'a>,
    pub(super) model: LenientStr<'a>,
    pub(super) status: LenientStr<'a>,
    pub(super) service_tier: LenientStr<'a>,
    pub(super) incomplete_details: Lenient<IncompleteDetails<'a>>,
    pub(super) error: Option<&'a RawValue>,
    /// The output items. Some gateways leave the array empty even after they have streamed items.
    pub(super) output: RawList<'a>,
    pub(super) usage: RareObject<WireUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct IncompleteDetails<'a> {
    pub(super) reason: LenientStr<'a>,
}

/// An output item of a response. Its raw JSON is stored separately.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireItem<'a> {
    pub(super) r#type: LenientStr<'a>,
    pub(super) id: LenientStr<'a>,
    pub(super) status: LenientStr<'a>,
    /// A message's phase, which is `commentary` or `final_answer`.
    pub(super) phase: LenientStr<'a>,
    pub(super) call_id: LenientStr<'a>,
    pub(super) name: LenientStr<'a>,
    pub(super) arguments: Option<&'a RawValue>,
    pub(super) summary: LenientList<MessagePart<'a>>,
    pub(super) content: LenientList<MessagePart<'a>>,
    /// The tools listed in an `mcp_list_tools` item.
    pub(super) tools: Option<&'a RawValue>,
}

impl<'a> WireItem<'a> {
    /// Parses an item. Returns `None` if the value is not an object or has no type.
    pub(super) fn parse(raw: &'a RawValue, scratch: &'a mut String) -> Option<Self> {
        let Lenient(item) = lenient::read_lenient::<Lenient<Self>>(raw.get(), scratch).ok()?;
        item.filter(|item| !item.r#type.or_empty().is_empty())
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    input_tokens: LenientNumber,
    output_tokens: LenientNumber,
    input_tokens_details: Lenient<TokenDetails>,
    output_tokens_details: Lenient<TokenDetails>,
    /// The calls of the tools that ran on xAI's servers.
    server_side_tool_usage_details: Lenient<ServerToolCalls>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the wire defines them")]
struct ServerToolCalls {
    web_search_calls: LenientNumber,
    x_search_calls: LenientNumber,
    code_interpreter_calls: LenientNumber,
    file_search_calls: LenientNumber,
    document_search_calls: LenientNumber,
    image_generation_calls: LenientNumber,
}

impl WireUsage {
    /// Sets what affects the price of the turn beside its token counts. The reported calls of a
    /// tool replace those that were counted.
    pub(super) fn set_billing(self, turn: &mut TurnBuilder) {
        let input = self.input_tokens_details.0.unwrap_or_default();
        let output = self.output_tokens_details.0.unwrap_or_default();
        turn.set_tokens_of_kind("input_audio", input.audio_tokens.or_zero());
        turn.set_tokens_of_kind("output_audio", output.audio_tokens.or_zero());
        turn.set_tokens_of_kind("output_image", output.image_tokens.or_zero());
        let tools = self.server_side_tool_usage_details.0.unwrap_or_default();
        for (tool, calls) in [
            (Billing::WEB_SEARCH, tools.web_search_calls),
            ("x_search", tools.x_search_calls),
            (Billing::CODE_EXECUTION, tools.code_interpreter_calls),
            (Billing::FILE_SEARCH, tools.file_search_calls),
            ("document_search", tools.document_search_calls),
            ("image_generation", tools.image_generation_calls),
        ] {
            if let Some(calls) = calls.0.filter(|calls| *calls > 0) {
                turn.set_server_tool_calls(tool, calls);
            }
        }
    }

    pub(super) fn to_usage(self) -> Usage {
        let input = self.input_tokens_details.0.unwrap_or_default();
        let output = self.output_tokens_details.0.unwrap_or_default();
        Usage {
            input_tokens: self.input_tokens.or_zero(),
            output_tokens: self.output_tokens.or_zero(),
            cache_read_input_tokens: input.cached_tokens.or_zero(),
            cache_write_input_tokens: input.cache_write_tokens.or_zero(),
            reasoning_tokens: output.reasoning_tokens.or_zero(),
            ..Usage::default()
        }
    }
}
