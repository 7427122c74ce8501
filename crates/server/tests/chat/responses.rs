//! The responses that do not depend on a session: refusals, headers and unusual requests.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use axum::http::request::Parts;
use axum::routing::get;
use serde_json::{Value, json};
use turnstream::{Error, ErrorKind};
use turnstream_server::{AllowedSites, Principal, TokenLogin, presented_key, static_files};

use super::support::{Chat, SECRET, two_users};

/// Refuses requests in the way that their key names.
fn refusing(request: &Parts) -> Result<Principal, Error> {
    match presented_key(request) {
        Some("unknown") => Err(Error::new(ErrorKind::Auth, "unknown key")),
        Some("busy") => Err(Error::new(ErrorKind::Other, "later").with_status(429)),
        Some("payment") => Err(Error::new(ErrorKind::Billing, "pay first").with_status(402)),
        Some("database") => Err(Error::new(ErrorKind::Store, SECRET)),
        Some("panic") => panic!("a test's panic"),
        _ => Ok(Principal::new("ada")),
    }
}

#[tokio::test]
async fn an_error_of_authorize_has_its_own_status_or_is_logged() {
    let logged = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&logged);
    let chat = Chat::start(|server| {
        server.with_authorize(refusing).with_error_log(move |error| {
            log.lock().unwrap().push(error.to_string());
        })
    });
    for (key, status) in [("unknown", 401), ("busy", 429), ("payment", 402)] {
        assert_eq!(chat.get(key, "/sessions").await.status, status, "{key}");
    }
    assert!(logged.lock().unwrap().is_empty());
    let failed = chat.get("database", "/sessions").await;
    assert!(failed.status == 500 && !failed.text.contains(SECRET), "{failed:?}");
    assert!(logged.lock().unwrap().pop().unwrap().contains(SECRET));
    let panicked = chat.get("panic", "/sessions").await;
    assert!(panicked.status == 500 && panicked.json()["error"].is_string(), "{panicked:?}");
    assert!(logged.lock().unwrap().pop().unwrap().contains("panicked"));
}

#[tokio::test]
async fn a_handler_that_panics_is_answered_and_logged() {
    let logged = Arc::new(Mutex::new(0));
    let log = Arc::clone(&logged);
    let fail = async || -> &'static str { panic!("a test's panic") };
    let routes = axum::Router::new().route("/fails", get(fail));
    let chat = Chat::start(|server| {
        server.with_routes(routes).with_error_log(move |_| *log.lock().unwrap() += 1)
    });
    assert_eq!(chat.get("ada", "/fails").await.status, 500);
    assert_eq!(*logged.lock().unwrap(), 1);
}

#[tokio::test]
async fn refusals_have_the_form_of_the_routes_protocol() {
    let chat = Chat::start(|server| server.with_authorize(refusing));
    for (path, status) in [("/api/chat", 401), ("/api/chat/s/stop", 401)] {
        let refused = chat.post("unknown", path, &json!({})).await;
        assert_eq!((refused.status, &*refused.text), (status, "unknown key"), "{path}");
    }
    let busy = chat.post("busy", "/api/chat", &json!({})).await;
    assert!(busy.status == 429 && busy.headers.contains_key("retry-after"), "{busy:?}");
    let refused = chat.post("unknown", "/ag-ui", &json!({})).await;
    assert_eq!(refused.json(), json!({ "code": 401, "message": "unknown key" }));
    let refused = chat.get("unknown", "/sessions").await;
    assert_eq!(refused.json(), json!({ "error": "unknown key" }));
    let busy = chat.post("busy", "/ag-ui", &json!({})).await;
    assert!(busy.status == 429 && busy.headers.contains_key("retry-after"), "{busy:?}");
}

