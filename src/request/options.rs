//! The options for a request: limits, sampling, reasoning and output format.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::item::RawJson;
use crate::request::server_tools::ServerTool;

/// The options for a model's answer: limits, sampling, reasoning and output format.
///
/// The provider chooses the values of options that are not set. If a wire format cannot express an
/// option, the request fails with an [`Unsupported`](crate::ErrorKind::Unsupported) error whose
/// [`parameter`](crate::Error::parameter) names the field. The exceptions are options whose docs
/// state that they have no effect in that wire format. To set options that have no field in this
/// struct, use [`extra`](Self::extra).
///
/// ```
/// use turnstream::request::{Effort, Options, Reasoning};
///
/// let options = Options {
///     max_output_tokens: Some(2_000),
///     reasoning: Some(Reasoning::Effort(Effort::Low)),
///     stop_sequences: vec!["END".into()],
///     ..Options::default()
/// };
/// assert_eq!(options.temperature, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The maximum number of output tokens. If a wire format requires a maximum and this field is
    /// not set, a default is sent.
    ///
    /// A turn that uses the maximum number of output tokens is treated as truncated if it contains
    /// a tool call whose arguments are invalid JSON, regardless of the stop reason that the server
    /// reports.
    pub max_output_tokens: Option<u32>,
    /// The sampling temperature. The minimum is 0, at which the model always chooses the most
    /// likely token. The maximum is 1 or 2, depending on the provider.
    #[serde(deserialize_with = "deserialize_number")]
    pub temperature: Option<f32>,
    /// The threshold for nucleus sampling, from 0 to 1. The model samples only from the smallest
    /// set of most likely tokens whose probabilities add up to at least this value.
    #[serde(deserialize_with = "deserialize_number")]
    pub top_p: Option<f32>,
    /// The number of most likely tokens that the model samples from.
    pub top_k: Option<u32>,
    /// A seed for repeatable sampling, to the extent that the provider supports it. Gemini accepts
    /// seeds in the range of `i32`, and Ollama seeds of at most 53 bits. The Messages and Responses
    /// wires and some dialects of the Chat wire accept none, so the request fails with an
    /// [`Unsupported`](crate::ErrorKind::Unsupported) error.
    pub seed: Option<u64>,
    /// The penalty for repeated tokens, from -2 to 2, which grows with the number of times that a
    /// token has already appeared.
    #[serde(deserialize_with = "deserialize_number")]
    pub frequency_penalty: Option<f32>,
    /// The penalty, from -2 to 2, for tokens that have already appeared at least once.
    #[serde(deserialize_with = "deserialize_number")]
    pub presence_penalty: Option<f32>,
    /// Strings at which the model stops. The answer ends just before the first stop sequence that
    /// occurs.
    pub stop_sequences: Vec<String>,
    /// Whether the model may call tools, must call a tool, or must not call any.
    ///
    /// In an agent's run, a choice that requires a call applies only until the calls of a turn have
    /// been answered; see [`Limits::forced_tool_turns`](crate::agent::Limits::forced_tool_turns).
    pub tool_choice: ToolChoice,
    /// Whether a single turn may contain several tool calls; `Some(false)` allows at most one call.
    pub parallel_tool_calls: Option<bool>,
    /// The tools that run on the provider's servers, such as a search of the web. They are declared
    /// beside the request's own tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_tools: Vec<ServerTool>,
    /// How much the model reasons before answering. If this field is set, the reasoning text is
    /// also requested from providers that can return it.
    pub reasoning: Option<Reasoning>,
    /// Whether the text of the reasoning is returned, and how detailed it is. Without this option,
    /// a summary is requested if [`reasoning`](Self::reasoning) is set. The option has no effect if
    /// reasoning is off. On the Messages wire, it requires `reasoning`.
    ///
    /// All levels exist on the Responses wire. The Messages and Gemini wires have only `Off` and
    /// `Auto`.
    /// <https://developers.openai.com/api/docs/guides/reasoning#reasoning-summaries>,
    /// <https://platform.claude.com/docs/en/build-with-claude/thinking#controlling-thinking-display>,
    /// <https://ai.google.dev/gemini-api/docs/thinking#summaries>
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_summary: Option<ReasoningSummary>,
    /// How long the answer is. For the Responses wire, and OpenAI's, Azure's and OpenRouter's
    /// dialects of the Chat wire.
    /// <https://developers.openai.com/api/docs/guides/latest-model#verbosity>
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbosity: Option<Verbosity>,
    /// The service tier, which determines the price and the speed. The tier that served the request
    /// is reported in [`Billing::service_tier`](crate::usage::Billing::service_tier), which is
    /// `None` if the server reported none: the request then need not have been served in the tier
    /// that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<ServiceTier>,
    /// The number of most likely tokens that are reported for each token of the answer, from 0 to
    /// 20. If this field is set, [`Turn::logprobs`](crate::turn::Turn::logprobs) returns the log
    /// probabilities of the tokens. Many reasoning models do not support this option. Durable runs,
    /// and recordings with secrets, do not keep them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    /// Whether the model cites the documents in the request. On the Messages wire, citations are
    /// enabled for all documents, and [`citations`](crate::provider::citations) reads them from the
    /// answer. Other wires only cite the sources of [server tools](Self::server_tools), for which
    /// no option is needed.
    /// <https://platform.claude.com/docs/en/build-with-claude/citations>
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub citations: bool,
    /// The format of the answer. A schema is rewritten for the wire format. If the schema cannot be
    /// rewritten, an error is returned whose [`parameter`](crate::Error::parameter) is the location
    /// of the problem in the schema, for example `#/properties/tags`.
    pub output: Output,
    /// Whether a text that describes the part is sent in place of an image or a file in a user
    /// message that the wire cannot express, for example a PDF to Ollama. The history keeps the
    /// part itself, and a model that can receive the part still does. By default, such a request
    /// fails with an [`Unsupported`](crate::ErrorKind::Unsupported) error, and a run that was given
    /// the part as input ends before it appends the input. In earlier messages and in tool
    /// results, such parts are always described.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub omit_unsupported_parts: bool,
    /// How long the provider caches the request's prefix for later requests, at least. This option
    /// has no effect if the provider caches automatically and has only one duration.
    pub cache: Cache,
    /// A key for requests with the same beginning, which OpenAI sends to the same server, so that
    /// more of them are read from its cache. For the Responses wire, and OpenAI's and Azure's
    /// dialects of the Chat wire.
    /// <https://developers.openai.com/api/docs/guides/prompt-caching>
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_key: Option<String>,
    /// How long OpenAI may keep the request's prefix in its cache, at most. For the Responses wire,
    /// and OpenAI's and Azure's dialects of the Chat wire. Which values are accepted depends on the
    /// model; GPT-5.5 and later models only accept [`Day`](PromptCacheRetention::Day). OpenAI has
    /// deprecated this option in favor of `prompt_cache_options.ttl`, which
    /// [`Cache::Long`](Cache::Long) sets for GPT-5.6 and later models on the Responses wire.
    /// <https://developers.openai.com/api/docs/guides/prompt-caching#prompt-cache-retention>
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_cache_retention: Option<PromptCacheRetention>,
    /// An opaque id for the end user, which providers use to detect abuse. The id must not reveal
    /// the user's identity.
    pub user: Option<String>,
    /// Key-value pairs that providers store with the request, if they store requests.
    pub metadata: BTreeMap<String, String>,
    /// Additional fields that are merged unchanged into the request body, after all other fields.
    /// Objects are merged field by field, and any other value replaces the value in the body, with
    /// one exception: the elements of the lists `tools`, `include` and `anthropic_beta` are
    /// appended to the body's own list.
    ///
    /// The elements of `tools` are declarations in the vendor's format, which are sent after all
    /// other tools. The name of such a tool must differ from the names of the request's own tools.
    /// Tools that run on the vendor's servers can be declared in
    /// [`server_tools`](Self::server_tools) instead.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::request::Options;
    ///
    /// // On the Responses wire: the input is truncated if it exceeds the context window.
    /// let mut options = Options::default();
    /// options.extra.insert("truncation".into(), json!("auto"));
    /// ```
    ///
    /// | to | wire | `extra` |
    /// |---|---|---|
    /// | cache only up to marked blocks | Responses | `{"prompt_cache_options":{"mode":"explicit"}}` |
    /// | truncate input that exceeds the window | Responses | `{"truncation":"auto"}` |
    /// | limit the calls of server tools | Responses | `{"max_tool_calls":5}` |
    /// | reason in pro mode | Responses | `{"reasoning":{"mode":"pro"}}` |
    /// | search the web in depth | Chat | `{"web_search_options":{"search_context_size":"high"}}` |
    /// | process in a region | Messages | `{"inference_geo":"us"}` |
    /// | answer faster, with `Anthropic::with_beta` | Messages | `{"speed":"fast"}` |
    /// | clear old results, with `Anthropic::with_beta` | Messages | `{"context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]}}` |
    /// | see images in low resolution | Gemini | `{"generationConfig":{"mediaResolution":"MEDIA_RESOLUTION_LOW"}}` |
    /// | change a safety filter | Gemini | `{"safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}]}` |
    pub extra: Map<String, Value>,
}

