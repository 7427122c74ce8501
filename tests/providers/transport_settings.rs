//! Transport settings of any provider: headers, keys, proxies, the HTTP client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use turnstream::error::AuthProblem;
use turnstream::http::{HttpClient, reqwest};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Anthropic, Gemini, OpenAiChat, OpenAiResponses, Provider, Reply};
use turnstream::stream::TurnStreamExt;
use turnstream::turn::Turn;
use turnstream::{Error, ErrorKind, History, Item, Request};
use turnstream_testing::ModelServer;
use turnstream_testing::http::{HttpRequest, HttpResponse, LoopbackServer};

use crate::over_http::API_KEY;

async fn request_turn(model: &dyn Provider) -> Result<Arc<Turn>, Error> {
    request_turn_with(model, vec![Item::user("hi")]).await
}

async fn request_turn_with(model: &dyn Provider, items: Vec<Item>) -> Result<Arc<Turn>, Error> {
    model.stream_turn(Request::new(History::from_items("h", items))).into_turn().await
}

/// A provider of each wire, with these settings.
macro_rules! each {
    (|$model:ident| $settings:expr) => {{
        let all: Vec<Box<dyn Provider>> = vec![
            {
                let $model = Anthropic::new("claude-x");
                Box::new($settings)
            },
            {
                let $model = OpenAiChat::new("gpt-x");
                Box::new($settings)
            },
            {
                let $model = OpenAiResponses::new("o-x");
                Box::new($settings)
            },
            {
                let $model = Gemini::new("gemini-2.5-x");
                Box::new($settings)
            },
        ];
        all
    }};
}

/// A server that records its requests and refuses each of them.
async fn refusing_server(status: u16) -> LoopbackServer {
    let body = r#"{"error":{"message":"no"}}"#;
    LoopbackServer::start(move |_| HttpResponse::text(status, body)).await.unwrap()
}

fn last_request(server: &LoopbackServer) -> HttpRequest {
    server.requests().pop().expect("a request")
}

#[tokio::test]
async fn a_custom_header_is_sent_by_every_provider_and_replaces_one_of_the_same_name() {
    let server = refusing_server(400).await;
    for model in each!(|m| m
        .with_base_url(server.url())
        .unwrap()
        .with_api_key(API_KEY)
        .with_header("X-Gateway", "first")
        .with_header("x-gateway", "second")
        .with_header("anthropic-version", "2030-01-01"))
    {
        request_turn(&*model).await.unwrap_err();
        let request = last_request(&server);
        let sent = |name: &str| -> Vec<String> {
            let named = request.headers.iter().filter(|(known, _)| known == name);
            named.map(|(_, value)| value.clone()).collect()
        };
        assert_eq!(sent("x-gateway"), ["second"]);
        assert_eq!(sent("anthropic-version"), ["2030-01-01"]);
    }
}

#[tokio::test]
async fn a_custom_header_with_the_keys_name_replaces_the_key() {
    let server = refusing_server(400).await;
    let chat = OpenAiChat::new("m").with_base_url(server.url()).unwrap().with_api_key(API_KEY);
    request_turn(&chat.with_header("Authorization", "Bearer of-the-gateway")).await.unwrap_err();
    assert_eq!(last_request(&server).header("authorization"), Some("Bearer of-the-gateway"));
    let anthropic = Anthropic::new("m").with_base_url(server.url()).unwrap().with_api_key(API_KEY);
    request_turn(&anthropic.with_header("x-api-key", "of-the-gateway")).await.unwrap_err();
    assert_eq!(last_request(&server).header("x-api-key"), Some("of-the-gateway"));
}

