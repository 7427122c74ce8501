//! Predefined [`Dialect`]s for known servers.

use super::dialect::{
    CallIdRule, Dialect, EmptyContent, MediaForms, OutputForms, ReasoningEcho, ReasoningSetting,
    SystemPosition, ThinkTags, ToolChoices, TurnEnd,
};
use crate::http::KeyHeader;
use crate::provider::codec::effort_names::EffortNames;

impl Dialect {
    /// A dialect limited to the features that every server supports, for use with unknown servers.
    /// An option that requires any other feature results in an error instead of being sent.
    pub const MINIMAL: Self = Self {
        name: "openai_compatible",
        base_url: "",
        key_header: KeyHeader::Bearer,
        max_tokens_field: "max_tokens",
        stream_usage: false,
        supports_top_k: false,
        seed_field: None,
        max_stop_sequences: 4,
        tool_choice: ToolChoices::None,
        supports_parallel_tool_calls: false,
        supports_strict_tools: false,
        supports_web_search: false,
        reasoning_setting: ReasoningSetting::None,
        supports_verbosity: false,
        supports_logprobs: false,
        standard_service_tier: None,
        supports_prompt_cache_key: false,
        output_forms: OutputForms::TextOnly,
        user_field: None,
        supports_metadata: false,
        supports_cache_control: false,
        system_role: "system",
        system_position: SystemPosition::Front,
        requires_message: false,
        media_forms: MediaForms::None,
        supports_file_ids: false,
        empty_content: EmptyContent::EmptyString,
        reasoning_echo: ReasoningEcho::None,
        call_id_rule: CallIdRule::AnyIssued,
        tool_names_start_with_letter: true,
        names_results: false,
        requires_assistant_after_results: false,
        sends_empty_tools: false,
        turn_end: TurnEnd::FinishReason,
        think_tags: ThinkTags::Off,
        parses_text_calls: false,
    };

    /// A dialect with the features of OpenAI's API that most compatible servers support: usage at
    /// the end of a stream, a seed, every `tool_choice`, and `parallel_tool_calls`.
    const BROADLY_COMPATIBLE: Self = Self {
        stream_usage: true,
        seed_field: Some("seed"),
        tool_choice: ToolChoices::KeywordsAndNamed,
        supports_parallel_tool_calls: true,
        ..Self::MINIMAL
    };

    /// The dialect of OpenAI's own API,
    /// <https://platform.openai.com/docs/api-reference/chat/create>.
    pub const OPENAI: Self = Self {
        name: "openai_chat",
        base_url: "https://api.openai.com/v1",
        max_tokens_field: "max_completion_tokens",
        tool_choice: ToolChoices::KeywordsNamedAndAllowed,
        reasoning_setting: ReasoningSetting::OpenAiEffort,
        supports_verbosity: true,
        supports_logprobs: true,
        standard_service_tier: Some("default"),
        supports_prompt_cache_key: true,
        output_forms: OutputForms::ObjectAndStrictSchema,
        supports_strict_tools: true,
        supports_web_search: true,
        user_field: Some("safety_identifier"),
        supports_metadata: true,
        system_position: SystemPosition::Anywhere,
        media_forms: MediaForms::FileBytes,
        supports_file_ids: true,
        empty_content: EmptyContent::Null,
        call_id_rule: CallIdRule::Max40Chars,
        tool_names_start_with_letter: false,
        ..Self::BROADLY_COMPATIBLE
    };

    /// The dialect of Azure OpenAI. The resource's base URL must be set, either to
    /// `https://{resource}.openai.azure.com/openai/v1` or to
    /// `https://{resource}.openai.azure.com/openai/deployments/{deployment}?api-version={version}`.
    /// The base URL's query string is sent with each request.
    pub const AZURE: Self = Self {
        name: "azure",
        base_url: "",
        key_header: KeyHeader::Named("api-key"),
        supports_web_search: false,
        user_field: Some("user"),
        ..Self::OPENAI
    };

    /// The dialect of OpenRouter, <https://openrouter.ai/docs/api-reference/parameters>. It accepts
    /// every effort, and maps it to one that the model has.
    pub const OPENROUTER: Self = Self {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        supports_top_k: true,
        reasoning_setting: ReasoningSetting::Object(EffortNames {
            max: "max",
            ..EffortNames::OPENAI
        }),
        supports_verbosity: true,
        supports_logprobs: true,
        output_forms: OutputForms::ObjectAndStrictSchema,
        user_field: Some("user"),
        supports_cache_control: true,
        media_forms: MediaForms::FileUrls,
        empty_content: EmptyContent::Null,
        reasoning_echo: ReasoningEcho::Verbatim,
        ..Self::BROADLY_COMPATIBLE
    };

    /// The dialect of a LiteLLM proxy, <https://docs.litellm.ai/docs/completion/input>. Such a
    /// proxy has no standard address.
    pub const LITELLM: Self = Self {
        name: "litellm",
        base_url: "",
        reasoning_setting: ReasoningSetting::Effort(EffortNames::OPENAI),
        supports_cache_control: false,
        sends_empty_tools: true,
        ..Self::OPENROUTER
    };

