//! The end of a server.

use std::time::Duration;

use axum::http::Method;
use turnstream::session::MemoryStore;
use turnstream_server::ChatServer;

use super::support::{Chat, LIMIT, SECRET, agent, read_until, two_users};
use crate::server::Served;

#[tokio::test]
async fn runs_are_told_readers_get_their_end_and_nothing_stored_is_lost() {
    let store = MemoryStore::new();
    let server = ChatServer::new(agent()).with_store(store.clone()).with_authorize(two_users);
    let chat = Chat { served: Served::router(server.router()).await, store };
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
