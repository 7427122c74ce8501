//! The lines of the wire, as far as they are read. Every field is optional and forgiving.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::provider::failure::reported_error;
use crate::provider::lenient::{self, Lax, Num, Str};
use crate::usage::Usage;

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Line<'a> {
    pub(super) model: Str<'a>,
    pub(super) message: Lax<Message<'a>>,
    done: Option<&'a RawValue>,
    pub(super) done_reason: Str<'a>,
    prompt_eval_count: Num,
    prompt_eval_cached_count: Num,
    eval_count: Num,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub(super) content: Str<'a>,
    pub(super) thinking: Str<'a>,
    pub(super) tool_calls: Option<&'a RawValue>,
}

/// A call, or a piece of one.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct WireCall<'a> {
    pub(super) id: Str<'a>,
    pub(super) function: Lax<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Function<'a> {
    pub(super) index: Num,
    pub(super) name: Str<'a>,
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// Reads a line; `None` if it is JSON and no object, which says nothing.
    pub(super) fn read(
        json: &'a str,
        room: &'a mut String,
    ) -> Result<Option<Self>, serde_json::Error> {
        match json.starts_with('{') {
            true => lenient::read_without("tool_calls", json, room).map(Some),
            false => serde_json::from_str::<IgnoredAny>(json).map(|_| None),
        }
    }

    /// The error that the server tells of.
    pub(super) fn error(&self) -> Option<&'a RawValue> {
        reported_error(self.error)
    }

    pub(super) fn is_last(&self) -> bool {
        self.done.is_some_and(|done| done.get() == "true")
    }

    /// Whether there is anything in the place of calls.
    pub(super) fn has_calls(&self) -> bool {
        let calls = self.message.0.as_ref().and_then(|message| message.tool_calls);
        calls.is_some_and(|calls| !matches!(calls.get(), "null" | "[]"))
    }

    /// Whether there is a number of tokens.
    pub(super) fn counts(&self) -> bool {
        [self.prompt_eval_count, self.prompt_eval_cached_count, self.eval_count]
            .iter()
            .any(|count| count.0.is_some())
    }

    /// Replaces the numbers that are there. What was cached is part of the prompt, which servers
    /// before left out where all of it was.
    pub(super) fn add_to(&self, usage: &mut Usage) {
        self.prompt_eval_count.replace(&mut usage.input_tokens);
        self.prompt_eval_cached_count.replace(&mut usage.cache_read_input_tokens);
        self.eval_count.replace(&mut usage.output_tokens);
        usage.input_tokens = usage.input_tokens.max(usage.cache_read_input_tokens);
    }
}
