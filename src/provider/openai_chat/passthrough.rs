//! The names under which provider data of this wire is kept, to go back to the model that wrote it.

/// What LiteLLM puts between the id of a call and the signature of the thought before it.
pub(super) const REASONING_KEY: &str = "__thought__";
/// The field of provider data that the signature is kept in.
pub(super) const REASONING_FIELD: &str = "thought";
/// What servers put beside a call and want to see again.
pub(super) const EXTRA_FIELDS: [&str; 2] = ["extra_content", "provider_specific_fields"];
/// Where OpenRouter puts reasoning, <https://openrouter.ai/docs/use-cases/reasoning-tokens>.
pub(super) const DETAILS_KEY: &str = "reasoning_details";
/// Where LiteLLM puts reasoning, <https://docs.litellm.ai/docs/reasoning_content>.
pub(super) const BLOCKS_KEY: &str = "thinking_blocks";
