//! Encodes a request's tools once for each list of tools and wire format.

use std::any::Any;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Error;
use crate::provider::codec::body::serialization_error;
use crate::request::{ToolSpec, ToolSpecs};

/// The settings that, together with the list of tools, determine how the tools are encoded.
#[derive(PartialEq)]
struct ToolsKey<E> {
    wire: &'static str,
    extra: E,
}

/// Returns the encoded declarations of all tools, separated by commas, from the cache of `tools` if
/// they were encoded before. Tools that approve the calls of an MCP server are not declared.
/// `declare` creates the declaration of the tool at an index. `extra` contains everything that
/// determines the declarations except for the wire format and the tools.
///
/// # Errors
///
/// Returns the error of the first tool that cannot be declared or encoded.
pub(in crate::provider) fn encoded_tools<'a, E, T>(
    tools: &'a ToolSpecs,
    wire: &'static str,
    extra: E,
    mut declare: impl FnMut(usize, &'a ToolSpec) -> Result<T, Error>,
) -> Result<Arc<[u8]>, Error>
where
    E: PartialEq + Any + Send + Sync,
    T: Serialize,
{
    if tools.is_empty() {
        return Ok(Arc::default());
    }
    tools.encoding(ToolsKey { wire, extra }, || {
        let mut encoded = Vec::new();
        for (at, tool) in tools.declared() {
            if !encoded.is_empty() {
                encoded.push(b',');
            }
            #[cfg(test)]
            tests::DECLARED.set(tests::DECLARED.get() + 1);
            serde_json::to_writer(&mut encoded, &declare(at, tool)?)
                .map_err(serialization_error)?;
        }
        Ok(encoded)
    })
}

/// Returns a list of encoded elements, separated by commas, followed by `more`.
pub(in crate::provider) fn append_elements(
    list: Arc<[u8]>,
    more: &[impl Serialize],
) -> Result<Arc<[u8]>, Error> {
    if more.is_empty() {
        return Ok(list);
    }
    let mut joined = list.to_vec();
    for element in more {
        if !joined.is_empty() {
            joined.push(b',');
        }
        serde_json::to_writer(&mut joined, element).map_err(serialization_error)?;
    }
    Ok(joined.into())
}

#[cfg(test)]
mod tests;
