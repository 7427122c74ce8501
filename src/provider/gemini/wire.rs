//! The wire as a provider over HTTP speaks it.

use super::passthrough::PROVIDER_NAME;
use super::{Decoder, encode};
use crate::error::Error;
use crate::framing::ServerSentEvents;
use crate::http::KeyHeader;
use crate::provider::{Destination, EncodedRequest, HttpProvider, Wire};
use crate::request::Request;

/// A model that speaks the Gemini wire. Cheap to clone.
///
/// Its key is sent as `x-goog-api-key`, and its base URL is without `/v1beta`, as the vendor's SDKs
/// take it.
///
/// The name of the model is part of the address. One with a `/`, such as `tunedModels/mine`, is used
/// as it is; any other stands below `models/`. One that cannot be part of an address is an
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) when it is asked.
///
/// ```
/// use turnstream::provider::Gemini;
///
/// let model = Gemini::new("gemini-3-flash-preview").with_api_key("AIza…");
/// assert!(!format!("{model:?}").contains("AIza"));
/// ```
pub type Gemini = HttpProvider<GenerateContent>;

/// The wire of Gemini's `generateContent`, <https://ai.google.dev/api/generate-content>.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GenerateContent;

impl Wire for GenerateContent {
    type Framing = ServerSentEvents;
    type Decoder = Decoder;

    fn name(&self) -> &str {
        PROVIDER_NAME
    }

    fn base_url(&self) -> &'static str {
        "https://generativelanguage.googleapis.com"
    }

    /// Without `alt=sse` the answer is one long JSON array.
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
        encode(request, to.model).map(EncodedRequest::from)
    }

    fn decoder(&self, _request: &Request, to: Destination<'_>) -> Decoder {
        Decoder::new(to.model)
    }
}
