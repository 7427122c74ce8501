//! The subsets of JSON Schema that the wires take.

use std::borrow::Cow;

use serde_json::Value;

use crate::error::Error;

/// The schema of an answer as the strict mode of OpenAI's two wires takes it.
pub(super) fn openai_strict(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    Ok(Cow::Borrowed(schema))
}

/// The schema of an answer as Anthropic takes it.
pub(super) fn anthropic_output(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    Ok(Cow::Borrowed(schema))
}

/// A schema, of a tool or an answer, as Gemini takes it.
pub(super) fn gemini(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    Ok(Cow::Borrowed(schema))
}
