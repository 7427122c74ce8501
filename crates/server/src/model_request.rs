//! A client's request to a model, on any wire.

use std::collections::HashSet;

use futures::future;
use turnstream::agent::{Limits, hook};
use turnstream::item::ItemKind;
use turnstream::request::{Options, Output, OutputSchema, ToolChoice};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::ui::ClientLimits;
use turnstream::{Agent, Error, Item};

use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::fields::invalid;

/// A client's request to a model.
pub(crate) struct ModelRequest {
    /// The fields of the body that a response repeats.
    pub(crate) repeated: Value,
    /// The name of the model.
    pub(crate) model: String,
    pub(crate) conversation: Conversation,
    /// Instructions that hold for this request only.
    pub(crate) instructions: Option<String>,
    /// The tools that the client executes.
    pub(crate) tools: Vec<ToolSpec>,
    /// The names of the client's tools that the model may call, if not all.
    pub(crate) allowed_tools: Option<Vec<String>>,
    /// The options that the client has set.
    pub(crate) options: Options,
    pub(crate) is_streamed: bool,
    /// The response that this request continues.
    pub(crate) previous_response: Option<String>,
    /// Whether a later request may continue the response.
    pub(crate) is_stored: bool,
}

impl ModelRequest {
    /// Creates a request to a model. `repeated` are the fields that a response repeats.
    pub(crate) fn new(model: String, repeated: Value) -> Self {
        Self {
            repeated,
            model,
            conversation: Conversation::default(),
            instructions: None,
            tools: Vec::new(),
            allowed_tools: None,
            options: Options::default(),
            is_streamed: false,
            previous_response: None,
            is_stored: false,
        }
    }

    /// Returns the agent with the client's tools and options.
    pub(crate) fn agent(&self, agent: &Agent) -> Result<Agent, Error> {
        let own = agent.toolkit();
        let mut names = HashSet::new();
        let mut tools = Vec::with_capacity(self.tools.len());
        let is_allowed = |spec: &&ToolSpec| {
            self.allowed_tools.as_ref().is_none_or(|allowed| allowed.contains(&spec.name))
        };
        for spec in self.tools.iter().filter(is_allowed) {
            if own.get(&spec.name).is_some() || !names.insert(&spec.name) {
                return Err(name_taken(&spec.name));
            }
            let tool = Tool::external(spec.clone());
            tools.push(tool.map_err(|error| invalid("tools", error.message()))?);
        }
        let has_own_tools = !own.specs().is_empty();
        let mut options = self.options.clone();
        options.tool_choice = match options.tool_choice {
            // Clients do not know the agent's own tools.
            ToolChoice::Tool(name) if !names.contains(&name) => {
                let message = format!("there is no tool {name:?} in the request");
                return Err(invalid("tool_choice", &message));
            }
            ToolChoice::Required if has_own_tools || tools.is_empty() => ToolChoice::Auto,
            ToolChoice::None => {
                tools.clear();
                ToolChoice::Auto
            }
            choice => choice,
        };
        let own_max = agent.options().max_output_tokens;
        let max = [options.max_output_tokens, own_max].into_iter().flatten().min();
        options.max_output_tokens = max;
        let mut agent = agent.clone().with_tools(tools).with_options(options).interactive();
        if self.options.max_output_tokens.is_some() {
            // The client's limit holds for the whole answer.
            agent = agent.clone().with_limits(Limits { max_continuations: 0, ..agent.limits() });
        }
        if let Some(instructions) = self.instructions.clone() {
            agent = agent.with_hook(hook::prepare_request(move |_, mut request| {
                let system = &mut request.system.volatile;
                let separator = if system.is_empty() { "" } else { "\n\n" };
                *system = format!("{system}{separator}{instructions}");
                future::ready(request)
            }));
        }
        Ok(agent)
    }

    /// Returns whether the answer must match a format, so that nothing may stand before it.
    pub(crate) fn has_format(&self) -> bool {
        self.options.output != Output::Text
    }

    /// The names of the client's tools.
    pub(crate) fn tool_names(&self) -> HashSet<String> {
        self.tools.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Returns the client's messages as the items of a history.
    pub(crate) fn items(&mut self) -> Result<Vec<Item>, Error> {
        let conversation = std::mem::take(&mut self.conversation);
        let items = conversation.into_items(&self.tool_names())?;
        ensure_message(&items)?;
        Ok(items)
    }

    /// Adds a tool that the client executes.
    pub(crate) fn add_tool(
        &mut self,
        name: String,
        description: Option<String>,
        parameters: Option<Value>,
    ) {
        let parameters =
            parameters.unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
        self.tools.push(ToolSpec::new(name, description.unwrap_or_default(), parameters));
    }

    /// Requests an answer that matches a schema.
    pub(crate) fn set_schema(&mut self, name: Option<String>, schema: Value) {
        let name = name.unwrap_or_else(|| "answer".to_owned());
        self.options.output = Output::Schema(OutputSchema { name, schema });
    }
}

/// The error of a client's tool whose name another tool has.
pub(crate) fn name_taken(name: &str) -> Error {
    invalid("tools", &format!("the name {name:?} belongs to another tool"))
}

/// Returns an error if the items contain nothing but system messages.
pub(crate) fn ensure_message(items: &[Item]) -> Result<(), Error> {
    match items.iter().all(|item| matches!(item.kind, ItemKind::System { .. })) {
        true => Err(invalid("", "the request contains no message")),
        false => Ok(()),
    }
}

/// Returns an error if there are too many messages.
pub(crate) fn check_count(count: usize, limits: &ClientLimits, path: &str) -> Result<(), Error> {
    if count > limits.max_messages {
        let message = format!("a request may have at most {} messages", limits.max_messages);
        return Err(invalid(path, &message));
    }
    Ok(())
}
