//! The memory that a program needs, counted by its allocator.

use peak_alloc::PeakAlloc;
use serde_json::json;
use turnstream::Agent;
use turnstream::event::EndReason;
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
/// SQLite. The line of a result that is a list of parts is parsed again to check it.
const MAX_ONE: [usize; 3] = [24, 24, 24];
const MAX_TWO: [usize; 3] = [20, 20, 20];
const MAX_PARTS: [usize; 3] = [70, 140, 140];

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
            Results::Parts => vec![Part::Text { text: text(5 * MIB) }; 2].into(),
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
    let folder = TempFolder::new();
    for (results, max) in
        [(Results::OneText, MAX_ONE), (Results::TwoTexts, MAX_TWO), (Results::Parts, MAX_PARTS)]
    {
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
