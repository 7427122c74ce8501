//! The parts that the encoders and decoders of all wires share.

pub(in crate::provider) mod body;
pub(in crate::provider) mod cache_control;
pub(in crate::provider) mod content_delta;
pub(in crate::provider) mod decode;
pub(in crate::provider) mod effort_names;
pub(in crate::provider) mod encode_context;
pub(in crate::provider) mod encoded_tools;
pub(in crate::provider) mod failure;
pub(in crate::provider) mod file_ids;
pub(in crate::provider) mod frame_template;
pub(in crate::provider) mod function_tool;
pub(in crate::provider) mod lenient;
pub(in crate::provider) mod logprobs;
pub(in crate::provider) mod member_template;
pub(in crate::provider) mod ordered_fields;
pub(in crate::provider) mod portable_values;
pub(in crate::provider) mod provider_items;
pub(in crate::provider) mod schema;
pub(in crate::provider) mod server_tools;
pub(in crate::provider) mod turn_ending;
pub(in crate::provider) mod unsupported_part;