/// Deserializes a number from its JSON text. This function also works inside an internally tagged
/// enum if the `serde_json/arbitrary_precision` feature is enabled, in which case serde represents
/// the number as text.
fn deserialize_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f32>, D::Error> {
    RawJson::deserialize(from)?.deserialize_as().map_err(de::Error::custom)
}

impl Options {
    /// Returns these options, taking each option that is not set from `defaults`. A field whose
    /// value is the field's default counts as not set. The entries in `metadata` and `extra` are
    /// merged. If both `self` and `defaults` contain an entry with the same key, the entry from
    /// `self` is used.
    ///
    /// ```
    /// use turnstream::request::Options;
    ///
    /// let defaults = Options { temperature: Some(0.5), seed: Some(1), ..Options::default() };
    /// let options = Options { temperature: Some(0.0), ..Options::default() }.or(defaults);
    /// assert_eq!((options.temperature, options.seed), (Some(0.0), Some(1)));
    /// ```
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        fn non_default_or<T: Default + PartialEq>(own: T, default: T) -> T {
            if own == T::default() { default } else { own }
        }
        // Every field is named, so that the compiler reports a missing field.
        let Self { mut metadata, mut extra, .. } = defaults;
        metadata.extend(self.metadata);
        extra.extend(self.extra);
        Self {
            max_output_tokens: self.max_output_tokens.or(defaults.max_output_tokens),
            temperature: self.temperature.or(defaults.temperature),
            top_p: self.top_p.or(defaults.top_p),
            top_k: self.top_k.or(defaults.top_k),
            seed: self.seed.or(defaults.seed),
            frequency_penalty: self.frequency_penalty.or(defaults.frequency_penalty),
            presence_penalty: self.presence_penalty.or(defaults.presence_penalty),
            stop_sequences: non_default_or(self.stop_sequences, defaults.stop_sequences),
            tool_choice: non_default_or(self.tool_choice, defaults.tool_choice),
            parallel_tool_calls: self.parallel_tool_calls.or(defaults.parallel_tool_calls),
            server_tools: non_default_or(self.server_tools, defaults.server_tools),
            reasoning: self.reasoning.or(defaults.reasoning),
            reasoning_summary: self.reasoning_summary.or(defaults.reasoning_summary),
            verbosity: self.verbosity.or(defaults.verbosity),
            service_tier: self.service_tier.or(defaults.service_tier),
            logprobs: self.logprobs.or(defaults.logprobs),
            citations: self.citations || defaults.citations,
            output: non_default_or(self.output, defaults.output),
            omit_unsupported_parts: self.omit_unsupported_parts || defaults.omit_unsupported_parts,
            cache: non_default_or(self.cache, defaults.cache),
            prompt_cache_key: self.prompt_cache_key.or(defaults.prompt_cache_key),
            prompt_cache_retention: self.prompt_cache_retention.or(defaults.prompt_cache_retention),
            user: self.user.or(defaults.user),
            metadata,
            extra,
        }
    }

    /// Returns an error if an option whose name is not in `known` is set. `known` is a list of
    /// field names such as `temperature`. Encoders use this method to reject options that their
    /// wire format cannot express.
    ///
    /// The options [`cache`](Self::cache), [`extra`](Self::extra) and
    /// [`omit_unsupported_parts`](Self::omit_unsupported_parts) are never rejected;
    /// `parallel_tool_calls` is rejected only if it is `Some(false)`.
    ///
    /// ```
    /// use turnstream::request::Options;
    ///
    /// let options = Options { top_k: Some(40), temperature: Some(0.5), ..Options::default() };
    /// assert!(options.ensure_only_supported("mine", &["top_k", "temperature"]).is_ok());
    /// let error = options.ensure_only_supported("mine", &["temperature"]).unwrap_err();
    /// assert_eq!(error.parameter(), Some("top_k"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error whose
    /// [`parameter`](Error::parameter) is the name of the first option that is set but not in
    /// `known`.
    pub fn ensure_only_supported(&self, wire: &str, known: &[&str]) -> Result<(), Error> {
        // Every field is named, so that the compiler reports a missing field.
        let Self {
            max_output_tokens,
            temperature,
            top_p,
            top_k,
            seed,
            frequency_penalty,
            presence_penalty,
            stop_sequences,
            tool_choice,
            parallel_tool_calls,
            server_tools,
            reasoning,
            reasoning_summary,
            verbosity,
            service_tier,
            logprobs,
            citations,
            output,
            omit_unsupported_parts: _,
            cache: _,
            prompt_cache_key,
            prompt_cache_retention,
            user,
            metadata,
            extra: _,
        } = self;
        let set = [
            ("max_output_tokens", max_output_tokens.is_some()),
            ("temperature", temperature.is_some()),
            ("top_p", top_p.is_some()),
            ("top_k", top_k.is_some()),
            ("seed", seed.is_some()),
            ("frequency_penalty", frequency_penalty.is_some()),
            ("presence_penalty", presence_penalty.is_some()),
            ("stop_sequences", !stop_sequences.is_empty()),
            ("tool_choice", *tool_choice != ToolChoice::Auto),
            ("parallel_tool_calls", *parallel_tool_calls == Some(false)),
            ("server_tools", !server_tools.is_empty()),
            ("reasoning", reasoning.is_some()),
            ("reasoning_summary", reasoning_summary.is_some()),
            ("verbosity", verbosity.is_some()),
            ("service_tier", service_tier.is_some()),
            ("logprobs", logprobs.is_some()),
            ("citations", *citations),
            ("output", *output != Output::Text),
            ("prompt_cache_key", prompt_cache_key.is_some()),
            ("prompt_cache_retention", prompt_cache_retention.is_some()),
            ("user", user.is_some()),
            ("metadata", !metadata.is_empty()),
        ];
        match set.into_iter().find(|(name, is_set)| *is_set && !known.contains(name)) {
            Some((name, _)) => Err(unsupported_error(wire, name)),
            None => Ok(()),
        }
    }
}