#[tokio::test]
async fn headers_with_secret_sounding_names_are_treated_as_secrets() {
    let refused = async |name: &str| {
        let model = Anthropic::new("m").with_base_url("http://gpu.invalid").unwrap();
        let model = model.without_retries().with_header(name, "some-value");
        request_turn(&model).await.unwrap_err().kind() == ErrorKind::InvalidRequest
    };
    for name in
        ["x-portkey-api-key", "Cookie", "cf-access-client-secret", "x-jwt-assertion", "X-Bearer"]
    {
        assert!(refused(name).await, "{name}");
    }
    for name in ["x-portkey-provider", "x-max-tokens", "x-author", "x-keyword", "idempotency-key"] {
        assert!(!refused(name).await, "{name}");
        // It does not replace a key at the vendor either.
        let error =
            request_turn(&Anthropic::new("m").with_header(name, "some-value")).await.unwrap_err();
        assert_eq!(error.auth_problem(), Some(AuthProblem::MissingKey), "{name}");
    }
}

#[tokio::test]
async fn invalid_headers_are_rejected_before_any_request() {
    let server = refusing_server(400).await;
    for (name, value) in
        [("a b", "c"), ("", "c"), ("x-a", "b\nc"), ("Content-Type", "text/plain"), ("accept", "*")]
    {
        let models = each!(|m| m.with_base_url(server.url()).unwrap().with_header(name, value));
        for model in models {
            let error = request_turn(&*model).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}: {error}");
        }
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_secret_header_never_appears_in_errors_or_debug_output() {
    let server = LoopbackServer::start(|request| {
        let told = request.header("x-portkey-api-key").unwrap_or_default().to_owned();
        let token = request.header("authorization").unwrap_or_default().to_owned();
        HttpResponse::text(400, format!("not `{told}` and `{token}`"))
    })
    .await
    .unwrap();
    let models = each!(|m| m
        .with_base_url(server.url())
        .unwrap()
        .with_header("x-portkey-api-key", "pk-hunter22hunter22")
        .with_header("authorization", "Bearer tok-hunter33hunter33"));
    for model in models {
        let error = request_turn(&*model).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
    }
    // If a value contains several secrets, each is hidden; short texts are not.
    let echo =
        LoopbackServer::start(|_| HttpResponse::text(400, "no session hunter22session, beta"));
    let echo = echo.await.unwrap();
    let model = Anthropic::new("m").with_base_url(format!("{}?mode=beta", echo.url())).unwrap();
    let error = request_turn(&model.with_header("cookie", "a=b; session=hunter22session"))
        .await
        .unwrap_err();
    assert!(error.message().ends_with("no session …, beta"), "{error}");
    let model = Anthropic::new("m").with_header("x-api-key", "sk-hunter22hunter22");
    assert!(!format!("{model:?}").contains("hunter"), "{model:?}");
}

#[tokio::test]
async fn a_missing_key_for_the_vendors_own_url_is_an_error_before_any_request() {
    for model in each!(|m| m) {
        let error = request_turn(&*model).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
        assert_eq!(error.auth_problem(), Some(AuthProblem::MissingKey));
        assert!(error.message().ends_with("needs a key, and none is set"), "{error}");
        assert!(!error.is_retryable() && error.status().is_none());
    }
    let error =
        request_turn(&OpenAiChat::new("m").with_dialect(Dialect::DEEPSEEK)).await.unwrap_err();
    assert_eq!(error.message(), "api.deepseek.com needs a key, and none is set");
    let error = request_turn(&Anthropic::new("m").with_api_key("")).await.unwrap_err();
    assert_eq!(error.auth_problem(), Some(AuthProblem::MissingKey));
    // On other servers, no key means no authorization header.
    let server = refusing_server(400).await;
    for model in each!(|m| m.with_base_url(server.url()).unwrap()) {
        request_turn(&*model).await.unwrap_err();
        for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key"] {
            assert_eq!(last_request(&server).header(name), None);
        }
    }
}

