//! The differences between servers' versions of Chat Completions, as data.

use crate::http::KeyHeader;
use crate::provider::effort_names::EffortNames;

/// How a server's version of Chat Completions differs from others. Plain data without code.
///
/// The constants are presets. For another server, start from the closest preset and change what
/// differs:
///
/// ```
/// use turnstream::provider::openai_chat::{Dialect, CallIdRule};
///
/// let mine = Dialect { name: "mine", call_id_rule: CallIdRule::NineAlphanumerics, ..Dialect::MINIMAL };
/// assert!(!mine.stream_usage);
/// ```
///
/// A request option that a dialect cannot express is an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error whose parameter names the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about a server")]
pub struct Dialect {
    /// The provider name in provider data, so that data signed by one vendor is not sent to
    /// another.
    pub name: &'static str,
    /// The base URL, including `/v1` or a similar path. Empty if the server has no standard
    /// address.
    pub base_url: &'static str,
    /// How the API key is sent.
    pub key_header: KeyHeader,

    /// The field for the output token limit.
    pub max_tokens_field: MaxTokensField,
    /// Whether `stream_options.include_usage` is sent. Some servers refuse it, and some report
    /// usage without it.
    pub stream_usage: bool,
    /// Whether `top_k` is supported. OpenAI itself does not have it.
    pub supports_top_k: bool,
    /// The field for the seed.
    pub seed_field: SeedField,
    /// The maximum number of stop sequences. OpenAI accepts "up to 4".
    pub max_stop_sequences: usize,
    /// The supported values of `tool_choice`.
    pub tool_choice: ToolChoices,
    /// Whether `parallel_tool_calls` is supported.
    pub supports_parallel_tool_calls: bool,
    /// How the reasoning effort or budget is sent.
    pub reasoning_setting: ReasoningSetting,
    /// The supported values of `response_format`.
    pub output_forms: OutputForms,
    /// The field for the end user's id.
    pub user_field: UserField,
    /// Whether `metadata` is supported. OpenAI requires `store` with it, which can be set in
    /// [`Options::extra`](crate::request::Options::extra).
    pub supports_metadata: bool,
    /// Whether `cache_control` marks are put on the tools, the stable zone and the newest message.
    /// If so, the text of all messages is sent as content parts, with or without a mark.
    pub supports_cache_control: bool,

    /// The role of instructions.
    pub system_role: SystemRole,
    /// Where system messages are allowed.
    pub system_position: SystemPosition,
    /// The supported content other than text.
    pub media_forms: MediaForms,
    /// The `content` of an assistant message that only calls tools.
    pub empty_content: EmptyContent,
    /// The earlier reasoning that is sent back to the model.
    pub reasoning_echo: ReasoningEcho,
    /// The format of call ids.
    pub call_id_rule: CallIdRule,
    /// Whether a tool result includes the name of its tool.
    pub names_results: bool,
    /// Whether an assistant message is required between a tool result and a user message. Mistral
    /// otherwise reports "Unexpected role 'user' after role 'tool'".
    pub requires_assistant_after_results: bool,
    /// Whether an empty `tools` array is sent if the request has no tools but the history has
    /// calls. Proxies for Anthropic require it; most servers refuse an empty array.
    pub sends_empty_tools: bool,

    /// The signals that complete a turn.
    pub turn_end: TurnEnd,
    /// Whether the model's reasoning is part of its text, in `<think>` tags.
    pub think_tags: ThinkTags,
    /// Whether `<tool_call>{"name":…,"arguments":{…}}</tool_call>` in the text is parsed as a tool
    /// call. Models write this if their server does not parse calls.
    pub parses_text_calls: bool,
}

/// The field in which a server expects the output token limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxTokensField {
    /// `max_completion_tokens`, which OpenAI's newer models require.
    MaxCompletionTokens,
    /// `max_tokens`, which most compatible servers expect.
    MaxTokens,
}

/// The field in which a server expects the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedField {
    /// A seed is not supported.
    None,
    /// `seed`
    Seed,
    /// `random_seed`
    RandomSeed,
}

