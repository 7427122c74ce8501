//! Settling pairs the calls and results of any history.

use proptest::prelude::*;
use turnstream::item::{ItemFlag, ResultKind, ToolResult};
use turnstream::provider::anthropic;
use turnstream::{History, Item, Request};

/// Small random histories, valid or not.
fn any_history() -> impl Strategy<Value = History> {
    let call = |id: &str, interrupted: bool| {
        let item = Item::tool_call(id, "t", "{}");
        if interrupted { item.with_flag(ItemFlag::Interrupted) } else { item }
    };
    let result = |id: &str| {
        Item::tool_result(ToolResult {
            call_id: id.into(),
            name: "t".into(),
            content: "r".into(),
            kind: ResultKind::Ok,
            report: None,
        })
    };
    let ids = || prop::sample::select(vec!["a", "b", "a_dup1"]);
    let item = prop_oneof![
        Just(Item::user("u")),
        Just(Item::text("x")),
        Just(Item::reasoning("r")),
        Just(Item::system("s")),
        (ids(), any::<bool>()).prop_map(move |(id, interrupted)| call(id, interrupted)),
        ids().prop_map(result),
        ids().prop_map(move |id| result(id).with_flag(ItemFlag::Tombstone)),
    ];
    prop::collection::vec(item, 0..10).prop_map(|items| History::from_items("h", items))
}

/// Law 3, checked independently of the implementation of `settled`.
fn has_paired_calls(history: &History) -> bool {
    let items: Vec<_> = history.iter().filter(|item| !item.tombstone).collect();
    let calls: Vec<_> = items.iter().filter_map(|item| item.as_tool_call()).collect();
    let results: Vec<_> = items.iter().filter_map(|item| item.as_tool_result()).collect();
    let place = |id: &str, result: bool| {
        items.iter().position(|item| match result {
            true => item.as_tool_result().is_some_and(|r| r.call_id == id),
            false => item.as_tool_call().is_some_and(|c| c.call_id == id),
        })
    };
    calls.len() == results.len()
        && calls.iter().all(|call| {
            let id = &call.call_id;
            calls.iter().filter(|other| other.call_id == *id).count() == 1
                && results.iter().filter(|result| result.call_id == *id).count() == 1
                && place(id, false) < place(id, true)
        })
}

proptest! {
    #[test]
    fn settling_any_history_pairs_all_calls_and_is_idempotent(history in any_history()) {
        let settled = history.settled();
        prop_assert!(has_paired_calls(&settled), "{settled:?}");
        prop_assert!(settled.is_settled());
        prop_assert_eq!(&settled.settled(), &settled);
        if history.is_settled() {
            prop_assert!(has_paired_calls(&history));
            prop_assert_eq!(&settled, &history);
        }
        // All text and all completed calls are still in the history.
        let said = |h: &History| h.iter().filter(|i| i.as_text().is_some()).count();
        prop_assert_eq!(said(&settled), said(&history));
        let mut sent = history;
        sent.push(Item::user("go on"));
        prop_assert!(anthropic::encode(&Request::new(sent), "m").is_ok());
    }
}
