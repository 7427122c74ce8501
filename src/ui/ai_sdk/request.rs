//! Parses requests from `DefaultChatTransport`.

use serde::Deserialize;
use serde_json::Value;

use super::approval_group::approval_group_id;
use crate::agent::Agent;
use crate::item::{Content, GrantTerms, Part, PendingCall};
use crate::session::{Session, SessionState};
use crate::tool::{Tool, ToolOutput, Verdict};
use crate::ui::message_name::entry_of_message;
use crate::ui::nested_run::call_path;
use crate::ui::request::{ClientLimits, RequestError, answer_with_message, check_count};

/// The request that a page with the AI SDK's `useChat` sends to an agent, by the SDK's
/// `DefaultChatTransport`. It contains either all messages or, if the app is configured to send
/// only the last message, a `message` field.
///
/// The message list is not used as the history, because the session stores the history. This crate
/// uses only the last message, which contains either the user's input or the answers to the
/// assistant's calls.
///
/// ```
/// use turnstream::provider::Scripted;
/// use turnstream::session::{MemoryStore, Session};
/// use turnstream::ui::ClientLimits;
/// use turnstream::ui::ai_sdk::{ClientAction, AiSdk, ChatRequest, Version};
/// use turnstream::Agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::ui::RequestError> {
/// let body = br#"{"id":"chat-1","trigger":"submit-message","messages":[
///     {"id":"u1","role":"user","parts":[{"type":"text","text":"Hi"}]}]}"#;
/// let agent = Agent::new(Scripted::new(["Hello!"]));
/// let store = MemoryStore::new();
///
/// let request = ChatRequest::parse(Some("application/json"), body, &ClientLimits::default())?;
/// let session = Session::open(store, &request.chat_id).await?;
/// let response = match request.action(&session, &agent)? {
///     ClientAction::Run(input) => {
///         let run = session.run(&agent, input).await?;
///         AiSdk::new(Version::V6).with_session(&session).respond(run)
///     }
///     ClientAction::Resume { message_id, verdicts } => {
///         let run = session.resume(&agent, verdicts).await?;
///         AiSdk::new(Version::V6).continue_message(message_id).respond(run)
///     }
///     // An app that offers the other actions handles them with `Session::fork_at`.
///     _ => return Err(turnstream::ui::RequestError::new(400, "an answer is given once")),
/// };
/// # drop(response);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The chat's id. The client chooses the id, so check that the user may access this chat.
    pub chat_id: String,
    /// The text of each `system` message, if [such messages are
    /// allowed](ClientLimits::allow_instructions).
    pub instructions: Vec<String>,
    message_id: Option<String>,
    is_regenerate: bool,
    last: LastMessage,
    approvals: Vec<Approval>,
}

/// An action that a client requests, already checked against the session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ClientAction {
    /// The user sent a message. Pass this message to [`Session::run`] as the input. When the run
    /// starts, any pending calls receive an interrupted result.
    Run(Content),
    /// The client answered pending calls, or asked to continue an interrupted run. Pass these
    /// verdicts to [`Session::resume`].
    Resume {
        /// The id of the message to continue.
        message_id: String,
        /// The verdicts, each paired with the pending call that it answers.
        verdicts: Vec<(PendingCall, Verdict)>,
    },
    /// The client requests a new answer. Call [`Session::fork_at`] with `before`, and then call
    /// [`Session::resume`] on the fork.
    Regenerate {
        /// The number of the session entry at which the answer to be replaced starts.
        before: u64,
    },
    /// The user edited a message. Call [`Session::fork_at`] with `before`, and then call
    /// [`Session::run`] on the fork.
    Edit {
        /// The number of the session entry to be replaced.
        before: u64,
        /// The message that replaces the entry.
        input: Content,
    },
}

/// The last message in a request's message list.
#[derive(Clone, Debug)]
enum LastMessage {
    None,
    User(Content),
    Assistant { id: String, answers: Vec<Answer> },
}

/// An answer to a call, taken from a part of the message.
#[derive(Clone, Debug)]
enum Answer {
    Approval(Approval),
    Output { tool_call_id: String, output: ToolOutput },
}

