//! The fields that the decoder reads from the API's chunks. Every field is optional, and malformed
//! values are treated as absent.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use serde_json::value::RawValue;

use crate::provider::codec::lenient::{
    FromAny, Lenient, LenientList, LenientNumber, LenientStr, MaybeObject, RareObject,
    impl_lenient_deserialize, non_null,
};
use crate::provider::codec::logprobs::read_tokens;
use crate::provider::wires::openai::{TokenDetails, arguments_text};
use crate::turn::{TokenLogprob, TurnBuilder};
use crate::usage::{Billing, Usage};

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Chunk<'a> {
    pub(super) id: LenientStr<'a>,
    pub(super) model: LenientStr<'a>,
    pub(super) service_tier: LenientStr<'a>,
    pub(super) choices: FirstChoice<'a>,
    pub(super) usage: RareObject<WireUsage>,
    pub(super) error: Option<&'a RawValue>,
    /// The URLs that the text cites by number. Perplexity sends this field.
    pub(super) citations: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Returns whether the chunk has only choices and the values that all chunks of a response
    /// share.
    pub(super) fn has_only_choices(&self) -> bool {
        self.usage.0.is_none() && self.error.is_none() && self.citations.is_none()
    }
}

/// The choice with index 0 or without an index. Any other choices were not requested and are
/// ignored. `malformed` is true if the array contains a value that is not a choice.
#[derive(Default)]
pub(super) struct FirstChoice<'a> {
    pub(super) choice: Option<Choice<'a>>,
    pub(super) malformed: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Choice<'a> {
    index: LenientNumber,
    pub(super) delta: MaybeObject<Delta<'a>>,
    pub(super) finish_reason: LenientStr<'a>,
    /// The turn's usage, which some servers send as part of the choice.
    pub(super) usage: RareObject<WireUsage>,
    pub(super) error: Option<&'a RawValue>,
    pub(super) logprobs: Option<&'a RawValue>,
}

/// The log probabilities of a choice's tokens.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Logprobs<'a> {
    content: Option<&'a RawValue>,
    refusal: Option<&'a RawValue>,
}

impl Choice<'_> {
    /// Returns the log probabilities of the tokens that the chunk adds.
    pub(super) fn token_logprobs(&self) -> Vec<TokenLogprob> {
        let Some(raw) = non_null(self.logprobs) else { return Vec::new() };
        let read: Lenient<Logprobs<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
        let Some(Logprobs { content, refusal }) = read.0 else { return Vec::new() };
        [content, refusal].into_iter().flatten().flat_map(read_tokens).collect()
    }
}

/// The content that a chunk adds. Rarely used fields are boxed to keep the struct small, because it
/// is moved for each token.
#[derive(Default)]
pub(super) struct Delta<'a> {
    pub(super) content: Content<'a>,
    pub(super) refusal: LenientStr<'a>,
    /// The reasoning text, taken from the first field in `REASONING_FIELDS` that is not empty.
    pub(super) reasoning: LenientStr<'a>,
    pub(super) tool_calls: CallPieces<'a>,
    pub(super) rare: Option<Box<RareFields<'a>>>,
}

/// The fields that only some servers send, as raw JSON. A field is never `null`.
#[derive(Clone, Copy, Default)]
pub(super) struct RareFields<'a> {
    pub(super) reasoning_details: Option<&'a RawValue>,
    pub(super) thinking_blocks: Option<&'a RawValue>,
    pub(super) annotations: Option<&'a RawValue>,
    pub(super) audio: Option<&'a RawValue>,
    /// The images that the model has generated,
    /// <https://openrouter.ai/docs/features/multimodal/image-generation>.
    pub(super) images: Option<&'a RawValue>,
    /// The deprecated predecessor of `tool_calls`.
    pub(super) function_call: Option<&'a RawValue>,
}

/// The field names that servers use for reasoning, in order of priority. If several of these fields
/// are present, they contain the same text, so only one is read.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// A message's content, which is a string or an array of parts.
#[derive(Default)]
pub(super) struct Content<'a> {
    /// The content's text, which is either the string itself or the combined text of all parts with
    /// the type `text` or `output_text`.
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) other_parts: Option<Box<OtherParts<'a>>>,
}

/// The content parts of a message that are not text.
#[derive(Default)]
pub(super) struct OtherParts<'a> {
    /// The text of all parts with the type `thinking` (sent by Mistral) or `reasoning` (sent by
    /// Databricks).
    pub(super) reasoning: String,
    pub(super) images: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ContentPart<'a> {
    r#type: LenientStr<'a>,
    text: LenientStr<'a>,
    thinking: LenientList<ContentReasoning<'a>>,
    summary: LenientList<ContentReasoning<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ContentReasoning<'a> {
    text: LenientStr<'a>,
}