/// The values of `tool_choice` that a server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoices {
    /// The field is not supported. To forbid tool calls, the tools are left out.
    None,
    /// `none` and `required`.
    Keywords,
    /// `none`, `required`, and a single tool by its name.
    KeywordsAndNamed,
}

/// How the reasoning effort or budget is sent to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningSetting {
    /// It cannot be set.
    None,
    /// `"reasoning_effort": "low"`
    Effort(EffortNames),
    /// `"reasoning": {"effort": "low"}`, or `{"max_tokens": 2000}` for a budget.
    Object(EffortNames),
    /// `"thinking": {"type": "enabled"}` together with `reasoning_effort`, or `"disabled"`.
    Thinking(EffortNames),
}

/// The values of `response_format` that a server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForms {
    /// The field is not supported.
    TextOnly,
    /// `json_object`
    Object,
    /// `json_schema`
    Schema,
    /// `json_object` and `json_schema`.
    ObjectAndSchema,
    /// `json_object` and `json_schema`, the latter with `strict`, which accepts a subset of JSON
    /// Schema.
    ObjectAndStrictSchema,
}

/// The field in which a server expects the end user's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserField {
    /// The id cannot be sent.
    None,
    /// `user`
    User,
    /// `safety_identifier`, which replaces `user` in OpenAI's API.
    SafetyIdentifier,
}

/// The role of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemRole {
    /// `system`, which every server supports.
    System,
    /// `developer`, which replaces `system` "with o1 models and newer".
    Developer,
}

/// Where a server allows system messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemPosition {
    /// Anywhere. The volatile zone is sent after everything else, so that the cached prefix stays
    /// valid as long as possible.
    Anywhere,
    /// Only at the start, as one message, because chat templates refuse a second one ("System
    /// message must be at the beginning"). The volatile zone is at the end of this message, and an
    /// instruction in the middle of a history is sent in the user's role.
    Front,
}

/// The content other than text that a server accepts. Each variant includes the variants before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MediaForms {
    /// Only text.
    None,
    /// Images as base64 data.
    ImageBytes,
    /// Images by URL.
    ImageUrls,
    /// Files and audio as base64 data.
    FileBytes,
    /// Files by URL.
    FileUrls,
}

/// The `content` of an assistant message that only calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptyContent {
    /// `null`
    Null,
    /// `""`
    EmptyString,
    /// The field is left out.
    Absent,
}

/// The earlier reasoning that is sent back to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningEcho {
    /// Nothing.
    None,
    /// Signed or encrypted reasoning, in the field in which it was received (`reasoning_details`,
    /// `thinking_blocks`), and only to the model that wrote it.
    Verbatim,
    /// The text of the reasoning, as `reasoning_content`, in the turns of a tool loop: those that
    /// call tools or follow a tool result. DeepSeek requires it there ("must be passed back") and
    /// not elsewhere.
    ContentInToolLoop,
}

/// The format of call ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallIdRule {
    /// Letters, digits, `_` and `-`, at most 40.
    Max40Chars,
    /// Exactly nine letters and digits: "Tool call id must be a-z, A-Z, 0-9, with a length of 9".
    NineAlphanumerics,
}

/// The signals that complete a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// Only a finish reason, as the protocol specifies.
    FinishReason,
    /// A finish reason or `[DONE]`, for servers that send no finish reason. A turn with tool calls
    /// still needs a finish reason: proxies send `[DONE]` even after a response that was cut off.
    DoneMarker,
    /// A finish reason, `[DONE]`, or the end of the body, for servers that send neither of the
    /// first two. A turn with tool calls still needs a finish reason: a lost connection looks the
    /// same.
    BodyEnd,
}

/// Whether the model's reasoning is part of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkTags {
    /// It is not: text is passed on unchanged.
    Off,
    /// The text may start with reasoning between `<think>` and `</think>`.
    Tagged,
    /// The text starts with reasoning that ends at `</think>`, with or without an opening
    /// `<think>`. This is the case if the chat template writes the opening tag.
    OpenedByTemplate,
}

impl Default for Dialect {
    /// OpenAI's own dialect, [`OPENAI`](Self::OPENAI).
    fn default() -> Self {
        Self::OPENAI
    }
}
