//! From a request to a body.

mod blocks;
mod cache;
mod ids;
mod messages;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use self::blocks::{CacheControl, Message};
use self::cache::{CacheKey, NewMessages};
use self::messages::Messages;
use crate::error::Error;
use crate::provider::context::Context;
use crate::provider::fields::unsupported;
use crate::provider::openai_chat::dialect::{
    Dialect, EffortWords, LimitField, OutputForms, ReasoningSetting, SeedField, ToolChoices,
    UserField,
};
use crate::provider::schema::openai_strict;
use crate::request::{Cache, Effort, Options, Output, Reasoning, Request, ToolChoice};

/// The name of this wire in errors.
const WIRE: &str = "Chat Completions";

/// Writes the body of a request to a dialect of the Chat Completions wire.
///
/// The items of one turn are one message; no two turns and no two messages of the user are merged.
/// Content that is all text is written as a string, or as a part where the dialect has cache marks.
/// Images and files in tool results, which this wire cannot carry there, follow the results in a
/// message of the user. Reasoning is sent as the dialect's
/// [`reasoning_echo`](Dialect::reasoning_echo) says.
///
/// # Errors
///
/// [`Unsupported`](crate::ErrorKind::Unsupported) for an option or a medium that the dialect cannot
/// express; the [`parameter`](Error::parameter) names the option.
pub fn encode(request: &Request, model: &str, dialect: &Dialect) -> Result<Vec<u8>, Error> {
    request.check()?;
    let options = &request.options;
    let mark = match options.cache {
        _ if !dialect.cache_marks => None,
        Cache::Off => None,
        Cache::Short => Some(CacheControl::SHORT),
        Cache::Long => Some(CacheControl::LONG),
    };
    let in_parts = mark.is_some();
    let key = CacheKey { dialect: *dialect, model: model.to_owned(), in_parts };
    let mut context = Context::of(request, key);
    if in_parts && !context.stable().is_empty() && context.stable().trim().is_empty() {
        // Without words in the stable zone its mark may stand on an item.
        context = context.anew();
    }
    let known = context.state().cloned().unwrap_or_default();
    let messages = Messages::new(dialect, model, in_parts, &known.cursor);
    let mut written = messages.write(&context)?;
    let called = known.called || written.messages.iter().any(Message::calls);
    let mut tools = tools(request, dialect);
    if tools.is_none() && dialect.empty_tools && called {
        tools = Some(Vec::new());
    }
    if let Some(mark) = mark {
        put_marks(mark, &mut tools, &mut written, !context.stable().is_empty());
    }
    let mut body = Body { model, stream: true, tools, messages: [], ..Body::default() };
    if dialect.stream_usage {
        body.stream_options = Some(StreamOptions { include_usage: true });
    }
    body.set(options, dialect)?;
    body.set_tools(options, dialect)?;
    body.set_reasoning(options, dialect)?;
    body.response_format = response_format(&options.output, dialect)?;
    let array = written.into_array(&known, context.encoded(), mark)?;
    context.write(&body, array, &options.extra)
}

#[derive(Default, Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    random_seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    /// They are written apart.
    messages: [(); 0],
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// An option that a dialect knows, or the error that it does not.
fn known<T>(option: Option<T>, name: &str, is_known: bool) -> Result<Option<T>, Error> {
    match option.is_none() || is_known {
        true => Ok(option),
        false => Err(unsupported(WIRE, name)),
    }
}

impl<'a> Body<'a> {
    fn set(&mut self, options: &'a Options, dialect: &Dialect) -> Result<(), Error> {
        match dialect.limit {
            LimitField::MaxCompletionTokens => {
                self.max_completion_tokens = options.max_output_tokens;
            }
            LimitField::MaxTokens => self.max_tokens = options.max_output_tokens,
        }
        self.temperature = options.temperature;
        self.top_p = options.top_p;
        self.top_k = known(options.top_k, "top_k", dialect.top_k)?;
        match dialect.seed {
            SeedField::None => drop(known(options.seed, "seed", false)?),
            SeedField::Seed => self.seed = options.seed,
            SeedField::RandomSeed => self.random_seed = options.seed,
        }
        self.frequency_penalty = options.frequency_penalty;
        self.presence_penalty = options.presence_penalty;
        if options.stop_sequences.len() > dialect.stop_sequences {
            return Err(unsupported(WIRE, "stop_sequences"));
        }
        self.stop = &options.stop_sequences;
        let user = options.user.as_deref();
        match dialect.user {
            UserField::None => drop(known(user, "user", false)?),
            UserField::User => self.user = user,
            UserField::SafetyIdentifier => self.safety_identifier = user,
        }
        let metadata = (!options.metadata.is_empty()).then_some(&options.metadata);
        self.metadata = known(metadata, "metadata", dialect.metadata)?;
        Ok(())
    }

