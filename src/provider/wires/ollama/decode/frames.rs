//! The fields that the decoder reads from the API's response lines. Every field is optional, and
//! malformed values are treated as absent.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::provider::codec::failure::non_null_error;
use crate::provider::codec::lenient::{self, Lenient, LenientNumber, LenientStr};
use crate::usage::Usage;

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Line<'a> {
    pub(super) model: LenientStr<'a>,
    pub(super) message: Lenient<Message<'a>>,
    done: Option<&'a RawValue>,
    pub(super) done_reason: LenientStr<'a>,
    prompt_eval_count: LenientNumber,
    prompt_eval_cached_count: LenientNumber,
    eval_count: LenientNumber,
    error: Option<&'a RawValue>,
    pub(super) logprobs: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub(super) content: LenientStr<'a>,
    pub(super) thinking: LenientStr<'a>,
    pub(super) tool_calls: Option<&'a RawValue>,
}

/// A tool call, or a piece of a tool call.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireCall<'a> {
    pub(super) id: LenientStr<'a>,
    pub(super) function: Lenient<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub(super) index: LenientNumber,
    pub(super) name: LenientStr<'a>,
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// Parses a line. Returns `None` for valid JSON that is not an object; the decoder ignores such
    /// a line.
    pub(super) fn parse(
        json: &'a str,
        scratch: &'a mut String,
    ) -> Result<Option<Self>, serde_json::Error> {
        match json.starts_with('{') {
            true => lenient::read_lenient_unless_contains("tool_calls", json, scratch).map(Some),
            false => serde_json::from_str::<IgnoredAny>(json).map(|_| None),
        }
    }

    /// Returns the error that the server reports in this line.
    pub(super) fn error(&self) -> Option<&'a RawValue> {
        non_null_error(self.error)
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.get() == "true")
    }

    /// Returns whether `tool_calls` has a value other than `null` or an empty array.
    pub(super) fn has_calls(&self) -> bool {
        let calls = self.message.0.as_ref().and_then(|message| message.tool_calls);
        calls.is_some_and(|calls| !matches!(calls.get(), "null" | "[]"))
    }

    /// Returns whether the line contains token counts.
    pub(super) fn has_counts(&self) -> bool {
        [self.prompt_eval_count, self.prompt_eval_cached_count, self.eval_count]
            .iter()
            .any(|count| count.0.is_some())
    }

    /// Updates `usage` with the counts in this line. The prompt count includes cached tokens. Older
    /// servers omit the prompt count if the whole prompt was cached.
    pub(super) fn update_usage(&self, usage: &mut Usage) {
        self.prompt_eval_count.update_count(&mut usage.input_tokens);
        self.prompt_eval_cached_count.update_count(&mut usage.cache_read_input_tokens);
        self.eval_count.update_count(&mut usage.output_tokens);
        usage.input_tokens = usage.input_tokens.max(usage.cache_read_input_tokens);
    }
}
