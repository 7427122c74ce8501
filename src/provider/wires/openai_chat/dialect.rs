//! Data that describes how servers differ in their support for Chat Completions.

use crate::http::KeyHeader;
use crate::provider::codec::effort_names::EffortNames;
use crate::request::ToolNameRule;

/// Describes how a server's version of Chat Completions differs from other versions. A dialect is
/// plain data and contains no code.
///
/// The associated constants are presets for known servers. For any other server, start with the
/// closest preset and change the fields that differ:
///
/// ```
/// use turnstream::provider::openai_chat::{Dialect, CallIdRule};
///
/// let mine = Dialect { name: "mine", call_id_rule: CallIdRule::NineAlphanumerics, ..Dialect::MINIMAL };
/// assert!(!mine.stream_usage);
/// ```
///
/// A request option that a dialect cannot express results in an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error that names the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about a server")]
pub struct Dialect {
    /// The provider name that is stored in provider data. This name ensures that data signed by one
    /// vendor is not sent to another.
    pub name: &'static str,
    /// The base URL, including `/v1` or a similar path, or an empty string if the server has no
    /// standard address.
    pub base_url: &'static str,
    /// The header in which the API key is sent.
    pub key_header: KeyHeader,

    /// The name of the field for the output token limit: `max_completion_tokens`, which OpenAI's
    /// newer models require, or `max_tokens`, which most compatible servers expect.
    pub max_tokens_field: &'static str,
    /// Whether `stream_options.include_usage` is sent. Some servers reject this option, and others
    /// report usage even without it.
    pub stream_usage: bool,
    /// Whether `top_k` is supported. OpenAI itself does not support it.
    pub supports_top_k: bool,
    /// The name of the field for the seed, or `None` if the server does not support a seed.
    pub seed_field: Option<&'static str>,
    /// The maximum number of stop sequences. OpenAI accepts "up to 4".
    pub max_stop_sequences: usize,
    /// The supported `tool_choice` values.
    pub tool_choice: ToolChoices,
    /// Whether `parallel_tool_calls` is supported.
    pub supports_parallel_tool_calls: bool,
    /// Whether a tool may be [strict](crate::tool::ToolSpec::strict).
    pub supports_strict_tools: bool,
    /// Whether `web_search_options` is supported, with which a search model of OpenAI searches the
    /// web, <https://developers.openai.com/api/docs/guides/tools-web-search>. The name of such a
    /// model contains `search`. Other models, and a request with tools of its own, are refused.
    pub supports_web_search: bool,
    /// The field for the reasoning effort or budget.
    pub reasoning_setting: ReasoningSetting,
    /// Whether `verbosity` is supported.
    pub supports_verbosity: bool,
    /// Whether `logprobs` and `top_logprobs` are supported.
    pub supports_logprobs: bool,
    /// The name of the service tier with the standard price, or `None` if the server does not
    /// support `service_tier`.
    pub standard_service_tier: Option<&'static str>,
    /// Whether `prompt_cache_key` and `prompt_cache_retention` are supported.
    pub supports_prompt_cache_key: bool,
    /// The supported `response_format` values.
    pub output_forms: OutputForms,
    /// The name of the field for the end user's id, or `None` if the server does not support such
    /// an id. In OpenAI's API, `safety_identifier` replaces `user`.
    pub user_field: Option<&'static str>,
    /// Whether `metadata` is supported. OpenAI requires `metadata` to be sent together with
    /// `store`, which can be set in [`Options::extra`](crate::request::Options::extra).
    pub supports_metadata: bool,
    /// Whether `cache_control` markers are added to the tools, the stable zone of the system
    /// prompt, and the newest message. If so, the text of every message is sent as content parts,
    /// whether or not the message has a marker.
    pub supports_cache_control: bool,