#[tokio::test]
async fn other_methods_and_paths_are_refused_with_a_text() {
    let chat = Chat::start(|server| server);
    let ada = ("x-api-key", "ada");
    let send =
        async |method: Method, path: &str| chat.served.request_with(method, path, &[ada]).await;
    let refused = send(Method::DELETE, "/sessions/s/runs").await;
    assert_eq!((refused.status, refused.json()["error"].is_string()), (405, true));
    assert_eq!(refused.headers["allow"], "POST");
    assert_eq!(send(Method::PUT, "/api/chat").await.text, "this route has another method");
    assert_eq!(send(Method::OPTIONS, "/sessions").await.status, 405);
    let head = send(Method::HEAD, "/sessions").await;
    assert_eq!((head.status, &*head.text), (200, ""));
    assert_eq!(send(Method::GET, "/none").await.json()["error"], "there is no such page");
    for id in ["%FF", "a%2Fb", "..%2Fs", "%2e%2e%2f", &"x".repeat(101), "a%00b", "a%20b"] {
        let refused = send(Method::GET, &format!("/sessions/{id}/messages")).await;
        assert_eq!((refused.status, refused.json()["error"].is_string()), (400, true), "{id}");
    }
}

#[tokio::test]
async fn responses_are_not_cached_and_the_apps_headers_stay() {
    let page = async || {
        let headers =
            [("cache-control", "max-age=60"), ("vary", "accept"), ("referrer-policy", "origin")];
        (headers, "page")
    };
    let routes = axum::Router::new().route("/page", get(page));
    let sites = AllowedSites::of_hosts::<String>([]).with_origin("https://app.example").unwrap();
    let chat = Chat::start(|server| server.with_routes(routes).with_sites(sites));
    for path in ["/sessions", "/sessions/s/messages", "/sessions/s/trace", "/none"] {
        let answered = chat.get("ada", path).await;
        assert_eq!(answered.headers["cache-control"], "no-store", "{path}");
        assert_eq!(answered.headers["vary"], "origin", "{path}");
    }
    let page = chat.get("ada", "/page").await;
    assert_eq!(page.headers["cache-control"], "max-age=60");
    assert_eq!(page.headers["referrer-policy"], "origin");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let vary: Vec<_> = page.headers.get_all("vary").iter().collect();
    assert_eq!(vary, ["accept", "origin"]);
}

#[tokio::test]
async fn fallbacks_of_the_app_do_not_replace_the_servers_own() {
    let routes = || axum::Router::new().fallback(async || "the app's page");
    let chat = Chat::start(|server| server.with_routes(routes()).with_routes(routes()));
    assert_eq!(chat.get("ada", "/none").await.status, 404);
}

#[tokio::test]
async fn a_server_with_authorize_refuses_unknown_host_names_by_default() {
    let chat = Chat::start(|server| server.with_authorize(two_users));
    let send = async |host: &str| {
        let headers = [("x-api-key", "ada"), ("host", host)];
        chat.served.request_with(Method::GET, "/sessions", &headers).await.status
    };
    let statuses = [send("localhost").await, send("10.0.0.1:80").await, send("evil.example").await];
    assert_eq!(statuses, [200, 200, 421]);
    let chat = Chat::start(|server| server.with_sites(AllowedSites::any_host()));
    let headers = [("x-api-key", "ada"), ("host", "any.example")];
    assert_eq!(chat.served.request_with(Method::GET, "/sessions", &headers).await.status, 200);
}

#[tokio::test]
async fn a_stop_needs_no_body_but_a_body_must_be_json() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Hi").await;
    let path = "/api/chat/s/stop";
    let send = async |media_type: &str, body: &'static str| {
        let request = chat.request("ada", &Method::POST, path, None).body(body);
        let request = request.header("content-type", media_type);
        chat.served.send(request).await.status
    };
    let ada = [("x-api-key", "ada")];
    assert_eq!(chat.served.request_with(Method::POST, path, &ada).await.status, 204);
    assert_eq!(send("application/json", "{}").await, 204);
    assert_eq!(send("application/json", "{").await, 400);
}

#[tokio::test]
async fn any_ascii_idempotency_key_starts_one_run_and_others_are_refused() {
    let chat = Chat::start(|server| server);
    let send = async |key: &[u8]| {
        let body = json!({ "text": "Hi" });
        let request = chat.request("ada", &Method::POST, "/sessions/s/runs", Some(&body));
        let key = reqwest::header::HeaderValue::from_bytes(key).unwrap();
        let answered = chat.served.send(request.header("idempotency-key", key)).await;
        chat.wait_for_runs(0).await;
        answered
    };
    let first = send(b"a b/c").await;
    assert_eq!(first.json()["run"], Value::from("ada/s:a_20b_2fc"), "{first:?}");
    assert_eq!(send(b"a b/c").await.json(), first.json());
    assert_eq!(send("ü".as_bytes()).await.status, 400);
    assert_eq!(send(b"").await.status, 400);
}

