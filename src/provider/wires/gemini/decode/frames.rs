//! The fields that the decoder reads from the API's chunks. Every field is optional, and malformed
//! values are treated as absent.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::codec::lenient::{
    Lenient, LenientList, LenientNumber, LenientStr, RareObject,
};
use crate::usage::Usage;

/// A chunk of the response, in the API's `GenerateContentResponse` format.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Chunk<'a> {
    pub(super) candidates: LenientList<Candidate<'a>>,
    pub(super) prompt_feedback: RareObject<PromptFeedback<'a>>,
    pub(super) usage_metadata: Lenient<WireUsage>,
    pub(super) model_version: LenientStr<'a>,
    pub(super) response_id: LenientStr<'a>,
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Candidate<'a> {
    index: LenientNumber,
    content: Lenient<Content<'a>>,
    pub(super) finish_reason: LenientStr<'a>,
    pub(super) finish_message: LenientStr<'a>,
    /// The token with which a later request continues this answer.
    pub(super) continuation_token: LenientStr<'a>,
    grounding_metadata: Option<&'a RawValue>,
    url_context_metadata: Option<&'a RawValue>,
    citation_metadata: Option<&'a RawValue>,
    pub(super) logprobs_result: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Content<'a> {
    parts: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct PromptFeedback<'a> {
    pub(super) block_reason: LenientStr<'a>,
}

/// The known fields of a part. The raw JSON of a part of an unknown type is stored separately.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Part<'a> {
    pub(super) text: LenientStr<'a>,
    thought: Option<&'a RawValue>,
    pub(super) thought_signature: LenientStr<'a>,
    pub(super) function_call: Option<&'a RawValue>,
}

/// A tool call, or a piece of a tool call.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct FunctionCall<'a> {
    pub(super) id: LenientStr<'a>,
    /// The tool's name. A value of the wrong type is an error, unlike in the other fields.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) args: Option<&'a RawValue>,
    pub(super) partial_args: Option<Vec<&'a RawValue>>,
    pub(super) will_continue: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the wire defines them")]
pub(super) struct WireUsage {
    prompt_token_count: LenientNumber,
    candidates_token_count: LenientNumber,
    thoughts_token_count: LenientNumber,
    tool_use_prompt_token_count: LenientNumber,
    cached_content_token_count: LenientNumber,
    total_token_count: LenientNumber,
}

impl WireUsage {
    /// Sets the count for the field with the given name. Unknown names are ignored.
    pub(super) fn set(&mut self, name: &str, count: u64) {
        let field = match name {
            "promptTokenCount" => &mut self.prompt_token_count,
            "candidatesTokenCount" => &mut self.candidates_token_count,
            "thoughtsTokenCount" => &mut self.thoughts_token_count,
            "toolUsePromptTokenCount" => &mut self.tool_use_prompt_token_count,
            "cachedContentTokenCount" => &mut self.cached_content_token_count,
            "totalTokenCount" => &mut self.total_token_count,
            _ => return,
        };
        *field = LenientNumber(Some(count));
    }

    /// Returns whether the counts add up to the reported total. The prompt count includes cached
    /// tokens.
    fn is_complete(&self) -> bool {
        let parts = [
            self.prompt_token_count,
            self.candidates_token_count,
            self.thoughts_token_count,
            self.tool_use_prompt_token_count,
        ];
        let sum = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.0.unwrap_or(0)));
        self.prompt_token_count.0.is_some() && self.total_token_count.0 == Some(sum)
    }
}

impl FunctionCall<'_> {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns whether this piece contains neither a name nor arguments.
    pub(super) fn is_empty(&self) -> bool {
        self.name().is_empty() && self.args.is_none() && self.partial_args.is_none()
    }
}

impl<'a> Chunk<'a> {
    /// Returns whether the chunk ends an answer, or a part of it.
    pub(super) fn is_last(&self) -> bool {
        self.candidate().is_some_and(|candidate| candidate.specified_finish_reason().is_some())
    }

    /// Returns the candidate with index 0 or without an index. Any other candidates were not
    /// requested and are ignored.
    pub(super) fn candidate(&self) -> Option<&Candidate<'a>> {
        self.candidates.0.iter().find(|candidate| candidate.index.0.unwrap_or(0) == 0)
    }
}

impl<'a> Candidate<'a> {
    /// Returns the candidate's parts, or `None` if the value of `parts` is not an array.
    pub(super) fn parts(&self) -> Option<Vec<&'a RawValue>> {
        match self.content.0.as_ref().and_then(|content| content.parts) {
            None => Some(Vec::new()),
            Some(parts) => serde_json::from_str(parts.get()).ok(),
        }
    }

    /// Returns the finish reason, unless it is the API's value for "unspecified".
    pub(super) fn specified_finish_reason(&self) -> Option<&str> {
        let is_specified = |word: &&str| !matches!(*word, "" | "FINISH_REASON_UNSPECIFIED");
        self.finish_reason.get().filter(is_specified)
    }

    /// Returns the metadata about the answer's sources, as pairs of field names and values.
    pub(super) fn source_metadata(&self) -> impl Iterator<Item = (&'static str, &'a RawValue)> {
        [
            ("groundingMetadata", self.grounding_metadata),
            ("urlContextMetadata", self.url_context_metadata),
            ("citationMetadata", self.citation_metadata),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

impl Part<'_> {
    /// Returns whether the part is reasoning. Only the `thought` field marks reasoning, because
    /// parts of any type can have a signature.
    pub(super) fn is_thought(&self) -> bool {
        self.thought.is_some_and(|flag| flag.get() == "true")
    }
}

/// The token counts reported by the API.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenCounts {
    prompt: u64,
    candidates: u64,
    thoughts: u64,
    tool_use: u64,
    cached: u64,
}

impl TokenCounts {
    /// Updates the token counts. The counts are cumulative, so each count that is present replaces
    /// its previous value. Counts that add up to the reported total are complete and replace all
    /// previous counts.
    pub(super) fn update(&mut self, wire: WireUsage) {
        if wire.is_complete() {
            *self = Self::default();
        }
        wire.prompt_token_count.update_count(&mut self.prompt);
        wire.candidates_token_count.update_count(&mut self.candidates);
        wire.thoughts_token_count.update_count(&mut self.thoughts);
        wire.tool_use_prompt_token_count.update_count(&mut self.tool_use);
        wire.cached_content_token_count.update_count(&mut self.cached);
    }

    /// Converts the counts to a [`Usage`]. The API counts reasoning and the results of hosted tools
    /// separately. A `Usage` includes the reasoning in the output tokens and these results in the
    /// input tokens. The prompt count includes cached tokens.
    pub(super) fn to_usage(self) -> Usage {
        Usage {
            input_tokens: self.prompt.saturating_add(self.tool_use),
            output_tokens: self.candidates.saturating_add(self.thoughts),
            cache_read_input_tokens: self.cached,
            reasoning_tokens: self.thoughts,
            ..Usage::default()
        }
    }
}
