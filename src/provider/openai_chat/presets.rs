//! The dialects of known servers: data, and no code.

use super::dialect::{
    Dialect, EmptyContent, IdRule, LimitField, MediaForms, OutputForms, ReasoningEcho,
    ReasoningSetting, SeedField, SystemPosition, SystemRole, ThinkTags, ToolChoices, TurnEnd,
    UserField,
};
use crate::http::KeyHeader;
use crate::provider::effort_names::EffortNames;

impl Dialect {
    /// What every server takes, for one that nothing is known of. What it may not know is refused
    /// here rather than sent.
    pub const STRICT: Self = Self {
        name: "openai_compatible",
        base_url: "",
        key: KeyHeader::Bearer,
        limit_field: LimitField::MaxTokens,
        stream_usage: false,
        top_k: false,
        seed_field: SeedField::None,
        stop_sequences: 4,
        tool_choice: ToolChoices::None,
        parallel_tool_calls: false,
        reasoning: ReasoningSetting::None,
        output_forms: OutputForms::Text,
        user_field: UserField::None,
        metadata: false,
        cache_marks: false,
        system_role: SystemRole::System,
        system_position: SystemPosition::Front,
        media_forms: MediaForms::None,
        empty_content: EmptyContent::Empty,
        reasoning_echo: ReasoningEcho::None,
        id_rule: IdRule::Max40Chars,
        names_results: false,
        assistant_after_results: false,
        empty_tools: false,
        turn_end: TurnEnd::FinishReason,
        think_tags: ThinkTags::Off,
        parses_text_calls: false,
    };

    /// What a server takes that follows the vendor here: the usage at the end of a stream, a seed,
    /// each `tool_choice`, and whether calls may be parallel.
    const FAITHFUL: Self = Self {
        stream_usage: true,
        seed_field: SeedField::Seed,
        tool_choice: ToolChoices::Named,
        parallel_tool_calls: true,
        ..Self::STRICT
    };

    /// The vendor's own, <https://platform.openai.com/docs/api-reference/chat/create>.
    pub const OPENAI: Self = Self {
        name: "openai_chat",
        base_url: "https://api.openai.com/v1",
        limit_field: LimitField::MaxCompletionTokens,
        reasoning: ReasoningSetting::Effort(EffortNames::OPENAI),
        output_forms: OutputForms::ObjectAndStrictSchema,
        user_field: UserField::SafetyIdentifier,
        metadata: true,
        system_position: SystemPosition::Anywhere,
        media_forms: MediaForms::FileBytes,
        empty_content: EmptyContent::Null,
        ..Self::FAITHFUL
    };

    /// Azure OpenAI. The base URL is that of the resource, either
    /// `https://{resource}.openai.azure.com/openai/v1` or
    /// `https://{resource}.openai.azure.com/openai/deployments/{deployment}?api-version={version}`;
    /// its query is kept.
    pub const AZURE: Self = Self {
        name: "azure",
        base_url: "",
        key: KeyHeader::Named("api-key"),
        user_field: UserField::User,
        ..Self::OPENAI
    };

    /// OpenRouter, <https://openrouter.ai/docs/api-reference/parameters>.
    pub const OPENROUTER: Self = Self {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        top_k: true,
        reasoning: ReasoningSetting::Object(EffortNames::OPENAI),
        output_forms: OutputForms::ObjectAndStrictSchema,
        user_field: UserField::User,
        cache_marks: true,
        media_forms: MediaForms::Files,
        empty_content: EmptyContent::Null,
        reasoning_echo: ReasoningEcho::Verbatim,
        ..Self::FAITHFUL
    };

    /// A LiteLLM proxy, <https://docs.litellm.ai/docs/completion/input>. It has no usual address.
    pub const LITELLM: Self = Self {
        name: "litellm",
        base_url: "",
        reasoning: ReasoningSetting::Effort(EffortNames::OPENAI),
        cache_marks: false,
        empty_tools: true,
        ..Self::OPENROUTER
    };

