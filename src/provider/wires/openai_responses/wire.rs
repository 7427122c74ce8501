//! The provider for the Responses API over HTTP.

use super::Decoder;
use super::encode::encode_for;
use super::passthrough::PROVIDER_NAME;
use crate::error::Error;
use crate::framing::FrameReader;
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::{Destination, EncodedRequest, HttpProvider, TokenCountRequest, Wire};
use crate::request::Request;

/// A model served over the Responses API by OpenAI or by a compatible server. This type is cheap to
/// clone.
///
/// Nothing is stored on the server, so each request contains the complete input. As in OpenAI's
/// SDKs, the base URL includes `/v1`.
///
/// ```
/// use turnstream::provider::OpenAiResponses;
///
/// let model = OpenAiResponses::new("gpt-5.1").with_api_key("sk-…");
/// assert!(!format!("{model:?}").contains("sk-"));
/// ```
pub type OpenAiResponses = HttpProvider<Responses>;

/// The fields of a request that affect its number of tokens, and that the endpoint for counting
/// accepts.
const COUNTED_FIELDS: [&str; 9] = [
    "model",
    "input",
    "instructions",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "tool_choice",
    "tools",
    "truncation",
];

/// The wire format of the Responses API,
/// <https://platform.openai.com/docs/api-reference/responses>.
#[derive(Clone, Debug, Default)]
pub struct Responses {
    has_tool_search: bool,
}

impl Wire for Responses {
    type Framing = FrameReader;
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
        encode_for(request, to.model, to.into()).map(EncodedRequest::new)
    }

    /// <https://developers.openai.com/api/docs/guides/token-counting>
    fn encode_token_count(
        &self,
        request: &Request,
        to: Destination<'_>,
    ) -> Option<Result<TokenCountRequest, Error>> {
        let encoded = self.encode(request, to).and_then(|it| it.with_fields(&COUNTED_FIELDS));
        let path = "/responses/input_tokens";
        Some(encoded.map(|encoded| TokenCountRequest::new(path, encoded, "input_tokens")))
    }

    fn decoder(&self, request: &Request, to: Destination<'_>) -> Decoder {
        let rule = ServerKind::from(to).tool_name_rule();
        Decoder::new(to.model).with_renamed_tools(request.tools.clone(), rule)
    }

    fn has_tool_search(&self) -> bool {
        self.has_tool_search
    }
}

impl OpenAiResponses {
    /// Lets the model search for tools in a [searchable](crate::Toolkit::deferred_specs) toolkit.
    /// The tools in a searchable toolkit are sent with `defer_loading`, together with the
    /// `tool_search` tool. The model sees a tool only after a search has found it.
    ///
    /// Tool search is off by default, because older models and most compatible servers do not
    /// support it. OpenAI supports tool search in GPT-5.4 and later models.
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
