//! The names of the fields in the provider data of the Chat Completions wire, which is sent back to
//! the model that wrote the item.

/// The separator that LiteLLM puts between a call id and the signature of the reasoning before the
/// call.
pub(super) const CALL_ID_SIGNATURE_SEPARATOR: &str = "__thought__";
/// The field of provider data that stores the signature of the reasoning before a call.
pub(super) const SIGNATURE_FIELD: &str = "thought";
/// The fields next to a call that servers expect to receive back.
pub(super) const CALL_EXTRA_FIELDS: [&str; 2] = ["extra_content", "provider_specific_fields"];
/// The field in which OpenRouter sends reasoning,
/// <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
pub(super) const REASONING_DETAILS_FIELD: &str = "reasoning_details";
/// The field in which LiteLLM sends reasoning, <https://docs.litellm.ai/docs/reasoning_content>.
pub(super) const THINKING_BLOCKS_FIELD: &str = "thinking_blocks";
