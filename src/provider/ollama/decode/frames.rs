//! The lines of the wire, as far as they are read. Every field is optional and forgiving.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::provider::failure::non_null_error;
use crate::provider::lenient::{self, Lenient, LenientNumber, LenientStr};
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
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub(super) content: LenientStr<'a>,
    pub(super) thinking: LenientStr<'a>,
    pub(super) tool_calls: Option<&'a RawValue>,
}

/// A call, or a piece of one.
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
    /// Reads a line; `None` if it is JSON and no object, which says nothing.
    pub(super) fn parse(
        json: &'a str,
        room: &'a mut String,
    ) -> Result<Option<Self>, serde_json::Error> {
        match json.starts_with('{') {
            true => lenient::read_lenient_unless_contains("tool_calls", json, room).map(Some),
            false => serde_json::from_str::<IgnoredAny>(json).map(|_| None),
        }
    }

    /// The error that the server tells of.
    pub(super) fn error(&self) -> Option<&'a RawValue> {
        non_null_error(self.error)
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.is_some_and(|done| done.get() == "true")
    }

    /// Whether there is anything in the place of calls.
    pub(super) fn has_calls(&self) -> bool {
        let calls = self.message.0.as_ref().and_then(|message| message.tool_calls);
        calls.is_some_and(|calls| !matches!(calls.get(), "null" | "[]"))
    }

    /// Whether there is a number of tokens.
    pub(super) fn has_counts(&self) -> bool {
        [self.prompt_eval_count, self.prompt_eval_cached_count, self.eval_count]
            .iter()
            .any(|count| count.0.is_some())
    }

    /// Replaces the numbers that are there. What was cached is part of the prompt, which servers
    /// before left out where all of it was.
    pub(super) fn update_usage(&self, usage: &mut Usage) {
        self.prompt_eval_count.update_count(&mut usage.input_tokens);
        self.prompt_eval_cached_count.update_count(&mut usage.cache_read_input_tokens);
        self.eval_count.update_count(&mut usage.output_tokens);
        usage.input_tokens = usage.input_tokens.max(usage.cache_read_input_tokens);
    }
}
