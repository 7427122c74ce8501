//! A client's request to a model, on any wire.

use std::collections::HashSet;

use turnstream::provider::server::Wire;
use turnstream::request::{Options, Output, OutputSchema};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::ui::ClientLimits;
use turnstream::{Agent, Error, Item};

use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::fields::{Fields, invalid};
use crate::wires;

/// A client's request to a model.
pub(crate) struct ModelRequest {
    /// The body, parts of which a response repeats.
    pub(crate) body: Value,
    /// The name of the model.
    pub(crate) model: String,
    pub(crate) conversation: Conversation,
    /// The tools that the client executes.
    pub(crate) tools: Vec<ToolSpec>,
    /// The options that the client has set.
    pub(crate) options: Options,
    pub(crate) is_streamed: bool,
    /// The response that this request continues.
    pub(crate) previous_response: Option<String>,
    /// Whether a later request may continue the response.
    pub(crate) is_stored: bool,
}

impl ModelRequest {
    /// Reads a request. `model` is the name of the model if it stands in the path.
    pub(crate) fn parse(
        wire: Wire,
        body: Value,
        model: Option<String>,
        limits: &ClientLimits,
    ) -> Result<Self, Error> {
        let mut fields = Fields::of(body.clone(), "")?;
        let model = match model {
            Some(model) => model,
            None => fields.required_text("model")?,
        };
        let mut request = Self {
            body,
            model,
            conversation: Conversation::default(),
            tools: Vec::new(),
            options: Options::default(),
            is_streamed: false,
            previous_response: None,
            is_stored: false,
        };
        let read = match wire {
            Wire::OpenAiChat => wires::openai_chat::read,
            Wire::OpenAiResponses => wires::openai_responses::read,
            Wire::Anthropic => wires::anthropic::read,
            Wire::Gemini => wires::gemini::read,
            Wire::Ollama => wires::ollama::read,
            other => {
                let message = format!("the {other} wire is not served");
                return Err(Error::new(turnstream::ErrorKind::Unsupported, message));
            }
        };
        read(&mut fields, &mut request, limits)?;
        fields.finish()?;
        if request.tools.len() > limits.max_tools {
            let message = format!("a request may have at most {} tools", limits.max_tools);
            return Err(invalid("tools", &message));
        }
        Ok(request)
    }

    /// Returns the agent with the client's tools and options.
    pub(crate) fn agent(&self, agent: &Agent) -> Result<Agent, Error> {
        let own = agent.toolkit();
        let mut names = HashSet::new();
        let mut tools = Vec::with_capacity(self.tools.len());
        for spec in &self.tools {
            if own.get(&spec.name).is_some() || !names.insert(&spec.name) {
                let message = format!("the name {:?} belongs to another tool", spec.name);
                return Err(invalid("tools", &message));
            }
            let tool = Tool::external(spec.clone());
            tools.push(tool.map_err(|error| invalid("tools", error.message()))?);
        }
        let options = self.options.clone().or(agent.options().clone());
        Ok(agent.clone().with_tools(tools).with_options(options).interactive())
    }

    /// The names of the client's tools.
    pub(crate) fn tool_names(&self) -> HashSet<String> {
        self.tools.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Returns the client's messages as the items of a history.
    pub(crate) fn items(&mut self) -> Result<Vec<Item>, Error> {
        let conversation = std::mem::take(&mut self.conversation);
        let items = conversation.into_items(&self.tool_names())?;
        if items.iter().all(|item| matches!(item.kind, turnstream::item::ItemKind::System { .. })) {
            return Err(invalid("", "the request contains no message"));
        }
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

/// Returns an error if there are too many messages.
pub(crate) fn check_count(count: usize, limits: &ClientLimits, path: &str) -> Result<(), Error> {
    if count > limits.max_messages {
        let message = format!("a request may have at most {} messages", limits.max_messages);
        return Err(invalid(path, &message));
    }
    Ok(())
}