impl ContentPart<'_> {
    /// Appends a reasoning part's text to `into`. The text is read from the part's `thinking` and
    /// `summary` arrays or, if they contain no text, from the part's own `text` field.
    fn append_reasoning(&self, into: &mut String) {
        let listed = self.thinking.0.iter().chain(&self.summary.0);
        let before = into.len();
        into.extend(listed.map(|thought| thought.text.or_empty()));
        if into.len() == before {
            into.push_str(self.text.or_empty());
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireCall<'a> {
    pub(super) index: LenientNumber,
    pub(super) id: LenientStr<'a>,
    pub(super) function: MaybeObject<Function<'a>>,
    pub(super) r#type: LenientStr<'a>,
    pub(super) custom: Option<&'a RawValue>,
    pub(super) extra_content: Option<&'a RawValue>,
    pub(super) provider_specific_fields: Option<&'a RawValue>,
}

/// The call deltas in a chunk. `malformed` is true if the array contains a value that is not a call
/// delta.
#[derive(Default)]
pub(super) struct CallPieces<'a> {
    pub(super) calls: Vec<WireCall<'a>>,
    pub(super) malformed: bool,
}

impl WireCall<'_> {
    pub(super) fn adds_arguments(&self) -> bool {
        let piece = self.function.value.as_ref().map(|function| arguments_text(function.arguments));
        piece.is_some_and(|piece| piece.is_none_or(|piece| !piece.is_empty()))
    }

    /// Returns whether this is a custom tool call, whose input is not JSON.
    pub(super) fn is_custom(&self) -> bool {
        self.r#type.get() == Some("custom") || non_null(self.custom).is_some()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub(super) name: LenientStr<'a>,
    pub(super) provider_specific_fields: Option<&'a RawValue>,
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: LenientNumber,
    completion_tokens: LenientNumber,
    total_tokens: LenientNumber,
    /// The number of cached input tokens, from a field that only some servers send.
    cached_tokens: LenientNumber,
    prompt_cache_hit_tokens: LenientNumber,
    cache_read_input_tokens: LenientNumber,
    cache_creation_input_tokens: LenientNumber,
    prompt_tokens_details: Lenient<TokenDetails>,
    completion_tokens_details: Lenient<TokenDetails>,
    /// The tokens of the pages that the model has read. Perplexity sends this field, and counts
    /// neither these tokens nor `reasoning_tokens` as a part of `completion_tokens`.
    citation_tokens: LenientNumber,
    reasoning_tokens: LenientNumber,
    /// The number of web searches at Perplexity.
    num_search_queries: LenientNumber,
    /// The number of pages that a search of xAI has used, each of which has a price.
    num_sources_used: LenientNumber,
    /// The calls of tools that ran on OpenRouter's servers.
    server_tool_use: Lenient<ServerToolUse>,
    server_tool_use_details: Lenient<ServerToolUse>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ServerToolUse {
    web_search_requests: LenientNumber,
}

impl WireUsage {
    /// Sets what affects the price of the turn beside its token counts. `unreported_searches` is
    /// the number of web searches of a model that does not report them.
    pub(super) fn set_billing(self, unreported_searches: u64, turn: &mut TurnBuilder) {
        let prompt = self.prompt_tokens_details.0.unwrap_or_default();
        let completion = self.completion_tokens_details.0.unwrap_or_default();
        turn.set_tokens_of_kind("input_audio", prompt.audio_tokens.or_zero());
        turn.set_tokens_of_kind("output_audio", completion.audio_tokens.or_zero());
        turn.set_tokens_of_kind("output_image", completion.image_tokens.or_zero());
        turn.set_tokens_of_kind("citation", self.citation_tokens.or_zero());
        let tools = self.server_tool_use.0.or(self.server_tool_use_details.0).unwrap_or_default();
        let searches = tools.web_search_requests.0.or(self.num_search_queries.0);
        turn.set_server_tool_calls(Billing::WEB_SEARCH, searches.unwrap_or(unreported_searches));
        turn.set_server_tool_calls("live_search", self.num_sources_used.or_zero());
    }

    pub(super) fn to_usage(self) -> Usage {
        let first =
            |counts: &[LenientNumber]| counts.iter().find_map(|count| count.0).unwrap_or_default();
        let prompt = self.prompt_tokens_details.0.unwrap_or_default();
        let completion = self.completion_tokens_details.0.unwrap_or_default();
        let (input, output) = (self.prompt_tokens.or_zero(), self.completion_tokens.or_zero());
        let (input, output, reasoned) = match self.citation_tokens.0 {
            None => (input, output, completion.reasoning_tokens.or_zero()),
            Some(cited) => {
                let reasoned = self.reasoning_tokens.or_zero();
                (input, output.saturating_add(reasoned).saturating_add(cited), reasoned)
            }
        };
        // xAI excludes reasoning tokens from `completion_tokens`, as the reported total shows.
        let apart = input.saturating_add(output).saturating_add(reasoned);
        let is_apart = self.total_tokens.0 == Some(apart);
        Usage {
            input_tokens: input,
            output_tokens: if is_apart { output.saturating_add(reasoned) } else { output },
            cache_read_input_tokens: first(&[
                prompt.cached_tokens,
                self.cached_tokens,
                self.prompt_cache_hit_tokens,
                self.cache_read_input_tokens,
            ]),
            cache_write_input_tokens: first(&[
                prompt.cache_write_tokens,
                self.cache_creation_input_tokens,
            ]),
            reasoning_tokens: reasoned,
            ..Usage::default()
        }
    }
}

impl_lenient_deserialize! {
    ['de: 'a, 'a] FirstChoice<'a>;
    ['de: 'a, 'a] CallPieces<'a>;
    ['de: 'a, 'a] Content<'a>;
    ['de: 'a, 'a] Delta<'a>;
}

impl<'de: 'a, 'a> FromAny<'de> for FirstChoice<'a> {
    fn from_malformed() -> Self {
        Self { choice: None, malformed: true }
    }

    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut first = Self::default();
        while let Some(choice) = array.next_element::<MaybeObject<Choice<'a>>>()? {
            first.malformed |= choice.malformed;
            let choice = choice.value.filter(|choice| choice.index.0.unwrap_or(0) == 0);
            first.choice = first.choice.or(choice);
        }
        Ok(first)
    }
}

impl<'de: 'a, 'a> FromAny<'de> for CallPieces<'a> {
    fn from_malformed() -> Self {
        Self { calls: Vec::new(), malformed: true }
    }

    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let mut pieces = Self::default();
        while let Some(call) = array.next_element::<MaybeObject<WireCall<'a>>>()? {
            pieces.malformed |= call.malformed;
            pieces.calls.extend(call.value);
        }
        Ok(pieces)
    }
}

