//! Encodes the tools that run on the server.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::options::WIRE_NAME;
use crate::error::Error;
use crate::provider::codec::body::ensure_options_unset;
use crate::provider::codec::encoded_tools::append_elements;
use crate::provider::codec::server_tools::{
    location_fields, unsupported_tool_error, vendor_declaration,
};
use crate::provider::wires::openai_chat::dialect::Dialect;
use crate::request::{Options, ServerTool, WebSearch};

/// A request's server tools.
#[derive(Default)]
pub(super) struct ServerTools<'a> {
    /// The elements of `tools`.
    declarations: Vec<&'a Map<String, Value>>,
    pub(super) web_search_options: Option<Value>,
}

impl<'a> ServerTools<'a> {
    /// Encodes the tools.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for a tool or a setting that
    /// the dialect lacks.
    pub(super) fn encode(options: &'a Options, dialect: &Dialect) -> Result<Self, Error> {
        let mut encoded = Self::default();
        for tool in &options.server_tools {
            match tool {
                ServerTool::WebSearch(search) if dialect.supports_web_search => {
                    encoded.web_search_options = Some(web_search_options(search)?);
                }
                ServerTool::Vendor(tool) => {
                    encoded.declarations.push(vendor_declaration(tool, WIRE_NAME, dialect.name)?);
                }
                tool => return Err(unsupported_tool_error(WIRE_NAME, tool)),
            }
        }
        Ok(encoded)
    }

    /// Returns the encoded tools of the request, followed by the server tools. Returns `None` if
    /// the request has no tools.
    pub(super) fn append_to(&self, own: Option<Arc<[u8]>>) -> Result<Option<Arc<[u8]>>, Error> {
        match self.declarations.is_empty() {
            true => Ok(own),
            false => append_elements(own.unwrap_or_default(), &self.declarations).map(Some),
        }
    }
}

fn web_search_options(search: &WebSearch) -> Result<Value, Error> {
    let WebSearch { allowed_domains, blocked_domains, max_uses, user_location } = search;
    ensure_options_unset(
        WIRE_NAME,
        &[
            ("server_tools.web_search.allowed_domains", !allowed_domains.is_empty()),
            ("server_tools.web_search.blocked_domains", !blocked_domains.is_empty()),
            ("server_tools.web_search.max_uses", max_uses.is_some()),
        ],
    )?;
    Ok(match user_location {
        None => json!({}),
        Some(location) => {
            let approximate = location_fields(location);
            json!({ "user_location": { "type": "approximate", "approximate": approximate } })
        }
    })
}