/// A verdict from the user.
#[derive(Clone, Debug, Deserialize)]
struct Approval {
    id: String,
    approved: bool,
    #[serde(default)]
    reason: Option<String>,
    /// The terms on which further calls are approved.
    #[serde(default)]
    always: Option<GrantTerms>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    id: String,
    #[serde(default)]
    messages: Vec<Message>,
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    trigger: Option<Trigger>,
    #[serde(default)]
    message_id: Option<String>,
    /// The user's verdicts. The transport never sends this field. The app can add it for clients
    /// that do not support approvals.
    #[serde(default)]
    approvals: Vec<Approval>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Trigger {
    SubmitMessage,
    RegenerateMessage,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    id: String,
    role: Role,
    #[serde(default)]
    parts: Vec<Value>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    User,
    Assistant,
}

/// The fields of a tool part that this crate uses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolPart {
    tool_call_id: String,
    state: String,
    #[serde(default)]
    output: Value,
    #[serde(default)]
    error_text: String,
    #[serde(default)]
    preliminary: bool,
    #[serde(default)]
    approval: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FilePart {
    #[serde(default)]
    media_type: String,
    url: String,
}

impl ChatRequest {
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
        let body: Body = limits.parse_json(content_type, body)?;
        if body.id.is_empty() {
            return Err(RequestError::new(422, "the chat has no id"));
        }
        check_count("messages", body.messages.len(), limits.max_messages)?;
        let messages = || body.messages.iter().chain(&body.message);
        let mut instructions = Vec::new();
        for message in messages() {
            check_count("parts", message.parts.len(), limits.max_parts)?;
            if message.role == Role::System {
                limits.check_instruction("system")?;
                instructions.push(content(message, limits)?.text());
            }
        }
        let last = match messages().last() {
            Some(message) if message.role == Role::User => {
                LastMessage::User(content(message, limits)?)
            }
            Some(message) if message.role == Role::Assistant => {
                LastMessage::Assistant { id: message.id.clone(), answers: answers(message)? }
            }
            _ => LastMessage::None,
        };
        Ok(Self {
            chat_id: body.id,
            message_id: body.message_id,
            is_regenerate: body.trigger == Some(Trigger::RegenerateMessage),
            instructions,
            last,
            approvals: body.approvals,
        })
    }

    /// Checks the request against this session and returns the action that the client requests.
    ///
    /// A call's name and arguments are taken from the session, not from the client. An approval
    /// must name the approval id of a pending call or, on the tool call that runs a sub-agent, the
    /// approval ids of all of the sub-agent's pending calls. A result must name a pending call to
    /// an [external](Tool::external) tool. Other answers are ignored, because clients also resend
    /// the answers to earlier calls.
    ///
    /// # Errors
    ///
    /// Returns an error with status 409 if no call is waiting for the answers, if some waiting
    /// calls were not answered, if the request contains both `approvals` and a new message, or if
    /// the message to be replaced does not belong to this session.
    /// Returns an error with status 400 if the request contains no input.
    pub fn action(&self, session: &Session, agent: &Agent) -> Result<ClientAction, RequestError> {
        let find = |id: &str| {
            let entry = entry_of_message(id, session.id());
            let entry = entry.filter(|entry| *entry <= session.version());
            entry.ok_or_else(|| RequestError::new(409, "the conversation has no such message"))
        };
        if self.is_regenerate {
            let id = self.message_id.as_deref();
            let id = id.ok_or_else(|| RequestError::new(400, "it does not name a message"))?;
            return Ok(ClientAction::Regenerate { before: find(id)? });
        }
        match (&self.last, &self.message_id) {
            (LastMessage::User(input), Some(id)) if self.approvals.is_empty() => {
                Ok(ClientAction::Edit { before: find(id)?, input: input.clone() })
            }
            (LastMessage::User(input), _) if self.approvals.is_empty() => {
                Ok(ClientAction::Run(input.clone()))
            }
            (LastMessage::Assistant { id, answers }, _) => {
                let message_id = id.clone();
                let verdicts = self.verdicts(answers, session, agent)?;
                Ok(ClientAction::Resume { message_id, verdicts })
            }
            (LastMessage::User(_), _)
                if matches!(session.state(), SessionState::Pending { .. }) =>
            {
                Err(answer_with_message())
            }
            (LastMessage::None | LastMessage::User(_), id) if !self.approvals.is_empty() => {
                let message_id = id.clone().unwrap_or_default();
                Ok(ClientAction::Resume {
                    message_id,
                    verdicts: self.verdicts(&[], session, agent)?,
                })
            }
            _ => Err(RequestError::new(400, "the request has no user message")),
        }
    }

