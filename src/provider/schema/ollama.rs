//! JSON Schema as Ollama takes it for the parameters of a tool.
//!
//! The server reads it into a type of its own, `api.ToolFunctionParameters`, drops every keyword that
//! the type does not have, `$ref` among them, and refuses values of another type: a schema that is
//! `true`, or a root of several types.
//! <https://github.com/ollama/ollama/blob/main/api/types.go>

use std::borrow::Cow;

use serde_json::{Value, json};

use super::narrow::narrow;
use super::subset::{Cycles, Objects, References, Subset, Values};
use crate::error::Error;

const PARAMETERS: Subset = Subset {
    wire: "Ollama",
    keeps: |_, _| false,
    objects: Objects::Open,
    values: Values::TextAndNumbers,
    references: References::WrittenOut,
    cycles: Cycles::None,
    object_at_root: false,
};

/// The schema of a tool's parameters as Ollama takes it.
pub(in crate::provider) fn ollama_parameters(schema: &Value) -> Result<Cow<'_, Value>, Error> {
    let mut narrowed = narrow(schema, &PARAMETERS)?;
    // A tool may say nothing of what it takes.
    let kind = ["type", "anyOf"].iter().find_map(|keyword| narrowed.get(keyword));
    match kind {
        Some(kind) if kind == "object" => Ok(narrowed),
        Some(_) => Err(PARAMETERS.refuse("#", "parameters that are not always an object")),
        None => {
            narrowed.to_mut()["type"] = json!("object");
            Ok(narrowed)
        }
    }
}
