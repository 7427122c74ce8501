//! The fields that the decoder reads from the API's events. Every field is optional, and malformed
//! values are treated as absent.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::codec::lenient::{Lenient, LenientNumber, LenientStr, RareObject};
use crate::usage::Usage;

/// An event of any type. Fields that belong to other event types are absent.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Event<'a> {
    pub(super) r#type: LenientStr<'a>,
    pub(super) index: LenientNumber,
    pub(super) delta: Lenient<Delta<'a>>,
    pub(super) content_block: Option<&'a RawValue>,
    pub(super) message: RareObject<Message<'a>>,
    pub(super) usage: RareObject<WireUsage>,
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Message<'a> {
    pub(super) id: LenientStr<'a>,
    pub(super) model: LenientStr<'a>,
    /// The message's content, which is usually empty. With programmatic tool calling, a message can
    /// arrive with its content already complete.
    pub(super) content: Option<&'a RawValue>,
    pub(super) stop_reason: LenientStr<'a>,
    pub(super) usage: RareObject<WireUsage>,
}

/// A change to a content block or to the message.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Delta<'a> {
    pub(super) r#type: LenientStr<'a>,
    pub(super) text: LenientStr<'a>,
    pub(super) thinking: LenientStr<'a>,
    pub(super) signature: LenientStr<'a>,
    pub(super) partial_json: LenientStr<'a>,
    pub(super) citation: Option<&'a RawValue>,
    pub(super) stop_reason: LenientStr<'a>,
}

/// A delta as raw JSON.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct RawDelta<'a> {
    pub(super) delta: Option<&'a RawValue>,
}

/// The start of a content block. The raw JSON of a block of an unknown type is stored separately.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Block<'a> {
    pub(super) r#type: LenientStr<'a>,
    pub(super) text: LenientStr<'a>,
    pub(super) thinking: LenientStr<'a>,
    pub(super) signature: LenientStr<'a>,
    pub(super) id: LenientStr<'a>,
    pub(super) name: LenientStr<'a>,
    pub(super) input: Option<&'a RawValue>,
    pub(super) caller: Option<&'a RawValue>,
    pub(super) citations: Option<&'a RawValue>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    input_tokens: LenientNumber,
    output_tokens: LenientNumber,
    cache_read_input_tokens: LenientNumber,
    cache_creation_input_tokens: LenientNumber,
    cache_creation: Lenient<CacheCreation>,
    output_tokens_details: Lenient<OutputTokensDetails>,
}

/// The token counts that the API describes as "Breakdown of cached tokens by TTL".
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_5m_input_tokens: LenientNumber,
    ephemeral_1h_input_tokens: LenientNumber,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputTokensDetails {
    thinking_tokens: LenientNumber,
}

/// The token counts reported by the API. The three counts of input tokens do not overlap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokenCounts {
    /// The total usage for all messages before the current one.
    previous_messages: Usage,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    /// The part of `cache_write` that is kept for an hour.
    cache_write_1h: u64,
    reasoning: u64,
}

impl TokenCounts {
    /// Updates the current message's token counts. The counts are cumulative, so each count that is
    /// present replaces its previous value.
    pub(super) fn update(&mut self, wire: WireUsage) {
        wire.input_tokens.update_count(&mut self.input);
        wire.output_tokens.update_count(&mut self.output);
        wire.cache_read_input_tokens.update_count(&mut self.cache_read);
        if let Some(tokens) = wire.cache_creation.0 {
            tokens.ephemeral_1h_input_tokens.update_count(&mut self.cache_write_1h);
        }
        let by_age = wire.cache_creation.0.map(|tokens| {
            let (short, long) =
                (tokens.ephemeral_5m_input_tokens, tokens.ephemeral_1h_input_tokens);
            short.or_zero().saturating_add(long.or_zero())
        });
        LenientNumber(wire.cache_creation_input_tokens.0.or(by_age))
            .update_count(&mut self.cache_write);
        let details = wire.output_tokens_details.0.unwrap_or_default();
        details.thinking_tokens.update_count(&mut self.reasoning);
    }

    /// Adds the current message's token counts to the total, and starts counting the tokens of the
    /// next message.
    pub(super) fn start_next_message(&mut self) {
        *self = Self { previous_messages: self.to_usage(), ..Self::default() };
    }

    pub(super) fn to_usage(self) -> Usage {
        let usage = Usage {
            input_tokens: self
                .input
                .saturating_add(self.cache_read)
                .saturating_add(self.cache_write),
            output_tokens: self.output,
            cache_read_input_tokens: self.cache_read,
            cache_write_input_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
            cache_write_1h_input_tokens: self.cache_write_1h.min(self.cache_write),
            ..Usage::default()
        };
        self.previous_messages + usage
    }
}
