//! The provider for the Anthropic Messages API over HTTP.

use super::encode::{BodyHead, PrefixMismatchBehavior, encode_body};
use super::passthrough::PROVIDER_NAME;
use super::{Decoder, Dialect};
use crate::error::Error;
use crate::framing::FrameReader;
use crate::http::KeyHeader;
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::{Destination, EncodedRequest, HttpProvider, TokenCountRequest, Wire};
use crate::request::Request;

/// The name of the header that enables beta features: "To use multiple beta features, separate
/// their names with commas."
const BETA_HEADER: &str = "anthropic-beta";

/// The fields of a request that affect its number of tokens. The endpoint for counting rejects all
/// other fields.
const COUNTED_FIELDS: [&str; 12] = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "mcp_servers",
    "context_management",
    "compaction",
    "cache_control",
    "speed",
];

/// A model served over the Anthropic Messages API. This type is cheap to clone.
///
/// The API key is sent in the `x-api-key` header. As in Anthropic's SDKs, the base URL does not
/// include `/v1`.
///
/// ```
/// use turnstream::provider::Anthropic;
///
/// let model = Anthropic::new("claude-sonnet-4-5").with_api_key("sk-ant-…");
/// assert!(!format!("{model:?}").contains("sk-ant"));
/// ```
pub type Anthropic = HttpProvider<Messages>;

/// The wire format of the Anthropic Messages API, <https://docs.anthropic.com/en/api/messages>.
#[derive(Clone, Debug)]
pub struct Messages {
    /// The dialect, or `None` if it depends on the address of the server.
    dialect: Option<Dialect>,
    prefix_mismatch_behavior: PrefixMismatchBehavior,
    host: Host,
    has_tool_search: bool,
}

/// The service that hosts the API.
#[derive(Clone, Debug)]
enum Host {
    /// Anthropic's own API, or a compatible server.
    Vendor,
    /// Vertex AI, where the beta features are listed in the request body.
    Vertex { betas: Vec<String> },
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            dialect: None,
            prefix_mismatch_behavior: PrefixMismatchBehavior::DropBlock,
            host: Host::Vendor,
            has_tool_search: false,
        }
    }
}

impl Wire for Messages {
    type Framing = FrameReader;
    type Decoder = Decoder;

    fn name(&self) -> &str {
        PROVIDER_NAME
    }

    fn base_url(&self) -> &'static str {
        "https://api.anthropic.com"
    }

    fn path(&self, _model: &str) -> &str {
        match self.host {
            Host::Vendor => "/v1/messages",
            Host::Vertex { .. } => "/models/{model}:streamRawPredict",
        }
    }

    /// Returns the header that specifies the API version supported by this implementation.
    fn headers(&self) -> &[(&'static str, &'static str)] {
        match self.host {
            Host::Vendor => &[("anthropic-version", "2023-06-01")],
            Host::Vertex { .. } => &[],
        }
    }

    fn key_header(&self) -> KeyHeader {
        KeyHeader::Named("x-api-key")
    }

    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        let changed_prefix = match to.is_vendor {
            true => self.prefix_mismatch_behavior,
            false => PrefixMismatchBehavior::Unspecified,
        };
        let head = match &self.host {
            Host::Vendor => BodyHead::Vendor,
            Host::Vertex { betas } => {
                BodyHead::Vertex { anthropic_version: "vertex-2023-10-16", anthropic_beta: betas }
            }
        };
        let server = (to.into(), self.dialect_for(to));
        let (body, betas) = encode_body(request, to.model, server, head, changed_prefix)?;
        let with_beta = |encoded: EncodedRequest, beta| encoded.with_header(BETA_HEADER, beta);
        Ok(betas.into_iter().fold(EncodedRequest::new(body), with_beta))
    }

    /// <https://platform.claude.com/docs/en/build-with-claude/token-counting>
    fn encode_token_count(
        &self,
        request: &Request,
        to: Destination<'_>,
    ) -> Option<Result<TokenCountRequest, Error>> {
        match self.host {
            Host::Vendor => {}
            Host::Vertex { .. } => return None,
        }
        let encoded = self.encode(request, to).and_then(|it| it.with_fields(&COUNTED_FIELDS));
        let path = "/v1/messages/count_tokens";
        Some(encoded.map(|encoded| TokenCountRequest::new(path, encoded, "input_tokens")))
    }

    fn decoder(&self, request: &Request, to: Destination<'_>) -> Decoder {
        let rule = ServerKind::from(to).tool_name_rule();
        Decoder::new(to.model)
            .with_tool_names(request.tools.names_for(rule))
            .with_dialect(self.dialect_for(to))
    }

    fn has_tool_search(&self) -> bool {
        self.has_tool_search
    }
}

