//! Parses `RunAgentInput`, the request that a client sends.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use crate::agent::Agent;
use crate::item::{Content, Item, Part, PendingCall};
use crate::session::{Session, SessionState};
use crate::tool::{Tool, ToolOutput, ToolSpec, Verdict};
use crate::ui::nested_run::call_path;
use crate::ui::request::{ClientLimits, RequestError, answer_with_message, check_count};

/// A `RunAgentInput`, the request that a client sends.
///
/// The request's message list is not used as the history, because the session stores the history.
/// From the end of the list, this crate uses only the user messages and the results of the client's
/// own tools.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::provider::Scripted;
/// use turnstream::session::{MemoryStore, Session};
/// use turnstream::ui::ClientLimits;
/// use turnstream::ui::ag_ui::{ClientAction, AgUi, RunRequest};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::ui::RequestError> {
/// let body = br#"{"threadId":"t","runId":"r","messages":[{"id":"1","role":"user","content":"Hi"}]}"#;
/// let agent = Agent::new(Scripted::new(["Hello!"]));
///
/// let request = RunRequest::parse(Some("application/json"), body, &ClientLimits::default())?;
/// let agent = request.add_client_tools(&agent)?;
/// let session = Session::open(MemoryStore::new(), &request.thread_id).await?;
/// let run = match request.action(&session, &agent)? {
///     ClientAction::Run(input) => session.run(&agent, input).await?,
///     ClientAction::Resume(verdicts) => session.resume(&agent, verdicts).await?,
///     _ => return Err(turnstream::ui::RequestError::new(400, "not offered here")),
/// };
/// let response = AgUi::new(&request).with_session(&session).respond(run);
/// # drop(response);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The conversation's id. The client chooses the id, so check that the user may access this
    /// conversation.
    pub thread_id: String,
    /// The id of this run, which the client generated.
    pub run_id: String,
    /// The state that the client shares with the app, or `null` if the client sent no state.
    pub state: Value,
    /// The context entries that the client provides to the app.
    pub context: Vec<Context>,
    /// The properties that the client forwards to the app, or `null` if the client sent no
    /// properties.
    pub forwarded_props: Value,
    /// The text of each `system` and `developer` message, if [such messages are
    /// allowed](ClientLimits::allow_instructions).
    pub instructions: Vec<String>,
    pub(super) input: ClientInput,
}

/// The parts of a request that are checked against the session.
#[derive(Clone, Debug)]
pub(super) struct ClientInput {
    pub(super) parent_run_id: Option<String>,
    pub(super) messages: Vec<Value>,
    tools: Vec<ClientTool>,
    resume: Vec<Resume>,
    /// The user messages at the end of the message list.
    user_items: Vec<Item>,
    /// The client tools' results at the end of the message list, keyed by call id.
    results: HashMap<String, ToolOutput>,
}