    /// Groq, <https://console.groq.com/docs/api-reference#chat-create>.
    pub const GROQ: Self = Self {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        limit_field: LimitField::MaxCompletionTokens,
        reasoning: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndStrictSchema,
        user_field: UserField::User,
        media_forms: MediaForms::Images,
        empty_content: EmptyContent::Null,
        ..Self::FAITHFUL
    };

    /// DeepSeek, <https://api-docs.deepseek.com/api/create-chat-completion>.
    pub const DEEPSEEK: Self = Self {
        name: "deepseek",
        base_url: "https://api.deepseek.com",
        stream_usage: true,
        stop_sequences: 16,
        tool_choice: ToolChoices::Named,
        reasoning: ReasoningSetting::Thinking(EffortNames {
            max: "max",
            ..EffortNames::LOW_MEDIUM_HIGH
        }),
        output_forms: OutputForms::Object,
        reasoning_echo: ReasoningEcho::ContentInToolLoop,
        ..Self::STRICT
    };

    /// Mistral, <https://docs.mistral.ai/api/#tag/chat>. It counts without being asked.
    pub const MISTRAL: Self = Self {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        seed_field: SeedField::RandomSeed,
        tool_choice: ToolChoices::Named,
        parallel_tool_calls: true,
        reasoning: ReasoningSetting::Effort(EffortNames {
            minimal: "high",
            low: "high",
            medium: "high",
            max: "high",
            ..EffortNames::OPENAI
        }),
        output_forms: OutputForms::ObjectAndStrictSchema,
        media_forms: MediaForms::Images,
        id_rule: IdRule::NineAlphanumerics,
        names_results: true,
        assistant_after_results: true,
        ..Self::STRICT
    };

    /// Together, <https://docs.together.ai/reference/chat-completions-1>.
    pub const TOGETHER: Self = Self {
        name: "together",
        base_url: "https://api.together.xyz/v1",
        top_k: true,
        parallel_tool_calls: false,
        reasoning: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndSchema,
        media_forms: MediaForms::Images,
        ..Self::FAITHFUL
    };

    /// Ollama, <https://github.com/ollama/ollama/blob/main/docs/openai.md>, which leaves
    /// `tool_choice` and the addresses of images out.
    pub const OLLAMA: Self = Self {
        name: "ollama",
        base_url: "http://localhost:11434/v1",
        stream_usage: true,
        seed_field: SeedField::Seed,
        reasoning: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndSchema,
        media_forms: MediaForms::ImageBytes,
        ..Self::STRICT
    };

    /// llama.cpp's server, <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>. Its
    /// `tool_choice` is a word.
    pub const LLAMA_CPP: Self = Self {
        name: "llama_cpp",
        base_url: "http://localhost:8080/v1",
        top_k: true,
        tool_choice: ToolChoices::Keywords,
        output_forms: OutputForms::ObjectAndSchema,
        media_forms: MediaForms::Images,
        ..Self::FAITHFUL
    };

    /// vLLM, <https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html>.
    pub const VLLM: Self = Self {
        name: "vllm",
        base_url: "http://localhost:8000/v1",
        top_k: true,
        reasoning: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndSchema,
        user_field: UserField::User,
        media_forms: MediaForms::Images,
        ..Self::FAITHFUL
    };

    /// LM Studio, <https://lmstudio.ai/docs/developer/openai-compat/chat-completions>. It says
    /// "`response_format.type` must be `json_schema` or `text`".
    pub const LM_STUDIO: Self = Self {
        name: "lm_studio",
        base_url: "http://localhost:1234/v1",
        stream_usage: true,
        top_k: true,
        seed_field: SeedField::Seed,
        tool_choice: ToolChoices::Keywords,
        output_forms: OutputForms::Schema,
        media_forms: MediaForms::ImageBytes,
        ..Self::STRICT
    };

    /// All presets.
    pub const ALL: &'static [Self] = &[
        Self::STRICT,
        Self::OPENAI,
        Self::AZURE,
        Self::OPENROUTER,
        Self::LITELLM,
        Self::GROQ,
        Self::DEEPSEEK,
        Self::MISTRAL,
        Self::TOGETHER,
        Self::OLLAMA,
        Self::LLAMA_CPP,
        Self::VLLM,
        Self::LM_STUDIO,
    ];
}
