//! The lines of the wire, as far as they are read. Every field is optional and forgiving.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::provider::lenient::{self, Lax, Num, Str};
use crate::usage::Usage;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) model: Str<'a>,
    #[serde(borrow)]
    pub(super) message: Lax<Message<'a>>,
    #[serde(borrow)]
    done: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) done_reason: Str<'a>,
    prompt_eval_count: Num,
    prompt_eval_cached_count: Num,
    eval_count: Num,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) content: Str<'a>,
    #[serde(borrow)]
    pub(super) thinking: Str<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<&'a RawValue>,
}

/// A call, or a piece of one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) function: Lax<Function<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    pub(super) index: Num,
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

impl<'a> Line<'a> {
    /// Reads a line; `None` if it is JSON and no object, which says nothing.
    ///
    /// What a strict reader trips over is mended unless there may be a call in it: what is mended
    /// there could be its arguments.
    pub(super) fn read(
        json: &'a str,
        room: &'a mut String,
    ) -> Result<Option<Self>, serde_json::Error> {
        if !json.starts_with('{') {
            return serde_json::from_str::<IgnoredAny>(json).map(|_| None);
        }
        match serde_json::from_str(json) {
            Err(error) if json.contains("tool_calls") => Err(error),
            Err(_) => lenient::read(json, room),
            read => read,
        }
        .map(Some)
    }

    /// The error that the server tells of.
    pub(super) fn error(&self) -> Option<&'a RawValue> {
        self.error.filter(|error| !matches!(error.get(), "null" | "\"\"" | "false"))
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
        let set = |to: &mut u64, Num(number): Num| *to = number.unwrap_or(*to);
        set(&mut usage.input_tokens, self.prompt_eval_count);
        set(&mut usage.cache_read_input_tokens, self.prompt_eval_cached_count);
        set(&mut usage.output_tokens, self.eval_count);
        usage.input_tokens = usage.input_tokens.max(usage.cache_read_input_tokens);
    }
}

impl<'a> WireCall<'a> {
    /// Reads a call; a list would be read field by field.
    pub(super) fn read(raw: &'a RawValue) -> Option<Self> {
        let object = Some(raw.get()).filter(|json| json.starts_with('{'));
        object.and_then(|json| serde_json::from_str(json).ok())
    }
}