/// Returns the names of the tools in [`Options::extra`], in the formats of all vendors.
pub(crate) fn extra_tool_names(extra: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let tools = extra.get("tools").and_then(Value::as_array).into_iter().flatten();
    tools.flat_map(|tool| {
        let listed = tool["functionDeclarations"].as_array().into_iter().flatten();
        let declared = [tool, &tool["function"]].into_iter().chain(listed);
        declared.filter_map(|function| function["name"].as_str())
    })
}

/// Creates an [`Unsupported`](ErrorKind::Unsupported) error for an option or content that a wire
/// format cannot express. The error's [`parameter`](Error::parameter) is `option`.
pub fn unsupported_error(wire: &str, option: &str) -> Error {
    let message = format!("the {wire} wire cannot express `{option}`");
    Error::new(ErrorKind::Unsupported, message).with_parameter(option)
}

/// Whether the model may call tools, must call a tool, or must not call any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides whether to call tools.
    #[default]
    Auto,
    /// The model must not call tools. The request still declares the tools.
    None,
    /// The model must call at least one tool.
    Required,
    /// The model must call the tool with this name.
    Tool(String),
    /// The model may only call some of the tools. All tools are still declared, so that the request
    /// matches the provider's cached prefix. For the Responses and Gemini wires, and OpenAI's and
    /// Azure's dialects of the Chat wire.
    /// <https://developers.openai.com/api/docs/guides/function-calling#tool-choice>,
    /// <https://ai.google.dev/gemini-api/docs/function-calling#function_calling_modes>
    Allowed {
        /// The names of the tools that the model may call.
        names: Vec<String>,
        /// Whether the model must call at least one of these tools.
        #[serde(default)]
        required: bool,
    },
}

