//! A client that disconnects: the run stops, and with it its tools and the connection to its model.

use std::future::pending;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use turnstream::Agent;
use turnstream::http::HttpClient;
use turnstream::provider::{OpenAiChat, Reply};
use turnstream::tool::Tool;
use turnstream::ui::ai_sdk::AiSdk;
use turnstream_testing::ModelServer;

use turnstream_test_support::tools::{Counter, spec};

/// A web server that answers every request with a run. Dropping it stops the server.
struct WebServer {
    address: std::net::SocketAddr,
    task: AbortHandle,
}

impl WebServer {
    async fn start(agent: Agent) -> Self {
        async fn chat(State(agent): State<Agent>) -> Response {
            let response = AiSdk::default().respond(agent.run("Go"));
            let builder = Response::builder().status(response.status);
            let with_header =
                |builder: axum::http::response::Builder, (name, value)| builder.header(name, value);
            let builder = response.headers.into_iter().fold(builder, with_header);
            builder.body(Body::from_stream(response.body)).unwrap()
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/", get(chat)).with_state(agent);
        let served = tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, task: served.abort_handle() }
    }

    /// A client that has read up to this text.
    async fn client_that_has_read(&self, text: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut read = String::new();
        while !read.contains(text) {
            let mut buffer = [0; 4096];
            let count = client.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the stream ended: {read}");
            read.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        client
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn model(server: &ModelServer) -> OpenAiChat {
    let model = OpenAiChat::new("m").with_base_url(server.url()).unwrap().with_api_key("key");
    model.with_http_client(HttpClient::without_proxy())
}

fn print_median(what: &str, mut times: Vec<Duration>) {
    times.sort();
    println!(
        "{what}: median of {} {:?}, longest {:?}",
        times.len(),
        times[times.len() / 2],
        times.last()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_closes_the_connection_to_the_model() {
    let mut times = Vec::new();
    for _ in 0..20 {
        let server =
            ModelServer::openai_chat(|_, _| Reply::text("on and on").hang()).await.unwrap();
        let web = WebServer::start(Agent::new(model(&server))).await;
        let client = web.client_that_has_read("text-delta").await;
        let since = Instant::now();
        drop(client);
        server.http_server().wait_for_early_close().await;
        times.push(since.elapsed());
    }
    print_median("until the model's server sees it", times);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_stops_the_tools() {
    let mut times = Vec::new();
    for _ in 0..20 {
        let server =
            ModelServer::openai_chat(|_, _| Reply::new().call("wait", json!({}))).await.unwrap();
        let counter = Counter::default();
        let guard = counter.clone();
        let wait = Tool::raw(spec("wait"), move |_, _| {
            let guard = guard.enter();
            async move {
                let () = pending().await;
                drop(guard);
                "never"
            }
        });
        let agent = Agent::new(model(&server)).with_tools([wait.unwrap()]);
        let web = WebServer::start(agent).await;
        let client = web.client_that_has_read("tool-input-available").await;
        while counter.alive_count() == 0 {
            tokio::task::yield_now().await;
        }
        let since = Instant::now();
        drop(client);
        while counter.alive_count() > 0 {
            tokio::task::yield_now().await;
        }
        times.push(since.elapsed());
    }
    print_median("until the tool is dropped", times);
}
