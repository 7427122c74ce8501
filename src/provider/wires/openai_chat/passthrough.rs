//! The names of the fields in provider data for the Chat Completions API. An item's provider data
//! is sent back to the model that wrote the item.

/// The separator that LiteLLM inserts between a call id and the signature of the reasoning that
/// precedes the call.
pub(super) const CALL_ID_SIGNATURE_SEPARATOR: &str = "__thought__";
/// The provider data field for the signature of the reasoning that precedes a call.
pub(super) const SIGNATURE_FIELD: &str = "thought";
/// The additional fields of a call that servers expect to receive back.
pub(super) const CALL_EXTRA_FIELDS: [&str; 2] = ["extra_content", "provider_specific_fields"];
/// The field in which OpenRouter sends reasoning,
/// <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
pub(super) const REASONING_DETAILS_FIELD: &str = "reasoning_details";
/// The field in which LiteLLM sends reasoning, <https://docs.litellm.ai/docs/reasoning_content>.
pub(super) const THINKING_BLOCKS_FIELD: &str = "thinking_blocks";
