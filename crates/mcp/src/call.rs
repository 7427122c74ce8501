//! A single call to a server's tool, from the request to the result.
//!
//! A call is in one of five states:
//!
//! | state | what happens | next state |
//! |---|---|---|
//! | connecting | a connection whose server still has the tool is found or opened | sending |
//! | sending | the request is sent | waiting |
//! | waiting | progress is passed on as it arrives | answering, when the server asks a question; collecting, when the result asks questions; connecting, when the server has ended the session |
//! | answering | a question is answered, unless the server stops waiting for the answer | waiting |
//! | collecting | the questions in a result are answered in their order | sending, with the answers |
//!
//! In each state but answering, the call can end with its output: the server's result, or an error
//! that tells the model how to proceed.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, future};
use serde_json::{Map, Value, map};
use tokio::sync::oneshot;
use turnstream::error::Error;
use turnstream::tool::{ToolContext, ToolOutput, ToolUpdate, UpdateStream};

use crate::active_calls::{Arrived, Question};
use crate::answering::{Answering, Asked, question_count, repeated};
use crate::content::{MediaRules, tool_output};
use crate::listing::ListedTool;
use crate::sdk::connection::Connection;
use crate::sdk::pending_request::{CallUpdate, PendingRequest, RequestFailure};
use crate::shared_client::{CallOrigin, MAX_SESSION_RENEWALS, SharedClient};

/// Calls a tool. `cx` is `None` if the call is not part of a run. Dropping the stream cancels the
/// call on the server.
pub(crate) fn call_tool(
    shared: Arc<SharedClient>,
    tool: Arc<ListedTool>,
    arguments: &Value,
    media: MediaRules,
    cx: Option<ToolContext>,
) -> UpdateStream {
    let params = call_params(&tool, arguments);
    let call = Call {
        questions_left: shared.settings.limits.input_rounds,
        renewals_left: MAX_SESSION_RENEWALS,
        arguments: arguments.to_string(),
        params: params.clone(),
        shared,
        tool,
        media,
        cx,
    };
    stream::unfold((call, Some(CallState::Connecting { params })), |(mut call, state)| async move {
        let mut state = state?;
        loop {
            match call.advance(state).await {
                Transition::To(next) => state = next,
                Transition::Update(update, next) => return Some((update, (call, Some(next)))),
                Transition::End(output) => {
                    return Some((ToolUpdate::Output(output), (call, None)));
                }
            }
        }
    })
    .boxed()
}

/// The call, and its limits that are left.
struct Call {
    shared: Arc<SharedClient>,
    tool: Arc<ListedTool>,
    /// The arguments as JSON.
    arguments: String,
    /// The parameters of the first request.
    params: Map<String, Value>,
    media: MediaRules,
    cx: Option<ToolContext>,
    /// How many more questions are answered.
    questions_left: u32,
    /// How often the call is sent again because its session has ended.
    renewals_left: u32,
}

/// A state of a call. Dropping it cancels the request that it has sent.
enum CallState {
    Connecting {
        params: Map<String, Value>,
    },
    Sending {
        connection: Arc<Connection>,
        params: Map<String, Value>,
    },
    Waiting(SentRequest),
    /// Answers a question that the server asks while it works on the request.
    Answering {
        sent: SentRequest,
        answer: oneshot::Sender<Value>,
        answering: BoxStream<'static, Answering>,
    },
    Collecting(ResultQuestions),
}

/// A request that the server is working on.
struct SentRequest {
    connection: Arc<Connection>,
    params: Map<String, Value>,
    pending: PendingRequest,
}

/// A result that asks for input, and what has been answered of it.
struct ResultQuestions {
    connection: Arc<Connection>,
    result: Value,
    unanswered: map::IntoIter,
    answers: Map<String, Value>,
    current: Option<CurrentQuestion>,
}

/// The question of a result that is being answered.
struct CurrentQuestion {
    name: String,
    method: String,
    answering: BoxStream<'static, Answering>,
}

/// The step that follows a state.
enum Transition {
    To(CallState),
    /// An update for the consumer, and the state after it.
    Update(ToolUpdate, CallState),
    End(ToolOutput),
}

