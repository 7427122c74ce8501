//! The wire as a provider over HTTP speaks it.

use super::passthrough::PROVIDER_NAME;
use super::{Decoder, encode};
use crate::error::Error;
use crate::framing::ServerSentEvents;
use crate::provider::{Destination, EncodedRequest, HttpProvider, Wire};
use crate::request::Request;

/// A model that speaks the Responses wire, the vendor's or any compatible server's. Cheap to clone.
///
/// Nothing is stored by the provider: each request holds the whole input. The base URL is with
/// `/v1`, as the vendor's SDKs take it.
///
/// ```
/// use turnstream::provider::OpenAiResponses;
///
/// let model = OpenAiResponses::new("gpt-5.1").with_api_key("sk-…");
/// assert!(!format!("{model:?}").contains("sk-"));
/// ```
pub type OpenAiResponses = HttpProvider<Responses>;

/// The Responses wire, <https://platform.openai.com/docs/api-reference/responses>.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    has_tool_search: bool,
}

impl Wire for Responses {
    type Framing = ServerSentEvents;
    type Decoder = Decoder;

    fn name(&self) -> &str {
        PROVIDER_NAME
    }

    fn base_url(&self) -> &'static str {
        "https://api.openai.com/v1"
    }

    fn path(&self, _model: &str) -> &'static str {
        "/responses"
    }

    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        encode(request, to.model).map(EncodedRequest::from)
    }

    fn decoder(&self, request: &Request, to: Destination<'_>) -> Decoder {
        Decoder::new(to.model).with_tools(request.tools.iter().map(|tool| tool.name.as_str()))
    }

    fn has_tool_search(&self) -> bool {
        self.has_tool_search
    }
}

impl OpenAiResponses {
    /// Lets the vendor search for the tools of a toolkit that is
    /// [searchable](crate::Toolkit::deferred_specs): they are sent with `defer_loading` and the tool `tool_search`,
    /// and the model sees those that it searches for.
    ///
    /// It is off by default, because older models and most servers that copy the wire do not have it: the
    /// vendor has it from GPT-5.4 on.
    ///
    /// ```
    /// use turnstream::Provider;
    /// use turnstream::provider::OpenAiResponses;
    ///
    /// let model = OpenAiResponses::new("gpt-5.4").with_tool_search();
    /// assert!(model.has_tool_search());
    /// ```
    pub fn with_tool_search(self) -> Self {
        self.update_wire(|wire| wire.has_tool_search = true)
    }
}
