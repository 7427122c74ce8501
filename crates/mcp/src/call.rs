//! A single call to a server's tool, from the request to the result.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_stream::stream;
use futures::stream::BoxStream;
use futures::{StreamExt, future};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use turnstream::agent::Agent;
use turnstream::error::Error;
use turnstream::request::Options;
use turnstream::tool::{ToolContext, ToolOutput, ToolUpdate, UpdateStream};

use crate::active_calls::Arrived;
use crate::content::{MediaRules, tool_output};
use crate::listing::ListedTool;
use crate::questions::{cancelled_answer, sampling_answer, sampling_prompt};
use crate::sdk::{CallUpdate, PendingRequest};
use crate::shared_client::{CallOrigin, MAX_SESSION_RENEWALS, SharedClient};

/// Calls a tool. `cx` is `None` if the call is not part of a run. Dropping the stream cancels the
/// call on the server.
#[expect(clippy::too_many_lines, reason = "a call reads from its request to its result")]
pub(crate) fn call_tool(
    shared: Arc<SharedClient>,
    tool: Arc<ListedTool>,
    arguments: Value,
    media: MediaRules,
    cx: Option<ToolContext>,
) -> UpdateStream {
    stream! {
        let origin_arguments = arguments.to_string();
        let origin = match cx {
            Some(_) => CallOrigin::Model { arguments: &origin_arguments },
            None => CallOrigin::Program,
        };
        let mut connection = match shared.connection_for_call(&tool, origin).await {
            Ok(connection) => connection,
            Err(error) => {
                yield ToolUpdate::Output(failure(&error));
                return;
            }
        };
        let (limits, server) = (shared.settings.limits, &shared.settings.name);
        let mut params = call_params(&tool, &arguments);
        let (mut questions_left, mut renewals_left) = (limits.input_rounds, MAX_SESSION_RENEWALS);
        loop {
            let sending = connection.send("tools/call", Value::Object(params.clone()));
            let Ok(mut pending) = tokio::time::timeout(limits.call, sending).await else {
                yield ToolUpdate::Output(unanswered(server, limits.call));
                return;
            };
            let answer = loop {
                let mut question = match next_update(&mut pending, limits.call).await {
                    None => {
                        drop(pending);
                        yield ToolUpdate::Output(unanswered(server, limits.call));
                        return;
                    }
                    Some(CallUpdate::Answered(answer)) => break answer,
                    Some(CallUpdate::Arrived(Arrived::Progress(progress))) => {
                        yield ToolUpdate::progress(&progress);
                        continue;
                    }
                    Some(CallUpdate::Arrived(Arrived::Question(question))) => question,
                };
                let Some(left) = questions_left.checked_sub(1) else {
                    // Dropping a question declines it.
                    continue;
                };
                questions_left = left;
                let asking = Asked::new(&shared, &question.method, &question.params, cx.as_ref());
                let mut answering = asking.stream();
                while let Some(update) =
                    next_answering(&mut answering, &mut question.answer, &mut pending).await
                {
                    match update {
                        Answering::Event(event) => yield event,
                        Answering::Answer(answer) => {
                            // The server may have stopped waiting for the answer.
                            let _ = question.answer.send(answer);
                            break;
                        }
                        Answering::Refused => break,
                    }
                }
            };
            let result = match answer {
                Ok(result) => result,
                // The server has not processed the call. Its tools may have changed.
                Err(error) if error.is_session_end() && renewals_left > 0 => {
                    renewals_left -= 1;
                    connection = match shared.connection_for_call(&tool, origin).await {
                        Ok(connection) => connection,
                        Err(error) => {
                            yield ToolUpdate::Output(failure(&error));
                            return;
                        }
                    };
                    continue;
                }
                Err(error) => {
                    yield ToolUpdate::Output(failure(&connection.describe(error).await));
                    return;
                }
            };
            match result["resultType"].as_str() {
                None | Some("complete") => {
                    yield ToolUpdate::Output(tool_output(&result, media));
                    return;
                }
                Some("input_required") => {}
                Some(other) => {
                    let text = format!(
                        "Error: the MCP server `{server}` answered with a result of the kind `{other}`, which is \
                         not supported here."
                    );
                    yield ToolUpdate::Output(ToolOutput::error(text));
                    return;
                }
            }
            let Some(left) = questions_left.checked_sub(question_count(&result)) else {
                let text = format!(
                    "Error: the MCP server `{server}` has asked for input more than {} times, and \
                     the call was abandoned.",
                    limits.input_rounds
                );
                yield ToolUpdate::Output(ToolOutput::error(text));
                return;
            };
            questions_left = left;
            let mut answers = Map::new();
            for (name, request) in result["inputRequests"].as_object().into_iter().flatten() {
                let method = request["method"].as_str().unwrap_or_default();
                let asking = Asked::new(&shared, method, &request["params"], cx.as_ref());
                let mut answering = asking.stream();
                while let Some(update) = answering.next().await {
                    match update {
                        Answering::Event(event) => yield event,
                        Answering::Answer(answer) => {
                            answers.insert(name.clone(), answer);
                            break;
                        }
                        Answering::Refused => {
                            let text = format!(
                                "Declined: the MCP server `{server}` asked for `{method}` to \
                                 continue this call, which is not allowed here. Try another way."
                            );
                            yield ToolUpdate::Output(ToolOutput::error(text));
                            return;
                        }
                    }
                }
            }
            params = repeated(call_params(&tool, &arguments), &result, answers);
        }
    }
    .boxed()
}

