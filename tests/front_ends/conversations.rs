//! Whole conversations between clients and a web server: the clients send messages, answer calls
//! and send requests again on their own.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session};
use turnstream::tool::Tool;
use turnstream::ui::ai_sdk::{self, AiSdk, ChatRequest, Version};
use turnstream::ui::{ClientLimits, RequestError, ag_ui};

use crate::clients::Clients;
use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::spec;

/// An app: each conversation has a session with its name, and a fork where an answer was requested
/// again.
#[derive(Clone)]
struct App {
    agent: Agent,
    store: MemoryStore,
    version: Version,
}

impl App {
    fn new(replies: Vec<Reply>) -> Self {
        let read = Tool::raw(spec("read"), |_, _| async { "four lines" }).unwrap();
        let delete = Tool::raw(spec("delete"), |_, _| async { "deleted" }).unwrap();
        let ask = Tool::external(spec("ask")).unwrap();
        let agent = Agent::new(Scripted::new(replies)).with_limits(limits_with_max_turns(2));
        let agent = agent.with_tools([read, delete.requires_approval(), ask]);
        Self { agent, store: MemoryStore::new(), version: Version::V6 }
    }

    /// Starts a server, and returns its address.
    async fn serve(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/api/chat", post(chat)).route("/agent", post(run));
        let app = app.with_state(Arc::new(self));
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}")
    }

    async fn chat(&self, request: &ChatRequest) -> Result<Response, RequestError> {
        let session = Session::open(self.store.clone(), &request.chat_id).await?;
        // The client of version 5.0.0 answers only calls of typed tools.
        let stream = AiSdk::new(self.version).with_typed_tools();
        let (run, stream) = match request.action(&session, &self.agent)? {
            ai_sdk::ClientAction::Run(input) => {
                let run = session.run(&self.agent, input).await?;
                (run, stream.with_session(&session))
            }
            ai_sdk::ClientAction::Resume { message_id, verdicts } => {
                let run = session.resume(&self.agent, verdicts).await?;
                (run, stream.continue_message(message_id))
            }
            ai_sdk::ClientAction::Regenerate { before } => {
                let fork = session.fork_at(before, "fork").await?;
                (fork.resume(&self.agent, []).await?, stream.with_session(&fork))
            }
            action => return Err(RequestError::new(400, format!("not offered: {action:?}"))),
        };
        Ok(send(stream.respond(run)))
    }

    async fn run(&self, request: &ag_ui::RunRequest) -> Result<Response, RequestError> {
        let agent = request.add_client_tools(&self.agent)?;
        let session = Session::open(self.store.clone(), &request.thread_id).await?;
        let run = match request.action(&session, &agent)? {
            ag_ui::ClientAction::Run(input) => session.run(&agent, input).await?,
            ag_ui::ClientAction::Resume(verdicts) => session.resume(&agent, verdicts).await?,
            action => return Err(RequestError::new(400, format!("not offered: {action:?}"))),
        };
        Ok(send(ag_ui::AgUi::new(request).with_session(&session).respond(run)))
    }
}

