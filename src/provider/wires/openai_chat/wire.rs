//! The provider for Chat Completions over HTTP.

use std::sync::Arc;

use super::Decoder;
use super::dialect::Dialect;
use super::encode::encode_body;
use crate::error::Error;
use crate::framing::FrameReader;
use crate::http::KeyHeader;
use crate::provider::{Destination, EncodedRequest, HttpProvider, Wire};
use crate::request::{Request, ServerTool};

/// A model served over the Chat Completions API by OpenAI or by a compatible server. This type is
/// cheap to clone.
///
/// As in OpenAI's SDKs, the base URL includes `/v1`. With any base URL other than OpenAI's, the
/// output limit is sent as `max_tokens`, which compatible servers expect, all instructions are sent
/// in a single message at the start of the request, call ids that the server has issued are sent
/// back unchanged, and the names of tools begin with a letter.
/// [`with_dialect`](Self::with_dialect) overrides these defaults.
///
/// ```
/// use turnstream::provider::OpenAiChat;
/// use turnstream::provider::openai_chat::Dialect;
///
/// let local = OpenAiChat::new("llama3").with_base_url("http://localhost:11434/v1")?;
/// let routed = OpenAiChat::new("anthropic/claude-sonnet-4.5").with_dialect(Dialect::OPENROUTER);
/// # Ok::<(), turnstream::Error>(())
/// ```
pub type OpenAiChat = HttpProvider<ChatCompletions>;

/// The wire format of the Chat Completions API,
/// <https://platform.openai.com/docs/api-reference/chat>.
#[derive(Clone, Debug, Default)]
pub struct ChatCompletions {
    /// The server's dialect, if one has been set.
    dialect: Option<Arc<Dialect>>,
}

impl ChatCompletions {
    fn known_dialect(&self) -> Option<Dialect> {
        self.dialect.as_deref().copied()
    }

    fn dialect(&self, is_vendor: bool) -> Dialect {
        let Dialect {
            max_tokens_field,
            system_position,
            call_id_rule,
            tool_names_start_with_letter,
            ..
        } = Dialect::MINIMAL;
        let copied = Dialect {
            max_tokens_field,
            user_field: Some("user"),
            system_position,
            call_id_rule,
            tool_names_start_with_letter,
            ..Dialect::OPENAI
        };
        let unknown = if is_vendor { Dialect::OPENAI } else { copied };
        self.known_dialect().unwrap_or(unknown)
    }
}

impl Wire for ChatCompletions {
    type Framing = FrameReader;
    type Decoder = Decoder;

    fn name(&self) -> &str {
        self.known_dialect().unwrap_or_default().name
    }

    fn base_url(&self) -> &str {
        self.known_dialect().unwrap_or_default().base_url
    }

    fn path(&self, _model: &str) -> &'static str {
        "/chat/completions"
    }

    fn key_header(&self) -> KeyHeader {
        self.known_dialect().unwrap_or_default().key_header
    }

    fn encode(&self, request: &Request, to: Destination<'_>) -> Result<EncodedRequest, Error> {
        encode_body(request, to.model, &self.dialect(to.is_vendor)).map(EncodedRequest::new)
    }

    fn decoder(&self, request: &Request, to: Destination<'_>) -> Decoder {
        let dialect = self.dialect(to.is_vendor);
        // OpenAI charges the search of a model that searches the web, and does not report it.
        let options = &request.options;
        let is_search = |tool: &ServerTool| matches!(tool, ServerTool::WebSearch(_));
        let searches = dialect.name == Dialect::OPENAI.name
            && (options.extra.contains_key("web_search_options")
                || options.server_tools.iter().any(is_search));
        Decoder::new(to.model, &dialect)
            .with_tool_names(request.tools.names_for(dialect.tool_name_rule()))
            .with_unreported_searches(searches.into())
    }
}

impl OpenAiChat {
    /// Sets the server's dialect. The dialect's base URL is used unless a base URL is set
    /// explicitly.
    ///
    /// For a dialect without a standard address, set the base URL with
    /// [`with_base_url`](Self::with_base_url), either before or after calling this method. Without
    /// a base URL, every turn fails with an [`InvalidRequest`](crate::ErrorKind::InvalidRequest)
    /// error.
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        self.update_wire(|wire| wire.dialect = Some(Arc::new(dialect)))
    }
}
