//! The memory that a program needs, counted by its allocator.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use peak_alloc::PeakAlloc;
use serde_json::json;
use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::hub::Hub;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{JsonLinesStore, MemoryStore, Session, Store};
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream::{Agent, History};
use turnstream_sqlite::SqliteStore;
use turnstream_test_support::temp_folder::TempFolder;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Only one test measures at a time, because the allocator counts for the whole process.
fn measure_alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::new(());
    MEASURING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime")
}

/// An agent that waits for its model after three turns with a text and a tool call.
fn waiting_agent() -> Agent {
    let model = Scripted::from_fn(|request, _| match request.history.completed_turns() {
        turn if turn < 3 => {
            let text = "I read the module, to see what it exports, and then call the tool that adds two numbers.";
            Reply::text(text).call("look", json!({ "prompt": turn }))
        }
        _ => Reply::new().hang(),
    });
    Agent::new(model).with_tools([tool("look", "found".to_owned())])
}

fn tool(name: &str, result: String) -> Tool {
    let parameters = json!({ "type": "object" });
    let spec = ToolSpec::new(name, "Looks something up", parameters);
    Tool::raw(spec, move |_, _| {
        let result = result.clone();
        async move { result }
    })
    .expect("a tool")
}

/// Returns the bytes that each of the runs keeps while it waits for its model.
fn bytes_of_a_waiting_run(in_hub: bool) -> usize {
    const RUNS: usize = 50;
    let runtime = runtime();
    let agent = waiting_agent();
    let hub = Hub::new();
    runtime.block_on(async {
        let mut before = 0;
        // The first round initializes statics.
        for round in 0..2 {
            before = ALLOCATOR.current_usage();
            for n in 0..RUNS {
                let run = agent.run_from(History::empty(format!("h{round}-{n}")), "go");
                if in_hub {
                    let owner =
                        hub.start(format!("chat-{round}-{n}"), run).await.expect("a free key");
                    owner.detach();
                } else {
                    let mut run = Box::pin(run);
                    tokio::spawn(async move { while run.next().await.is_some() {} });
                }
            }
            // The clock advances once all runs wait.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        (ALLOCATOR.current_usage() - before) / RUNS
    })
}

#[test]
fn the_log_of_a_run_in_a_hub_keeps_little_of_finished_turns() {
    let _alone = measure_alone();
    let [alone, in_hub] = [false, true].map(bytes_of_a_waiting_run);
    println!("a waiting run: {alone} bytes, in a hub: {in_hub} bytes");
    assert!(in_hub < alone + 16 * KIB, "a waiting run: {alone} bytes, in a hub: {in_hub} bytes");
}

/// Returns the largest number of bytes that a run allocates, beyond those before the run, whose tool
/// returns this number of bytes.
fn peak_of_a_result(bytes: usize, store: impl Store + 'static) -> usize {
    let model = Scripted::from_fn(|request, _| match request.history.completed_turns() {
        0 => Reply::new().call("read", json!({})),
        _ => Reply::text("done"),
    });
    let spec = ToolSpec::new("read", "Reads a file", json!({ "type": "object" }));
    let read = Tool::raw(spec, move |_, _| async move { "0123456789 line\n".repeat(bytes / 16) });
    let kit = Toolkit::new([read.expect("a tool")]).with_max_result_bytes(usize::MAX);
    let agent = Agent::new(model).with_toolkit(kit).with_limits(Limits::default());
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
fn a_large_result_is_copied_a_few_times_at_most_on_its_way_to_a_store() {
    let _alone = measure_alone();
    let folder = TempFolder::new();
    let json_lines = JsonLinesStore::open(folder.path().join("json_lines")).expect("a store");
    let sqlite = SqliteStore::open(folder.path().join("sessions.db")).expect("a store");
    for (name, peak) in [
        ("memory", peak_of_a_result(10 * MIB, MemoryStore::new())),
        ("JSON lines", peak_of_a_result(10 * MIB, json_lines)),
        ("SQLite", peak_of_a_result(10 * MIB, sqlite)),
    ] {
        println!("a result of 10 MiB, {name}: {} KiB", peak / KIB);
        assert!(peak < 40 * MIB, "{name}: {} KiB", peak / KIB);
    }
}