#[tokio::test]
async fn a_key_is_sent_over_plain_http_only_to_localhost_unless_allowed() {
    let server = refusing_server(400).await;
    let port = server.url().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let http = HttpClient::from_builder(move |client| client.resolve("gpu.example", address));
    let url = format!("http://gpu.example:{port}");
    let refused = |error: Error| {
        assert_eq!(
            (error.kind(), error.parameter()),
            (ErrorKind::InvalidRequest, Some("base_url"))
        );
        assert!(error.message().contains("allow_plain_http"), "{error}");
        assert!(!format!("{error:?}").contains(API_KEY));
    };
    let models = each!(|m| m
        .with_http_client(http.clone())
        .with_base_url(&url)
        .unwrap()
        .with_api_key(API_KEY));
    for model in models {
        refused(request_turn(&*model).await.unwrap_err());
    }
    let models = each!(|m| m
        .with_http_client(http.clone())
        .with_base_url(&url)
        .unwrap()
        .with_header("x-token", "t-12345678"));
    for model in models {
        refused(request_turn(&*model).await.unwrap_err());
    }
    let named = format!("http://me:hunter22@gpu.example:{port}?key=k-12345678");
    let model = Anthropic::new("m").with_http_client(http.clone()).with_base_url(named).unwrap();
    refused(request_turn(&model).await.unwrap_err());
    assert!(server.requests().is_empty());
    // Allowed explicitly, or without a secret.
    let models = each!(|m| m
        .with_http_client(http.clone())
        .with_base_url(&url)
        .unwrap()
        .with_api_key(API_KEY)
        .allow_plain_http());
    for model in models {
        assert_eq!(request_turn(&*model).await.unwrap_err().status(), Some(400));
    }
    for model in each!(|m| m.with_http_client(http.clone()).with_base_url(&url).unwrap()) {
        assert_eq!(request_turn(&*model).await.unwrap_err().status(), Some(400));
    }
    let hosts = ["localhost", "127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"];
    // On Windows, a socket cannot connect to the other two addresses.
    let hosts = if cfg!(windows) { &hosts[..2] } else { &hosts };
    for host in hosts {
        let url = format!("http://{host}:{port}");
        let model = Anthropic::new("m").with_base_url(url).unwrap().with_api_key(API_KEY);
        assert_eq!(request_turn(&model).await.unwrap_err().status(), Some(400), "{host}");
    }
}

#[tokio::test]
async fn a_client_is_customized_once_per_runtime_and_never_follows_redirects() {
    let target = refusing_server(400).await;
    let to = target.url();
    let server = LoopbackServer::start(move |_| HttpResponse {
        headers: vec![("location".to_owned(), to.clone())],
        ..HttpResponse::text(307, "")
    })
    .await
    .unwrap();
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let http = HttpClient::from_builder(move |client| {
        counted.fetch_add(1, Ordering::Relaxed);
        client.user_agent("mine/1").redirect(reqwest::redirect::Policy::limited(9))
    });
    assert_eq!(called.load(Ordering::Relaxed), 0, "before the first request");
    let models = each!(|m| m.with_http_client(http.clone()).with_base_url(server.url()).unwrap());
    for model in &models {
        assert_eq!(request_turn(&**model).await.unwrap_err().status(), Some(307));
        assert_eq!(last_request(&server).header("user-agent"), Some("mine/1"));
    }
    assert_eq!(called.load(Ordering::Relaxed), 1);
    assert!(target.requests().is_empty());
    let url = server.url();
    let elsewhere = tokio::task::spawn_blocking(move || {
        let model = Anthropic::new("m").with_http_client(http).with_base_url(url).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(request_turn(&model)).unwrap_err()
    });
    assert_eq!(elsewhere.await.unwrap().status(), Some(307));
    assert_eq!(called.load(Ordering::Relaxed), 2, "once for each runtime");
}

#[tokio::test]
async fn a_customization_that_panics_is_an_error_of_the_turn() {
    let server = refusing_server(400).await;
    let http = HttpClient::from_builder(|_| panic!("no good"));
    let model = Anthropic::new("m").with_http_client(http).with_base_url(server.url()).unwrap();
    let error = request_turn(&model.without_retries()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic, "{error:?}");
    assert!(error.message().contains("no good"));
}

