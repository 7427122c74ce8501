//! The subsets of JSON Schema that the wires take.
//!
//! A schema is rewritten for a wire by pure functions. What a wire does not know but a model can
//! read, a range or a length, moves into the description, as the vendors' own libraries do it. What
//! would change the shape of the answer is an [`Unsupported`](crate::ErrorKind::Unsupported) error
//! whose [`parameter`](crate::Error::parameter) is the place in the schema, as a JSON pointer. A
//! schema that fits already comes back as it is, and a rewritten one is not changed again.
//!
//! The limits on size and nesting are left to the vendors: they were raised before.

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