impl ToolChoice {
    /// Returns whether the model must call a tool.
    pub(crate) fn requires_call(&self) -> bool {
        match self {
            Self::Required | Self::Tool(_) => true,
            Self::Allowed { required, .. } => *required,
            Self::Auto | Self::None => false,
        }
    }

    /// Returns the choice that allows the same tools but does not require a call.
    pub(crate) fn without_requirement(self) -> Self {
        match self {
            Self::Allowed { names, .. } => Self::Allowed { names, required: false },
            Self::Required | Self::Tool(_) | Self::Auto => Self::Auto,
            Self::None => Self::None,
        }
    }
}

/// Whether and how much a model reasons before answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reasoning {
    /// The model does not reason.
    Off,
    /// The model reasons with the given effort.
    Effort(Effort),
    /// The model reasons, using at most the given number of tokens.
    Budget(u32),
}

/// The amount of effort that a model puts into reasoning. The variants are in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effort {
    /// As little reasoning as possible.
    Minimal,
    /// Less reasoning than usual.
    Low,
    /// A medium amount of reasoning.
    Medium,
    /// More reasoning than usual.
    High,
    /// More reasoning than [`High`](Self::High), but not as much as possible. A vendor without such
    /// a level receives the nearest level that it has.
    #[serde(rename = "xhigh")]
    XHigh,
    /// As much reasoning as the model supports.
    Max,
}

