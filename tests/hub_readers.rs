//! A thousand readers of a hundred runs: the memory that an idle reader uses.
//!
//! It is a test binary of its own, since it measures the memory of the process.

#![cfg(target_os = "linux")]

use std::hint::black_box;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use turnstream::Agent;
use turnstream::hub::Hub;
use turnstream::provider::{Reply, Scripted};
use turnstream::ui::sse::Sse;

const RUNS: usize = 100;
const READERS: usize = 1_000;

/// The maximum memory of an idle reader, without its socket.
const MAX_BYTES: u64 = 4 << 10;

#[tokio::test(flavor = "current_thread")]
async fn an_idle_reader_costs_at_most_four_kibibytes() {
    let words = "some words that everybody has read ".repeat(20);
    let agent = Agent::new(Scripted::from_fn(move |_, _| {
        words.split_inclusive(' ').fold(Reply::new(), Reply::say).hang()
    }));
    let hub = Hub::new();
    for run in 0..RUNS {
        drop(hub.start(format!("chat-{run}"), agent.run("Hi")).await.unwrap().detach());
    }
    // Wait until every run has emitted all its events.
    while hub.stats().entries < RUNS * 100 {
        tokio::task::yield_now().await;
    }
    // The first readers include one-time allocations, so they are not measured.
    let mut readers = Vec::with_capacity(3 * READERS);
    attach(&hub, &mut readers);
    let mut per_reader = Vec::new();
    for _ in 0..2 {
        let before = resident_bytes();
        attach(&hub, &mut readers);
        let after = resident_bytes();
        per_reader.push(after.saturating_sub(before) / READERS as u64);
    }
    assert_eq!(hub.stats().readers, 3 * READERS);
    println!("{READERS} readers of {RUNS} runs: {per_reader:?} bytes each while they wait");
    assert!(per_reader.iter().all(|bytes| *bytes <= MAX_BYTES), "{per_reader:?}");
    black_box(&readers);
    drop(readers);
    assert_eq!(hub.stats().readers, 0);
}

/// Adds readers, each of which has read all available events and waits for more.
fn attach(hub: &Hub, readers: &mut Vec<BoxStream<'static, Bytes>>) {
    for reader in 0..READERS {
        let events = hub.read(&format!("chat-{}", reader % RUNS), None).unwrap();
        let body = Sse::new().respond_to_reader(events).body;
        let mut body = body.map(|frame| frame.unwrap()).boxed();
        let mut read = 0;
        // The frames that are available immediately.
        while let Some(Some(frame)) = body.next().now_or_never() {
            read += frame.len();
        }
        assert!(read > 100);
        readers.push(body);
    }
}

/// The memory that the process uses.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
