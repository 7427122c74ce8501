//! The subsets of JSON Schema that the wires accept.
//!
//! Pure functions rewrite a schema for a wire. Keywords that a wire does not support but a model
//! can understand, such as a range or a length, are moved into the description, as the vendors' own
//! libraries do. A keyword whose removal would change the shape of the answer is an
//! [`Unsupported`](crate::ErrorKind::Unsupported) error; its [`parameter`](crate::Error::parameter)
//! is the location in the schema, as a JSON pointer. A schema that already fits is returned
//! unchanged, and rewriting is idempotent.
//!
//! Limits on size and nesting are not checked, because the vendors have raised them before.

mod merge;
mod refs;
mod rewrite;
mod rewrite_node;
mod schema_hints;
mod subset;
mod wire_subsets;

pub(super) use wire_subsets::{
    rewrite_json, to_anthropic_output_schema, to_gemini_schema, to_ollama_parameters_schema,
    to_openai_strict_schema,
};

#[cfg(test)]
mod tests;
#[cfg(all(test, feature = "schemars"))]
mod typed_tests;
