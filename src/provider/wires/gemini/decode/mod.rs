//! Decodes a response's frames into a turn.

mod calls;
mod frames;
mod partial_args;

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::calls::Calls;
use self::frames::{Candidate, Chunk, FunctionCall, Part, TokenCounts, WireUsage};
use crate::error::{Error, ErrorKind};
use crate::item::{ProviderData, StopReason};
use crate::provider::codec::decode::{Decode, FrameOutcome};
use crate::provider::codec::failure::{self, protocol_error};
use crate::provider::codec::frame_template::{FrameTemplate, borrowed_range};
use crate::provider::codec::lenient::{self, Lenient, LenientList, LenientNumber, LenientStr};
use crate::provider::codec::logprobs::read_result;
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::codec::turn_ending::common_stop_reason;
use crate::provider::wires::gemini::passthrough::{Continuation, PROVIDER_NAME, PassthroughFields};
use crate::request::ToolNames;
use crate::sse::Frame;
use crate::turn::{ReasoningKind, TurnBuilder};
use crate::usage::Billing;

/// The maximum number of values that are stored for each source metadata field.
const MAX_SOURCES_PER_KIND: usize = 64;

/// The maximum number of characters of a finish message to include in an error.
const MAX_FINISH_MESSAGE_CHARS: usize = 500;

/// Decodes chunks from the Gemini API. The decoder is pure and performs no I/O.
///
/// The API sends no end-of-stream marker, so a turn is complete if the body ends after a
/// `finishReason`. More content can follow a `finishReason`, for example after the provider has
/// executed code. If more content follows, the turn stays open until the next `finishReason`.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The requested model. The provider data of the turn's items is sent back only to this model.
    model: String,
    calls: Calls,
    token_counts: TokenCounts,
    /// The number of items so far, which determines the next item key because the API has no item
    /// indices.
    item_count: u32,
    /// The text item that the next part continues, unless that part has a signature.
    open_text: Option<OpenText>,
    last_text: Option<LastText>,
    /// Metadata about the answer's sources, keyed by the API's field names.
    sources: Map<String, Value>,
    /// The token with which the next request continues the answer, if the provider paused it.
    continuation_token: Option<String>,
    is_finished: bool,
    /// Whether the request names a cache for whose storage the application pays.
    has_stored_cache: bool,
    template: FrameTemplate<RepeatedPart>,
}

/// Describes a chunk with a single part. A chunk that matches the template differs from this chunk
/// only in its text and usage.
#[derive(Clone, Copy, Debug)]
struct RepeatedPart {
    is_thought: bool,
    usage: Option<WireUsage>,
}

/// Consecutive parts of the same kind, which form a single item.
#[derive(Clone, Copy, Debug)]
struct OpenText {
    index: u32,
    is_thought: bool,
}

#[derive(Debug)]
struct LastText {
    index: u32,
    signature: Option<String>,
}

impl Decoder {
    /// Creates a decoder for a response from `model`.
    pub fn new(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// Sets the names of the tools, which calls are converted back to.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the provider uses it"))]
    pub(super) fn with_tool_names(mut self, names: ToolNames) -> Self {
        self.calls.tool_names = names;
        self
    }

    /// Sets whether the request names a cache that the application has created.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the provider uses it"))]
    pub(super) fn with_stored_cache(mut self, has_stored_cache: bool) -> Self {
        self.has_stored_cache = has_stored_cache;
        self
    }

    /// Applies a chunk and returns its text. Returns `None` if applying the same chunk with
    /// different text and usage could have effects other than adding that text and updating the
    /// usage.
    fn on_chunk<'a>(
        &mut self,
        chunk: &Chunk<'a>,
        turn: &mut TurnBuilder,
    ) -> Result<Option<(RepeatedPart, &'a str)>, Error> {
        if let Some(error) = failure::non_null_error(chunk.error) {
            return Err(failure::error_in_stream(error.get()));
        }
        turn.set_provider(PROVIDER_NAME);
        turn.set_model(chunk.model_version.or_empty());
        turn.set_response_id(chunk.response_id.or_empty());
        if let Some(usage) = chunk.usage_metadata.0 {
            self.update_usage(usage, turn);
        }
        if let Some(candidate) = chunk.candidate() {
            let text = self.on_candidate(candidate, turn)?;
            let usage = chunk.usage_metadata.0;
            return Ok(text.map(|(is_thought, text)| (RepeatedPart { is_thought, usage }, text)));
        }
        let feedback = chunk.prompt_feedback.0.as_ref();
        let blocked = feedback.and_then(|feedback| feedback.block_reason.non_empty());
        if let Some(raw) = blocked.filter(|_| !self.is_finished) {
            self.is_finished = true;
            turn.stop(StopReason::ContentFilter, raw);
        }
        Ok(None)
    }