    /// The dialect of Groq, <https://console.groq.com/docs/api-reference#chat-create>.
    pub const GROQ: Self = Self {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        max_tokens_field: "max_completion_tokens",
        reasoning_setting: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        standard_service_tier: Some("on_demand"),
        output_forms: OutputForms::ObjectAndStrictSchema,
        user_field: Some("user"),
        media_forms: MediaForms::ImageUrls,
        empty_content: EmptyContent::Null,
        ..Self::BROADLY_COMPATIBLE
    };

    /// The dialect of DeepSeek, <https://api-docs.deepseek.com/api/create-chat-completion>.
    pub const DEEPSEEK: Self = Self {
        name: "deepseek",
        base_url: "https://api.deepseek.com",
        stream_usage: true,
        max_stop_sequences: 16,
        tool_choice: ToolChoices::KeywordsAndNamed,
        reasoning_setting: ReasoningSetting::Thinking(EffortNames {
            max: "max",
            ..EffortNames::LOW_MEDIUM_HIGH
        }),
        supports_logprobs: true,
        output_forms: OutputForms::Object,
        reasoning_echo: ReasoningEcho::ContentInToolLoop,
        ..Self::MINIMAL
    };

    /// The dialect of Mistral, <https://docs.mistral.ai/api/#tag/chat>. Mistral always reports
    /// usage, even if the request does not ask for it.
    pub const MISTRAL: Self = Self {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        seed_field: Some("random_seed"),
        tool_choice: ToolChoices::KeywordsAndNamed,
        supports_parallel_tool_calls: true,
        reasoning_setting: ReasoningSetting::Effort(EffortNames {
            minimal: "high",
            low: "high",
            medium: "high",
            xhigh: "high",
            max: "high",
            ..EffortNames::OPENAI
        }),
        output_forms: OutputForms::ObjectAndStrictSchema,
        requires_message: true,
        media_forms: MediaForms::ImageUrls,
        call_id_rule: CallIdRule::NineAlphanumerics,
        names_results: true,
        requires_assistant_after_results: true,
        ..Self::MINIMAL
    };

    /// The dialect of Together, <https://docs.together.ai/reference/chat-completions-1>.
    pub const TOGETHER: Self = Self {
        name: "together",
        base_url: "https://api.together.xyz/v1",
        supports_top_k: true,
        supports_parallel_tool_calls: false,
        reasoning_setting: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndSchema,
        media_forms: MediaForms::ImageUrls,
        ..Self::BROADLY_COMPATIBLE
    };

    /// The dialect of Ollama, <https://github.com/ollama/ollama/blob/main/docs/openai.md>. Ollama
    /// supports neither `tool_choice` nor images specified by URL.
    pub const OLLAMA: Self = Self {
        name: "ollama",
        base_url: "http://localhost:11434/v1",
        stream_usage: true,
        seed_field: Some("seed"),
        reasoning_setting: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndSchema,
        requires_message: true,
        media_forms: MediaForms::ImageBytes,
        ..Self::MINIMAL
    };

    /// The dialect of llama.cpp's server,
    /// <https://github.com/ggml-org/llama.cpp/tree/master/tools/server>. For `tool_choice`, this
    /// server accepts only keywords.
    pub const LLAMA_CPP: Self = Self {
        name: "llama_cpp",
        base_url: "http://localhost:8080/v1",
        supports_top_k: true,
        supports_logprobs: true,
        tool_choice: ToolChoices::Keywords,
        output_forms: OutputForms::ObjectAndSchema,
        media_forms: MediaForms::ImageUrls,
        ..Self::BROADLY_COMPATIBLE
    };

    /// The dialect of vLLM, <https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html>.
    pub const VLLM: Self = Self {
        name: "vllm",
        base_url: "http://localhost:8000/v1",
        supports_top_k: true,
        supports_logprobs: true,
        reasoning_setting: ReasoningSetting::Effort(EffortNames::LOW_MEDIUM_HIGH),
        output_forms: OutputForms::ObjectAndSchema,
        user_field: Some("user"),
        media_forms: MediaForms::ImageUrls,
        ..Self::BROADLY_COMPATIBLE
    };

    /// The dialect of LM Studio,
    /// <https://lmstudio.ai/docs/developer/openai-compat/chat-completions>. LM Studio rejects all
    /// output formats other than `json_schema` and `text`, with the error "`response_format.type`
    /// must be `json_schema` or `text`".
    pub const LM_STUDIO: Self = Self {
        name: "lm_studio",
        base_url: "http://localhost:1234/v1",
        stream_usage: true,
        supports_top_k: true,
        seed_field: Some("seed"),
        tool_choice: ToolChoices::Keywords,
        output_forms: OutputForms::Schema,
        media_forms: MediaForms::ImageBytes,
        ..Self::MINIMAL
    };

    /// All predefined dialects.
    pub const ALL: &'static [Self] = &[
        Self::MINIMAL,
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