/// An action that a client requests, already checked against the session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClientAction {
    /// The user sent messages. Pass these messages to [`Session::run`] as the input. Starting the
    /// run gives any pending calls an interrupted result.
    Run(Vec<Item>),
    /// The client answered pending calls, or asked to continue an interrupted run. Pass these
    /// verdicts to [`Session::resume`].
    Resume(Vec<(PendingCall, Verdict)>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunAgentInput {
    thread_id: String,
    run_id: String,
    #[serde(default)]
    parent_run_id: Option<String>,
    messages: Vec<Value>,
    #[serde(default)]
    state: Value,
    #[serde(default)]
    tools: Vec<ClientTool>,
    #[serde(default)]
    context: Vec<Context>,
    #[serde(default)]
    forwarded_props: Value,
    #[serde(default)]
    resume: Vec<Resume>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClientTool {
    name: String,
    description: String,
    #[serde(default)]
    parameters: Option<Value>,
}

/// Context that the client provides to the app.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Context {
    /// The context's name.
    pub description: String,
    /// The context's text.
    pub value: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume {
    interrupt_id: String,
    status: ResumeStatus,
    #[serde(default)]
    payload: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResumeStatus {
    Resolved,
    Cancelled,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    role: Role,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Developer,
    System,
    User,
    Assistant,
    Tool,
    Reasoning,
    Activity,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MessagePart {
    Text { text: String },
    Image { source: Source },
    Audio { source: Source },
    Video { source: Source },
    Document { source: Source },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Source {
    Data {
        value: String,
        mime_type: String,
    },
    Url {
        value: String,
        #[serde(default)]
        mime_type: String,
    },
    File {},
}

impl RunRequest {
    /// Parses a request. `content_type` is the value of the `content-type` header.
    ///
    /// # Errors
    ///
    /// Returns an error with a one-line message if the body is not JSON, does not match the schema,
    /// is too large, or has content that is not [allowed](ClientLimits).
    pub fn parse(
        content_type: Option<&str>,
        body: &[u8],
        limits: &ClientLimits,
    ) -> Result<Self, RequestError> {
        let input: RunAgentInput = limits.parse_json(content_type, body)?;
        if input.thread_id.is_empty() || input.run_id.is_empty() {
            return Err(RequestError::new(422, "the thread or the run has no id"));
        }
        check_count("messages", input.messages.len(), limits.max_messages)?;
        check_count("tools", input.tools.len(), limits.max_tools)?;
        let (mut instructions, mut user_items, mut results) =
            (Vec::new(), Vec::new(), HashMap::new());
        for message in &input.messages {
            let message: Message = read(message, "message")?;
            match message.role {
                Role::User => user_items.push(Item::user(content(&message.content, limits)?)),
                Role::Tool => {
                    let id = message.tool_call_id.ok_or_else(|| {
                        RequestError::new(422, "a tool message has no `toolCallId`")
                    })?;
                    let content = content(&message.content, limits)?;
                    let output = match message.error {
                        Some(error) if content.text().is_empty() => ToolOutput::error(error),
                        Some(_) => ToolOutput::error(content),
                        None => ToolOutput::ok(content),
                    };
                    results.insert(id, output);
                    user_items.clear();
                }
                Role::Developer | Role::System => {
                    limits.check_instruction("system")?;
                    instructions.push(content(&message.content, limits)?.text());
                }
                Role::Assistant => {
                    user_items.clear();
                    results.clear();
                }
                Role::Reasoning | Role::Activity => {}
            }
        }
        let RunAgentInput { thread_id, run_id, state, context, forwarded_props, .. } = input;
        let RunAgentInput { parent_run_id, messages, tools, resume, .. } = input;
        let input = ClientInput { parent_run_id, messages, tools, resume, user_items, results };
        Ok(Self { thread_id, run_id, state, context, forwarded_props, instructions, input })
    }

    /// Adds the client's tools to the agent's own tools. The client itself runs its tools, so calls
    /// to the client's tools remain pending.
    ///
    /// # Errors
    ///
    /// Returns an error with status 400 if a tool's name is invalid or already taken, or its schema
    /// is invalid.
    pub fn add_client_tools(&self, agent: &Agent) -> Result<Agent, RequestError> {
        let refused = |message: String| RequestError::new(400, message);
        let mut agent = agent.clone();
        for ClientTool { name, description, parameters } in &self.input.tools {
            if agent.toolkit().get(name).is_some() {
                return Err(refused(format!("a tool `{name}` already exists")));
            }
            let empty = || serde_json::json!({ "type": "object" });
            let schema = parameters.clone().unwrap_or_else(empty);
            let spec = ToolSpec::new(name.as_str(), description.as_str(), schema);
            let tool = Tool::external(spec).map_err(|error| refused(error.message().to_owned()))?;
            agent = agent.with_tool(tool);
        }
        Ok(agent)
    }

    /// Checks the request against this session and returns the action that the client requests.
    /// `agent` must include the [client's tools](Self::add_client_tools).
    ///
    /// A call's name and arguments are taken from the session, not from the client. Each entry in
    /// `resume` must name a pending call. Each tool message must name a pending call to an
    /// [external](Tool::external) tool.
    ///
    /// # Errors
    ///
    /// Returns an error with status 409 if no call is waiting for the answers, if some waiting
    /// calls were not answered, or if the request contains both answers to waiting calls and a new
    /// message: a run starts either with the answers or with the message. Returns an error with
    /// status 400 if the request contains no input.
    pub fn action(&self, session: &Session, agent: &Agent) -> Result<ClientAction, RequestError> {
        let is_answer = !self.input.resume.is_empty() || !self.input.results.is_empty();
        match session.state() {
            SessionState::Pending { calls }
                if !self.input.user_items.is_empty() && self.answers_any(&calls) =>
            {
                Err(answer_with_message())
            }
            SessionState::Pending { calls } if is_answer && self.input.user_items.is_empty() => {
                self.verdicts(calls, agent).map(ClientAction::Resume)
            }
            _ if !self.input.resume.is_empty() => {
                Err(RequestError::new(409, "no call is waiting for this answer"))
            }
            _ if !self.input.user_items.is_empty() => {
                Ok(ClientAction::Run(self.input.user_items.clone()))
            }
            SessionState::Unfinished { .. } => Ok(ClientAction::Resume(Vec::new())),
            _ if is_answer => Err(RequestError::new(409, "no call is waiting for this result")),
            _ => Err(RequestError::new(400, "the request has no user message")),
        }
    }

    /// Returns whether the request contains `resume`, or a result for one of the `pending` calls.
    fn answers_any(&self, pending: &[PendingCall]) -> bool {
        let has_result = |call: &PendingCall| {
            self.input.results.contains_key(&call_path(&call.path, &call.call_id))
        };
        !self.input.resume.is_empty() || pending.iter().any(has_result)
    }

    fn verdicts(
        &self,
        pending: Vec<PendingCall>,
        agent: &Agent,
    ) -> Result<Vec<(PendingCall, Verdict)>, RequestError> {
        let is_open = |id: &str| pending.iter().any(|call| call.approval_id == id);
        if let Some(stale) = self.input.resume.iter().find(|entry| !is_open(&entry.interrupt_id)) {
            let id = &stale.interrupt_id;
            return Err(RequestError::new(
                409,
                format!(
                    "no call is waiting for the answer to \
            `{id}`"
                ),
            ));
        }
        let (mut verdicts, mut unanswered) = (Vec::new(), Vec::new());
        for call in pending {
            let id = call_path(&call.path, &call.call_id);
            let tool = agent.toolkit().get(&call.name).filter(|_| call.path.is_empty());
            let is_external = tool.is_some_and(Tool::is_external);
            let entry =
                self.input.resume.iter().find(|entry| entry.interrupt_id == call.approval_id);
            let verdict = match entry {
                Some(entry) => Some(entry.to_verdict(is_external)?),
                None if is_external => self.input.results.get(&id).cloned().map(Verdict::Output),
                None => None,
            };
            match verdict {
                Some(verdict) => verdicts.push((call, verdict)),
                None => unanswered.push(id),
            }
        }
        if !unanswered.is_empty() {
            let waiting = unanswered.join(", ");
            return Err(RequestError::new(409, format!("calls wait for an answer: {waiting}")));
        }
        Ok(verdicts)
    }
}

impl Resume {
    fn to_verdict(&self, is_external: bool) -> Result<Verdict, RequestError> {
        let reason = || self.payload["reason"].as_str().unwrap_or("the user has denied it");
        match (self.status, is_external) {
            (ResumeStatus::Cancelled, _) => Ok(Verdict::deny(reason())),
            (ResumeStatus::Resolved, true) => Ok(Verdict::Output(match &self.payload {
                Value::String(text) => ToolOutput::ok(text.clone()),
                value => ToolOutput::ok(value.to_string()),
            })),
            (ResumeStatus::Resolved, false) => match self.payload["approved"].as_bool() {
                Some(true) => match &self.payload["always"] {
                    Value::Null => Ok(Verdict::Approve),
                    terms => Ok(Verdict::ApproveAlways(read(terms, "payload")?)),
                },
                Some(false) => Ok(Verdict::deny(reason())),
                None => {
                    let message = "the payload of an approval has no `approved`, true or false";
                    Err(RequestError::new(422, message))
                }
            },
        }
    }
}

fn content(content: &Value, limits: &ClientLimits) -> Result<Content, RequestError> {
    let parts = match content {
        Value::String(text) => return Ok(text.as_str().into()),
        Value::Array(parts) => parts,
        _ => return Err(RequestError::new(422, "a message has neither text nor parts")),
    };
    check_count("parts", parts.len(), limits.max_parts)?;
    let part = |part: &Value| match read(part, "part")? {
        MessagePart::Text { text } => Ok(Part::Text { text: text.into() }),
        MessagePart::Image { source }
        | MessagePart::Audio { source }
        | MessagePart::Video { source }
        | MessagePart::Document { source } => match source {
            Source::Data { value, mime_type } => limits.file_data(&mime_type, &value),
            Source::Url { value, mime_type } => limits.file(&mime_type, &value),
            Source::File {} => Err(RequestError::new(400, "files of a provider are not accepted")),
        },
    };
    parts.iter().map(part).collect::<Result<_, _>>().map(Content::Parts)
}

fn read<T: serde::de::DeserializeOwned>(value: &Value, what: &str) -> Result<T, RequestError> {
    T::deserialize(value)
        .map_err(|error| RequestError::new(422, format!("a {what} cannot be read: {error}")))
}
