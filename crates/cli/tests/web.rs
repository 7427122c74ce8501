//! The example `web` over HTTP: access, starts of runs, and reconnecting clients. The page itself
//! is tested in a browser, by `crates/browser`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use turnstream::Usage;
use turnstream::item::StopReason;
use turnstream::provider::Reply;
use turnstream_test_support::programs::example_program;
use turnstream_testing::ModelServer;

/// The time limit for each wait.
const LIMIT: Duration = Duration::from_secs(20);

/// The server. Dropping it kills the process.
struct Web {
    process: Child,
    url: String,
    /// The first line that it prints.
    greeting: String,
    client: reqwest::Client,
}

impl Web {
    /// Starts the server with a model that the test controls.
    fn start(model: &ModelServer, flags: &[&str], token: Option<&str>) -> Self {
        let mut command = Command::new(example_program("web"));
        command
            .args(["--port", "0", "--provider", "anthropic", "--base-url", &model.url()])
            .args(flags)
            .env("ANTHROPIC_API_KEY", "key")
            .env_remove("TURNSTREAM_WEB_TOKEN")
            .current_dir(std::env::temp_dir())
            .stdout(Stdio::piped());
        if let Some(token) = token {
            command.env("TURNSTREAM_WEB_TOKEN", token);
        }
        let mut process = command.spawn().unwrap();
        let mut greeting = String::new();
        let mut printed = BufReader::new(process.stdout.take().unwrap());
        printed.read_line(&mut greeting).unwrap();
        let origin = greeting.split_whitespace().next().unwrap_or_default();
        let port = origin.split("/login").next().unwrap().rsplit(':').next().unwrap();
        let url = format!("http://127.0.0.1:{port}");
        std::thread::spawn(move || printed.lines().for_each(drop));
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(LIMIT)
            .build()
            .unwrap();
        Self { process, url, greeting, client }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    async fn get(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> Response {
        json_request(self.request(Method::POST, path), body).send().await.unwrap()
    }

    /// The status for a declared body of this size, which is not sent.
    fn announce(&self, path: &str, size: usize) -> u16 {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let head = "host: localhost\r\ncontent-type: application/json\r\nconnection: close";
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {size}\r\n\r\n").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Waits until no run is active.
    async fn wait_until_idle(&self) {
        let idle = async {
            while json_body(self.get("/health").await).await["runs"] != 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, idle).await.expect("a run does not end");
    }

    /// The kinds and texts of a session's items.
    async fn items(&self, session: &str) -> Vec<(String, String)> {
        let page = json_body(self.get(&format!("/sessions/{session}/messages")).await).await;
        let words = |entry: &Value| {
            let words = entry["text"].as_str().or(entry["content"].as_str()).unwrap_or_default();
            (entry["type"].as_str().unwrap().to_owned(), words.to_owned())
        };
        let messages = page["messages"].as_array().unwrap();
        messages.iter().map(|message| words(&message["entry"])).collect()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn json_request(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

async fn json_body(response: Response) -> Value {
    let text = response.text().await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Reads a stream until it has this text.
async fn read_until(response: &mut Response, wanted: &str) -> String {
    let mut read = String::new();
    while !read.contains(wanted) {
        let chunk = response.chunk().await.unwrap();
        let chunk =
            chunk.unwrap_or_else(|| panic!("the stream has ended without {wanted}: {read}"));
        read.push_str(&String::from_utf8_lossy(&chunk));
    }
    read
}

async fn model(words: &'static str) -> ModelServer {
    ModelServer::start(move |_| Reply::text(words)).await.unwrap()
}

/// A model that sends some text and then nothing, for ever.
async fn silent_model() -> ModelServer {
    ModelServer::start(|_| Reply::text("Some words").hang()).await.unwrap()
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

#[tokio::test]
async fn only_same_origin_pages_may_use_the_server() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &["--allow-origin", "http://localhost:3000/"], None);
    let own_name = web.url.replace("http://127.0.0.1", "localhost");
    for (header, value, expected) in [
        ("host", "attacker.example", 421),
        ("host", "attacker.example:80", 421),
        ("host", "127.0.0.1.attacker.example", 421),
        ("host", own_name.as_str(), 200),
        ("host", "[::1]:80", 200),
        ("origin", "http://attacker.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:3001", 403),
        ("origin", web.url.as_str(), 200),
        ("origin", "http://localhost:3000", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-origin", 200),
    ] {
        for path in ["/", "/about", "/sessions", "/sessions/s/messages"] {
            let response =
                web.request(Method::GET, path).header(header, value).send().await.unwrap();
            assert_eq!(response.status(), expected, "{path}: {header}: {value}");
        }
    }
    let runs = || web.request(Method::POST, "/sessions/s/runs");
    let stranger = json_request(runs(), &text("Hi")).header("origin", "http://attacker.example");
    assert_eq!(stranger.send().await.unwrap().status(), 403);
    assert_eq!(web.items("s").await, []);
    // An allowed page receives permission in the preflight response and in the response itself.
    let asks = web.request(Method::OPTIONS, "/api/chat").header("origin", "http://localhost:3000");
    let asks = asks.header("access-control-request-method", "POST").send().await.unwrap();
    assert_eq!(asks.status(), 204);
    assert_eq!(asks.headers()["access-control-allow-origin"], "http://localhost:3000");
    let other =
        web.request(Method::OPTIONS, "/api/chat").header("origin", "http://attacker.example");
    let other = other.send().await.unwrap();
    assert_eq!(other.status(), 403);
    assert!(!other.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn every_response_has_the_browser_security_headers() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    for path in
        ["/", "/page/main.js", "/about", "/nothing", "/page/../main.rs", "/sessions/s/events"]
    {
        let response = web.get(path).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
        assert!(policy.ends_with("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        assert!(!response.headers().contains_key("access-control-allow-origin"), "{path}");
    }
    // All files that the page requests exist.
    let page = web.get("/").await.text().await.unwrap();
    assert!(!page.contains("<style") && !page.contains("https://"), "{page}");
    let mut files: Vec<String> = vec!["main.js".to_owned()];
    let mut known = files.clone();
    while let Some(file) = files.pop() {
        let response = web.get(&format!("/page/{file}")).await;
        assert_eq!(response.status(), 200, "{file}");
        assert_eq!(response.headers()["content-type"], "text/javascript; charset=utf-8", "{file}");
        for line in response.text().await.unwrap().lines().filter(|line| line.starts_with("import"))
        {
            let name = line.rsplit("'./").next().unwrap().trim_end_matches("';").to_owned();
            if !known.contains(&name) {
                known.push(name.clone());
                files.push(name);
            }
        }
    }
    assert!(known.len() > 10, "{known:?}");
}

#[tokio::test]
async fn each_printed_url_of_a_server_with_a_token_works_once() {
    let model = model("Hello!").await;
    let token = "0123456789abcdef";
    let web = Web::start(&model, &[], Some(token));
    for path in ["/", "/about", "/page/main.js", "/sessions"] {
        assert_eq!(web.get(path).await.status(), 401, "{path}");
    }
    assert_eq!(web.get("/health").await.status(), 200);
    assert_eq!(web.get("/login?code=0123456789abcdef0123456789abcdef").await.status(), 401);
    let login = web.greeting.split_whitespace().next().unwrap();
    let login = login.split_once("/login").unwrap().1;
    let answer = web.get(&format!("/login{login}")).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["location"]),
        (303, &"/".parse().unwrap())
    );
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(web.get(&format!("/login{login}")).await.status(), 401, "the second time");
    let with = async |name: &str, value: &str| {
        let sent = web.request(Method::GET, "/about").header(name, value).send();
        sent.await.unwrap().status().as_u16()
    };
    assert_eq!(with("cookie", cookie).await, 200);
    assert_eq!(with("cookie", &format!("a=b; {cookie}")).await, 200);
    assert_eq!(with("cookie", "turnstream=guess").await, 401);
    assert_eq!(with("authorization", &format!("Bearer {token}")).await, 200);
    assert_eq!(with("authorization", "Bearer 0123456789abcdeg").await, 401);
    assert_eq!(with("authorization", "Bearer ").await, 401);
}

#[tokio::test]
async fn a_body_must_be_json_of_the_right_shape_and_size() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    let send = async |path: &str, media_type: &str, body: String| {
        let request = web.request(Method::POST, path).header("content-type", media_type).body(body);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        assert!(json_body(response).await["error"].is_string(), "{path}");
        status
    };
    let routes = ["runs", "stop", "steer", "approve", "deny", "fork", "regenerate"];
    for route in routes {
        let path = format!("/sessions/s/{route}");
        assert_eq!(send(&path, "text/plain", "{}".to_owned()).await, 415, "{route}");
        let form = "application/x-www-form-urlencoded";
        assert_eq!(send(&path, form, "text=Hi".to_owned()).await, 415, "{route}");
        assert_eq!(send(&path, "application/json", "{".to_owned()).await, 400, "{route}");
        assert_eq!(web.announce(&path, 9 << 20), 413, "{route}");
        let get = web.get(&path).await;
        assert_eq!(get.status(), 405, "{route}");
    }
    let runs = "/sessions/s/runs";
    assert_eq!(send(runs, "application/json", r#"{"text":1}"#.to_owned()).await, 422);
    assert_eq!(send(runs, "application/json", r#"{"text":" "}"#.to_owned()).await, 422);
    assert_eq!(send("/sessions/a%2Fb/runs", "application/json", text("Hi").to_string()).await, 400);
    let long = format!("/sessions/{}/runs", "x".repeat(101));
    assert_eq!(send(&long, "application/json", text("Hi").to_string()).await, 400);
    assert_eq!(json_body(web.get("/sessions").await).await["sessions"], json!([]));
}

#[tokio::test]
async fn a_repeated_idempotency_key_starts_no_second_run() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    let send = async |key: &str, said: &str| {
        let request = web.request(Method::POST, "/sessions/s/runs").header("idempotency-key", key);
        let response = json_request(request, &text(said)).send().await.unwrap();
        (response.status().as_u16(), json_body(response).await)
    };
    let (status, first) = send("k1", "Hi").await;
    assert_eq!(status, 202);
    assert_eq!(send("k1", "Hi").await, (202, first.clone()));
    web.wait_until_idle().await;
    assert_eq!(send("k1", "Hi").await, (202, first.clone()), "after its end");
    assert_eq!(send("k1", "Something else").await.0, 422);
    let (status, second) = send("k2", "Hi").await;
    assert_eq!(status, 202);
    assert_ne!(second, first);
    web.wait_until_idle().await;
    let said = web.items("s").await;
    assert_eq!(said.iter().filter(|(kind, _)| kind == "user").count(), 2, "{said:?}");
}

#[tokio::test]
async fn an_idempotency_key_is_remembered_while_many_other_sessions_are_opened() {
    let model = model("Once.").await;
    // The events of the run, which name its key, are not kept.
    let web = Web::start(&model, &["--keep-events", "0"], None);
    let send = async |said: &str| {
        let request = web.request(Method::POST, "/sessions/s/runs").header("idempotency-key", "k");
        let response = json_request(request, &text(said)).send().await.unwrap();
        (response.status().as_u16(), json_body(response).await)
    };
    let first = send("Hi").await;
    web.wait_until_idle().await;
    for other in 0..300 {
        let opened = web.get(&format!("/sessions/other-{other}/messages")).await;
        assert_eq!(opened.status(), 200);
    }
    assert_eq!(send("Hi").await, first);
    // Only the remembered key knows the message with which it was used.
    assert_eq!(send("Something else").await.0, 422);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_message_to_a_busy_session_is_queued_or_rejected() {
    let model = silent_model().await;
    let web = Web::start(&model, &["--busy", "refuse"], None);
    assert_eq!(web.post("/sessions/s/runs", &text("One")).await.status(), 202);
    assert_eq!(web.post("/sessions/s/runs", &text("Two")).await.status(), 409);
    assert_eq!(web.post("/sessions/other/runs", &text("Two")).await.status(), 202);

    let model = silent_model().await;
    let web = Web::start(&model, &[], None);
    assert_eq!(json_body(web.post("/sessions/s/runs", &text("0")).await).await["is_queued"], false);
    for waiting in 1..=8 {
        let queued =
            json_body(web.post("/sessions/s/runs", &text(&waiting.to_string())).await).await;
        assert_eq!(queued["is_queued"], true);
    }
    assert_eq!(web.post("/sessions/s/runs", &text("9")).await.status(), 429);
    // They start in order, each after the previous one.
    for waiting in 1..=8 {
        assert_eq!(web.post("/sessions/s/stop", &json!({})).await.status(), 200);
        let begun = async {
            while web.items("s").await.iter().all(|(_, words)| *words != waiting.to_string()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LIMIT, begun).await.expect("the next one does not begin");
    }
    let said = web.items("s").await;
    let said: Vec<&str> =
        said.iter().filter(|(kind, _)| kind == "user").map(|(_, words)| &**words).collect();
    assert_eq!(said, ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
}

#[tokio::test]
async fn a_command_without_an_active_run_is_refused() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    let call = json!({ "call": { "call_id": "c", "name": "n", "arguments": "{}" } });
    let commands = [
        ("regenerate", json!({})),
        ("stop", json!({})),
        ("steer", text("Hi")),
        ("approve", call.clone()),
        ("deny", call),
        ("runs", json!({})),
    ];
    let refuses = async |route: &str, sent: &Value, status: u16| {
        let response = web.post(&format!("/sessions/s/{route}"), sent).await;
        assert_eq!(response.status(), status, "{route}");
        assert!(json_body(response).await["error"].is_string(), "{route}");
    };
    for (route, sent) in &commands {
        refuses(route, sent, 404).await;
    }
    web.post("/sessions/s/runs", &text("Hi")).await;
    web.wait_until_idle().await;
    for (route, sent) in &commands[1..] {
        refuses(route, sent, 409).await;
    }
}

#[tokio::test]
async fn only_a_pending_call_can_be_approved_and_with_its_own_arguments() {
    let model = ModelServer::start(|_| {
        Reply::new().call_raw("c1", "write_file", r#"{"path":"never-written.txt","text":"x"}"#)
    });
    let model = model.await.unwrap();
    let web = Web::start(&model, &[], None);
    web.post("/sessions/s/runs", &text("Write")).await;
    web.wait_until_idle().await;
    let call = |id: &str, arguments: &str| json!({ "call": { "call_id": id, "name": "write_file", "arguments": arguments } });
    let other = call("c1", r#"{"path":"other.txt","text":"x"}"#);
    assert_eq!(web.post("/sessions/s/approve", &other).await.status(), 409);
    assert_eq!(web.post("/sessions/s/approve", &call("c2", "{}")).await.status(), 409);
    let page = json_body(web.get("/sessions/s/messages").await).await;
    assert_eq!(page["state"], "pending");
    assert!(!std::env::temp_dir().join("never-written.txt").exists());
}

#[tokio::test]
async fn the_grants_of_a_session_are_listed_and_revoked_between_runs_and_during_a_run() {
    let file = format!("turnstream-web-grants-{}.txt", std::process::id());
    let arguments = json!({ "path": file, "text": "x" }).to_string();
    let model = ModelServer::start(move |request| {
        let messages = request.body["messages"].as_array().unwrap();
        let content = &messages.last().unwrap()["content"];
        // A run that was stopped before any text leaves its prompt in the same message.
        let last =
            content.as_array().and_then(|blocks| blocks.last()).unwrap_or(content).to_string();
        match last.contains("tool_result") {
            _ if last.contains("Wait") => Reply::text("So it begins").hang(),
            true => Reply::text("Written."),
            false => {
                Reply::new().call_raw(&format!("c{}", messages.len()), "write_file", &arguments)
            }
        }
    });
    let model = model.await.unwrap();
    let web = Web::start(&model, &[], None);
    let say = async |words: &str| {
        assert_eq!(web.post("/sessions/s/runs", &text(words)).await.status(), 202);
    };
    let waiting_call = async || {
        web.wait_until_idle().await;
        let page = json_body(web.get("/sessions/s/messages").await).await;
        let entry = page["messages"].as_array().unwrap().last().unwrap()["entry"].clone();
        (page["state"] == "pending").then(|| entry["calls"][0].clone())
    };
    let grants = async || json_body(web.get("/sessions/s/grants").await).await["grants"].take();
    let allow = async |call: &Value| {
        let always = json!({ "scope": "any_arguments", "duration": "session" });
        let verdict = json!({ "call": call, "always": always });
        assert_eq!(web.post("/sessions/s/approve", &verdict).await.status(), 202);
        assert_eq!(waiting_call().await, None);
        assert_eq!(grants().await[0]["tool"], "write_file");
    };
    let revoke = async |id: &Value| {
        let revoked = web.post("/sessions/s/grants/revoke", &json!({ "grant_id": id })).await;
        (revoked.status().as_u16(), json_body(revoked).await)
    };
    let unknown = (409, json!({ "error": "there is no grant with this id" }));
    assert_eq!(grants().await, json!([]));
    assert_eq!(revoke(&json!("a")).await.0, 404);

    say("Write").await;
    assert_eq!(revoke(&json!("a")).await.0, 409);
    allow(&waiting_call().await.unwrap()).await;
    say("Write again").await;
    assert_eq!(waiting_call().await, None);
    let id = grants().await[0]["id"].take();
    assert_eq!(revoke(&id).await, (200, json!({})));
    assert_eq!(grants().await, json!([]));
    assert_eq!(revoke(&id).await, unknown);

    say("Write once more").await;
    allow(&waiting_call().await.unwrap()).await;
    say("Wait").await;
    let id = grants().await[0]["id"].take();
    assert_eq!(revoke(&json!("a")).await, unknown);
    assert_eq!(revoke(&id).await, (200, json!({})));
    web.post("/sessions/s/stop", &json!({})).await;
    web.wait_until_idle().await;
    assert_eq!(grants().await, json!([]));
    say("Write for the last time").await;
    assert!(waiting_call().await.is_some());
    std::fs::remove_file(std::env::temp_dir().join(file)).unwrap();
}

#[tokio::test]
async fn a_message_gives_up_a_waiting_call_only_if_it_says_so() {
    let model =
        ModelServer::start(|request| match request.body.to_string().contains("tool_result") {
            true => Reply::text("Fine."),
            false => {
                let arguments = r#"{"path":"never-written.txt","text":"x"}"#;
                Reply::new().call_raw("c1", "write_file", arguments)
            }
        });
    let model = model.await.unwrap();
    let web = Web::start(&model, &[], None);
    web.post("/sessions/s/runs", &text("Write")).await;
    web.wait_until_idle().await;
    let waiting = web.items("s").await;
    let refused = web.post("/sessions/s/runs", &text("Never mind")).await;
    assert_eq!(refused.status(), 409);
    assert_eq!(json_body(refused).await["waiting_calls"], 1);
    assert_eq!(web.items("s").await, waiting);
    let sent =
        |waiting_calls: &str| json!({ "text": "Never mind", "waiting_calls": waiting_calls });
    assert_eq!(web.post("/sessions/s/runs", &sent("drop")).await.status(), 422);
    assert_eq!(web.post("/sessions/s/runs", &sent("give_up")).await.status(), 202);
    web.wait_until_idle().await;
    let said: Vec<String> = web.items("s").await.into_iter().map(|(_, words)| words).collect();
    assert_eq!(said[said.len() - 2..], ["Never mind", "Fine."]);
    assert!(!std::env::temp_dir().join("never-written.txt").exists());
}

#[tokio::test]
async fn the_ends_of_runs_are_returned_with_their_last_messages() {
    let model = ModelServer::start(|request| {
        let usage = Usage { input_tokens: 10, output_tokens: 2, ..Usage::default() };
        match request.body.to_string().contains("Bad") {
            true => Reply::text("No.").usage(usage).stop(StopReason::Refusal),
            false => Reply::text("Hello, all of you!").usage(usage),
        }
    });
    let model = model.await.unwrap();
    let web = Web::start(&model, &[], None);
    for said in ["Good", "Bad"] {
        web.post("/sessions/s/runs", &text(said)).await;
        web.wait_until_idle().await;
    }
    let ends = async |path: &str| {
        let page = json_body(web.get(&format!("/sessions/{path}")).await).await;
        let end = |end: &Value| {
            let outcome = &end["outcome"];
            let reason = outcome["reason"].as_str().unwrap_or_default().to_owned();
            (
                end["at"].as_u64().unwrap(),
                reason,
                outcome["usage"]["input_tokens"].as_u64().unwrap(),
            )
        };
        page["ends"].as_array().unwrap().iter().map(end).collect::<Vec<_>>()
    };
    let all = [(2, "completed".to_owned(), 10), (4, "refused".to_owned(), 10)];
    assert_eq!(ends("s/messages").await, all);
    assert_eq!(ends("s/messages?before=2").await, all[..1]);
    assert_eq!(ends("s/messages?before=1").await, []);
    assert_eq!(ends("s/messages?limit=1").await, all[1..]);
    // No run of the copy was observed: its messages show how they ended.
    let fork = json_body(web.post("/sessions/s/fork", &json!({})).await).await;
    let fork = fork["session"].as_str().unwrap();
    assert_eq!(ends(&format!("{fork}/messages")).await, all);
}

#[tokio::test]
async fn messages_are_paged_and_sessions_listed() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    for said in ["One", "Two"] {
        web.post("/sessions/s/runs", &text(said)).await;
        web.wait_until_idle().await;
    }
    let page = json_body(web.get("/sessions/s/messages?before=3&limit=2").await).await;
    let numbers: Vec<u64> = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert_eq!((numbers, &page["total"]), (vec![1, 2], &json!(4)));
    let fork = json_body(web.post("/sessions/s/fork", &json!({ "at": 2 })).await).await;
    let fork = fork["session"].as_str().unwrap();
    assert_eq!(web.items(fork).await, web.items("s").await[..2]);
    assert_eq!(web.post("/sessions/s/fork", &json!({ "at": 5 })).await.status(), 409);
    let list = json_body(web.get("/sessions").await).await;
    let listed = list["sessions"].as_array().unwrap();
    let forks: Vec<&Value> = listed.iter().map(|it| &it["forked_from"]).collect();
    assert_eq!(
        (forks, listed[0]["title"].as_str()),
        (vec![&json!("s"), &Value::Null], Some("One"))
    );
    let trace = json_body(web.get("/sessions/s/trace").await).await;
    assert_eq!(trace[0]["steps"][0]["action"]["stop_reason"], "completed");
}

#[tokio::test]
async fn a_reconnecting_reader_continues_after_its_last_event() {
    let model = silent_model().await;
    let web = Web::start(&model, &[], None);
    web.post("/sessions/s/runs", &text("Hi")).await;
    let mut first = web.get("/sessions/s/events").await;
    let read = read_until(&mut first, "words").await;
    drop(first);
    let ids: Vec<&str> = read.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let again = web.request(Method::GET, "/sessions/s/events");
    let mut again = again.header("last-event-id", ids[ids.len() - 2]).send().await.unwrap();
    let read_again = read_until(&mut again, "\"words\"").await;
    assert!(!read_again.contains("snapshot") && !read_again.contains("Some"), "{read_again}");
    // A number of another run is treated like a removed one.
    let mut other = web.get("/sessions/s/events?after=5f0c.1-42").await;
    let other = read_until(&mut other, "words").await;
    assert!(other.contains(r#"{"type":"snapshot""#), "{other}");
    assert_eq!(json_body(web.get("/health").await).await["runs"], 1, "readers do not end it");
}

fn chat(said: &str) -> Value {
    let part = json!({ "type": "text", "text": said });
    let message = json!({ "id": "u", "role": "user", "parts": [part] });
    json!({ "id": "chat", "trigger": "submit-message", "messages": [message] })
}

#[tokio::test]
async fn an_ai_sdk_client_that_disconnects_can_resume_its_run() {
    let model = silent_model().await;
    let web = Web::start(&model, &[], None);
    let mut stream = web.post("/api/chat?version=7", &chat("Hi")).await;
    assert_eq!(stream.headers()["x-vercel-ai-ui-message-stream"], "v1");
    let begun = read_until(&mut stream, "words").await;
    drop(stream);
    let mut again = web.get("/api/chat/chat/stream?version=7").await;
    let replayed = read_until(&mut again, "words").await;
    let start =
        |read: &str| read.lines().find(|line| line.contains("\"start\"")).unwrap().to_owned();
    assert_eq!(start(&begun), start(&replayed), "it is the same message");
    assert_eq!(web.get("/api/chat/chat/stream?version=6").await.status(), 204);
    assert_eq!(web.post("/api/chat", &chat("Hi")).await.status(), 409, "it is busy");
    assert_eq!(web.post("/api/chat/chat/stop", &json!({})).await.status(), 204);
    let rest = again.text().await.unwrap();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    web.wait_until_idle().await;
    let messages = json_body(web.get("/api/chat/chat/messages").await).await;
    assert_eq!(messages.as_array().unwrap().len(), 2, "{messages}");
    assert!(start(&begun).contains(messages[1]["id"].as_str().unwrap()), "{begun} {messages}");
    assert_eq!(web.get("/api/chat/chat/stream?version=7").await.status(), 204, "it has ended");
}

#[tokio::test]
async fn a_regenerated_answer_replaces_the_first() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    web.post("/api/chat", &chat("Hi")).await.text().await.unwrap();
    web.wait_until_idle().await;
    let messages = json_body(web.get("/api/chat/chat/messages").await).await;
    let id = messages[1]["id"].clone();
    let again = json!({ "id": "chat", "trigger": "regenerate-message", "messageId": id,
        "messages": [messages[0]] });
    let stream = web.post("/api/chat", &again).await;
    assert_eq!(stream.status(), 200);
    let stream = stream.text().await.unwrap();
    assert!(stream.contains("Hello!"));
    web.wait_until_idle().await;
    let messages = json_body(web.get("/api/chat/chat/messages").await).await;
    assert_eq!(messages.as_array().unwrap().len(), 2, "{messages}");
    assert_ne!(messages[1]["id"], id);
    assert!(stream.contains(&format!("\"messageId\":{}", messages[1]["id"])), "{stream}");
    // The model received the same question, without its first answer.
    let requests = model.requests();
    assert_eq!(requests[1]["messages"], requests[0]["messages"]);
}

#[tokio::test]
async fn an_ag_ui_client_is_answered_with_its_own_ids() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    let asked = json!({ "threadId": "thread", "runId": "r1", "state": null, "tools": [], "context": [],
        "forwardedProps": null, "messages": [{ "id": "1", "role": "user", "content": "Hi" }] });
    let stream = web.post("/ag-ui", &asked).await.text().await.unwrap();
    assert!(
        stream.contains(r#""type":"RUN_STARTED","threadId":"thread","runId":"r1""#),
        "{stream}"
    );
    assert!(stream.contains(r#""type":"RUN_FINISHED""#) && stream.contains("Hello!"), "{stream}");
    let expected = [("user", "Hi"), ("text", "Hello!")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(web.items("thread").await, expected);
    let form = web.request(Method::POST, "/ag-ui").body("threadId=x").send().await.unwrap();
    assert_eq!(form.status(), 415);
}

#[tokio::test]
async fn connections_beyond_the_servers_limit_are_rejected() {
    let model = model("Hello!").await;
    let web = Web::start(&model, &[], None);
    let mut pages = Vec::new();
    for _ in 0..512 {
        let mut page = web.get("/sessions/s/events").await;
        read_until(&mut page, "snapshot").await;
        pages.push(page);
    }
    assert_eq!(web.get("/sessions/s/events").await.status(), 429);
    drop(pages);
    let room = async {
        while web.get("/sessions/s/events").await.status() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, room).await.expect("there is room again");
}

#[cfg(unix)]
#[tokio::test]
async fn stopping_the_server_keeps_partial_text() {
    let folder = std::env::temp_dir().join(format!("example-web-{}", std::process::id()));
    let model = silent_model().await;
    let flags = ["--session", folder.to_str().unwrap()];
    let mut web = Web::start(&model, &flags, None);
    web.post("/sessions/s/runs", &text("Hi")).await;
    let mut events = web.get("/sessions/s/events").await;
    read_until(&mut events, "words").await;
    let process = web.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    let rest = events.text().await.unwrap();
    assert!(rest.contains("\"reason\":\"interrupted\"") || rest.contains("interrupted"), "{rest}");
    assert!(rest.contains("event: shutting_down"), "{rest}");
    let status = tokio::task::spawn_blocking(move || web.process.wait().unwrap()).await.unwrap();
    assert!(status.success(), "{status}");
    let web = Web::start(&model, &flags, None);
    let items = web.items("s").await;
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(items[1], ("text".to_owned(), "Some words".to_owned()), "{items:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_second_signal_ends_the_program_with_exit_code_130() {
    let model = silent_model().await;
    let mut web = Web::start(&model, &[], None);
    web.post("/sessions/s/runs", &text("Hi")).await;
    let process = web.process.id().to_string();
    let terminate = || Command::new("kill").args(["-TERM", &process]).status().unwrap();
    assert!(terminate().success());
    // The run is interrupted after two seconds. Until then, new runs are refused.
    let refused = async {
        while web.post("/sessions/t/runs", &text("Hi")).await.status() != 503 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, refused).await.expect("the server does not shut down");
    assert!(terminate().success());
    let status = tokio::task::spawn_blocking(move || web.process.wait().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(130));
}

#[cfg(target_os = "linux")]
#[test]
fn an_address_that_this_machine_does_not_have_is_named_with_its_port() {
    // The address is reserved for documentation.
    let mut web = Command::new(example_program("web"));
    let output = web.args(["--provider", "offline", "--host", "192.0.2.1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot listen on 192.0.2.1:8600: "), "{said}");
}

#[test]
fn bad_usage_is_one_line_and_exit_code_2() {
    let program = example_program("web");
    for (words, wrong) in [
        (&["--nonsense"][..], "`--nonsense`"),
        (&["--port", "many"], "not `many`"),
        (&["--host", "everywhere"], "`--host` needs an address"),
        (&["--busy", "maybe"], "queue or refuse"),
        (&["--allow-origin", "localhost"], "`--allow-origin` needs an origin"),
        (&["--allow-origin", "http://a/b"], "`--allow-origin` needs an origin"),
        (&["--price", "3"], "`--price` needs two numbers"),
        (&["--max-cost", "1"], "needs `--price`"),
        (&["--json"], "`--json` is for `turnstream`"),
        (&["--mcp", "a", "--no-tools"], "`--mcp` is for `turnstream`"),
        (&["--store", "mysql://a"], "`--store` needs "),
        (&["--events", "http://a"], "`--events` needs "),
        (&["a prompt"], "prompts are written on the page"),
        (&["--session"], "needs a value"),
    ] {
        let output = Command::new(&program).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains(wrong), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    }
    let help = Command::new(program).arg("--help").output().unwrap();
    assert!(help.status.success() && help.stdout.starts_with(b"A chat in the browser"));
}