    /// The role of messages that contain instructions: `system`, which every server supports, or
    /// `developer`, which replaces `system` "with o1 models and newer".
    pub system_role: &'static str,
    /// The positions where system messages are allowed.
    pub system_position: SystemPosition,
    /// Whether a request must contain a message other than instructions. Without such a message,
    /// Ollama sends an empty answer, and Mistral reports "Expected last role User or Tool".
    pub requires_message: bool,
    /// The supported types of non-text content.
    pub media_forms: MediaForms,
    /// Whether files are accepted by the [id](crate::item::MediaSource::FileId) that the server
    /// assigned when they were uploaded.
    pub supports_file_ids: bool,
    /// The value of the `content` field in an assistant message that contains only tool calls.
    pub empty_content: EmptyContent,
    /// Specifies which earlier reasoning is sent back to the model.
    pub reasoning_echo: ReasoningEcho,
    /// The required format for call ids.
    pub call_id_rule: CallIdRule,
    /// Whether the name of a tool must begin with a letter. Kimi reports "function name is invalid,
    /// must start with a letter". A tool with another name is sent under a name that begins with a
    /// letter, and the name is converted back in the model's calls.
    pub tool_names_start_with_letter: bool,
    /// Whether each tool result includes the tool's name.
    pub names_results: bool,
    /// Whether an assistant message is required between a tool result and a user message. Without
    /// such a message, Mistral reports "Unexpected role 'user' after role 'tool'".
    pub requires_assistant_after_results: bool,
    /// Whether an empty `tools` array is sent if the request offers no tools but the history
    /// contains calls. Proxies for Anthropic require the empty array, but most servers reject it.
    pub sends_empty_tools: bool,

    /// The signals that complete a turn.
    pub turn_end: TurnEnd,
    /// Whether the model's text contains reasoning in `<think>` tags.
    pub think_tags: ThinkTags,
    /// Whether `<tool_call>{"name":…,"arguments":{…}}</tool_call>` in the text is parsed as a tool
    /// call. A model's calls appear in the text in this form if the server does not parse them.
    pub parses_text_calls: bool,
}

/// The `tool_choice` values that a server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoices {
    /// The server does not support `tool_choice`. To forbid tool calls, the request omits the
    /// tools.
    None,
    /// The server supports the values `none` and `required`.
    Keywords,
    /// The server supports `none`, `required`, and the choice of a single tool by name.
    KeywordsAndNamed,
    /// The server supports `none`, `required`, the choice of a single tool by name, and
    /// `allowed_tools`.
    KeywordsNamedAndAllowed,
}

/// The field in which a server expects the reasoning effort or budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningSetting {
    /// The reasoning effort or budget cannot be sent.
    None,
    /// An effort is sent as `"reasoning_effort": "low"`.
    Effort(EffortNames),
    /// An effort is sent as `"reasoning_effort": "low"`, under the names that OpenAI's models
    /// accept. A level that a model lacks is replaced with the nearest one, if the model's name
    /// says so.
    OpenAiEffort,
    /// An effort is sent as `"reasoning": {"effort": "low"}`, and a budget as `"reasoning":
    /// {"max_tokens": 2000}`.
    Object(EffortNames),
    /// An effort is sent as `"thinking": {"type": "enabled"}` together with `reasoning_effort`. To
    /// turn reasoning off, the type `"disabled"` is sent.
    Thinking(EffortNames),
}

/// The `response_format` values that a server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForms {
    /// The server does not support `response_format`.
    TextOnly,
    /// The server supports `json_object`.
    Object,
    /// The server supports `json_schema`.
    Schema,
    /// The server supports `json_object` and `json_schema`.
    ObjectAndSchema,
    /// The server supports `json_object`, and `json_schema` in `strict` mode. In `strict` mode, the
    /// server accepts only a subset of JSON Schema.
    ObjectAndStrictSchema,
}

/// The positions where a server allows system messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemPosition {
    /// System messages are allowed anywhere. The volatile zone is sent after all other messages, so
    /// that the cached prefix remains valid as long as possible.
    Anywhere,
    /// Only a single system message is allowed, at the start, because chat templates reject a
    /// second one ("System message must be at the beginning"). The volatile zone is placed at the
    /// end of this message. An instruction in the middle of the history is sent with the role
    /// `user`.
    Front,
}