    fn update_usage(&mut self, usage: WireUsage, turn: &mut TurnBuilder) {
        self.token_counts.update(usage);
        turn.set_usage(self.token_counts.to_usage());
    }

    /// Applies the text and the usage from a chunk that differs from the last parsed chunk only in
    /// text and usage.
    fn push_repeated(&mut self, part: RepeatedPart, text: &str, turn: &mut TurnBuilder) {
        if let Some(mut usage) = part.usage {
            self.template.counts().for_each(|(name, count)| usage.set(name, count));
            self.update_usage(usage, turn);
        }
        if !turn.is_finished() {
            self.push_text_part(text, part.is_thought, None, turn);
        }
    }

    /// Applies a candidate. If the candidate contains only text, returns the text and whether the
    /// text is a thought.
    fn on_candidate<'a>(
        &mut self,
        candidate: &Candidate<'a>,
        turn: &mut TurnBuilder,
    ) -> Result<Option<(bool, &'a str)>, Error> {
        let parts = candidate.parts();
        if parts.is_none() {
            self.calls.check_no_open_call()?;
        }
        let (mut only_text, mut has_more) = (None, self.is_finished);
        for raw in parts.unwrap_or_default() {
            if turn.is_finished() {
                break;
            }
            if self.is_finished && has_content(raw) {
                self.is_finished = false;
                turn.clear_stop();
            }
            has_more |= only_text.is_some();
            only_text = Some(self.on_part(raw, turn)?);
        }
        if let Some(raw) = candidate.logprobs_result {
            has_more = true;
            turn.push_logprobs(read_result(raw));
        }
        for (name, value) in candidate.source_metadata() {
            has_more = true;
            self.add_source(name, value);
        }
        let Some(raw) = candidate.specified_finish_reason() else {
            return Ok(only_text.flatten().filter(|_| !has_more));
        };
        let message = candidate.finish_message.or_empty();
        if let Some(error) = generation_error(raw, message) {
            return Err(error);
        }
        if !message.is_empty() {
            self.sources.insert("finishMessage".to_owned(), message.into());
        }
        self.is_finished = true;
        let token = candidate.continuation_token.non_empty();
        let reason = match stop_reason(raw, !self.calls.is_empty())? {
            // Without a token, the answer has only reached an output limit.
            StopReason::Pause if token.is_none() => StopReason::MaxTokens,
            reason => reason,
        };
        self.continuation_token =
            token.filter(|_| reason == StopReason::Pause).map(ToOwned::to_owned);
        // If a turn has several finish reasons, the last one applies.
        turn.clear_stop();
        turn.stop(reason, raw);
        Ok(None)
    }

    /// Applies a part. If the part contains only text, returns the text and whether the text is a
    /// thought.
    fn on_part<'a>(
        &mut self,
        raw: &'a RawValue,
        turn: &mut TurnBuilder,
    ) -> Result<Option<(bool, &'a str)>, Error> {
        let mut scratch = String::new();
        // A value that is not an object is not a part.
        if !raw.get().starts_with('{') {
            if raw.get() != "null" {
                self.calls.check_no_open_call()?;
            }
            return Ok(None);
        }
        let part: Part<'_> = read_chunk(raw.get(), &mut scratch)?;
        if let Some(call) = part.function_call {
            self.open_text = None;
            self.calls.push(call, part.thought_signature.non_empty(), &self.model, turn)?;
            return Ok(None);
        }
        match part.text.get() {
            None if is_provider_part(raw) => {
                self.open_text = None;
                if let Some(value) = lenient::deserialize_json(raw) {
                    turn.push_provider_item(ProviderData::new(PROVIDER_NAME, &self.model, value));
                }
            }
            text => {
                let signature = part.thought_signature.non_empty();
                let (text, is_thought) = (text.unwrap_or_default(), part.is_thought());
                self.push_text_part(text, is_thought, signature, turn);
                if signature.is_none() {
                    let text = borrowed_range(raw.get(), text).map(|range| &raw.get()[range]);
                    return Ok(text.map(|text| (is_thought, text)));
                }
            }
        }
        Ok(None)
    }

    /// Adds a piece of text, which may be part of a thought. A part with a signature becomes a
    /// separate item, as required by <https://ai.google.dev/gemini-api/docs/function-calling>:
    /// "Don't merge a `Part` containing a signature with one that does not".
    fn push_text_part(
        &mut self,
        text: &str,
        is_thought: bool,
        signature: Option<&str>,
        turn: &mut TurnBuilder,
    ) {
        if text.is_empty() && signature.is_none() {
            return;
        }
        let open = match self.open_text {
            Some(open) if signature.is_none() && open.is_thought == is_thought => open,
            _ => {
                let index = self.item_count;
                self.item_count = self.item_count.saturating_add(1);
                OpenText { index, is_thought: is_thought || text.is_empty() }
            }
        };
        self.open_text = signature.is_none().then_some(open);
        let signed = signature.and_then(|signature| {
            // For an empty part with a signature, the provider data contains `text` only if the
            // part is a text part and not a thought.
            let text = (text.is_empty() && !is_thought).then(String::new);
            let thought_signature = Some(signature.to_owned());
            PassthroughFields { text, thought_signature, ..PassthroughFields::default() }
                .to_provider_data(&self.model)
        });
        let index = open.index;
        if open.is_thought {
            turn.push_reasoning(index, text, ReasoningKind::Summary);
            if let Some(data) = signed {
                turn.set_reasoning_data(index, data);
            }
            return;
        }
        turn.push_text(index, text);
        if let Some(data) = signed {
            turn.set_text_data(index, data);
        }
        self.last_text = Some(LastText { index, signature: signature.map(str::to_owned) });
    }

    /// Returns the number of different queries with which the provider searched the web.
    fn count_web_searches(&self) -> u64 {
        let grounding = self.sources.get("groundingMetadata").and_then(Value::as_array);
        let queries =
            grounding.into_iter().flatten().filter_map(|it| it["webSearchQueries"].as_array());
        let queries: BTreeSet<&str> = queries.flatten().filter_map(Value::as_str).collect();
        queries.into_iter().filter(|query| !query.is_empty()).count() as u64
    }

    /// Returns whether the answer is based on Google Maps, for which each prompt has a price.
    fn has_map_sources(&self) -> bool {
        let grounding = self.sources.get("groundingMetadata").and_then(Value::as_array);
        let chunks =
            grounding.into_iter().flatten().filter_map(|it| it["groundingChunks"].as_array());
        chunks.flatten().any(|chunk| chunk["maps"].is_object())
    }

    /// Adds metadata about the answer's sources to the metadata stored so far.
    fn add_source(&mut self, name: &str, value: &RawValue) {
        let Ok(Value::Object(value)) = serde_json::from_str(value.get()) else { return };
        if value.is_empty() {
            return;
        }
        let value = Value::Object(value);
        let values = self.sources.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let Some(values) = values.as_array_mut()
            && values.len() < MAX_SOURCES_PER_KIND
            && !values.contains(&value)
        {
            values.push(value);
        }
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame<'_>, turn: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        if let Some((part, text)) = self.template.read(&frame) {
            self.push_repeated(part, &text, turn);
            return Ok(FrameOutcome::Continue);
        }
        self.template.forget();
        let mut scratch = String::new();
        match frame.data.trim() {
            "" => {}
            // Proxies send this marker.
            "[DONE]" => return Ok(FrameOutcome::Done),
            _ if frame.event == "error" => return Err(failure::error_in_stream(frame.data)),
            // This is the format of responses without `alt=sse`, and of errors.
            list if list.starts_with('[') => {
                for chunk in read_chunk::<Vec<&RawValue>>(list, &mut scratch)? {
                    let mut scratch = String::new();
                    self.on_chunk(&read_chunk(chunk.get(), &mut scratch)?, turn)?;
                }
            }
            json => {
                let chunk: Chunk<'_> = read_chunk(json, &mut scratch)?;
                if chunk.is_last() {
                    let details = UsageDetails::read(json);
                    turn.set_service_tier(&details.service_tier);
                    turn.set_tokens_of_kind("input_audio", details.input_audio);
                    turn.set_tokens_of_kind("cache_read_audio", details.cache_read_audio);
                    turn.set_tokens_of_kind("output_audio", details.output_audio);
                    turn.set_tokens_of_kind("output_image", details.output_image);
                    turn.set_tokens_of_kind("output_video", details.output_video);
                }
                if let Some((part, text)) = self.on_chunk(&chunk, turn)? {
                    self.template.remember(&frame, text, Some("usageMetadata"), part);
                }
            }
        }
        Ok(FrameOutcome::Continue)
    }

    /// Attaches the metadata about the answer's sources to the last text item, and adds the token
    /// with which the answer can be continued.
    fn finish(&mut self, turn: &mut TurnBuilder) -> Result<(), Error> {
        if let Some(token) = self.continuation_token.take() {
            turn.push_provider_item(Continuation::new(token).to_provider_data(&self.model));
        }
        turn.set_server_tool_calls(Billing::WEB_SEARCH, self.count_web_searches());
        turn.set_server_tool_calls("google_maps", self.has_map_sources().into());
        if self.has_stored_cache {
            turn.set_tokens_of_kind("cache_storage", turn.usage().cache_read_input_tokens);
        }
        let mut value = std::mem::take(&mut self.sources);
        let Some(last) = self.last_text.take().filter(|_| !value.is_empty()) else { return Ok(()) };
        if let Some(signature) = last.signature {
            value.insert("thoughtSignature".to_owned(), signature.into());
        }
        turn.set_text_data(
            last.index,
            ProviderData::new(PROVIDER_NAME, &self.model, Value::Object(value)),
        );
        Ok(())
    }
}