impl<'de: 'a, 'a> FromAny<'de> for Content<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self { text: Some(text), other_parts: None }
    }

    fn from_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        let (mut text, mut others) = (String::new(), OtherParts::default());
        while let Some(raw) = array.next_element::<&'a RawValue>()? {
            let part: Lenient<ContentPart<'a>> =
                serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
            let Some(part) = part.0 else { continue };
            match part.r#type.get() {
                Some("text" | "output_text") | None => text.push_str(part.text.or_empty()),
                Some("thinking" | "reasoning") => part.append_reasoning(&mut others.reasoning),
                Some("image_url") => others.images.push(raw),
                Some(_) => {}
            }
        }
        Ok(Self { text: Some(Cow::Owned(text)), other_parts: Some(Box::new(others)) })
    }
}

impl<'de: 'a, 'a> FromAny<'de> for Delta<'a> {
    fn from_object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        let mut delta = Self::default();
        let mut rank = REASONING_FIELDS.len();
        while let Some(LenientStr(name)) = object.next_key::<LenientStr<'a>>()? {
            match name.as_deref().unwrap_or_default() {
                "content" => delta.content = object.next_value()?,
                "tool_calls" => delta.tool_calls = object.next_value()?,
                "refusal" => delta.refusal = object.next_value()?,
                name => {
                    let reasoning = REASONING_FIELDS.iter().position(|known| *known == name);
                    match (reasoning, RareFields::accessor_for(name)) {
                        (Some(at), _) => {
                            let thought: LenientStr<'a> = object.next_value()?;
                            if at < rank && thought.non_empty().is_some() {
                                (delta.reasoning, rank) = (thought, at);
                            }
                        }
                        (None, Some(field)) => {
                            let raw: &'a RawValue = object.next_value()?;
                            if raw.get() != "null" {
                                *field(delta.rare.get_or_insert_default()) = Some(raw);
                            }
                        }
                        (None, None) => drop(object.next_value::<IgnoredAny>()?),
                    }
                }
            }
        }
        Ok(delta)
    }
}

type RareFieldAccessor = for<'s, 'a> fn(&'s mut RareFields<'a>) -> &'s mut Option<&'a RawValue>;

impl RareFields<'_> {
    fn accessor_for(name: &str) -> Option<RareFieldAccessor> {
        Some(match name {
            "reasoning_details" => |rare| &mut rare.reasoning_details,
            "thinking_blocks" => |rare| &mut rare.thinking_blocks,
            "annotations" => |rare| &mut rare.annotations,
            "images" => |rare| &mut rare.images,
            "audio" => |rare| &mut rare.audio,
            "function_call" => |rare| &mut rare.function_call,
            _ => return None,
        })
    }
}