/// Whether the text of the reasoning is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasoningSummary {
    /// No text is returned.
    Off,
    /// The text that the provider chooses, usually a summary.
    Auto,
    /// A short summary.
    Concise,
    /// A detailed summary.
    Detailed,
}

/// The length of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verbosity {
    /// A short answer.
    Low,
    /// An answer of medium length.
    Medium,
    /// A long answer.
    High,
}

impl Verbosity {
    /// Returns the name that all vendors use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A service tier. The tier serializes to a string.
///
/// | tier | Messages | OpenAI | Groq | Gemini |
/// |---|---|---|---|---|
/// | `Auto` | `auto` | `auto` | `auto` | |
/// | `Standard` | `standard_only` | `default` | `on_demand` | `standard` |
/// | `Flex` | | `flex` | `flex` | `flex` |
/// | `Priority` | | `priority` | `priority` | `priority` |
///
/// A tier without a name on a wire is an [`Unsupported`](crate::ErrorKind::Unsupported) error.
/// Sources: <https://platform.claude.com/docs/en/api/service-tiers>,
/// <https://developers.openai.com/api/docs/guides/flex-processing>,
/// <https://console.groq.com/docs/service-tiers>,
/// <https://ai.google.dev/gemini-api/docs/optimization>.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum ServiceTier {
    /// The tier is chosen by the provider, according to the account's settings.
    Auto,
    /// The tier with the standard price.
    Standard,
    /// A tier with a lower price, in which requests take longer and may be rejected.
    Flex,
    /// A tier with a higher price, in which requests are served first.
    Priority,
    /// Any other tier, under the vendor's name.
    Other(String),
}

impl ServiceTier {
    /// Returns the tier's serialized name, for example `flex`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Auto => "auto",
            Self::Standard => "standard",
            Self::Flex => "flex",
            Self::Priority => "priority",
            Self::Other(name) => name,
        }
    }
}