/// The values that affect the price of a response beside its token counts.
#[derive(Debug, Default, PartialEq)]
struct UsageDetails {
    /// The tier that served the request. Vertex AI calls it the type of the traffic.
    service_tier: String,
    input_audio: u64,
    cache_read_audio: u64,
    output_audio: u64,
    output_image: u64,
    output_video: u64,
}

impl UsageDetails {
    /// Reads the values from the last chunk.
    fn read(chunk: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
        struct LastChunk<'a> {
            usage_metadata: Lenient<Fields<'a>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
        struct Fields<'a> {
            service_tier: LenientStr<'a>,
            traffic_type: LenientStr<'a>,
            prompt_tokens_details: LenientList<Modality<'a>>,
            tool_use_prompt_tokens_details: LenientList<Modality<'a>>,
            cache_tokens_details: LenientList<Modality<'a>>,
            candidates_tokens_details: LenientList<Modality<'a>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
        struct Modality<'a> {
            modality: LenientStr<'a>,
            token_count: LenientNumber,
        }
        fn count(details: &LenientList<Modality<'_>>, modality: &str) -> u64 {
            let matching = details.0.iter().filter(|it| it.modality.or_empty() == modality);
            matching.fold(0, |sum: u64, it| sum.saturating_add(it.token_count.or_zero()))
        }
        let mut scratch = String::new();
        let chunk: LastChunk<'_> = lenient::read_lenient(chunk, &mut scratch).unwrap_or_default();
        let fields = chunk.usage_metadata.0.unwrap_or_default();
        let tier = fields.service_tier.non_empty().or(fields.traffic_type.non_empty());
        Self {
            service_tier: tier.unwrap_or_default().to_owned(),
            input_audio: count(&fields.prompt_tokens_details, "AUDIO")
                .saturating_add(count(&fields.tool_use_prompt_tokens_details, "AUDIO")),
            cache_read_audio: count(&fields.cache_tokens_details, "AUDIO"),
            output_audio: count(&fields.candidates_tokens_details, "AUDIO"),
            output_image: count(&fields.candidates_tokens_details, "IMAGE"),
            output_video: count(&fields.candidates_tokens_details, "VIDEO"),
        }
    }
}

