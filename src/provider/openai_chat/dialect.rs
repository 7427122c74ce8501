//! How one server's Chat Completions differ from another's, as data.

use crate::http::KeyHeader;
use crate::provider::effort_names::EffortNames;

/// How a server's Chat Completions differ from those of others: choices, and no code.
///
/// The constants are presets. For a server of your own take the nearest one and change what differs:
///
/// ```
/// use turnstream::provider::openai_chat::{Dialect, CallIdRule};
///
/// let mine = Dialect { name: "mine", call_id_rule: CallIdRule::NineAlphanumerics, ..Dialect::MINIMAL };
/// assert!(!mine.stream_usage);
/// ```
///
/// An option of a request that a dialect cannot express is an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error whose parameter names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a server")]
pub struct Dialect {
    /// What provider data is marked with, so that what one vendor signed is not sent to another.
    pub name: &'static str,
    /// Where requests go, with `/v1` or the like; empty where there is no usual address.
    pub base_url: &'static str,
    /// How the key is sent.
    pub key_header: KeyHeader,

    /// The name of the output limit.
    pub max_tokens_field: MaxTokensField,
    /// Whether `stream_options.include_usage` is sent; some servers refuse the field, and some
    /// count without being asked.
    pub stream_usage: bool,
    /// Whether `top_k` is known. It is not the vendor's own.
    pub supports_top_k: bool,
    /// The name of the seed.
    pub seed_field: SeedField,
    /// How many stop sequences are taken; the vendor takes "up to 4".
    pub max_stop_sequences: usize,
    /// What is known of `tool_choice`.
    pub tool_choice: ToolChoices,
    /// Whether `parallel_tool_calls` is known.
    pub supports_parallel_tool_calls: bool,
    /// How much the model thinks, in the words of the server.
    pub reasoning_setting: ReasoningSetting,
    /// What is known of `response_format`.
    pub output_forms: OutputForms,
    /// The name of the end user's id.
    pub user_field: UserField,
    /// Whether `metadata` is known. The vendor wants `store` with it, which goes into
    /// [`Options::extra`](crate::request::Options::extra).
    pub supports_metadata: bool,
    /// Whether `cache_control` marks are put on the tools, the stable zone and the newest message.
    /// The texts of messages are written as parts then, with and without a mark.
    pub supports_cache_control: bool,

    /// The role of instructions.
    pub system_role: SystemRole,
    /// Where instructions may stand.
    pub system_position: SystemPosition,
    /// What content beside text is taken.
    pub media_forms: MediaForms,
    /// What stands for the content of an assistant that only calls tools.
    pub empty_content: EmptyContent,
    /// What of its reasoning a model is shown again.
    pub reasoning_echo: ReasoningEcho,
    /// The form of call ids.
    pub call_id_rule: CallIdRule,
    /// Whether a tool result names its tool.
    pub names_results: bool,
    /// Whether an assistant must speak between a tool result and the user. Mistral answers
    /// "Unexpected role 'user' after role 'tool'".
    pub requires_assistant_after_results: bool,
    /// Whether `tools: []` is sent when there are none but the history has calls, as proxies for
    /// Anthropic want it; most servers refuse an empty list.
    pub sends_empty_tools: bool,

    /// What completes a turn.
    pub turn_end: TurnEnd,
    /// Whether the model's thoughts stand in its text.
    pub think_tags: ThinkTags,
    /// Whether `<tool_call>{"name":…,"arguments":{…}}</tool_call>` in the text is a call, as
    /// models write it behind servers that do not parse it.
    pub parses_text_calls: bool,
}

/// The name that a server knows the output limit by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxTokensField {
    /// `max_completion_tokens`, as the vendor's newer models want it.
    MaxCompletionTokens,
    /// `max_tokens`, as most compatible servers want it.
    MaxTokens,
}

/// The name that a server knows the seed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedField {
    /// It knows none.
    None,
    /// `seed`
    Seed,
    /// `random_seed`
    RandomSeed,
}