    fn set_tools(&mut self, options: &Options, dialect: &Dialect) -> Result<(), Error> {
        // "'tool_choice' is only allowed when 'tools' are specified", and the same of its fellow.
        let declared = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        self.tool_choice = match (&options.tool_choice, dialect.tool_choice) {
            (ToolChoice::Auto, _) => None,
            // Without `tool_choice` the tools are left out; see `tools`.
            (ToolChoice::None, _) if !declared => None,
            (ToolChoice::None, _) => Some("none".into()),
            (ToolChoice::Required, ToolChoices::Words | ToolChoices::Named) => {
                Some("required".into())
            }
            (ToolChoice::Tool(name), ToolChoices::Named) => {
                Some(json!({ "type": "function", "function": { "name": name } }))
            }
            (ToolChoice::Required, ToolChoices::None)
            | (ToolChoice::Tool(_), ToolChoices::None | ToolChoices::Words) => {
                return Err(unsupported(WIRE, "tool_choice"));
            }
        };
        if declared {
            // That there may be several is so without being said.
            let said = options.parallel_tool_calls;
            let said = said.filter(|several| !several || dialect.parallel_tool_calls);
            self.parallel_tool_calls =
                known(said, "parallel_tool_calls", dialect.parallel_tool_calls)?;
        }
        Ok(())
    }

    fn set_reasoning(&mut self, options: &Options, dialect: &Dialect) -> Result<(), Error> {
        let Some(asked) = options.reasoning else { return Ok(()) };
        let refused = || Err(unsupported(WIRE, "reasoning"));
        match (dialect.reasoning, asked) {
            (ReasoningSetting::Effort(words), Reasoning::Off) => {
                self.reasoning_effort = Some(words.off);
            }
            (ReasoningSetting::Effort(words), Reasoning::Effort(effort)) => {
                self.reasoning_effort = Some(word(words, effort));
            }
            (ReasoningSetting::Object(words), Reasoning::Off) => {
                self.reasoning = Some(json!({ "effort": words.off }));
            }
            (ReasoningSetting::Object(words), Reasoning::Effort(effort)) => {
                self.reasoning = Some(json!({ "effort": word(words, effort) }));
            }
            (ReasoningSetting::Object(_), Reasoning::Budget(tokens)) => {
                self.reasoning = Some(json!({ "max_tokens": tokens }));
            }
            (ReasoningSetting::Thinking(_), Reasoning::Off) => {
                self.thinking = Some(json!({ "type": "disabled" }));
            }
            (ReasoningSetting::Thinking(words), Reasoning::Effort(effort)) => {
                self.thinking = Some(json!({ "type": "enabled" }));
                self.reasoning_effort = Some(word(words, effort));
            }
            (ReasoningSetting::None, _)
            | (ReasoningSetting::Effort(_) | ReasoningSetting::Thinking(_), Reasoning::Budget(_)) =>
            {
                return refused();
            }
        }
        Ok(())
    }
}

fn word(words: EffortWords, effort: Effort) -> &'static str {
    match effort {
        Effort::Minimal => words.minimal,
        Effort::Low => words.low,
        Effort::Medium => words.medium,
        Effort::High => words.high,
        Effort::Max => words.max,
    }
}

fn response_format(output: &Output, dialect: &Dialect) -> Result<Option<Value>, Error> {
    let knows = dialect.output;
    match output {
        Output::Text => Ok(None),
        Output::Json => match knows {
            OutputForms::Object | OutputForms::Both | OutputForms::BothStrict => {
                Ok(Some(json!({ "type": "json_object" })))
            }
            OutputForms::Text | OutputForms::Schema => Err(unsupported(WIRE, "output")),
        },
        Output::Schema(asked) => {
            let mut schema = json!({ "name": asked.name });
            match knows {
                OutputForms::Schema | OutputForms::Both => {
                    schema["schema"] = asked.schema.clone();
                }
                OutputForms::BothStrict => {
                    schema["schema"] = openai_strict(&asked.schema)?.into_owned();
                    schema["strict"] = true.into();
                }
                OutputForms::Text | OutputForms::Object => return Err(unsupported(WIRE, "output")),
            }
            Ok(Some(json!({ "type": "json_schema", "json_schema": schema })))
        }
    }
}

/// The tools that are declared; an empty list is refused by most servers.
fn tools<'a>(request: &'a Request, dialect: &Dialect) -> Option<Vec<Tool<'a>>> {
    let choice = &request.options.tool_choice;
    let left_out = *choice == ToolChoice::None && dialect.tool_choice == ToolChoices::None;
    if request.tools.is_empty() || left_out {
        return None;
    }
    let tools = request.tools.iter().map(|tool| Tool {
        r#type: "function",
        function: Function {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.parameters,
        },
        cache_control: None,
    });
    Some(tools.collect())
}

/// Marks the tools and the stable zone; where the zone has no message, the first that there is.
fn put_marks(
    mark: CacheControl,
    tools: &mut Option<Vec<Tool<'_>>>,
    written: &mut NewMessages<'_>,
    has_stable_zone: bool,
) {
    if let Some(tool) = tools.as_mut().and_then(|tools| tools.last_mut()) {
        tool.cache_control = Some(mark);
    }
    if !has_stable_zone {
        return;
    }
    let first = match &mut written.front {
        Some(front) => Some(front),
        None => {
            // A message with a mark in it is not what the next request has.
            (written.closed, written.first_is_marked) = (None, true);
            written.messages.first_mut()
        }
    };
    if let Some(place) = first.and_then(|message| message.content.first_text()) {
        *place = Some(mark);
    }
}