/// Parses JSON leniently, or strictly if the JSON contains a call, because a repair could change
/// the call's arguments.
fn read_chunk<'a, T: serde::Deserialize<'a>>(
    json: &'a str,
    scratch: &'a mut String,
) -> Result<T, Error> {
    lenient::read_lenient_unless_contains("functionCall", json, scratch).map_err(|error| {
        protocol_error(format!("a chunk cannot be read: {error}")).with_source(error)
    })
}

/// Returns whether a part continues the answer with text, a call or provider-specific content. A
/// part that contains only a signature does not continue the answer.
fn has_content(raw: &RawValue) -> bool {
    if !raw.get().starts_with('{') {
        return false;
    }
    let mut scratch = String::new();
    let Ok(part) = read_chunk::<Part<'_>>(raw.get(), &mut scratch) else { return true };
    match (part.function_call, part.text.get()) {
        (Some(call), _) => {
            lenient::read_object::<FunctionCall<'_>>(call).is_none_or(|call| !call.is_empty())
        }
        (None, Some(text)) => !text.is_empty(),
        (None, None) => is_provider_part(raw),
    }
}

/// Returns whether a part is provider-specific, that is, neither text nor a call. Such a part
/// contains a file or code executed by the provider, or has an unknown type.
fn is_provider_part(raw: &RawValue) -> bool {
    let known = ["text", "thought", "thoughtSignature", "functionCall", "partMetadata"];
    let fields = OrderedFields::parse(raw.get()).unwrap_or_default();
    fields.names().any(|name| !known.contains(&name))
}

