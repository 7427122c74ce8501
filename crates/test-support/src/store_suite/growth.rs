//! The size of a stored session is proportional to its content.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use futures::executor::block_on;
use turnstream::item::{ResultKind, StopReason, ToolCall, ToolResult, TurnInfo};
use turnstream::session::Entry;
use turnstream::{Item, Usage};

use super::temp_store::OpenStore;
use crate::temp_folder::TempFolder;

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
pub fn the_size_of_a_session_is_linear_in_the_conversation(_: &str, open: OpenStore) {
    let folder = TempFolder::new();
    let (mut version, mut turns) = (0, 0);
    let per_turn = [10_usize, 100, 1000].map(|until| {
        let store = open(folder.path()).unwrap();
        while turns < until {
            for entries in turn_appends(turns) {
                version = block_on(store.append("s", version, entries)).unwrap();
            }
            turns += 1;
        }
        // With the last handle the store is closed, and the log of a database is emptied.
        drop(store);
        folder_size(folder.path()) / until as u64
    });
    println!("{per_turn:?} bytes a turn after 10, 100 and 1,000 turns");
    let [at_10, _, at_1000] = per_turn;
    assert!(at_1000 * 10 <= at_10 * 11, "{per_turn:?}");
}
