//! The cost of loading a session, and of writing one more entry.
//!
//! ```text
//! cargo bench -p turnstream-properties --bench session
//! ```
//!
//! Most of the time of an append is spent waiting for the disk.

use std::path::PathBuf;
use std::{env, fs, process};

use divan::Bencher;
use divan::counter::ItemsCount;
use futures::executor::block_on;
use turnstream::Item;
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::session::{Entry, JsonLinesStore, MemoryStore, Store};
use turnstream_sqlite::SqliteStore;

/// The number of items in the session that is loaded.
const ITEM_COUNT: usize = 10_000;

fn main() {
    divan::main();
    let _ = fs::remove_dir_all(bench_folder());
}

fn bench_folder() -> PathBuf {
    env::temp_dir().join(format!("turnstream-bench-session-{}", process::id()))
}

fn sample_entries() -> Vec<Entry> {
    let item = |n: usize| match n % 4 {
        0 => Item::user(format!("Look at module {n}, please.")),
        1 => Item::text("I read the module, to see what it exports."),
        2 => Item::tool_call(format!("call_{n}"), "read_file", format!(r#"{{"path":"{n}.rs"}}"#)),
        _ => {
            let call = ToolCall {
                call_id: format!("call_{}", n - 1),
                name: "read_file".into(),
                arguments: String::new(),
            };
            Item::tool_result(ToolResult::for_call(&call, ResultKind::Ok, "fn f() {}\n".repeat(40)))
        }
    };
    (0..ITEM_COUNT).map(item).map(Entry::from).collect()
}

fn bench_load(bencher: Bencher, store: &dyn Store) {
    block_on(store.append("loaded", 0, sample_entries())).unwrap();
    bencher.counter(ItemsCount::new(ITEM_COUNT)).bench_local(|| {
        let loaded = block_on(store.load("loaded", 0)).unwrap().unwrap();
        assert_eq!(loaded.len(), ITEM_COUNT);
        loaded
    });
}

fn bench_append(bencher: Bencher, store: &dyn Store) {
    let mut version = 0;
    bencher.bench_local(|| {
        let entry = Item::text("I read the module, to see what it exports.").into();
        version = block_on(store.append("appended", version, vec![entry])).unwrap();
    });
}

fn open_json_lines() -> JsonLinesStore {
    JsonLinesStore::open(bench_folder().join(unique_name())).unwrap()
}

fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT_ID: AtomicU32 = AtomicU32::new(0);
    NEXT_ID.fetch_add(1, Ordering::Relaxed).to_string()
}

#[divan::bench]
fn load_from_memory(bencher: Bencher) {
    bench_load(bencher, &MemoryStore::new());
}

#[divan::bench]
fn load_from_json_lines(bencher: Bencher) {
    bench_load(bencher, &open_json_lines());
}

#[divan::bench]
fn append_to_json_lines(bencher: Bencher) {
    bench_append(bencher, &open_json_lines());
}

fn open_sqlite() -> SqliteStore {
    fs::create_dir_all(bench_folder()).unwrap();
    SqliteStore::open(bench_folder().join(format!("{}.db", unique_name()))).unwrap()
}

#[divan::bench]
fn load_from_sqlite(bencher: Bencher) {
    bench_load(bencher, &open_sqlite());
}

#[divan::bench]
fn append_to_sqlite(bencher: Bencher) {
    bench_append(bencher, &open_sqlite());
}