/// The types of non-text content that a server accepts. Each variant also includes the types of all
/// preceding variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MediaForms {
    /// The server accepts only text.
    None,
    /// The server accepts images as base64 data.
    ImageBytes,
    /// The server accepts images specified by URL.
    ImageUrls,
    /// The server accepts files and audio as base64 data.
    FileBytes,
    /// The server accepts files specified by URL.
    FileUrls,
}

/// The value of the `content` field in an assistant message that contains only tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptyContent {
    /// The `content` field is `null`.
    Null,
    /// The `content` field is an empty string.
    EmptyString,
    /// The `content` field is omitted.
    Absent,
}

/// Specifies which earlier reasoning is sent back to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningEcho {
    /// Reasoning is never sent back.
    None,
    /// Signed or encrypted reasoning is sent back in the field in which it was received
    /// (`reasoning_details` or `thinking_blocks`), and only to the model that wrote it.
    Verbatim,
    /// The reasoning text is sent back as `reasoning_content` in the turns of a tool loop, that is,
    /// in turns that call tools or follow a tool result. DeepSeek requires `reasoning_content` in
    /// the turns of a tool loop ("must be passed back") and in no other turns.
    ContentInToolLoop,
}

/// The format that a server requires for call ids. Each predefined [`Dialect`] links to the
/// documentation of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallIdRule {
    /// The server accepts every call id that it has issued, so such an id is sent back unchanged.
    /// Kimi reads the name of the tool from ids such as `functions.add:0`. An id of another
    /// provider is sent as at most 40 letters, digits, `_` and `-`.
    AnyIssued,
    /// Call ids consist of at most 40 characters. An id of another provider is sent as letters,
    /// digits, `_` and `-`.
    Max40Chars,
    /// Call ids consist of exactly nine letters and digits: "Tool call id must be a-z, A-Z, 0-9,
    /// with a length of 9".
    NineAlphanumerics,
}

/// The signals that complete a turn. Each predefined [`Dialect`] has the signal that its server
/// sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// Only a finish reason completes a turn, as the protocol specifies.
    FinishReason,
    /// A finish reason or `[DONE]` completes a turn, for servers that do not send a finish reason.
    /// A turn with tool calls still requires a finish reason, because proxies send `[DONE]` even
    /// after a truncated response.
    DoneMarker,
    /// A finish reason or `[DONE]` completes a turn, even a turn with tool calls if the usage was
    /// received and the arguments of every call are JSON, for servers that omit the finish reason
    /// after tool calls. A truncated response looks the same if its last arguments happen to be
    /// JSON, so set this only for a server that is known to behave in this way.
    DoneMarkerAfterUsage,
    /// A finish reason, `[DONE]` or the end of the body completes a turn, for servers that send
    /// neither a finish reason nor `[DONE]`. A turn with tool calls still requires a finish reason,
    /// because a lost connection looks like the end of the body.
    BodyEnd,
}

/// Specifies whether a model's text contains its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkTags {
    /// The text contains no reasoning and is returned unchanged.
    Off,
    /// The text may start with reasoning between `<think>` and `</think>`.
    Tagged,
    /// The text starts with reasoning that ends at `</think>`, with or without an opening
    /// `<think>`. The text has no opening tag if the chat template has already written this tag.
    OpenedByTemplate,
}

impl Dialect {
    /// Returns the rule that the names of tools must obey.
    pub(super) fn tool_name_rule(&self) -> ToolNameRule {
        match self.tool_names_start_with_letter {
            true => ToolNameRule::Letter,
            false => ToolNameRule::Any,
        }
    }
}

impl Default for Dialect {
    /// Returns OpenAI's own dialect, [`OPENAI`](Self::OPENAI).
    fn default() -> Self {
        Self::OPENAI
    }
}
