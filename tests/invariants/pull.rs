//! Nothing happens that the consumer has not polled for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{StreamExt, stream};
use turnstream::provider::Provider;
use turnstream::stream::{TurnStream, TurnStreamExt};
use turnstream::turn::TurnEvent;
use turnstream::{Agent, Error, Request};

/// Counts the items that are read from upstream.
struct EndlessProvider(Arc<AtomicUsize>);

impl Provider for EndlessProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        let read = self.0.clone();
        let words = stream::repeat_with(move || {
            read.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Error>(TurnEvent::TextDelta { index: 0, text: "word ".into() })
        });
        words.seal(&request.history)
    }

    fn model(&self) -> &'static str {
        "endless"
    }
}

#[tokio::test]
async fn bytes_are_read_only_when_polled() {
    let read = Arc::new(AtomicUsize::new(0));
    let mut run = Agent::new(EndlessProvider(read.clone())).run("go");
    for pulled in 1..=1000 {
        run.next().await.unwrap().unwrap();
        assert!(read.load(Ordering::Relaxed) <= pulled, "read ahead at {pulled}");
    }
    assert!(read.load(Ordering::Relaxed) >= 990);
}

#[test]
fn the_core_spawns_and_queues_nothing() {
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = 0;
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !["task", "hub"].iter().any(|door| path == src.join(door)) {
                    folders.push(path);
                }
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            if path.ends_with("tests.rs") {
                // Only tests are compiled from it.
                continue;
            }
            files += 1;
            if path == src.join("store_thread.rs") {
                // The thread that reads and writes files, through which no event passes.
                continue;
            }
            if path == src.join("durable/publisher.rs") {
                // The channel to a hub, which holds at most one event that the hub has not
                // received, and the progress of calls that run in other processes.
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for word in ["spawn(", "spawn_local", "mpsc", "broadcast", "watch::", "JoinSet"] {
                assert!(!source.contains(word), "{word} in {}", path.display());
            }
        }
    }
    assert!(files > 40);
}