/// An address without a listener.
fn unused_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A client with this proxy for all requests.
fn proxied_client(proxy: &str) -> HttpClient {
    let proxy = reqwest::Proxy::all(proxy).unwrap();
    HttpClient::from_builder(move |client| client.proxy(proxy.clone()))
}

fn proxied_model(proxy: &str, url: &str) -> Anthropic {
    let model =
        Anthropic::new("m").with_http_client(proxied_client(proxy)).with_base_url(url).unwrap();
    model.without_retries()
}

#[tokio::test]
async fn an_error_of_a_proxy_names_the_proxy_and_not_its_password() {
    let proxy = unused_url();
    let with_password = proxy.replace("http://", "http://me:hunter22@");
    for url in ["http://gateway.example", "https://gateway.example"] {
        let error = request_turn(&proxied_model(&with_password, url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect, "{error:?}");
        assert!(error.message().contains(&format!("the proxy {proxy}")), "{error}");
        assert!(error.message().contains("gateway.example"), "{error}");
        assert!(!format!("{error:?}").contains("hunter22"), "{error:?}");
    }
    // The proxy's own error.
    let refuses = refusing_server(407).await;
    let error =
        request_turn(&proxied_model(&refuses.url(), "http://gateway.example")).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Auth, Some(407)));
    let says = format!("the proxy {} answered with status 407", refuses.url());
    assert!(error.message().starts_with(&says), "{error}");
    for status in [403, 407, 502] {
        let refuses = refusing_server(status).await;
        let error = request_turn(&proxied_model(&refuses.url(), "https://gateway.example"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect, "{error:?}");
        let says = format!("the proxy {} did not connect to gateway.example", refuses.url());
        assert!(error.message().starts_with(&says), "{error}");
    }
}

#[tokio::test]
async fn errors_name_a_proxy_only_if_the_request_used_it() {
    let nowhere = unused_url();
    let message = async |customize: fn(reqwest::ClientBuilder, &str) -> reqwest::ClientBuilder,
                         url: &str| {
        let proxy = nowhere.clone();
        let http = HttpClient::from_builder(move |client| customize(client, &proxy));
        let model = Anthropic::new("m").with_http_client(http).with_base_url(url).unwrap();
        request_turn(&model.without_retries()).await.unwrap_err().message().to_owned()
    };
    let http_only = |client: reqwest::ClientBuilder, proxy: &str| {
        client.proxy(reqwest::Proxy::http(proxy).unwrap()).user_agent("bot (+http://bot.example/a)")
    };
    let said = message(http_only, "http://gpu.invalid").await;
    assert!(said.contains(&format!("gpu.invalid through the proxy {nowhere}:")), "{said}");
    let said = message(http_only, "https://gpu.invalid").await;
    assert!(!said.contains("proxy"), "{said}");
    let exempt = |client: reqwest::ClientBuilder, proxy: &str| {
        let exempt = reqwest::NoProxy::from_string("gpu.invalid");
        client.proxy(reqwest::Proxy::all(proxy).unwrap().no_proxy(exempt))
    };
    assert!(!message(exempt, "https://gpu.invalid").await.contains("proxy"));
    let none = |client: reqwest::ClientBuilder, _: &str| client.no_proxy();
    assert!(!message(none, "https://gpu.invalid").await.contains("proxy"));
}

#[tokio::test]
async fn requests_to_localhost_bypass_the_proxy() {
    let server = refusing_server(400).await;
    for url in [server.url(), server.url().replace("127.0.0.1", "localhost")] {
        let error = request_turn(&proxied_model(&unused_url(), &url)).await.unwrap_err();
        assert_eq!(error.status(), Some(400), "{error}");
    }
}

// ---- Behaviour that depends on the vendor's own address