#[tokio::test]
async fn a_link_to_log_in_works_once_and_its_cookie_is_not_the_token() {
    let token = "0123456789abcdef";
    let login = TokenLogin::new(Some(token.to_owned())).unwrap();
    let (links, received) = std::sync::mpsc::channel();
    let on_link = move |path: &str| links.send(path.to_owned()).unwrap();
    let chat =
        Chat::start(|server| server.with_routes(login.routes(on_link)).with_authorize(login));
    let path = received.try_recv().unwrap();
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let http = http.build().unwrap();
    let send = async |method: Method, path: &str, headers: &[(&str, &str)]| {
        let request = http.request(method, chat.served.url(path));
        let add =
            |it: reqwest::RequestBuilder, header: &(&str, &str)| it.header(header.0, header.1);
        headers.iter().fold(request, add).send().await.unwrap()
    };
    assert_eq!(send(Method::HEAD, &path, &[]).await.status(), 200);
    let entered = send(Method::GET, &path, &[("x-forwarded-proto", "https")]).await;
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
    let port = chat.served.address.port();
    assert!(cookie.starts_with(&format!("turnstream-{port}=")), "{cookie}");
    assert!(cookie.contains("; Secure;") && !cookie.contains(token), "{cookie}");
    assert_eq!(send(Method::GET, &path, &[]).await.status(), 401);
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(send(Method::GET, "/sessions", &[("cookie", cookie)]).await.status(), 200);
    let other = cookie.replace(&port.to_string(), "1");
    assert_eq!(send(Method::GET, "/sessions", &[("cookie", &other)]).await.status(), 401);
    assert_eq!(send(Method::GET, "/sessions", &[("cookie", "turnstream=x")]).await.status(), 401);
}

#[tokio::test]
async fn the_files_of_a_page_have_content_types_by_their_extensions() {
    const PNG: [u8; 4] = [0x89, b'P', b'N', b'G'];
    let routes = static_files(&[
        ("/", b"<!doctype html>"),
        ("/a.css", b"a"),
        ("/a.mjs", b"a"),
        ("/a.json", b"{}"),
        ("/a.svg", b"<svg/>"),
        ("/a.png", &PNG),
        ("/a.b/font.woff2", b"f"),
        ("/a.unknown", b"?"),
    ]);
    let chat = Chat::start(|server| server.with_routes(routes));
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/a.css", "text/css; charset=utf-8"),
        ("/a.mjs", "text/javascript; charset=utf-8"),
        ("/a.json", "application/json"),
        ("/a.svg", "image/svg+xml"),
        ("/a.png", "image/png"),
        ("/a.b/font.woff2", "font/woff2"),
        ("/a.unknown", "application/octet-stream"),
    ] {
        let file = chat.get("ada", path).await;
        assert_eq!(file.status, 200, "{path}");
        assert_eq!(file.headers["content-type"], content_type, "{path}");
        assert_eq!(file.headers["cache-control"], "no-cache", "{path}");
    }
    let png = chat.request("ada", &Method::GET, "/a.png", None).send().await.unwrap();
    assert_eq!(png.bytes().await.unwrap(), &PNG[..]);
    let ada = ("x-api-key", "ada");
    let head = chat.served.request_with(Method::HEAD, "/a.css", &[ada]).await;
    assert_eq!((head.status, &*head.text), (200, ""));
    assert_eq!(head.headers["content-length"], "1");
    // The page may load its own fonts.
    let policy = head.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("font-src 'self'"), "{policy}");
}

#[test]
#[should_panic(expected = "Overlapping method route")]
fn two_files_of_a_page_with_the_same_path_are_a_panic() {
    drop(static_files::<()>(&[("/a", b"1"), ("/a", b"2")]));
}