/// What a server knows of `tool_choice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoices {
    /// Nothing. That no tool may be called is said by sending no tools.
    None,
    /// `none` and `required`.
    Keywords,
    /// The words, and one tool by its name.
    KeywordsAndNamed,
}

/// How a server is told how much the model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningSetting {
    /// It cannot be told.
    None,
    /// `"reasoning_effort": "low"`
    Effort(EffortNames),
    /// `"reasoning": {"effort": "low"}`, or `{"max_tokens": 2000}` for a budget.
    Object(EffortNames),
    /// `"thinking": {"type": "enabled"}` or `"disabled"`, with `reasoning_effort` beside the former.
    Thinking(EffortNames),
}

/// What a server knows of `response_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForms {
    /// Nothing.
    TextOnly,
    /// `json_object`
    Object,
    /// `json_schema`
    Schema,
    /// `json_object` and `json_schema`.
    ObjectAndSchema,
    /// Both, and `strict` in the latter, which takes a subset of JSON Schema.
    ObjectAndStrictSchema,
}

/// The name that a server knows the end user's id by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserField {
    /// It knows none.
    None,
    /// `user`
    User,
    /// `safety_identifier`, which the vendor has in its place.
    SafetyIdentifier,
}

/// The role of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemRole {
    /// `system`, which every server knows.
    System,
    /// `developer`, which replaces it "with o1 models and newer".
    Developer,
}

/// Where instructions may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemPosition {
    /// Anywhere. What changes from request to request comes behind everything else, so that a cache
    /// of the beginning holds as long as it can.
    Anywhere,
    /// In front, all in one message: chat templates refuse a second one ("System message must be at
    /// the beginning"). What changes stands at its end, and an instruction in the middle of a
    /// history is sent as the user's.
    Front,
}

/// What content beside text a server takes, each with what stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MediaForms {
    /// None.
    None,
    /// Images by their bytes.
    ImageBytes,
    /// Images by their address.
    ImageUrls,
    /// Files and sounds by their bytes.
    FileBytes,
    /// Files by their address.
    FileUrls,
}

/// What stands for the content of an assistant that only calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptyContent {
    /// `null`
    Null,
    /// `""`
    EmptyString,
    /// No field.
    Absent,
}

/// What of its reasoning a model is shown again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningEcho {
    /// Nothing.
    None,
    /// What is signed or encrypted, under the name it came by (`reasoning_details`,
    /// `thinking_blocks`), to the model that wrote it.
    Verbatim,
    /// The words, as `reasoning_content`, of the turns of a tool loop: those that call tools or
    /// follow a result. DeepSeek wants them there ("must be passed back") and not elsewhere.
    ContentInToolLoop,
}

/// The form of call ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallIdRule {
    /// Letters, digits, `_` and `-`, at most 40.
    Max40Chars,
    /// Exactly nine letters and digits: "Tool call id must be a-z, A-Z, 0-9, with a length of 9".
    NineAlphanumerics,
}

/// What completes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEnd {
    /// A finish reason, as the protocol has it.
    FinishReason,
    /// Or `[DONE]`, for servers that send no finish reason. A turn with calls is incomplete without
    /// one: proxies send `[DONE]` also behind an answer that broke off.
    DoneMarker,
    /// Or the end of a body, for servers that send neither. A turn with calls is incomplete then:
    /// a connection that broke looks the same.
    BodyEnd,
}

/// Whether the model's thoughts stand in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkTags {
    /// They do not; the text is the text.
    Off,
    /// What the text begins with, from `<think>` to `</think>`.
    Tagged,
    /// The text begins with thoughts, with or without `<think>`, and goes on behind `</think>`:
    /// chat templates that write the opening tag themselves.
    OpenedByTemplate,
}

impl Default for Dialect {
    /// The vendor's own.
    fn default() -> Self {
        Self::OPENAI
    }
}
