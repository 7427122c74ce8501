//! Rewrites JSON schemas for the subset of JSON Schema that a wire accepts.
//!
//! The functions that rewrite a schema are pure. A model may still understand some keywords that a
//! wire does not support, such as the keywords that limit a range or a length. As in the vendors'
//! own libraries, such keywords are moved into the schema's description. A keyword whose removal
//! would change the shape of the answer causes an [`Unsupported`](crate::ErrorKind::Unsupported)
//! error whose [`parameter`](crate::Error::parameter) is the location of the keyword in the schema,
//! as a JSON pointer. A schema that is already within the subset is returned unchanged, and
//! rewriting is idempotent.
//!
//! OpenAI and Anthropic accept most of JSON Schema in a tool's parameters. There, only what they
//! are known to reject is changed, and nothing causes an error.
//!
//! The vendors' limits on a schema's size and nesting depth are not checked, because vendors have
//! raised these limits before.

mod merge;
mod parameters;
mod refs;
mod rewrite;
mod rewrite_node;
mod schema_hints;
mod subset;
mod wire_subsets;

pub(in crate::provider) use wire_subsets::{
    json_instruction, rewrite_json, rewrite_parameters_of, to_anthropic_output_schema,
    to_anthropic_parameters_schema, to_anthropic_strict_schema, to_gemini_parameters_schema,
    to_gemini_schema, to_ollama_parameters_schema, to_openai_output_schema,
    to_openai_parameters_schema, to_openai_strict_schema, to_plain_output_schema,
};

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "schemars"))]
mod typed_tests;
