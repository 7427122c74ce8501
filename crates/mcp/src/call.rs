//! A single call to a server's tool, from the request to the result.
#![doc = include_str!("call.md")]

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
use crate::sdk::pending_request::{CallUpdate, PendingRequest};
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
    let call = Call::new(shared, tool, arguments, media, cx);
    let first = call.first_state();
    stream::unfold((call, Some(first)), |(mut call, state)| async move {
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
    /// How many more questions the server may ask.
    questions_left: u32,
    /// How many more times the call is sent again because its session has ended.
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
    /// Answers a question of a result.
    Collecting {
        questions: ResultQuestions,
        current: CurrentQuestion,
    },
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
}

/// The question of a result that is being answered.
struct CurrentQuestion {
    name: String,
    method: String,
    answering: BoxStream<'static, Answering>,
}

/// The event that a state waits for.
#[expect(clippy::large_enum_variant, reason = "each input is used at once")]
enum Input {
    Connected(Arc<Connection>),
    Sent(PendingRequest),
    Progress(Value),
    Question(Question),
    Result(Value),
    Failed {
        error: Error,
        /// Whether the server has ended the session, and has not processed the request.
        is_session_end: bool,
    },
    /// Nothing has arrived within the limit.
    Silence,
    Answering(Answering),
    /// The question is left without an answer.
    NoAnswer,
}

/// The step that follows an input.
enum Transition {
    To(CallState),
    /// An update for the consumer, and the state after it.
    Update(ToolUpdate, CallState),
    End(ToolOutput),
}

impl Call {
    fn new(
        shared: Arc<SharedClient>,
        tool: Arc<ListedTool>,
        arguments: &Value,
        media: MediaRules,
        cx: Option<ToolContext>,
    ) -> Self {
        Self {
            questions_left: shared.settings.limits.input_rounds,
            renewals_left: MAX_SESSION_RENEWALS,
            arguments: arguments.to_string(),
            params: call_params(&tool, arguments),
            shared,
            tool,
            media,
            cx,
        }
    }

    fn first_state(&self) -> CallState {
        CallState::Connecting { params: self.params.clone() }
    }

    async fn advance(&mut self, mut state: CallState) -> Transition {
        let input = self.next_input(&mut state).await;
        self.apply(state, input)
    }

    async fn next_input(&self, state: &mut CallState) -> Input {
        match state {
            CallState::Connecting { .. } => self.connect().await,
            CallState::Sending { connection, params } => {
                let params = with_trace_context(params.clone(), self.cx.as_ref());
                let sending = connection.send("tools/call", Value::Object(params));
                let sent = tokio::time::timeout(self.limit(), sending).await;
                sent.map_or(Input::Silence, Input::Sent)
            }
            CallState::Waiting(sent) => next_message(sent, self.limit()).await,
            CallState::Answering { sent, answer, answering } => {
                next_answering(answering, answer, &mut sent.pending).await
            }
            CallState::Collecting { current, .. } => {
                current.answering.next().await.map_or(Input::NoAnswer, Input::Answering)
            }
        }
    }

    async fn connect(&self) -> Input {
        let origin = match self.cx {
            Some(_) => CallOrigin::Model { arguments: &self.arguments },
            None => CallOrigin::Program,
        };
        match self.shared.connection_for_call(&self.tool, origin).await {
            Ok(connection) => Input::Connected(connection),
            Err(error) => Input::Failed { error, is_session_end: false },
        }
    }

    /// Returns the step that follows an input. An input that the state does not wait for is
    /// dropped.
    fn apply(&mut self, state: CallState, input: Input) -> Transition {
        match (state, input) {
            (CallState::Connecting { params }, Input::Connected(connection)) => {
                Transition::To(CallState::Sending { connection, params })
            }
            (CallState::Sending { connection, params }, Input::Sent(pending)) => {
                Transition::To(CallState::Waiting(SentRequest { connection, params, pending }))
            }
            (CallState::Waiting(sent), Input::Progress(progress)) => {
                Transition::Update(ToolUpdate::progress(&progress), CallState::Waiting(sent))
            }
            (CallState::Waiting(sent), Input::Question(question)) => {
                Transition::To(self.begin_answering(sent, question))
            }
            (CallState::Waiting(sent), Input::Result(result)) => {
                self.on_result(sent.connection, result)
            }
            (CallState::Waiting(sent), Input::Failed { is_session_end: true, .. })
                if self.renewals_left > 0 =>
            {
                // The server's tools may have changed.
                self.renewals_left -= 1;
                Transition::To(CallState::Connecting { params: sent.params })
            }
            (CallState::Connecting { .. } | CallState::Waiting(_), Input::Failed { error, .. }) => {
                Transition::End(failure(&error))
            }
            (CallState::Sending { .. } | CallState::Waiting(_), Input::Silence) => {
                Transition::End(unanswered(self.server(), self.limit()))
            }
            (CallState::Answering { sent, answer, answering }, Input::Answering(step)) => {
                match step {
                    Answering::Event(event) => {
                        Transition::Update(event, CallState::Answering { sent, answer, answering })
                    }
                    Answering::Answer(value) => {
                        // The server may have stopped waiting for the answer.
                        let _ = answer.send(value);
                        Transition::To(CallState::Waiting(sent))
                    }
                    // Dropping the sender declines the question.
                    Answering::Refused => Transition::To(CallState::Waiting(sent)),
                }
            }
            (CallState::Answering { sent, .. }, Input::NoAnswer) => {
                Transition::To(CallState::Waiting(sent))
            }
            (CallState::Collecting { mut questions, current }, Input::Answering(step)) => {
                match step {
                    Answering::Event(event) => {
                        Transition::Update(event, CallState::Collecting { questions, current })
                    }
                    Answering::Answer(answer) => {
                        questions.answers.insert(current.name, answer);
                        Transition::To(self.next_question(questions))
                    }
                    Answering::Refused => Transition::End(ToolOutput::error(format!(
                        "Declined: the MCP server `{}` asked for `{}` to continue this call, which is \
                     not allowed here. Try another way.",
                        self.server(),
                        current.method
                    ))),
                }
            }
            (CallState::Collecting { questions, .. }, Input::NoAnswer) => {
                Transition::To(self.next_question(questions))
            }
            (state, _) => Transition::To(state),
        }
    }

    fn begin_answering(&mut self, sent: SentRequest, question: Question) -> CallState {
        let Some(left) = self.questions_left.checked_sub(1) else {
            // Dropping a question declines it.
            return CallState::Waiting(sent);
        };
        self.questions_left = left;
        let Question { method, params, answer } = question;
        let answering = Asked::new(&self.shared, &method, &params, self.cx.as_ref()).stream();
        CallState::Answering { sent, answer, answering }
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
        let unanswered = requests.into_iter();
        let questions = ResultQuestions { connection, result, unanswered, answers: Map::new() };
        Transition::To(self.next_question(questions))
    }

    /// Begins to answer the next question of a result. After the last question, the request is sent
    /// again with the answers.
    fn next_question(&self, mut questions: ResultQuestions) -> CallState {
        let Some((name, request)) = questions.unanswered.next() else {
            let ResultQuestions { connection, result, answers, .. } = questions;
            let params = repeated(self.params.clone(), &result, answers);
            return CallState::Sending { connection, params };
        };
        let method = request["method"].as_str().unwrap_or_default().to_owned();
        let question = Asked::new(&self.shared, &method, &request["params"], self.cx.as_ref());
        let current = CurrentQuestion { name, method, answering: question.stream() };
        CallState::Collecting { questions, current }
    }

    fn server(&self) -> &str {
        &self.shared.settings.name
    }

    /// Returns the time within which the request must be sent, and each message about it arrive.
    fn limit(&self) -> Duration {
        self.shared.settings.limits.call
    }
}

/// Returns the server's next message about a request.
async fn next_message(sent: &mut SentRequest, limit: Duration) -> Input {
    let update = future::poll_fn(|cx| sent.pending.poll_update(cx));
    match tokio::time::timeout(limit, update).await {
        Err(_) => Input::Silence,
        Ok(CallUpdate::Arrived(Arrived::Progress(progress))) => Input::Progress(progress),
        Ok(CallUpdate::Arrived(Arrived::Question(question))) => Input::Question(question),
        Ok(CallUpdate::Answered(Ok(result))) => Input::Result(result),
        Ok(CallUpdate::Answered(Err(error))) => {
            let is_session_end = error.is_session_end();
            Input::Failed { error: sent.connection.describe(error).await, is_session_end }
        }
    }
}

/// Returns the next step in answering a question, or [`Input::NoAnswer`] if the server has stopped
/// waiting for the answer, has completed the call without it, or if the question is left without
/// one.
async fn next_answering(
    answering: &mut BoxStream<'static, Answering>,
    answer: &mut oneshot::Sender<Value>,
    pending: &mut PendingRequest,
) -> Input {
    future::poll_fn(|cx| {
        if pending.poll_is_answered(cx).is_ready() || answer.poll_closed(cx).is_ready() {
            return Poll::Ready(Input::NoAnswer);
        }
        answering.poll_next_unpin(cx).map(|step| step.map_or(Input::NoAnswer, Input::Answering))
    })
    .await
}

fn call_params(tool: &ListedTool, arguments: &Value) -> Map<String, Value> {
    let name = ("name".to_owned(), Value::from(tool.original_name.clone()));
    let arguments = ("arguments".to_owned(), arguments.clone());
    Map::from_iter([name, arguments])
}

/// Adds the call's trace context to a request's metadata, if any. The context is read when the
/// request is sent, since it is not known before the call has started.
fn with_trace_context(
    mut params: Map<String, Value>,
    cx: Option<&ToolContext>,
) -> Map<String, Value> {
    if let Some(context) = cx.and_then(ToolContext::trace_context) {
        let values = context.headers().map(|(name, value)| (name.to_owned(), Value::from(value)));
        let meta = params.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(meta) = meta {
            meta.extend(values);
        }
    }
    params
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::runtime::Handle;
    use turnstream::error::ErrorKind;
    use turnstream::request::ToolSpec;
    use turnstream_test_support::transitions::{self, Machine};

    use turnstream::tool::OutputStatus;

    use super::*;
    use crate::Era;
    use crate::content::MediaParts;
    use crate::endpoint::{Endpoint, Streams};
    use crate::limits::Limits;
    use crate::questions::Answerers;
    use crate::sdk::connection_settings::ConnectionSettings;
    use crate::shared_client::{AcceptedDefinitions, Settings};

    /// A server that connects, and answers no other request.
    fn endpoint() -> Endpoint {
        Endpoint::Streams(Arc::new(|| {
            let (here, there) = tokio::io::duplex(1 << 16);
            let (reader, mut writer) = tokio::io::split(there);
            tokio::spawn(async move {
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let request: Value = serde_json::from_str(&line).unwrap();
                    if request["method"] == "server/discover" {
                        let result = json!({
                            "resultType": "complete", "supportedVersions": ["2026-07-28"],
                            "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "public",
                            "serverInfo": { "name": "s", "version": "1" }
                        });
                        let answer =
                            json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
                        writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                    }
                }
            });
            let (reader, writer) = tokio::io::split(here);
            let streams: Streams = (Box::new(reader), Box::new(writer));
            future::ready(Ok(streams)).boxed()
        }))
    }

    /// A call that may ask two questions, and its state. The state is `None` after its end.
    struct TestCall {
        call: Call,
        state: Option<CallState>,
        connection: Arc<Connection>,
        /// Receives the answer to the question that is being answered.
        answer: Option<oneshot::Receiver<Value>>,
        runtime: Handle,
    }

    impl TestCall {
        fn new(connection: &Arc<Connection>) -> Self {
            let limits = Limits { input_rounds: 2, ..Limits::default() };
            let settings = Settings {
                name: "s".to_owned(),
                endpoint: endpoint(),
                limits,
                answerers: Answerers::default(),
                media: MediaParts::default(),
            };
            let shared = SharedClient::new(settings, AcceptedDefinitions::default());
            let tool = ListedTool {
                original_name: "tool".to_owned(),
                spec: ToolSpec::new("s__tool", "", json!({ "type": "object" })),
                is_read_only: false,
                fingerprint: 0,
            };
            let media = MediaRules { parts: MediaParts::default(), max_bytes: 0 };
            let call = Call::new(Arc::new(shared), Arc::new(tool), &json!({}), media, None);
            Self {
                state: Some(call.first_state()),
                call,
                connection: Arc::clone(connection),
                answer: None,
                runtime: Handle::current(),
            }
        }

        /// Returns the input with this name, and sets what is left of the call's limits. Returns
        /// `None` if the input has another name in the current state.
        fn input(&mut self, name: &str) -> Option<Input> {
            let failed = |is_session_end| Input::Failed {
                error: Error::new(ErrorKind::Server, "failed"),
                is_session_end,
            };
            let asking = |count: u32| {
                let question = json!({ "method": "roots/list", "params": {} });
                let questions = (0..count).map(|at| (at.to_string(), question.clone()));
                let questions: Map<String, Value> = questions.collect();
                Input::Result(json!({ "resultType": "input_required", "inputRequests": questions }))
            };
            let is_over_limit = name.ends_with("more than the limit") || name.ends_with("again");
            (self.call.questions_left, self.call.renewals_left) =
                if is_over_limit { (0, 0) } else { (2, 1) };
            let is_connecting = matches!(self.state, Some(CallState::Connecting { .. }));
            let (is_possible, input) = match name {
                "a connection is found" => (true, Input::Connected(Arc::clone(&self.connection))),
                "no connection is found" => (is_connecting, failed(false)),
                "the request fails" => (!is_connecting, failed(false)),
                "the request is sent" => {
                    (true, Input::Sent(PendingRequest::unanswered(self.runtime.clone())))
                }
                "nothing arrives within the limit" => (true, Input::Silence),
                "progress arrives" => (true, Input::Progress(json!({ "progress": 1 }))),
                "the server asks a question" | "the server asks more than the limit" => {
                    let (answer, answered) = oneshot::channel();
                    self.answer = Some(answered);
                    let method = "roots/list".to_owned();
                    let question = Question { method, params: Value::Null, answer };
                    (true, Input::Question(question))
                }
                "the result arrives" => (true, Input::Result(json!({ "content": [] }))),
                "a result of an unknown kind arrives" => {
                    (true, Input::Result(json!({ "resultType": "other" })))
                }
                "the result asks two questions" | "the result asks more than the limit" => {
                    (true, asking(2))
                }
                "the result asks for another request" => (true, asking(0)),
                "the server ends the session" | "the server ends the session again" => {
                    (!is_connecting, failed(true))
                }
                "the model that answers sends an event" => {
                    let event = ToolUpdate::progress(&json!(1));
                    (true, Input::Answering(Answering::Event(event)))
                }
                "the answer is given" => (true, Input::Answering(Answering::Answer(json!({})))),
                "the question is refused" => (true, Input::Answering(Answering::Refused)),
                "there is no answer" => (true, Input::NoAnswer),
                other => panic!("no such input: {other}"),
            };
            is_possible.then_some(input)
        }
    }

    impl Machine for TestCall {
        fn state(&self) -> String {
            let name = match &self.state {
                None => "ended",
                Some(CallState::Connecting { .. }) => "connecting",
                Some(CallState::Sending { .. }) => "sending",
                Some(CallState::Waiting(_)) => "waiting",
                Some(CallState::Answering { .. }) => "answering",
                Some(CallState::Collecting { questions, .. }) => match questions.unanswered.len() {
                    0 => "collecting the last answer",
                    _ => "collecting",
                },
            };
            name.to_owned()
        }

        fn apply(&mut self, name: &str) -> String {
            let asked_before = self.answer.take();
            let input = self.input(name);
            let asks = std::mem::replace(&mut self.answer, asked_before);
            let Some(input) = input else { return "-".to_owned() };
            let Some(state) = self.state.take() else { return "-".to_owned() };
            let was_collecting = matches!(state, CallState::Collecting { .. });
            let had_answer = matches!(input, Input::Answering(Answering::Answer(_)));
            let is_waiting = matches!(state, CallState::Waiting(_));
            if is_waiting && asks.is_some() {
                self.answer = asks;
            }
            match self.call.apply(state, input) {
                Transition::To(next) => self.state = Some(next),
                Transition::Update(_, next) => {
                    self.state = Some(next);
                    return "progress".to_owned();
                }
                Transition::End(output) => {
                    return if output.status == OutputStatus::Failed { "error" } else { "result" }
                        .to_owned();
                }
            }
            if let (true, true, Some(CallState::Sending { params, .. })) =
                (was_collecting, had_answer, &self.state)
            {
                assert!(params.contains_key("inputResponses"));
                return "answers".to_owned();
            }
            let effect = match self.answer.as_mut().map(oneshot::Receiver::try_recv) {
                Some(Ok(_)) => "answers",
                Some(Err(oneshot::error::TryRecvError::Closed)) => "declines",
                Some(Err(oneshot::error::TryRecvError::Empty)) | None => return "-".to_owned(),
            };
            self.answer = None;
            effect.to_owned()
        }
    }

    #[tokio::test]
    async fn a_call_moves_between_its_states_as_their_table_says() {
        let settings = ConnectionSettings {
            name: "s".to_owned(),
            endpoint: endpoint(),
            limits: Limits::default(),
            capabilities: json!({}),
            roots: None,
            first_era: Era::Modern,
        };
        let connection = Arc::new(Connection::open(&settings).await.unwrap());
        let table = include_str!("call.md");
        transitions::check(table, "# The states of a call", || TestCall::new(&connection));
    }
}
