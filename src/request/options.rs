//! How a model is asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::item::RawJson;

/// How a model is asked: limits, sampling, reasoning, the form of the answer.
///
/// What is not set is left to the provider. What a wire cannot express is an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error whose
/// [`parameter`](crate::Error::parameter) names the field, unless the field's own words say that it
/// does nothing there. What is not modelled goes into [`extra`](Self::extra).
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
    /// At most so many tokens in the answer. A wire that demands a number has a default.
    ///
    /// A turn that used them all and has a call whose arguments are not JSON was cut off, whatever stop
    /// reason the server reports; see [`TurnBuilder`](crate::turn::TurnBuilder::with_max_output_tokens).
    pub max_output_tokens: Option<u32>,
    /// From 0 (always the likeliest word) to 1 or 2, as the provider has it.
    #[serde(deserialize_with = "deserialize_number")]
    pub temperature: Option<f32>,
    /// Samples from the likeliest words whose probabilities add up to this, from 0 to 1.
    #[serde(deserialize_with = "deserialize_number")]
    pub top_p: Option<f32>,
    /// Samples from this many of the likeliest words.
    pub top_k: Option<u32>,
    /// Makes sampling repeatable, as far as the provider can.
    pub seed: Option<u64>,
    /// Holds against a word how often it was said, from -2 to 2.
    #[serde(deserialize_with = "deserialize_number")]
    pub frequency_penalty: Option<f32>,
    /// Holds against a word that it was said at all, from -2 to 2.
    #[serde(deserialize_with = "deserialize_number")]
    pub presence_penalty: Option<f32>,
    /// The answer ends before the first of these.
    pub stop_sequences: Vec<String>,
    /// Whether the model may, must or must not call tools.
    pub tool_choice: ToolChoice,
    /// Whether one turn may hold several calls; `Some(false)` asks for one at most.
    pub parallel_tool_calls: Option<bool>,
    /// How much the model thinks before it answers, and that its thoughts are shown where the
    /// provider shows them.
    pub reasoning: Option<Reasoning>,
    /// The form of the answer. A schema is rewritten for the wire; where that is not possible, the
    /// [`parameter`](crate::Error::parameter) of the error is the place in the schema, for example
    /// `#/properties/tags`.
    pub output: Output,
    /// How long the provider may keep the beginning of the request for the next one. Does nothing
    /// on a wire that caches by itself.
    pub cache: Cache,
    /// An id of the end user that says nothing of the person, for the provider's safety checks.
    pub user: Option<String>,
    /// Kept with the request by providers that keep requests.
    pub metadata: BTreeMap<String, String>,
    /// Merged into the body as it is, last: objects field by field, anything else replaces what
    /// stands there.
    pub extra: Map<String, Value>,
}

/// Reads a number from its text, in which `serde_json/arbitrary_precision` presents it within an
/// enum that has its tag inside.
fn deserialize_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f32>, D::Error> {
    RawJson::deserialize(from)?.deserialize_as().map_err(de::Error::custom)
}

impl Options {
    /// These options, with those of `defaults` where they have none: a field that has its default value
    /// counts as not set. Of `metadata` and `extra` both are kept, and of two with one key that of
    /// these options.
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
        // Every field is named, so that a new one is not forgotten.
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
            reasoning: self.reasoning.or(defaults.reasoning),
            output: non_default_or(self.output, defaults.output),
            cache: non_default_or(self.cache, defaults.cache),
            user: self.user.or(defaults.user),
            metadata,
            extra,
        }
    }

    /// Refuses every option that is set, except those in `known`, the names of fields such as
    /// `temperature`: for an encoder, whose wire cannot express the others.
    ///
    /// [`cache`](Self::cache) and [`extra`](Self::extra) are never refused, and neither is
    /// `parallel_tool_calls` unless it is `Some(false)`.
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
    /// [`Unsupported`](ErrorKind::Unsupported), with the first such option as its
    /// [`parameter`](Error::parameter).
    pub fn ensure_only_supported(&self, wire: &str, known: &[&str]) -> Result<(), Error> {
        // Every field is named, so that a new one is not forgotten.
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
            reasoning,
            output,
            cache: _,
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
            ("reasoning", reasoning.is_some()),
            ("output", *output != Output::Text),
            ("user", user.is_some()),
            ("metadata", !metadata.is_empty()),
        ];
        match set.into_iter().find(|(name, is_set)| *is_set && !known.contains(name)) {
            Some((name, _)) => Err(unsupported_error(wire, name)),
            None => Ok(()),
        }
    }
}

/// The error for an option or a content that a wire cannot express: of kind
/// [`Unsupported`](ErrorKind::Unsupported), with `option` as its [`parameter`](Error::parameter).
pub fn unsupported_error(wire: &str, option: &str) -> Error {
    let message = format!("the {wire} wire cannot express `{option}`");
    Error::new(ErrorKind::Unsupported, message).with_parameter(option)
}

/// Whether the model may, must or must not call tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// As the model sees fit.
    #[default]
    Auto,
    /// It must not; the tools stay declared.
    None,
    /// It must call one or more.
    Required,
    /// It must call this one.
    Tool(String),
}

/// How much a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reasoning {
    /// Not at all.
    Off,
    /// As hard as this word says.
    Effort(Effort),
    /// For at most so many tokens.
    Budget(u32),
}

/// How hard a model thinks, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effort {
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// As much as is usual.
    Medium,
    /// Much.
    High,
    /// As much as the model can.
    Max,
}

/// The form of the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Output {
    /// Words.
    #[default]
    Text,
    /// One JSON value of any shape. Most providers want the prompt to say so, too.
    Json,
    /// One JSON value that fits a schema.
    Schema(OutputSchema),
}

impl Output {
    /// One JSON value that [`Turn::parse`](crate::turn::Turn::parse) reads into `T`.
    #[cfg(feature = "schemars")]
    pub fn for_type<T: schemars::JsonSchema>() -> Self {
        Self::Schema(OutputSchema::for_type::<T>())
    }
}

/// A JSON Schema that the answer is to fit.
///
/// Each wire takes a subset. Ranges, lengths and formats that a wire does not know are told to the
/// model in the description, so that an answer has to be checked even where the provider promises
/// the form. What a wire cannot express at all, for example maps with any keys on some, is an
/// [`Unsupported`](crate::ErrorKind::Unsupported) error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// A name for the model: letters, digits, `_` and `-`, at most 64. Does nothing on a wire that
    /// has no place for it.
    pub name: String,
    /// The schema.
    pub schema: Value,
}

#[cfg(feature = "schemars")]
impl OutputSchema {
    /// The schema of a type, under the type's name.
    ///
    /// Most wires want a struct: an enum goes into a field of one. A field with a
    /// `#[serde(default)]` may be left out by the model, or is always written where a wire has no
    /// optional fields.
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
            // Words for people and tools of JSON Schema; they only cost the model tokens.
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

/// How long the provider may keep the beginning of a request, which makes the next one cheaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cache {
    /// Nothing is marked.
    Off,
    /// The provider's usual time, some minutes.
    #[default]
    Short,
    /// The longer of the provider's times, an hour or so, where it has two.
    Long,
}
