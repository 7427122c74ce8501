//! The end of a server.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use turnstream::Agent;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::MemoryStore;
use turnstream::tool::{Tool, ToolSpec};
use turnstream_server::{ChatServer, ConnectionLimits, listen, serve};

use super::support::{Chat, LIMIT, SECRET, agent, read_until, two_users};
use crate::server::Served;

#[tokio::test]
async fn runs_are_told_readers_get_their_end_and_nothing_stored_is_lost() {
    let store = MemoryStore::new();
    let server = ChatServer::new(agent()).with_store(store.clone()).with_authorize(two_users);
    let chat = Chat { served: Served::chat(server.router()), store };
    assert_eq!(chat.say("ada", "s", "Wait").await, 202);
    let read = async || {
        let request = chat.request("ada", &Method::GET, "/sessions/s/events", None);
        request.send().await.unwrap()
    };
    read_until(read().await, SECRET).await;
    let reader = read().await;
    let ended = async { tokio::join!(reader.text(), server.shut_down(Duration::ZERO)) };
    let (rest, ()) = tokio::time::timeout(LIMIT, ended).await.expect("a reader does not end");
    let rest = rest.unwrap();
    assert!(rest.contains("interrupted"), "{rest}");
    assert!(rest.contains("event: shutting_down"), "{rest}");
    assert!(chat.stored("ada/s").await.contains(SECRET));
    assert_eq!(chat.say("ada", "s", "Hi").await, 503);
    assert_eq!(chat.get("ada", "/sessions/s/messages").await.status, 200);
}

#[tokio::test]
async fn a_message_during_the_shutdown_is_refused_although_others_are_waiting() {
    let store = MemoryStore::new();
    let server = ChatServer::new(agent()).with_store(store.clone()).with_authorize(two_users);
    let chat = Chat { served: Served::chat(server.router()), store };
    assert_eq!(chat.say("ada", "s", "Wait").await, 202);
    assert_eq!(chat.say("ada", "s", "Next").await, 202);
    let stopping = server.shut_down(LIMIT);
    let asking = async {
        // The server shuts down as soon as the other future is polled.
        tokio::task::yield_now().await;
        let status = chat.say("ada", "s", "Too late").await;
        assert_eq!(chat.post("ada", "/sessions/s/stop", &json!({})).await.status, 200);
        status
    };
    assert_eq!(tokio::join!(stopping, asking).1, 503);
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_keep_the_server_running() {
    let store = MemoryStore::new();
    let server = ChatServer::new(agent()).with_store(store).with_authorize(two_users);
    let (listener, limits) = (
        listen(([127, 0, 0, 1], 0).into()).unwrap(),
        ConnectionLimits { close_timeout: Duration::from_millis(100), ..Default::default() },
    );
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopping = server.clone();
    let end = async move {
        let _ = stopped.await;
        stopping.shut_down(Duration::ZERO).await;
    };
    let serving = tokio::spawn(serve(listener, server.router(), limits, end));
    let mut silent = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = "GET /sessions/s/events HTTP/1.1\r\nhost: localhost\r\nx-api-key: ada\r\n\r\n";
    silent.write_all(head.as_bytes()).await.unwrap();
    silent.readable().await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(LIMIT, serving).await.expect("the server does not end").unwrap();
}

#[tokio::test]
async fn a_tool_that_never_ends_does_not_prevent_the_end() {
    let spec = ToolSpec::new("wait", "Waits", json!({ "type": "object", "properties": {} }));
    let wait = Tool::raw(spec, |_, _| std::future::pending::<String>()).unwrap();
    let model = Scripted::from_fn(|_, _| Reply::new().call("wait", json!({})));
    let store = MemoryStore::new();
    let server = ChatServer::new(Agent::new(model).with_tool(wait)).with_store(store.clone());
    let server = server.with_authorize(two_users);
    let chat = Chat { served: Served::chat(server.router()), store };
    assert_eq!(chat.say("ada", "s", "Hi").await, 202);
    let request = chat.request("ada", &Method::GET, "/sessions/s/events", None);
    read_until(request.send().await.unwrap(), "tool_started").await;
    let stopped = server.shut_down(Duration::ZERO);
    tokio::time::timeout(LIMIT, stopped).await.expect("it does not end");
    // The call has a result, so the session continues after a restart.
    assert!(chat.stored("ada/s").await.contains(r#""kind":"interrupted""#));
}
