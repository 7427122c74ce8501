//! One call of a server's tool, from its request to its result.

use std::sync::Arc;
use std::task::Poll;

use async_stream::stream;
use futures::{FutureExt, StreamExt, future, pin_mut};
use serde_json::{Map, Value, json};

use crate::env::{Deadline, TimeLimit};
use crate::error::Error;
use crate::mcp::active_calls::Arrived;
use crate::mcp::client::Shared;
use crate::mcp::content::{MediaRules, tool_output};
use crate::mcp::listing::ListedTool;
use crate::mcp::questions::{cancelled_answer, sampling_answer, sampling_prompt};
use crate::mcp::sdk::{CallUpdate, PendingRequest};
use crate::tool::{ToolContext, ToolOutput, ToolUpdate, UpdateStream};

/// Calls a tool, for a call of a run if there is a context. Dropping the stream cancels the call on the server.
#[expect(clippy::too_many_lines, reason = "a call is read from its request to its result")]
pub(super) fn call_tool(
    shared: Arc<Shared>,
    tool: Arc<ListedTool>,
    arguments: Value,
    media: MediaRules,
    cx: Option<ToolContext>,
) -> UpdateStream {
    stream! {
        let connection = match shared.connection_for_call(&tool).await {
            Ok(connection) => connection,
            Err(error) => {
                yield ToolUpdate::Output(failure(&error));
                return;
            }
        };
        let limits = shared.settings.limits;
        let mut params = call_params(&tool, &arguments);
        for _round in 0..=limits.input_rounds {
            let mut pending = match connection.send("tools/call", Value::Object(params.clone())).await {
                Ok(pending) => pending,
                Err((error, _)) => {
                    yield ToolUpdate::Output(failure(&connection.describe(error).await));
                    return;
                }
            };
            let mut questions = 0;
            let answer = loop {
                let question = match next_update(&mut pending, limits.call).await {
                    None => {
                        let text = format!(
                            "Error: the MCP server `{}` has not answered for {:?}. The call was cancelled; \
                             what it began may have been done in part.",
                            shared.settings.name, limits.call
                        );
                        drop(pending);
                        yield ToolUpdate::Output(ToolOutput::error(text));
                        return;
                    }
                    Some(CallUpdate::Answered(answer)) => break answer,
                    Some(CallUpdate::Arrived(Arrived::Progress(progress))) => {
                        yield ToolUpdate::progress(&progress);
                        continue;
                    }
                    Some(CallUpdate::Arrived(Arrived::Question(question))) => question,
                };
                questions += 1;
                if questions > limits.input_rounds {
                    // Dropped, it is declined.
                    continue;
                }
                let asked = Asked::new(&shared, &question.method, &question.params, cx.as_ref());
                let mut answering = asked.stream();
                while let Some(update) = answering.next().await {
                    match update {
                        Answering::Event(event) => yield event,
                        Answering::Answer(answer) => {
                            // The server may not wait any more.
                            let _ = question.answer.send(answer);
                            break;
                        }
                        Answering::Refused => break,
                    }
                }
            };
            let result = match answer {
                Ok(result) => result,
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
                        "Error: the MCP server `{}` answered with a result of the kind `{other}`, which is \
                         not supported here.",
                        shared.settings.name
                    );
                    yield ToolUpdate::Output(ToolOutput::error(text));
                    return;
                }
            }
            let mut answers = Map::new();
            for (name, request) in result["inputRequests"].as_object().into_iter().flatten() {
                let method = request["method"].as_str().unwrap_or_default();
                let asked = Asked::new(&shared, method, &request["params"], cx.as_ref());
                let mut answering = asked.stream();
                while let Some(update) = answering.next().await {
                    match update {
                        Answering::Event(event) => yield event,
                        Answering::Answer(answer) => {
                            answers.insert(name.clone(), answer);
                            break;
                        }
                        Answering::Refused => {
                            let text = format!(
                                "Declined: the MCP server `{}` asked for `{method}` to go on with this call, \
                                 which is not allowed here. Try another way.",
                                shared.settings.name
                            );
                            yield ToolUpdate::Output(ToolOutput::error(text));
                            return;
                        }
                    }
                }
            }
            params = repeated(call_params(&tool, &arguments), &result, answers);
        }
        let text = format!(
            "Error: the MCP server `{}` has asked for input {} times, and the call was given up.",
            shared.settings.name, limits.input_rounds
        );
        yield ToolUpdate::Output(ToolOutput::error(text));
    }
    .boxed()
}

/// Answers the questions of a result without a model. `None` if one of them needs one, or is not allowed.
pub(super) async fn answer_questions(
    shared: &Shared,
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

/// The parameters of a request that is repeated with the answers to its questions.
pub(super) fn repeated(
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

/// The next update of a call, unless none comes in time.
async fn next_update(
    pending: &mut PendingRequest,
    limit: std::time::Duration,
) -> Option<CallUpdate> {
    let mut idle = Deadline::new(TimeLimit::Default(limit));
    future::poll_fn(|cx| match pending.poll_update(cx) {
        Poll::Ready(update) => Poll::Ready(Some(update)),
        Poll::Pending => idle.poll(cx).map(|_| None),
    })
    .await
}

/// An error as a result for the model, with what can be done about it.
fn failure(error: &Error) -> ToolOutput {
    use crate::error::ErrorKind::{Auth, Connect, InvalidRequest, Timeout, Unsupported};

    let advice = match error.kind() {
        Connect | Timeout => {
            "What the call began may have been done in part: look before you call it again."
        }
        InvalidRequest | Unsupported => "Call it with other arguments, or try another way.",
        Auth => "Only the user can change that.",
        _ => "Try another way.",
    };
    ToolOutput::error(format!("Error: {error}. {advice}"))
}

/// A question of a server that is being answered.
struct Asked {
    answer: AnswerSource,
    limit: std::time::Duration,
}

enum AnswerSource {
    User(future::BoxFuture<'static, Value>),
    Model { updates: UpdateStream, model: String },
    Known(Value),
    Refused,
}

/// A step of answering a question.
enum Answering {
    /// An event of the model that answers.
    Event(ToolUpdate),
    Answer(Value),
    Refused,
}

impl Asked {
    fn new(shared: &Shared, method: &str, params: &Value, cx: Option<&ToolContext>) -> Self {
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

    fn stream(self) -> futures::stream::BoxStream<'static, Answering> {
        let Self { answer, limit } = self;
        stream! {
            match answer {
                AnswerSource::User(answer) => {
                    pin_mut!(answer);
                    let mut time = Deadline::new(TimeLimit::Default(limit));
                    let in_time = future::poll_fn(|cx| match answer.poll_unpin(cx) {
                        Poll::Ready(answer) => Poll::Ready(Some(answer)),
                        Poll::Pending => time.poll(cx).map(|_| None),
                    });
                    yield Answering::Answer(in_time.await.unwrap_or_else(cancelled_answer));
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

/// Asks a model as a sub-agent of the call: what it uses counts for the run.
fn sample(agent: &crate::Agent, params: &Value, cx: &ToolContext) -> Option<AnswerSource> {
    let limit = params["maxTokens"].as_u64().and_then(|tokens| u32::try_from(tokens).ok());
    let agent =
        limit.map_or_else(|| agent.clone(), |limit| agent.clone().with_max_output_tokens(limit));
    let tool = agent.as_tool("sampling", "Answers for an MCP server").ok()?;
    let arguments = json!({ "prompt": sampling_prompt(params) }).to_string();
    let updates = tool.begin(&arguments, cx.clone()).ok()?;
    Some(AnswerSource::Model { updates, model: "the client's model".to_owned() })
}
