//! The request that a provider receives: history, system prompt, tools and options.
//!
//! A [`Request`] is independent of the provider. Each provider encodes it in its own wire format,
//! and returns an [`Unsupported`](crate::ErrorKind::Unsupported) error for options that the format
//! cannot express, unless the option's docs state that it has no effect in that format.
//!
//! ```
//! use turnstream::request::Options;
//! use turnstream::{History, Item, Request};
//!
//! let history = History::from_items("chat", [Item::user("Hi")]);
//! let options = Options { max_output_tokens: Some(500), ..Options::default() };
//! let request = Request::new(history).with_system("Be brief.").with_options(options);
//! assert_eq!(request.options.max_output_tokens, Some(500));
//! ```

mod client_tools;
mod options;
mod retries;
mod server_tools;
pub(crate) mod shared_text;
mod tool_names;
mod tool_specs;

use serde::{Deserialize, Serialize};

pub use client_tools::ClientTool;
pub(crate) use options::extra_tool_names;
pub use options::{
    Cache, Effort, Options, Output, OutputSchema, PromptCacheRetention, Reasoning,
    ReasoningSummary, ServiceTier, ToolChoice, Verbosity, unsupported_error,
};
pub use retries::Retries;
pub use server_tools::{
    CodeExecution, FileSearch, McpServer, McpToken, ServerTool, UserLocation, VendorTool, WebFetch,
    WebSearch,
};
pub(crate) use server_tools::{has_unknown_token, restore_tokens};
pub use shared_text::SharedText;
pub(crate) use tool_names::{ToolNameRule, ToolNames};
pub(crate) use tool_specs::repeated_name_error;
pub use tool_specs::{ToolSpec, ToolSpecs};

use crate::error::Error;
use crate::item::History;
use crate::propagation::TraceContext;

/// A request to a model, which contains everything that a provider needs in order to send it.
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
    /// The full history. The id of a new tool call must not already be in use in this history.
    pub history: History,
    /// The items to send; by default, the whole history. Encoders send the
    /// [settled](History::settled) form of these items.
    pub context: History,
    /// The system prompt.
    pub system: System,
    /// The tools that the model may call.
    pub tools: ToolSpecs,
    /// The model to use instead of the provider's own [`model`](crate::Provider::model).
    pub model: Option<String>,
    /// The options for the model's answer: limits, sampling, reasoning and output format.
    pub options: Options,
    /// Whether the provider may send the request again after a failure. This setting is not
    /// included in recordings.
    pub retries: Retries,
    /// The maximum total number of bytes of text, reasoning and call arguments in the turn. If
    /// `None`, the [`TurnBuilder`](crate::turn::TurnBuilder) default of 64 MiB applies. An agent
    /// sets this limit from its [`Limits`](crate::agent::Limits). The limit is not included in
    /// recordings.
    pub max_turn_bytes: Option<usize>,
    /// The trace context that is sent in the headers `traceparent` and `tracestate`, if any. An
    /// agent sets the context from its [`TraceContexts`](crate::propagation::TraceContexts). The
    /// context is not included in recordings.
    pub trace_context: Option<TraceContext>,
}

/// The system prompt, in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// The part that stays the same from request to request, so that the provider can cache it.
    pub stable: SharedText,
    /// The part that may change between requests, such as the date. The volatile part is sent after
    /// the stable part.
    pub volatile: String,
}

impl<T: Into<SharedText>> From<T> for System {
    fn from(stable: T) -> Self {
        Self { stable: stable.into(), volatile: String::new() }
    }
}

impl Request {
    /// Creates a request with the given history and default values for all other fields.
    pub fn new(history: History) -> Self {
        Self {
            context: history.clone(),
            history,
            system: System::default(),
            tools: ToolSpecs::default(),
            model: None,
            options: Options::default(),
            retries: Retries::default(),
            max_turn_bytes: None,
            trace_context: None,
        }
    }

    /// Sets the system prompt. A text becomes the stable part.
    pub fn with_system(mut self, system: impl Into<System>) -> Self {
        self.system = system.into();
        self
    }

    /// Sets the options. Fields that `options` does not set keep their previous values; see
    /// [`Options::or`].
    pub fn with_options(mut self, options: Options) -> Self {
        self.options = options.or(self.options);
        self
    }

    /// Returns an error if two tools have the same name, which makes a request invalid in every
    /// wire format.
    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.tools.ensure_distinct_names()?;
        match extra_tool_names(&self.options.extra).find(|name| self.tools.contains_name(name)) {
            Some(name) => Err(repeated_name_error(name)),
            None => Ok(()),
        }
    }

    /// Returns after which errors the request may be sent again. A request that approves a call of
    /// an MCP server is not repeated, because the provider would run the call again.
    pub(crate) fn allowed_retries(&self) -> Retries {
        match ClientTool::has_new_approval(&self.context) {
            true => self.retries.clone().without_repetition(),
            false => self.retries.clone(),
        }
    }

    /// Sets the tools that the model may call, usually [`Toolkit::specs`](crate::Toolkit::specs).
    /// The list replaces the earlier list.
    pub fn with_tools(mut self, tools: impl Into<ToolSpecs>) -> Self {
        self.tools = tools.into();
        self
    }
}