/// Converts a finish reason to a stop reason,
/// <https://ai.google.dev/api/generate-content#FinishReason>.
fn stop_reason(raw: &str, calls: bool) -> Result<StopReason, Error> {
    let reason = match raw {
        // `ESCALATION`: "Request was filtered by an escalation rule". `PUP_LIMITED_DISABLED`: "the
        // user account is limited or disabled due to Prohibited Use Policy (PUP) violations".
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "ESCALATION"
        | "PUP_LIMITED_DISABLED" => StopReason::ContentFilter,
        image if image.starts_with("IMAGE_") => StopReason::ContentFilter,
        // "The model response can be continued via a subsequent request using the returned
        // `continuation_token`."
        "CONTINUATION" => StopReason::Pause,
        // Gateways send the words of other wires in upper case.
        word => match common_stop_reason(&word.to_ascii_lowercase())? {
            StopReason::Other(_) => StopReason::Other(word.to_owned()),
            reason => reason,
        },
    };
    Ok(match reason {
        // The API has no separate finish reason for tool calls.
        StopReason::Stop if calls => StopReason::ToolCalls,
        reason => reason,
    })
}

/// Returns the error for a finish reason that reports a failed generation, or `None` for any other
/// finish reason.
fn generation_error(raw: &str, message: &str) -> Option<Error> {
    let kind = match raw {
        "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS" => ErrorKind::GenerationFailed,
        // "Request has at least one thought signature missing."
        "MISSING_THOUGHT_SIGNATURE" => ErrorKind::InvalidRequest,
        _ => return None,
    };
    let message = match message {
        "" => format!("the model's turn could not be read: {raw}"),
        message => {
            format!("the model's turn could not be read: {raw}: {}", to_single_line(message))
        }
    };
    Some(Error::new(kind, message))
}

fn to_single_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| !c.is_control()).take(MAX_FINISH_MESSAGE_CHARS).collect()
}
