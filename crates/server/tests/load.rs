//! Clients in great numbers. `run.sh` raises the limit on descriptors and runs these tests.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use turnstream::Agent;
use turnstream::provider::Scripted;
use turnstream::session::{MemoryStore, Store};
use turnstream_server::{ChatLimits, ChatServer, ConnectionLimits, Principal, listen, serve};

/// The number of connections that send nothing more.
const CONNECTIONS: usize = 4_000;

/// How long the server waits for a head. All connections are opened within this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// The soft limit of this process on open descriptors.
fn max_descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX)
}

#[ignore = "needs 5,000 descriptors and Python: crates/server/tests/run.sh"]
#[tokio::test]
async fn thousands_of_half_sent_heads_and_idle_connections_are_closed_while_others_are_served() {
    let max = max_descriptors();
    assert!(max >= CONNECTIONS + 1_000, "this process may open only {max} descriptors");
    let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ConnectionLimits { head_timeout: HEAD_TIMEOUT, ..ConnectionLimits::default() };
    let router = Router::new().route("/", get("ok"));
    tokio::spawn(serve(listener, router, limits, std::future::pending()));
    let python = std::env::var("TURNSTREAM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/held_connections.py");
    let (port, count) = (address.port().to_string(), CONNECTIONS.to_string());
    let mut clients = Command::new(python)
        .args([script, "127.0.0.1", &port, &count])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(clients.stdout.take().unwrap()).lines();
    let mut next_count = async || -> usize {
        let line = tokio::time::timeout(4 * HEAD_TIMEOUT, lines.next_line()).await;
        line.expect("the connections stay open").unwrap().unwrap().parse().unwrap()
    };
    let open = next_count().await;
    assert_eq!(open, CONNECTIONS, "connections that were open at the same time");
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut served = 0;
    let closed = {
        let mut closed = std::pin::pin!(next_count());
        loop {
            let request = http.get(format!("http://{address}/")).send();
            assert_eq!(request.await.unwrap().status(), 200);
            served += 1;
            let pause = tokio::time::sleep(Duration::from_millis(100));
            tokio::select! {
                closed = &mut closed => break closed,
                () = pause => {}
            }
        }
    };
    assert_eq!(closed, CONNECTIONS);
    println!("{open} connections were open, {served} requests were answered meanwhile");
}

/// Sends this number of requests for a fork to a server with these limits, without a network.
/// Returns the number of responses with each status, and the number of sessions in the store.
async fn fork_many(count: usize, limits: ChatLimits) -> (HashMap<u16, usize>, usize) {
    let store = MemoryStore::new();
    store.append("ada/s", 0, vec![turnstream::Item::user("Hi").into()]).await.unwrap();
    let server = ChatServer::new(Agent::new(Scripted::new(["Hello!"])))
        .with_store(store.clone())
        .with_authorize(|_: &axum::http::request::Parts| Ok(Principal::new("ada")))
        .with_limits(limits);
    let service = TowerToHyperService::new(server.router());
    let mut statuses = HashMap::new();
    for _ in 0..count {
        let request = Request::post("/sessions/s/fork")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Body::from(json!({ "at": 1 }).to_string()))
            .unwrap();
        let response = service.call(request).await.unwrap();
        *statuses.entry(response.status().as_u16()).or_default() += 1;
    }
    (statuses, store.list().await.unwrap().len())
}

#[ignore = "needs half a minute: crates/server/tests/run.sh"]
#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_forks_of_one_principal_are_refused_by_the_limits() {
    let (statuses, stored) = fork_many(100_000, ChatLimits::default()).await;
    assert_eq!((statuses[&201], statuses[&429], stored), (120, 99_880, 121));
}

#[tokio::test(start_paused = true)]
async fn forks_are_refused_beyond_the_number_of_sessions_of_a_principal() {
    let limits = ChatLimits {
        max_starts_per_minute: usize::MAX,
        max_sessions_per_principal: 200,
        ..ChatLimits::default()
    };
    let (statuses, stored) = fork_many(1_000, limits).await;
    assert_eq!((statuses[&201], statuses[&429], stored), (199, 801, 200));
}