async fn chat(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = ChatRequest::parse(content_type(&headers), &body, &ClientLimits::default());
    let answer = match request {
        Ok(request) => app.chat(&request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| send_text(ai_sdk::refuse(&error)))
}

async fn run(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Response {
    let request = ag_ui::RunRequest::parse(content_type(&headers), &body, &ClientLimits::default());
    let answer = match request {
        Ok(request) => app.run(&request).await,
        Err(error) => Err(error),
    };
    answer.unwrap_or_else(|error| send_text(ag_ui::refuse(&error)))
}

fn content_type(headers: &HeaderMap) -> Option<&str> {
    headers.get("content-type")?.to_str().ok()
}

fn send<S>(response: turnstream::ui::Response<turnstream::ui::ResponseBody<S>>) -> Response
where
    S: futures::Stream<Item = Result<turnstream::Event, turnstream::Error>> + Send + 'static,
{
    let (status, headers) = (response.status, response.headers);
    with_head(status, headers, Body::from_stream(response.body))
}

fn send_text(response: turnstream::ui::Response<String>) -> Response {
    with_head(response.status, response.headers, response.body.into())
}

fn with_head(status: u16, headers: Vec<(&'static str, &'static str)>, body: Body) -> Response {
    let mut builder = Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    builder.body(body).unwrap()
}

/// Runs a client through these steps, with a new server.
async fn talk(client: &str, version: Version, replies: Vec<Reply>, steps: Value) -> Value {
    let url = App { version, ..App::new(replies) }.serve().await;
    let client = client.to_owned();
    let talked = tokio::task::spawn_blocking(move || {
        let request = json!({
            "do": "chat", "client": client, "api": format!("{url}/api/chat"), "chat_id": "c", "steps": steps,
        });
        Clients::start().ask(request)
    });
    talked.await.unwrap()
}

fn call(name: &str) -> Reply {
    Reply::new().call(name, json!({}))
}

/// The states of the last message's parts, without those of an empty step.
fn states(answer: &Value) -> Vec<String> {
    let parts = answer["messages"].as_array().unwrap().last().unwrap()["parts"].as_array().unwrap();
    let shown = parts.iter().filter(|part| part["type"] != "step-start");
    shown.map(|part| format!("{} {}", part["type"].as_str().unwrap(), part["state"])).collect()
}

const CLIENTS: [(&str, Version); 6] = [
    ("ai5_0_0", Version::V5),
    ("ai5", Version::V5),
    ("ai6_0_0", Version::V6),
    ("ai6", Version::V6),
    ("ai7", Version::V6),
    ("ai7", Version::V7),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn clients_send_no_further_request_after_a_run_that_ends_with_results() {
    for (client, version) in CLIENTS {
        let replies = vec![call("read"), call("read")];
        let answer = talk(client, version, replies, json!([{ "send": "Go" }])).await;
        assert_eq!(answer["ok"], true, "{client} {version:?}: {answer}");
        let requests = answer["requests"].as_array().unwrap().len();
        assert_eq!(requests, 1, "{client} {version:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn a_run_resumed_by_an_approval_continues_the_same_message() {
    for (client, version) in CLIENTS.into_iter().filter(|(_, version)| *version > Version::V5) {
        for approved in [true, false] {
            let replies = vec![call("delete"), Reply::text("Done.")];
            let steps =
                json!([{ "send": "Go" }, { "approve": { "id": "last", "approved": approved } }]);
            let answer = talk(client, version, replies, steps).await;
            assert_eq!(answer["ok"], true, "{client} {version:?}: {answer}");
            assert_eq!(answer["messages"].as_array().unwrap().len(), 2, "{client}: {answer}");
            assert_eq!(answer["messages"][1]["id"], "c:1");
            let state = if approved { "output-available" } else { "output-denied" };
            let expected = [format!("tool-delete \"{state}\""), "text \"done\"".to_owned()];
            assert_eq!(states(&answer), expected, "{client} {version:?}");
            assert_eq!(answer["requests"].as_array().unwrap().len(), 2, "{client}: {answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn a_client_tool_result_continues_the_same_message() {
    for (client, version) in CLIENTS {
        let replies = vec![call("ask"), Reply::text("Thanks.")];
        let output = json!({ "tool": "ask", "toolCallId": "call_1_1", "output": "yes" });
        let steps = json!([{ "send": "Go" }, { "tool_output": output }]);
        let answer = talk(client, version, replies, steps).await;
        assert_eq!(answer["ok"], true, "{client} {version:?}: {answer}");
        let expected = ["tool-ask \"output-available\"", "text \"done\""];
        assert_eq!(states(&answer), expected, "{client} {version:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn a_regenerated_answer_replaces_the_selected_one() {
    for (client, version) in CLIENTS {
        let replies = vec![Reply::text("One."), Reply::text("Another.")];
        let steps = json!([{ "send": "Go" }, { "regenerate": "c:1" }]);
        let answer = talk(client, version, replies, steps).await;
        assert_eq!(answer["ok"], true, "{client} {version:?}: {answer}");
        assert_eq!(answer["messages"].as_array().unwrap().len(), 2, "{client}: {answer}");
        let parts = answer["messages"][1]["parts"].as_array().unwrap();
        assert_eq!(parts.last().unwrap()["text"], "Another.", "{client}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Node and npm packages: tests/front_ends/run.sh"]
async fn an_ag_ui_client_can_answer_interrupts_and_send_tool_results() {
    let agent_steps = [
        (call("delete"), json!([{ "send": "Go" }, { "resume": "approve_all" }]), "deleted"),
        (
            call("ask"),
            json!([{ "send": "Go" }, { "tool_result": { "toolCallId": "call_1_1", "content": "yes" } }]),
            "yes",
        ),
    ];
    for (first, steps, result) in agent_steps {
        let url = App::new(vec![first, Reply::text("Done.")]).serve().await;
        let asked = tokio::task::spawn_blocking(move || {
            let url = format!("{url}/agent");
            Clients::start()
                .ask(json!({ "do": "agent", "client": "ag_ui", "url": url, "steps": steps }))
        });
        let answer = asked.await.unwrap();
        assert_eq!(answer["ok"], true, "{answer}");
        let messages = answer["messages"].as_array().unwrap();
        let tools: Vec<_> = messages.iter().filter(|it| it["role"] == "tool").collect();
        assert_eq!(tools.len(), 1, "{answer}");
        assert_eq!(tools[0]["content"], result);
        assert_eq!(messages.last().unwrap()["content"], "Done.");
    }
}
