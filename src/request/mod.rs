//! What a provider is asked.

mod options;
mod retries;

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use options::{
    Cache, Effort, Options, Output, OutputSchema, Reasoning, ToolChoice, unsupported_error,
};
pub use retries::Retries;

use crate::error::{Error, ErrorKind};
use crate::item::{History, RawJson};

/// Everything that one request to a model is made of.
///
/// ```
/// use turnstream::{History, Item, Request, env::SystemIds};
///
/// let mut history = History::new(&SystemIds);
/// history.push(Item::user("hello"));
/// let request = Request::new(history).with_system("Answer in one word.");
/// assert_eq!(request.context.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    /// The ledger. Ids of calls are checked against it.
    pub history: History,
    /// What is sent, by default the ledger itself. Encoders settle it first.
    pub context: History,
    /// What the model is told before anything is said.
    pub system: System,
    /// The tools that it may call.
    pub tools: Arc<[ToolSpec]>,
    /// Asks another model than the provider value's own.
    pub model: Option<String>,
    /// How the model is asked: limits, sampling, reasoning, the form of the answer.
    pub options: Options,
    /// Whether the provider may send the request again when it fails. It is not part of a recording.
    pub retries: Retries,
    /// How many bytes of text, reasoning and arguments the turn may have together; `None` for the
    /// default of a [`TurnBuilder`](crate::turn::TurnBuilder), 64 MiB. An agent sets it from its
    /// [`Limits`](crate::agent::Limits). It is not part of a recording.
    pub max_turn_bytes: Option<usize>,
}

/// The system prompt, in two zones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// What stays the same from request to request, and can be cached.
    pub stable: String,
    /// What changes, for example the date. Sent behind the stable zone.
    pub volatile: String,
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Letters, digits, `_` and `-`, at most 64: what every provider takes.
    pub name: String,
    /// What it is for, in words for the model.
    pub description: String,
    /// The JSON Schema of its arguments, of type `object`. It is written as JSON once, and all copies of
    /// the spec share it.
    pub parameters: RawJson,
    /// Whether the model sees the tool only after a search for it, if the provider
    /// [searches tools](crate::Provider::has_tool_search) itself. To all other providers it is a tool like any other.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
}

impl ToolSpec {
    /// Describes a tool. The schema is a `serde_json::Value`, or JSON that is written already.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::tool::ToolSpec;
    ///
    /// let parameters = json!({
    ///     "type": "object",
    ///     "properties": { "city": { "type": "string" } },
    ///     "required": ["city"],
    /// });
    /// let spec = ToolSpec::new("temperature", "The temperature in a city", parameters);
    /// assert_eq!(spec.parameters.to_value()["required"], json!(["city"]));
    /// ```
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: impl Into<RawJson>,
    ) -> Self {
        let (name, description) = (name.into(), description.into());
        Self { name, description, parameters: parameters.into(), deferred: false }
    }

    /// Sets whether the model sees the tool only after a search for it; see [`deferred`](Self::deferred).
    pub fn with_deferred(mut self, deferred: bool) -> Self {
        self.deferred = deferred;
        self
    }
}

impl Request {
    /// Asks about a history, with nothing else set.
    pub fn new(history: History) -> Self {
        Self {
            context: history.clone(),
            history,
            system: System::default(),
            tools: Arc::default(),
            model: None,
            options: Options::default(),
            retries: Retries::default(),
            max_turn_bytes: None,
        }
    }

    /// Sets the stable zone of the system prompt.
    pub fn with_system(mut self, stable: impl Into<String>) -> Self {
        self.system.stable = stable.into();
        self
    }

    /// Sets how the model is asked. Options that were set before stay where these have
    /// [none](Options::or).
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// Sets whether the provider may send the request again when it fails.
    pub fn with_retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Sets how many bytes of text, reasoning and arguments the turn may have together.
    pub fn with_max_turn_bytes(mut self, max_bytes: usize) -> Self {
        self.max_turn_bytes = Some(max_bytes);
        self
    }

    /// Checks what no provider takes, whatever its wire: two tools of one name.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        ensure_distinct_names(&self.tools)
    }

    /// Sets the tools.
    pub fn with_tools(mut self, tools: impl Into<Arc<[ToolSpec]>>) -> Self {
        self.tools = tools.into();
        self
    }
}

/// Refuses two tools of one name.
pub(crate) fn ensure_distinct_names(tools: &[ToolSpec]) -> Result<(), Error> {
    let mut names = HashSet::with_capacity(tools.len());
    let Some(tool) = tools.iter().find(|tool| !names.insert(tool.name.as_str())) else {
        return Ok(());
    };
    let message = format!("two tools have the name `{}`", tool.name);
    Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("tools"))
}