/// The vendor's server, simulated on this machine, and the requests that it received.
async fn vendor_server(
    reply: impl Fn() -> Reply + Send + Sync + 'static,
) -> (ModelServer, Anthropic) {
    let server = ModelServer::anthropic(move |_, _| reply()).await.unwrap().lenient();
    let port = server.url().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let http = HttpClient::from_builder(move |client| client.resolve("api.anthropic.com", address));
    let model = Anthropic::new("claude-fable-5-1").with_http_client(http).with_api_key(API_KEY);
    let model = model.with_base_url(format!("http://api.anthropic.com:{port}")).unwrap();
    (server, model.allow_plain_http())
}

/// A user message, a turn with signed reasoning, and another user message.
async fn history_with_thoughts(model: &Anthropic) -> Vec<Item> {
    let turn = request_turn(model).await.unwrap();
    let mut items = vec![Item::user("hi")];
    items.extend(turn.to_history_items());
    items.push(Item::user("go on"));
    items
}

#[tokio::test]
async fn stale_reasoning_is_dropped_by_the_vendor_unless_disabled() {
    use turnstream::request::{Options, Reasoning};
    let (server, model) = vendor_server(|| Reply::new().think("hm").say("hi")).await;
    let items = history_with_thoughts(&model).await;
    let asked = Mutex::new(0);
    let binding = async |model: &Anthropic, items: Vec<Item>, options: Options| {
        let request = Request::new(History::from_items("h", items)).with_options(options);
        model.stream_turn(request).into_turn().await.unwrap();
        *asked.lock().unwrap() += 1;
        server.requests().pop().unwrap()["thinking"].clone()
    };
    let drop = serde_json::json!({ "prefix_mismatch_behavior": "drop_block" });
    let options = |reasoning| Options { reasoning, ..Options::default() };
    // Without any reasoning, the field is left out.
    let first = binding(&model, vec![Item::user("x")], options(None)).await;
    assert!(first.is_null(), "{first}");
    let by_default = binding(&model, items.clone(), options(None)).await;
    assert_eq!(by_default, serde_json::json!({ "type": "adaptive", "block_binding": drop }));
    let budget = options(Some(Reasoning::Budget(2048)));
    assert_eq!(binding(&model, items.clone(), budget).await["block_binding"], drop);
    let off = binding(&model, items.clone(), options(Some(Reasoning::Off))).await;
    assert_eq!(off, serde_json::json!({ "type": "disabled" }));
    let mut own = options(None);
    own.extra.insert("thinking".into(), serde_json::json!({ "type": "adaptive" }));
    assert!(binding(&model, items.clone(), own).await["block_binding"].is_null());
    let unasked = model.clone().without_drop_block();
    assert!(binding(&unasked, items.clone(), options(None)).await.is_null());
    // Another vendor's server may not know the field.
    let elsewhere = Anthropic::new("claude-fable-5-1").with_base_url(server.url()).unwrap();
    assert!(binding(&elsewhere, items, options(None)).await.is_null());
}

#[tokio::test]
async fn the_drop_block_beta_header_is_merged_with_configured_betas() {
    let server = refusing_server(400).await;
    let port = server.url().rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let http = HttpClient::from_builder(move |client| client.resolve("api.anthropic.com", address));
    let model = Anthropic::new("claude-fable-5-1").with_http_client(http).with_api_key(API_KEY);
    let model = model.with_base_url(format!("http://api.anthropic.com:{port}")).unwrap();
    let model = model.allow_plain_http().with_beta("one-2026-01-01").with_beta("one-2026-01-01");
    let (_thinker, thinking) = vendor_server(|| Reply::new().think("hm").say("hi")).await;
    let items = history_with_thoughts(&thinking).await;
    request_turn(&model).await.unwrap_err();
    assert_eq!(last_request(&server).header("anthropic-beta"), Some("one-2026-01-01"));
    request_turn_with(&model, items).await.unwrap_err();
    let both = "one-2026-01-01,thinking-binding-controls-2026-08-01";
    assert_eq!(last_request(&server).header("anthropic-beta"), Some(both));
}
