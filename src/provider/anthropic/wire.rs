//! The wire as a provider over HTTP speaks it.

use super::Decoder;
use super::encode::{BodyHead, PrefixMismatchBehavior, encode_body};
use super::passthrough::PROVIDER_NAME;
use crate::error::Error;
use crate::framing::ServerSentEvents;
use crate::http::KeyHeader;
use crate::provider::{Destination, EncodedRequest, HttpProvider, Wire};
use crate::request::Request;

/// "To use multiple beta features, separate their names with commas."
const BETA_HEADER: &str = "anthropic-beta";

/// A model that speaks the Anthropic Messages wire. Cheap to clone.
///
/// Its key is sent as `x-api-key`, and its base URL is without `/v1`, as the vendor's SDKs take it.
///
/// ```
/// use turnstream::provider::Anthropic;
///
/// let model = Anthropic::new("claude-sonnet-4-5").with_api_key("sk-ant-…");
/// assert!(!format!("{model:?}").contains("sk-ant"));
/// ```
pub type Anthropic = HttpProvider<Messages>;

/// The Anthropic Messages wire, <https://docs.anthropic.com/en/api/messages>.
#[derive(Clone, Debug)]
pub struct Messages {
    prefix_mismatch_behavior: PrefixMismatchBehavior,
    host: Host,
    has_tool_search: bool,
}

/// Who serves the wire.
#[derive(Clone, Debug)]
enum Host {
    /// The vendor, or a server that copies it.
    Vendor,
    /// Vertex AI, which is asked for these features in the body.
    Vertex { betas: Vec<String> },
}

impl Default for Messages {
    fn default() -> Self {
        Self {
            prefix_mismatch_behavior: PrefixMismatchBehavior::DropBlock,
            host: Host::Vendor,
            has_tool_search: false,
        }
    }
}

impl Wire for Messages {
    type Framing = ServerSentEvents;
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

    /// The version of the wire that this was written for.
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
        let (body, beta) = encode_body(request, to.model, head, changed_prefix)?;
        let encoded = EncodedRequest::from(body);
        Ok(match beta {
            Some(beta) => encoded.with_header(BETA_HEADER, beta),
            None => encoded,
        })
    }

    fn decoder(&self, _request: &Request, to: Destination<'_>) -> Decoder {
        Decoder::new(to.model)
    }

    fn has_tool_search(&self) -> bool {
        self.has_tool_search
    }
}

impl Anthropic {
    /// Leaves it to the vendor what becomes of thoughts whose prefix has changed.
    ///
    /// The newest models bind each block of thoughts to all that stood before it, and refuse a
    /// request in which something before a block is another than when it was written: a tool, a
    /// system prompt, a message that was compacted. At the vendor's own address, a request that
    /// has such blocks therefore asks for `drop_block`: those that do not fit any more are not
    /// shown to the model. [`input_transformations`](crate::provider::anthropic::input_transformations)
    /// tells which ones.
    ///
    /// With this setting nothing is asked for, and the vendor refuses such a request.
    pub fn without_drop_block(self) -> Self {
        self.update_wire(|wire| wire.prefix_mismatch_behavior = PrefixMismatchBehavior::Unspecified)
    }

    /// Asks for a feature that is not for everybody yet, by the name that its documentation
    /// gives for `anthropic-beta`. Several may be asked for, one after the other.
    ///
    /// A name that no header can hold is an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) of the turn.
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

    /// Lets the vendor search for the tools of a toolkit that is
    /// [searchable](crate::Toolkit::deferred_specs): they are sent with `defer_loading` and the server tool
    /// `tool_search_tool_bm25_20251119`, and the model sees those that it searches for.
    ///
    /// It is off by default, because older models and most servers that copy the wire do not have it. The
    /// vendor's own API, Vertex AI and Azure take it without a beta header; others may want one
    /// ([`with_beta`](Self::with_beta)).
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

    /// Speaks as Vertex AI does: the model in the address, and in the body what the vendor has in
    /// headers.
    pub(in crate::provider) fn for_vertex(self) -> Self {
        self.update_wire(|wire| wire.host = Host::Vertex { betas: Vec::new() })
    }
}
