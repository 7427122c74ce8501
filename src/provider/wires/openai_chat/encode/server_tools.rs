//! Encodes the tools that run on the server.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::options::WIRE_NAME;
use crate::error::{Error, ErrorKind};
use crate::provider::codec::body::{ensure_options_unset, has_extra_tools};
use crate::provider::codec::encoded_tools::append_elements;
use crate::provider::codec::server_tools::{
    location_fields, unsupported_tool_error, vendor_declaration,
};
use crate::provider::wires::openai_chat::dialect::Dialect;
use crate::request::{Request, ServerTool, WebSearch};

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
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error for a tool or a setting that the
    /// dialect or the model lacks, and for a search of the web beside the request's own tools.
    pub(super) fn encode(
        request: &'a Request,
        model: &str,
        dialect: &Dialect,
    ) -> Result<Self, Error> {
        let options = &request.options;
        let mut encoded = Self::default();
        for tool in &options.server_tools {
            match tool {
                ServerTool::WebSearch(search)
                    if dialect.supports_web_search && is_search_model(model) =>
                {
                    if request.tools.has_declared() || has_extra_tools(&options.extra) {
                        return Err(combination_error());
                    }
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

/// Returns whether a model searches the web, such as `gpt-4o-search-preview` or `gpt-5-search-api`.
/// Other models reject the request: `Unknown parameter: 'web_search_options'.`
/// <https://developers.openai.com/api/docs/guides/tools-web-search>
fn is_search_model(model: &str) -> bool {
    model.contains("search")
}

/// Creates the error for a request with own tools to a model that searches the web. Such a model
/// answers that "tools is not supported in this model".
fn combination_error() -> Error {
    let message = "the search models of the Chat wire cannot combine a web search with other tools; \
                   models on the Responses wire can";
    Error::new(ErrorKind::Unsupported, message).with_parameter("server_tools")
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