    /// Returns one verdict for each pending call.
    fn verdicts(
        &self,
        answers: &[Answer],
        session: &Session,
        agent: &Agent,
    ) -> Result<Vec<(PendingCall, Verdict)>, RequestError> {
        let pending = match session.state() {
            SessionState::Pending { calls } => calls,
            SessionState::Unfinished { .. } => return Ok(Vec::new()),
            SessionState::Idle => Vec::new(),
        };
        let verdict = |call: &PendingCall| {
            let is_external = || {
                let tool = agent.toolkit().get(&call.name);
                call.path.is_empty() && tool.is_some_and(Tool::is_external)
            };
            // A verdict on the tool call that started a sub-agent applies to each of the
            // sub-agent's calls that has no verdict of its own, if it answers exactly the requests
            // that are open.
            let group = approval_group_id(call.root_call_id(), &pending);
            let approval_of = |id: &str| {
                let own = self.approvals.iter();
                let mut all = own.chain(answers.iter().filter_map(Answer::as_approval));
                all.find(|approval| approval.id == id).map(Approval::to_verdict)
            };
            let output = || {
                let mut outputs = answers.iter().filter_map(Answer::as_output);
                let (_, output) =
                    outputs.find(|(tool_call_id, _)| *tool_call_id == call.call_id)?;
                is_external().then(|| Verdict::Output(output.clone()))
            };
            approval_of(&call.approval_id).or_else(|| approval_of(&group)).or_else(output)
        };
        let mut verdicts = Vec::new();
        let mut unanswered = Vec::new();
        for call in &pending {
            match verdict(call) {
                Some(verdict) => verdicts.push((call.clone(), verdict)),
                None => unanswered.push(call_path(&call.path, &call.call_id)),
            }
        }
        if verdicts.is_empty() {
            return Err(RequestError::new(409, "no call is waiting for this answer"));
        }
        if !unanswered.is_empty() {
            let waiting = unanswered.join(", ");
            return Err(RequestError::new(
                409,
                format!("other calls wait for an answer: {waiting}"),
            ));
        }
        Ok(verdicts)
    }
}

impl Answer {
    fn as_approval(&self) -> Option<&Approval> {
        match self {
            Self::Approval(approval) => Some(approval),
            Self::Output { .. } => None,
        }
    }

    /// Returns the call's id and result, if this answer is a result.
    fn as_output(&self) -> Option<(&str, &ToolOutput)> {
        match self {
            Self::Output { tool_call_id, output } => Some((tool_call_id, output)),
            Self::Approval(_) => None,
        }
    }
}

impl Approval {
    fn to_verdict(&self) -> Verdict {
        match (self.approved, &self.reason) {
            (true, _) => match self.always.clone() {
                Some(terms) => Verdict::ApproveAlways(terms),
                None => Verdict::Approve,
            },
            (false, Some(reason)) => Verdict::deny(reason.clone()),
            (false, None) => Verdict::deny("the user has denied it"),
        }
    }
}

/// Returns the content of a user message or an instruction.
fn content(message: &Message, limits: &ClientLimits) -> Result<Content, RequestError> {
    let mut parts = Vec::new();
    for part in &message.parts {
        match part["type"].as_str() {
            Some("text") => {
                let text = part["text"].as_str();
                let text = text.ok_or_else(|| RequestError::new(422, "a part has no text"))?;
                parts.push(Part::from(text));
            }
            Some("file") => {
                let FilePart { media_type, url } = read_part(part)?;
                parts.push(limits.file(&media_type, &url)?);
            }
            // Data parts from the app, and parts from later versions, are ignored.
            Some(_) => {}
            None => return Err(RequestError::new(422, "a part has no type")),
        }
    }
    Ok(match <[Part; 1]>::try_from(parts) {
        Ok([Part::Text { text }]) => Content::Text(text),
        Ok(part) => Content::Parts(part.into()),
        Err(parts) if parts.is_empty() => {
            return Err(RequestError::new(400, "a message has neither text nor files"));
        }
        Err(parts) => Content::Parts(parts),
    })
}

fn answers(message: &Message) -> Result<Vec<Answer>, RequestError> {
    let is_call = |kind: &str| kind == "dynamic-tool" || kind.starts_with("tool-");
    let mut answers = Vec::new();
    for part in message.parts.iter().filter(|part| part["type"].as_str().is_some_and(is_call)) {
        let part: ToolPart = read_part(part)?;
        match part.state.as_str() {
            "approval-responded" => {
                let approval = part.approval.unwrap_or_default();
                answers.push(Answer::Approval(read_part(&approval)?));
            }
            "output-available" if !part.preliminary => {
                let output = match part.output {
                    Value::String(text) => ToolOutput::ok(text),
                    value => ToolOutput::ok(value.to_string()),
                };
                answers.push(Answer::Output { tool_call_id: part.tool_call_id, output });
            }
            "output-error" => {
                let output = ToolOutput::error(part.error_text);
                answers.push(Answer::Output { tool_call_id: part.tool_call_id, output });
            }
            _ => {}
        }
    }
    Ok(answers)
}

fn read_part<T: serde::de::DeserializeOwned>(part: &Value) -> Result<T, RequestError> {
    T::deserialize(part)
        .map_err(|error| RequestError::new(422, format!("a part cannot be read: {error}")))
}
