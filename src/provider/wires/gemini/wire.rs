//! The provider for the Gemini API over HTTP.

use super::Decoder;
use super::encode::{TOOL_NAME_RULE, encode_for, uses_cached_content};
use super::host::Host;
use super::passthrough::PROVIDER_NAME;
use crate::error::Error;
use crate::framing::FrameReader;
use crate::http::KeyHeader;
use crate::provider::{Destination, EncodedRequest, HttpProvider, TokenCountRequest, Wire};
use crate::request::Request;

/// A model served over the Gemini API. This type is cheap to clone.
///
/// The API key is sent in the `x-goog-api-key` header. As in Google's SDKs, the base URL does not
/// include `/v1beta`.
///
/// The model name is part of the URL. A name that contains a `/`, such as `tunedModels/mine`, is
/// used unchanged. Any other name is prefixed with `models/`. If the name is not valid in a URL,
/// every turn fails with an [`InvalidRequest`](crate::ErrorKind::InvalidRequest) error.
///
/// ```
/// use turnstream::provider::Gemini;
///
/// let model = Gemini::new("gemini-3-flash-preview").with_api_key("AIza…");
/// assert!(!format!("{model:?}").contains("AIza"));
/// ```
pub type Gemini = HttpProvider<GenerateContent>;

/// The wire format of Gemini's `generateContent` method,
/// <https://ai.google.dev/api/generate-content>.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GenerateContent {
    host: Host,
}

impl Wire for GenerateContent {
    type Framing = FrameReader;
    type Decoder = Decoder;

    fn name(&self) -> &str {
        PROVIDER_NAME
    }

    fn base_url(&self) -> &'static str {
        "https://generativelanguage.googleapis.com"
    }

    /// Returns the URL path that requests server-sent events. Without `alt=sse`, the response is a
    /// single long JSON array.
    fn path(&self, model: &str) -> &str {
        match model.trim_matches('/').contains('/') {
            true => "/v1beta/{model}:streamGenerateContent?alt=sse",
            false => "/v1beta/models/{model}:streamGenerateContent?alt=sse",
        }
    }

    fn key_header(&self) -> KeyHeader {
        KeyHeader::Named("x-goog-api-key")
    }

    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        encode_for(request, to.model, self.host).map(EncodedRequest::new)
    }

    /// <https://ai.google.dev/api/tokens>
    fn encode_token_count(
        &self,
        request: &Request,
        to: Destination<'_>,
    ) -> Option<Result<TokenCountRequest, Error>> {
        match self.host {
            Host::GeminiApi => {}
            // The endpoint of Vertex AI has another format.
            Host::Vertex => return None,
        }
        let is_path = to.model.trim_matches('/').contains('/');
        let (path, model) = match is_path {
            true => ("/v1beta/{model}:countTokens", to.model.to_owned()),
            false => ("/v1beta/models/{model}:countTokens", format!("models/{}", to.model)),
        };
        let encoded = self.encode(request, to);
        Some(
            encoded
                .and_then(|it| it.inside("generateContentRequest", &[("model", &model)]))
                .map(|encoded| TokenCountRequest::new(path, encoded, "totalTokens")),
        )
    }

    fn decoder(&self, request: &Request, to: Destination<'_>) -> Decoder {
        Decoder::new(to.model)
            .with_tool_names(request.tools.names_for(TOOL_NAME_RULE))
            .with_stored_cache(uses_cached_content(&request.options))
    }
}

impl Gemini {
    /// Switches to the variant of the wire format of Vertex AI, which lacks some server tools.
    pub(in crate::provider) fn for_vertex(self) -> Self {
        self.update_wire(|wire| wire.host = Host::Vertex)
    }
}
