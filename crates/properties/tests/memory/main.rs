//! The memory that a program needs, counted by its allocator.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use peak_alloc::PeakAlloc;
use serde_json::json;
use turnstream::Agent;
use turnstream::event::EndReason;
use turnstream::hub::{Hub, Reader};
use turnstream::item::{Content, Part};
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{JsonLinesStore, MemoryStore, Session, Store};
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::temp_folder::TempFolder;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The largest number of MiB that a run may allocate, for each store: in memory, JSON lines and
/// SQLite.
const MAX_ONE: [usize; 3] = [24, 24, 24];
const MAX_TWO: [usize; 3] = [20, 20, 20];
const MAX_PARTS: [usize; 3] = [24, 24, 24];

/// The largest number of KiB that a hub allocates for a run which waits for its fourth turn, beyond
/// what the run itself allocates.
const MAX_IN_HUB: usize = 18;

/// The allocator counts the allocations of all threads, so only one test runs at a time.
fn run_alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().build().expect("a runtime")
}

/// The results of a turn's calls, of 10 MiB together.
#[derive(Clone, Copy, Debug)]
enum Results {
    OneText,
    TwoTexts,
    /// A list of two parts of text.
    Parts,
    /// A list of an image and a file.
    Media,
}

fn text(bytes: usize) -> String {
    "0123456789 line\n".repeat(bytes / 16)
}

/// Returns the largest number of bytes that a run with these results allocates, beyond those before
/// the run.
fn peak_of_results(results: Results, store: impl Store + 'static) -> usize {
    let calls = if let Results::TwoTexts = results { 2 } else { 1 };
    let model = Scripted::from_fn(move |request, _| match request.history.completed_turns() {
        0 => (0..calls).fold(Reply::new(), |reply, _| reply.call("read", json!({}))),
        _ => Reply::text("done"),
    });
    let spec = ToolSpec::new("read", "Reads a file", json!({ "type": "object" }));
    let read = Tool::raw(spec, move |_, _| async move {
        match results {
            Results::OneText => Content::from(text(10 * MIB)),
            Results::TwoTexts => text(5 * MIB).into(),
            Results::Parts => vec![Part::Text { text: text(5 * MIB).into() }; 2].into(),
            Results::Media => vec![
                Part::image("image/png", "AAAA".repeat(5 * MIB / 4)),
                Part::file("application/pdf", "AAAA".repeat(5 * MIB / 4)),
            ]
            .into(),
        }
    });
    let kit = Toolkit::new([read.expect("a tool")]).with_max_result_bytes(usize::MAX);
    let agent = Agent::new(model).with_toolkit(kit);
    runtime().block_on(async {
        let session = Session::open(store, "s").await.expect("a session");
        let run = session.run(&agent, "go").await.expect("a run");
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        let outcome = run.outcome().await.expect("an outcome");
        assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
        ALLOCATOR.peak_usage() - before
    })
}

#[test]
fn the_memory_that_large_results_need_on_their_way_to_a_store_is_limited() {
    let _alone = run_alone();
    let folder = TempFolder::new();
    for (results, max) in [
        (Results::OneText, MAX_ONE),
        (Results::TwoTexts, MAX_TWO),
        (Results::Parts, MAX_PARTS),
        (Results::Media, MAX_PARTS),
    ] {
        let path = |suffix: &str| folder.path().join(format!("{results:?}{suffix}"));
        let json_lines = JsonLinesStore::open(path("")).expect("a store");
        let sqlite = SqliteStore::open(path(".db")).expect("a store");
        let peaks = [
            ("memory", peak_of_results(results, MemoryStore::new())),
            ("JSON lines", peak_of_results(results, json_lines)),
            ("SQLite", peak_of_results(results, sqlite)),
        ];
        for (name, peak) in peaks {
            println!("{results:?}, {name}: {} KiB", peak / KIB);
        }
        for ((name, peak), max) in peaks.into_iter().zip(max) {
            assert!(peak < max * MIB, "{results:?}, {name}: {} KiB", peak / KIB);
        }
    }
}

/// The place where a run waits.
#[derive(Clone, Copy, Debug)]
enum Host {
    /// A task that reads the run's events.
    Task,
    /// A hub, without readers.
    Hub,
    /// A hub, with a reader that has read everything.
    HubWithReader,
    /// A hub, with a reader that has read nothing.
    HubWithStalledReader,
}

/// An agent that waits for its fourth turn. Each turn before has 20 text deltas and a call.
fn waiting_agent() -> Agent {
    let model = Scripted::from_fn(|request, _| match request.history.completed_turns() {
        0..3 => {
            let say = |reply: Reply, _| reply.say(" word").delay(Duration::from_millis(1));
            (0..20).fold(Reply::new(), say).call("add", json!({}))
        }
        _ => Reply::new().hang(),
    });
    let spec = ToolSpec::new("add", "Adds two numbers", json!({ "type": "object" }));
    let add = Tool::raw(spec, |_, _| async { "3" }).expect("a tool");
    Agent::new(model).with_tools([add])
}

/// Returns the number of bytes that a waiting run allocates.
async fn bytes_of_waiting_run(host: Host) -> usize {
    const RUNS: usize = 50;
    tokio::time::pause();
    let (hub, agent) = (Hub::new(), waiting_agent());
    let mut stalled: Vec<Reader> = Vec::new();
    let mut before = 0;
    // The first run allocates memory that the others share.
    for run in 0..=RUNS {
        let mut events = agent.run("Go");
        if let Host::Task = host {
            tokio::spawn(async move { while events.next().await.is_some() {} });
        } else {
            let owner = hub.start(format!("k{run}"), events).await.expect("a run");
            match host {
                Host::Task | Host::Hub => {}
                Host::HubWithReader => {
                    let mut reader = owner.read();
                    tokio::spawn(async move { while reader.next().await.is_some() {} });
                }
                Host::HubWithStalledReader => stalled.push(owner.read()),
            }
            drop(owner.detach());
        }
        // The clock is paused: the sleep ends when all runs wait.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if run == 0 {
            before = ALLOCATOR.current_usage();
        }
    }
    (ALLOCATOR.current_usage() - before) / RUNS
}

#[test]
fn the_memory_that_a_hub_needs_for_a_waiting_run_is_limited() {
    let _alone = run_alone();
    let bytes = |host| runtime().block_on(bytes_of_waiting_run(host));
    let without_hub = bytes(Host::Task);
    println!("a waiting run: {without_hub} bytes");
    for host in [Host::Hub, Host::HubWithReader, Host::HubWithStalledReader] {
        let in_hub = bytes(host) - without_hub;
        println!("a waiting run, {host:?}: {in_hub} bytes more");
        assert!(in_hub < MAX_IN_HUB * KIB, "{host:?}: {in_hub} bytes more");
    }
}
