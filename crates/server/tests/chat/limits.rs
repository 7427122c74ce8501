//! Limits that hostile clients reach.

use axum::http::Method;
use serde_json::{Value, json};
use turnstream::session::Store;
use turnstream_server::{ChatLimits, ChatServer};

use super::support::{Chat, read_until};

/// The routes that take a body.
fn posts() -> impl Iterator<Item = String> {
    let posts = ChatServer::routes().filter(|(method, _)| method == Method::POST);
    posts.map(|(_, path)| path.replace("{id}", "s"))
}

#[tokio::test]
async fn every_route_refuses_bodies_that_are_not_json_of_the_right_size() {
    let chat = Chat::start(|server| server);
    chat.say_and_wait("ada", "s", "Hi").await;
    let before = chat.stored("ada/s").await;
    // This route needs no body.
    for path in posts().filter(|path| path != "/api/chat/s/stop") {
        let send = async |media_type: &str, body: reqwest::Body| {
            let request = chat.request("ada", &Method::POST, &path, None);
            let request = request.header("content-type", media_type).body(body);
            request.send().await.unwrap().status().as_u16()
        };
        let headers = chat.request("ada", &Method::POST, &path, None);
        assert!(headers.build().unwrap().headers().contains_key("content-type"));
        for broken in ["", "{", "\u{0}", "{\"text\":\"\u{1}\"}"] {
            assert_eq!(send("application/json", broken.into()).await, 400, "{path}: {broken:?}");
        }
        assert_eq!(send("application/json", "7".into()).await, 422, "{path}");
        let deep = "[".repeat(100_000);
        assert!(matches!(send("application/json", deep.into()).await, 400 | 422), "{path}");
        let many = format!("[{}1]", "{},".repeat(300_000));
        assert_eq!(send("application/json", many.into()).await, 413, "{path}");
    }
    assert_eq!(chat.stored("ada/s").await, before);
}

#[tokio::test]
async fn a_body_of_100_megabytes_is_refused_before_it_is_read() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let chat = Chat::start(|server| server);
    for path in posts() {
        // Declared, and never sent.
        let mut stream = tokio::net::TcpStream::connect(chat.served.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: ada\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: 104857600\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
    }
    // Without a declared length: the server stops reading after 8 MiB.
    let pieces = (0..1_600).map(|_| Ok::<_, std::io::Error>(vec![b' '; 64 << 10]));
    let body = reqwest::Body::wrap_stream(futures::stream::iter(pieces));
    let request = chat.request("ada", &Method::POST, "/sessions/s/runs", None).body(body);
    // The connection may break before the client has read the response, but not for another reason.
    match request.send().await {
        Ok(response) => assert_eq!(response.status().as_u16(), 413),
        Err(error) => assert!(error.is_request() && !error.is_timeout(), "{error:?}"),
    }
    assert_eq!(chat.store.list().await.unwrap().len(), 0);
}

#[tokio::test]
async fn forks_count_as_sessions() {
    let limits =
        ChatLimits { max_sessions_per_principal: 4, max_sessions: 6, ..ChatLimits::default() };
    let chat = Chat::start(|server| server.with_limits(limits));
    chat.say_and_wait("ada", "s", "Hi").await;
    let fork =
        async |user: &str| chat.post(user, "/sessions/s/fork", &json!({ "at": 1 })).await.status;
    let mut statuses = Vec::new();
    for _ in 0..200 {
        statuses.push(fork("ada").await);
    }
    assert_eq!(statuses[..4], [201, 201, 201, 429]);
    assert!(statuses[4..].iter().all(|status| *status == 429));
    assert_eq!(chat.store.list().await.unwrap().len(), 4);
    // A new session is refused like a fork.
    assert_eq!(chat.say("ada", "new", "Hi").await, 429);
    assert_eq!(chat.say("ada", "s", "Hi again").await, 202);
    // Another principal has its own number, up to that of all.
    chat.wait_for_runs(0).await;
    chat.say_and_wait("bob", "s", "Hi").await;
    assert_eq!([fork("bob").await, fork("bob").await], [201, 429]);
    assert_eq!(chat.store.list().await.unwrap().len(), 6);
}

#[tokio::test]
async fn one_principals_starts_and_readers_do_not_block_others() {
    let limits = ChatLimits {
        max_starts_per_minute: 3,
        max_readers_per_principal: 2,
        max_readers: 3,
        ..ChatLimits::default()
    };
    let chat = Chat::start(|server| server.with_limits(limits));
    for expected in [202, 202, 202, 429, 429] {
        assert_eq!(chat.say("ada", "s", "Hi").await, expected);
        chat.wait_for_runs(0).await;
    }
    assert_eq!(chat.say("bob", "s", "Hi").await, 202);
    let read = async |user: &str| {
        let request = chat.request(user, &Method::GET, "/sessions/s/events", None);
        request.send().await.unwrap()
    };
    let held = [read("ada").await, read("ada").await];
    assert_eq!(read("ada").await.status().as_u16(), 429);
    let bobs = read("bob").await;
    assert_eq!((bobs.status().as_u16(), read("bob").await.status().as_u16()), (200, 429));
    for response in held {
        read_until(response, "snapshot").await;
    }
    let again = async {
        while read("ada").await.status().as_u16() != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::support::LIMIT, again).await.expect("no reader is free again");
}

#[tokio::test]
async fn too_many_runs_are_refused_with_503() {
    let limits = ChatLimits { max_runs: 1, ..ChatLimits::default() };
    let chat = Chat::start(|server| server.with_limits(limits));
    assert_eq!(chat.say("ada", "s", "Wait").await, 202);
    assert_eq!(chat.say("bob", "s", "Hi").await, 503);
    assert_eq!(chat.stored("bob/s").await, Value::Null.to_string());
}
