//! The size of a stored session is proportional to its content.

use std::path::Path;
use std::sync::Arc;
use std::{env, fs, process};

use futures::executor::block_on;
use turnstream::item::{ResultKind, StopReason, ToolCall, ToolResult, TurnInfo};
use turnstream::session::{Entry, JsonLinesStore, Store};
use turnstream::{Error, Item, Usage};

/// The appends of an agent's turn: some text, a call and its result, and a user message in every
/// tenth turn. Each is appended when it is complete.
fn turn_appends(n: usize) -> Vec<Vec<Entry>> {
    let call = ToolCall {
        call_id: format!("call_{n:06}"),
        name: "read_file".into(),
        arguments: format!(r#"{{"path":"src/module_{n:06}/mod.rs","from":1,"to":40}}"#),
    };
    let result = ToolResult::for_call(&call, ResultKind::Ok, "fn f() {}\n".repeat(40));
    let mut item = Item::tool_call(call.call_id, call.name, call.arguments);
    item.turn = Some(Arc::new(TurnInfo {
        usage: Usage::default(),
        model: Some("model-1".into()),
        response_id: Some(format!("response_{n:06}")),
        stop_reason: StopReason::ToolCalls,
    }));
    let mut appends = vec![
        vec![Item::text("I read the module, to see what it exports.").into(), item.into()],
        vec![Item::tool_result(result).into()],
    ];
    if n.is_multiple_of(10) {
        appends.insert(0, vec![Item::user("Go on with the next ten modules, please.").into()]);
    }
    appends
}

fn folder_size(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

/// Measures the bytes per turn after 10, 100 and 1,000 turns.
fn assert_linear_growth<S: Store>(name: &str, open: impl Fn(&Path) -> Result<S, Error>) {
    let folder = env::temp_dir().join(format!("turnstream-growth-{name}-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (mut version, mut turns) = (0, 0);
    let per_turn = [10_usize, 100, 1000].map(|until| {
        let store = open(&folder).unwrap();
        while turns < until {
            for entries in turn_appends(turns) {
                version = block_on(store.append("s", version, entries)).unwrap();
            }
            turns += 1;
        }
        // With the last handle the database is closed, and its log is emptied.
        drop(store);
        folder_size(&folder) / until as u64
    });
    fs::remove_dir_all(&folder).unwrap();
    println!("{name}: {per_turn:?} bytes a turn after 10, 100 and 1,000 turns");
    let [at_10, _, at_1000] = per_turn;
    assert!(at_1000 * 10 <= at_10 * 11, "{per_turn:?}");
}

#[test]
fn the_size_of_a_json_lines_session_is_linear_in_the_conversation() {
    assert_linear_growth("json_lines", |folder| JsonLinesStore::open(folder));
}

#[cfg(feature = "sqlite")]
#[test]
fn the_size_of_a_sqlite_session_is_linear_in_the_conversation() {
    assert_linear_growth("sqlite", |folder| {
        turnstream::session::SqliteStore::open(folder.join("db"))
    });
}