impl From<String> for ServiceTier {
    fn from(name: String) -> Self {
        match &*name {
            "auto" => Self::Auto,
            "standard" => Self::Standard,
            "flex" => Self::Flex,
            "priority" => Self::Priority,
            _ => Self::Other(name),
        }
    }
}

impl From<ServiceTier> for String {
    fn from(tier: ServiceTier) -> Self {
        match tier {
            ServiceTier::Other(name) => name,
            tier => tier.as_str().to_owned(),
        }
    }
}

/// The format of the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Output {
    /// The answer is plain text.
    #[default]
    Text,
    /// The answer is a single JSON value of any shape. Most providers also require the prompt to
    /// ask for JSON.
    Json,
    /// The answer is a single JSON value that matches a schema.
    Schema(OutputSchema),
}

impl Output {
    /// Creates the output format for an answer that [`Turn::parse`](crate::turn::Turn::parse) can
    /// deserialize into `T`.
    #[cfg(feature = "schemars")]
    pub fn for_type<T: schemars::JsonSchema>() -> Self {
        Self::Schema(OutputSchema::for_type::<T>())
    }
}

/// A JSON Schema that the answer must match.
///
/// Each wire format accepts only a subset of JSON Schema. Unsupported ranges, lengths and formats
/// are moved into the schema's description as a hint for the model. Answers therefore have to be
/// validated even if the provider guarantees the format. If a wire format cannot express a schema
/// at all, the request fails with an [`Unsupported`](crate::ErrorKind::Unsupported) error. For
/// example, some formats cannot express maps with arbitrary keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// The schema's name, which is sent to the model. The name may contain at most 64 characters:
    /// letters, digits, `_` and `-`. The name has no effect in wire formats without a field for a
    /// schema name.
    pub name: String,
    /// The JSON Schema that the answer must match.
    pub schema: Value,
}

#[cfg(feature = "schemars")]
impl OutputSchema {
    /// Creates the schema for a type. The schema is named after the type.
    ///
    /// Most wire formats require the schema's root to be an object, so an enum must be wrapped in a
    /// struct field. The model may omit a field with `#[serde(default)]`. In wire formats without
    /// optional fields, however, the model always includes that field.
    ///
    /// ```
    /// use turnstream::request::OutputSchema;
    ///
    /// #[derive(schemars::JsonSchema)]
    /// struct City {
    ///     /// As its people call it.
    ///     name: String,
    /// }
    ///
    /// let schema = OutputSchema::for_type::<City>();
    /// assert_eq!(schema.name, "City");
    /// assert_eq!(schema.schema["properties"]["name"]["description"], "As its people call it.");
    /// ```
    pub fn for_type<T: schemars::JsonSchema>() -> Self {
        let mut schema = schemars::schema_for!(T).to_value();
        if let Some(schema) = schema.as_object_mut() {
            // The removed fields are intended for people and for JSON Schema tools. In a request to
            // a model, these fields would only cost tokens.
            schema.shift_remove("$schema");
            schema.shift_remove("title");
        }
        let legal = |c: char| match c {
            c if c.is_ascii_alphanumeric() || c == '-' => c,
            _ => '_',
        };
        let mut name: String = T::schema_name().chars().take(64).map(legal).collect();
        if name.is_empty() {
            name.push_str("answer");
        }
        Self { name, schema }
    }
}

/// How long the provider may cache a request's prefix. Caching makes later requests cheaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cache {
    /// No part of the request is marked for caching.
    Off,
    /// The prefix is cached for the provider's usual duration, which is a few minutes.
    #[default]
    Short,
    /// If the provider offers two cache durations, the prefix is cached for the longer one: an hour
    /// on the Messages wire, and 12 hours on the Responses wire with GPT-5.6 and later models.
    Long,
}

/// The time after which OpenAI removes a request's prefix from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PromptCacheRetention {
    /// After a few minutes without a request, and at most an hour. The prefix is kept in memory
    /// only.
    #[serde(rename = "in_memory")]
    InMemory,
    /// After 24 hours.
    #[serde(rename = "24h")]
    Day,
}