impl Call {
    async fn advance(&mut self, state: CallState) -> Transition {
        match state {
            CallState::Connecting { params } => self.connect(params).await,
            CallState::Sending { connection, params } => self.send(connection, params).await,
            CallState::Waiting(sent) => self.wait(sent).await,
            CallState::Answering { sent, answer, answering } => {
                answer_question(sent, answer, answering).await
            }
            CallState::Collecting(questions) => self.collect(questions).await,
        }
    }

    async fn connect(&self, params: Map<String, Value>) -> Transition {
        let origin = match self.cx {
            Some(_) => CallOrigin::Model { arguments: &self.arguments },
            None => CallOrigin::Program,
        };
        match self.shared.connection_for_call(&self.tool, origin).await {
            Ok(connection) => Transition::To(CallState::Sending { connection, params }),
            Err(error) => Transition::End(failure(&error)),
        }
    }

    async fn send(&self, connection: Arc<Connection>, params: Map<String, Value>) -> Transition {
        let limit = self.limit();
        let sending = connection.send("tools/call", Value::Object(params.clone()));
        match tokio::time::timeout(limit, sending).await {
            Ok(pending) => {
                Transition::To(CallState::Waiting(SentRequest { connection, params, pending }))
            }
            Err(_) => Transition::End(unanswered(self.server(), limit)),
        }
    }

    async fn wait(&mut self, mut sent: SentRequest) -> Transition {
        let limit = self.limit();
        match next_update(&mut sent.pending, limit).await {
            None => Transition::End(unanswered(self.server(), limit)),
            Some(CallUpdate::Arrived(Arrived::Progress(progress))) => {
                Transition::Update(ToolUpdate::progress(&progress), CallState::Waiting(sent))
            }
            Some(CallUpdate::Arrived(Arrived::Question(question))) => {
                self.begin_answering(sent, question)
            }
            Some(CallUpdate::Answered(Ok(result))) => self.on_result(sent.connection, result),
            Some(CallUpdate::Answered(Err(error))) => self.on_failure(sent, error).await,
        }
    }

    fn begin_answering(&mut self, sent: SentRequest, question: Question) -> Transition {
        let Some(left) = self.questions_left.checked_sub(1) else {
            // Dropping a question declines it.
            return Transition::To(CallState::Waiting(sent));
        };
        self.questions_left = left;
        let Question { method, params, answer } = question;
        let answering = Asked::new(&self.shared, &method, &params, self.cx.as_ref()).stream();
        Transition::To(CallState::Answering { sent, answer, answering })
    }

    async fn on_failure(&mut self, sent: SentRequest, error: RequestFailure) -> Transition {
        if error.is_session_end()
            && let Some(left) = self.renewals_left.checked_sub(1)
        {
            // The server has not processed the call. Its tools may have changed.
            self.renewals_left = left;
            return Transition::To(CallState::Connecting { params: sent.params });
        }
        Transition::End(failure(&sent.connection.describe(error).await))
    }

    fn on_result(&mut self, connection: Arc<Connection>, mut result: Value) -> Transition {
        let server = self.server();
        match result["resultType"].as_str() {
            None | Some("complete") => return Transition::End(tool_output(&result, self.media)),
            Some("input_required") => {}
            Some(other) => {
                return Transition::End(ToolOutput::error(format!(
                    "Error: the MCP server `{server}` answered with a result of the kind \
                     `{other}`, which is not supported here."
                )));
            }
        }
        let Some(left) = self.questions_left.checked_sub(question_count(&result)) else {
            return Transition::End(ToolOutput::error(format!(
                "Error: the MCP server `{server}` has asked for input more than {} times, and \
                 the call was abandoned.",
                self.shared.settings.limits.input_rounds
            )));
        };
        self.questions_left = left;
        let requests = match result["inputRequests"].take() {
            Value::Object(requests) => requests,
            _ => Map::new(),
        };
        Transition::To(CallState::Collecting(ResultQuestions {
            connection,
            result,
            unanswered: requests.into_iter(),
            answers: Map::new(),
            current: None,
        }))
    }

