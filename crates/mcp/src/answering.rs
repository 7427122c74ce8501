//! Answers the questions that a server asks while it works on a request: of the user, of a model,
//! or for the folders that the server may use.

use std::time::Duration;

use async_stream::stream;
use futures::stream::BoxStream;
use futures::{StreamExt, future};
use serde_json::{Map, Value, json};
use turnstream::agent::Agent;
use turnstream::request::Options;
use turnstream::tool::{OutputStatus, ToolContext, ToolUpdate, UpdateStream};

use crate::questions::{cancelled_answer, sampling_answer, sampling_prompt};
use crate::shared_client::SharedClient;

/// A server's question, and the source of the answer to the question.
pub(crate) struct Asked {
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
pub(crate) enum Answering {
    /// An event from the model that is answering the question.
    Event(ToolUpdate),
    Answer(Value),
    Refused,
}

impl Asked {
    pub(crate) fn new(
        shared: &SharedClient,
        method: &str,
        params: &Value,
        cx: Option<&ToolContext>,
    ) -> Self {
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

    pub(crate) fn stream(self) -> BoxStream<'static, Answering> {
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
                            ToolUpdate::Output(output) if output.status != OutputStatus::Failed => {
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

/// Returns the number by which a result reduces the remaining number of allowed questions. A result
/// without questions counts as one question, because the call must wait for such a result too.
pub(crate) fn question_count(result: &Value) -> u32 {
    let questions = result["inputRequests"].as_object().map_or(0, Map::len);
    u32::try_from(questions).unwrap_or(u32::MAX).max(1)
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
