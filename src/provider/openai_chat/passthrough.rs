//! Names of the fields in this wire's provider data, which is sent back to the model that wrote it.

/// The separator that LiteLLM puts between a call id and the signature of the reasoning before the
/// call.
pub(super) const CALL_ID_SIGNATURE_SEPARATOR: &str = "__thought__";
/// The field of provider data that stores this signature.
pub(super) const SIGNATURE_FIELD: &str = "thought";
/// Fields beside a call that servers expect to receive back.
pub(super) const CALL_EXTRA_FIELDS: [&str; 2] = ["extra_content", "provider_specific_fields"];
/// The field in which OpenRouter sends reasoning,
/// <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
pub(super) const REASONING_DETAILS_FIELD: &str = "reasoning_details";
/// The field in which LiteLLM sends reasoning, <https://docs.litellm.ai/docs/reasoning_content>.
pub(super) const THINKING_BLOCKS_FIELD: &str = "thinking_blocks";