/// Returns the number by which a result reduces the remaining number of allowed questions. A result
/// without questions counts as one question, because the call must wait for such a result too.
pub(crate) fn question_count(result: &Value) -> u32 {
    let questions = result["inputRequests"].as_object().map_or(0, Map::len);
    u32::try_from(questions).unwrap_or(u32::MAX).max(1)
}

fn unanswered(server: &str, limit: Duration) -> ToolOutput {
    ToolOutput::error(format!(
        "Error: the MCP server `{server}` has not answered for {limit:?}. The call was cancelled; it may \
         have taken effect in part."
    ))
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

/// Answers the questions in a result without using a model. Returns `None` if a question needs a
/// model or is not allowed.
pub(crate) async fn answer_questions(
    shared: &SharedClient,
    result: &Value,
) -> Option<Map<String, Value>> {
    let mut answers = Map::new();
    for (name, request) in result["inputRequests"].as_object().into_iter().flatten() {
        let method = request["method"].as_str().unwrap_or_default();
        let mut answering = Asked::new(shared, method, &request["params"], None).stream();
        let Some(Answering::Answer(answer)) = answering.next().await else { return None };
        answers.insert(name.clone(), answer);
    }
    Some(answers)
}

/// Returns the parameters for repeating a request with the answers to its questions.
pub(crate) fn repeated(
    mut params: Map<String, Value>,
    result: &Value,
    answers: Map<String, Value>,
) -> Map<String, Value> {
    if let Some(state) = result.get("requestState") {
        params.insert("requestState".to_owned(), state.clone());
    }
    if !answers.is_empty() {
        params.insert("inputResponses".to_owned(), Value::Object(answers));
    }
    params
}

fn call_params(tool: &ListedTool, arguments: &Value) -> Map<String, Value> {
    let name = ("name".to_owned(), Value::from(tool.original_name.clone()));
    let arguments = ("arguments".to_owned(), arguments.clone());
    Map::from_iter([name, arguments])
}

/// Returns the next update for a call, or `None` if no update arrives within `limit`.
async fn next_update(pending: &mut PendingRequest, limit: Duration) -> Option<CallUpdate> {
    tokio::time::timeout(limit, future::poll_fn(|cx| pending.poll_update(cx))).await.ok()
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

/// A server's question, and the source of the answer to the question.
struct Asked {
    answer: AnswerSource,
    limit: Duration,
}

enum AnswerSource {
    User(future::BoxFuture<'static, Value>),
    Model { updates: UpdateStream, model: String },
    Known(Value),
    Refused,
}

/// A step in answering a question.
enum Answering {
    /// An event from the model that is answering the question.
    Event(ToolUpdate),
    Answer(Value),
    Refused,
}

impl Asked {
    fn new(shared: &SharedClient, method: &str, params: &Value, cx: Option<&ToolContext>) -> Self {
        let settings = &shared.settings;
        let answerers = &settings.answerers;
        let answer = match method {
            "elicitation/create" => AnswerSource::User(answerers.ask_user(&settings.name, params)),
            "sampling/createMessage" => {
                let sampled = answerers
                    .sampling
                    .as_ref()
                    .zip(cx)
                    .and_then(|(agent, cx)| sample(agent, params, cx));
                sampled.unwrap_or(AnswerSource::Refused)
            }
            "roots/list" => {
                answerers.roots_answer().map_or(AnswerSource::Refused, AnswerSource::Known)
            }
            _ => AnswerSource::Refused,
        };
        Self { answer, limit: settings.limits.input }
    }

    fn stream(self) -> BoxStream<'static, Answering> {
        let Self { answer, limit } = self;
        stream! {
            match answer {
                AnswerSource::User(answer) => {
                    let answer = tokio::time::timeout(limit, answer).await;
                    yield Answering::Answer(answer.unwrap_or_else(|_| cancelled_answer()));
                }
                AnswerSource::Model { mut updates, model } => {
                    while let Some(update) = updates.next().await {
                        match update {
                            ToolUpdate::Output(output) if !output.failed => {
                                let text = output.content.text();
                                yield Answering::Answer(sampling_answer(&text, &model));
                            }
                            ToolUpdate::Output(_) | ToolUpdate::Suspended(_) => yield Answering::Refused,
                            event => yield Answering::Event(event),
                        }
                    }
                }
                AnswerSource::Known(answer) => yield Answering::Answer(answer),
                AnswerSource::Refused => yield Answering::Refused,
            }
        }
        .boxed()
    }
}

/// Runs an agent as a sub-agent of the call, so that the agent's tokens count toward the run's
/// usage.
fn sample(agent: &Agent, params: &Value, cx: &ToolContext) -> Option<AnswerSource> {
    let limit = params["maxTokens"].as_u64().and_then(|tokens| u32::try_from(tokens).ok());
    let own_limit = agent.options().max_output_tokens.unwrap_or(u32::MAX);
    let agent = match limit.filter(|limit| *limit < own_limit) {
        Some(limit) => {
            let options = Options { max_output_tokens: Some(limit), ..Options::default() };
            agent.clone().with_options(options)
        }
        None => agent.clone(),
    };
    let tool = agent.as_tool("sampling", "Answers for an MCP server").ok()?;
    let arguments = json!({ "prompt": sampling_prompt(params) }).to_string();
    let updates = tool.prepare(&arguments).and_then(|call| call.start(cx.clone())).ok()?;
    Some(AnswerSource::Model { updates, model: "the client's model".to_owned() })
}