    async fn collect(&self, mut questions: ResultQuestions) -> Transition {
        let Some(mut current) = questions.current.take() else {
            let Some((name, request)) = questions.unanswered.next() else {
                let ResultQuestions { connection, result, answers, .. } = questions;
                let params = repeated(self.params.clone(), &result, answers);
                return Transition::To(CallState::Sending { connection, params });
            };
            let method = request["method"].as_str().unwrap_or_default().to_owned();
            let question = Asked::new(&self.shared, &method, &request["params"], self.cx.as_ref());
            let answering = question.stream();
            questions.current = Some(CurrentQuestion { name, method, answering });
            return Transition::To(CallState::Collecting(questions));
        };
        match current.answering.next().await {
            Some(Answering::Event(event)) => {
                questions.current = Some(current);
                Transition::Update(event, CallState::Collecting(questions))
            }
            Some(Answering::Answer(answer)) => {
                questions.answers.insert(current.name, answer);
                Transition::To(CallState::Collecting(questions))
            }
            Some(Answering::Refused) => Transition::End(ToolOutput::error(format!(
                "Declined: the MCP server `{}` asked for `{}` to continue this call, which is not \
                 allowed here. Try another way.",
                self.server(),
                current.method
            ))),
            // The question was left without an answer.
            None => Transition::To(CallState::Collecting(questions)),
        }
    }

    fn server(&self) -> &str {
        &self.shared.settings.name
    }

    /// Returns the time within which each message of the server must arrive.
    fn limit(&self) -> Duration {
        self.shared.settings.limits.call
    }
}

/// Takes one step in answering a question that the server asks while it works on the request.
async fn answer_question(
    mut sent: SentRequest,
    mut answer: oneshot::Sender<Value>,
    mut answering: BoxStream<'static, Answering>,
) -> Transition {
    match next_answering(&mut answering, &mut answer, &mut sent.pending).await {
        Some(Answering::Event(event)) => {
            Transition::Update(event, CallState::Answering { sent, answer, answering })
        }
        Some(Answering::Answer(value)) => {
            // The server may have stopped waiting for the answer.
            let _ = answer.send(value);
            Transition::To(CallState::Waiting(sent))
        }
        // Dropping the sender declines the question.
        Some(Answering::Refused) | None => Transition::To(CallState::Waiting(sent)),
    }
}

/// Returns the next step in answering a question. Returns `None` if the server no longer waits for
/// the answer, or has completed the call without the answer.
async fn next_answering(
    answering: &mut BoxStream<'static, Answering>,
    question: &mut oneshot::Sender<Value>,
    pending: &mut PendingRequest,
) -> Option<Answering> {
    future::poll_fn(|cx| {
        if pending.poll_is_answered(cx).is_ready() || question.poll_closed(cx).is_ready() {
            return Poll::Ready(None);
        }
        answering.poll_next_unpin(cx)
    })
    .await
}

/// Returns the next update for a call, or `None` if no update arrives within `limit`.
async fn next_update(pending: &mut PendingRequest, limit: Duration) -> Option<CallUpdate> {
    tokio::time::timeout(limit, future::poll_fn(|cx| pending.poll_update(cx))).await.ok()
}

fn call_params(tool: &ListedTool, arguments: &Value) -> Map<String, Value> {
    let name = ("name".to_owned(), Value::from(tool.original_name.clone()));
    let arguments = ("arguments".to_owned(), arguments.clone());
    Map::from_iter([name, arguments])
}

fn unanswered(server: &str, limit: Duration) -> ToolOutput {
    ToolOutput::error(format!(
        "Error: the MCP server `{server}` has not answered for {limit:?}. The call was cancelled; it may \
         have taken effect in part."
    ))
}

const MAY_HAVE_PARTIAL_EFFECT: &str =
    "The call may have taken effect in part: check before you repeat it.";

/// Converts an error into a result that tells the model how to proceed.
fn failure(error: &Error) -> ToolOutput {
    use turnstream::error::ErrorKind::{
        Auth, Connect, InvalidRequest, RateLimited, Timeout, Unsupported,
    };

    let is_server_failure = error.status().is_some_and(|status| status >= 500);
    let advice = match error.kind() {
        Connect | Timeout => MAY_HAVE_PARTIAL_EFFECT,
        _ if is_server_failure => MAY_HAVE_PARTIAL_EFFECT,
        RateLimited => "Call it again later, or try another way.",
        InvalidRequest | Unsupported => "Call it with other arguments, or try another way.",
        Auth => "Only the user can change that.",
        _ => "Try another way.",
    };
    ToolOutput::error(format!("Error: {error}. {advice}"))
}
