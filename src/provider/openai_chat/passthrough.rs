//! The names under which provider data of this wire is kept, to go back to the model that wrote it.

/// What LiteLLM puts between the id of a call and the signature of the thought before it.
pub(super) const CALL_ID_SIGNATURE_SEPARATOR: &str = "__thought__";
/// The field of provider data that the signature is kept in.
pub(super) const SIGNATURE_FIELD: &str = "thought";
/// What servers put beside a call and want to see again.
pub(super) const CALL_EXTRA_FIELDS: [&str; 2] = ["extra_content", "provider_specific_fields"];
/// Where OpenRouter puts reasoning, <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
pub(super) const REASONING_DETAILS_FIELD: &str = "reasoning_details";
/// Where LiteLLM puts reasoning, <https://docs.litellm.ai/docs/reasoning_content>.
pub(super) const THINKING_BLOCKS_FIELD: &str = "thinking_blocks";