impl Messages {
    fn dialect_for(&self, to: Destination<'_>) -> Dialect {
        let by_address = if to.is_vendor { Dialect::Signed } else { Dialect::Unsigned };
        self.dialect.unwrap_or(by_address)
    }
}

impl Anthropic {
    /// Sets the server's dialect, which otherwise depends on its address.
    ///
    /// ```
    /// use turnstream::provider::Anthropic;
    /// use turnstream::provider::anthropic::Dialect;
    ///
    /// # fn main() -> Result<(), turnstream::Error> {
    /// let gateway = Anthropic::new("claude-sonnet-4-5").with_base_url("https://gateway.example")?;
    /// // The gateway loses signatures, without which Claude rejects thinking.
    /// let model = gateway.with_dialect(Dialect::Signed);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        self.update_wire(|wire| wire.dialect = Some(dialect))
    }

    /// Disables `drop_block`, which asks Anthropic to drop reasoning whose preceding context has
    /// changed.
    ///
    /// The newest models bind each thinking block to everything before it: the tools, the system
    /// prompt and the messages. A model that binds thinking blocks rejects a request if anything
    /// before a thinking block has changed since the block was written, for example because of
    /// compaction. To avoid this error, requests that contain thinking blocks and are sent to
    /// Anthropic's own address set `drop_block` by default. With `drop_block`, thinking blocks that
    /// no longer match their context are not shown to the model.
    /// [`input_transformations`](crate::provider::anthropic::input_transformations) reports which
    /// thinking blocks were dropped.
    ///
    /// Without `drop_block`, Anthropic rejects any request whose thinking blocks no longer match
    /// their context.
    pub fn without_drop_block(self) -> Self {
        self.update_wire(|wire| wire.prefix_mismatch_behavior = PrefixMismatchBehavior::Unspecified)
    }

    /// Enables a beta feature. `name` is the value that the documentation of the feature specifies
    /// for the `anthropic-beta` header. To enable several beta features, call this method once for
    /// each feature.
    ///
    /// If `name` is not a valid header value, every turn fails with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
    ///
    /// ```
    /// use turnstream::provider::Anthropic;
    ///
    /// let model = Anthropic::new("claude-sonnet-4-5").with_beta("compact-2026-01-12");
    /// ```
    pub fn with_beta(self, name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        match self.wire().host {
            Host::Vendor => self.append_header(BETA_HEADER, name),
            Host::Vertex { .. } => self.update_wire(|wire| {
                if let Host::Vertex { betas } = &mut wire.host
                    && !betas.iter().any(|known| known == name)
                {
                    betas.push(name.to_owned());
                }
            }),
        }
    }

    /// Lets the model search for tools in a [searchable](crate::Toolkit::deferred_specs) toolkit.
    /// The tools in such a toolkit are sent with `defer_loading`, together with the server tool
    /// `tool_search_tool_bm25_20251119`. The model sees a tool only after a search has found it.
    ///
    /// Tool search is off by default, because older models and most compatible servers do not
    /// support it. Anthropic's own API, Vertex AI and Azure accept tool search without a beta
    /// header. Other hosts may require a beta header, which can be set with
    /// [`with_beta`](Self::with_beta).
    ///
    /// ```
    /// use turnstream::Provider;
    /// use turnstream::provider::Anthropic;
    ///
    /// let model = Anthropic::new("claude-sonnet-4-5").with_tool_search();
    /// assert!(model.has_tool_search());
    /// ```
    pub fn with_tool_search(self) -> Self {
        self.update_wire(|wire| wire.has_tool_search = true)
    }

    /// Switches to the Vertex AI variant of the wire format. On Vertex AI, the model is part of the
    /// URL, and the API version and the beta features are sent in the body instead of in headers.
    pub(in crate::provider) fn for_vertex(self) -> Self {
        self.update_wire(|wire| wire.host = Host::Vertex { betas: Vec::new() })
    }
}
