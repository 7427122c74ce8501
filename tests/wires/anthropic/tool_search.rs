//! Deferred tools, for which the vendor searches: how they are declared, and the search results.

use serde_json::{Value, json};
use turnstream::tool::ToolSpec;
use turnstream::turn::Turn;
use turnstream::{History, Item, Request};
use turnstream_testing::{Wire, lint};

use super::fixture::*;

fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "What it does", json!({ "type": "object" }))
}

/// A body that the vendor accepts.
#[track_caller]
fn encode_and_lint(items: Vec<Item>, tools: Vec<ToolSpec>) -> Value {
    let request = Request::new(History::from_items("h", items)).with_tools(tools);
    let body = parse_json(&encode_to_string(&request, MODEL).unwrap());
    assert_eq!(lint::request(Wire::Anthropic, MODEL, &body), [""; 0], "{body}");
    body
}

const SEARCH: &str =
    r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_bm25","input":{}}"#;
const FOUND: &str = r#"{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"tool_search_tool_search_result","tool_references":[{"type":"tool_reference","tool_name":"forecast"}]}}"#;

/// A turn that searches, and calls the tool that was found.
fn turn_with_search() -> std::sync::Arc<Turn> {
    let call = r#"{"type":"tool_use","id":"toolu_1","name":"forecast","input":{}}"#;
    let events = [
        content_block_start(0, r#"{"type":"text","text":""}"#),
        text_delta(0, "I search."),
        content_block_stop(0),
        content_block_start(1, SEARCH),
        input_json_delta(1, r#"{"query":"#),
        input_json_delta(1, r#""weather"}"#),
        content_block_stop(1),
        content_block_start(2, FOUND),
        content_block_stop(2),
        content_block_start(3, call),
        input_json_delta(3, r#"{"city":"Rome"}"#),
        content_block_stop(3),
    ];
    decode_message(&events, "tool_use")
}

#[test]
fn deferred_tools_are_sent_with_the_vendors_search() {
    let tools = vec![spec("read"), spec("forecast").with_deferred(true)];
    let body = encode_and_lint(vec![Item::user("x")], tools);
    let search =
        json!({ "type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25" });
    let tools = &body["tools"];
    assert_eq!(tools[0], search);
    assert_eq!((&tools[1]["name"], &tools[1]["defer_loading"]), (&json!("read"), &Value::Null));
    assert!(tools[1]["cache_control"].is_object(), "the mark is on the last tool that is cached");
    assert_eq!(tools[2]["defer_loading"], true);
    assert_eq!(tools[2]["cache_control"], Value::Null);
}

#[test]
fn where_all_tools_are_deferred_the_search_has_the_cache_mark() {
    let body = encode_and_lint(vec![Item::user("x")], vec![spec("forecast").with_deferred(true)]);
    assert!(body["tools"][0]["cache_control"].is_object());
}

#[test]
fn requests_without_deferred_tools_have_no_search() {
    let body = encode_to_string(
        &Request::new(History::from_items("h", [Item::user("x")])).with_tools([spec("read")]),
        MODEL,
    );
    let body = body.unwrap();
    assert!(!body.contains("tool_search") && !body.contains("defer_loading"), "{body}");
}

#[test]
fn a_search_and_its_results_are_sent_back_verbatim() {
    let turn = turn_with_search();
    let call = turn.tool_calls().next().unwrap();
    assert_eq!((&*call.name, &*call.arguments), ("forecast", r#"{"city":"Rome"}"#));
    let body =
        encode_and_lint(items_with_results(&turn), vec![spec("forecast").with_deferred(true)]);
    let blocks = &body["messages"][1]["content"];
    let kinds: Vec<&str> =
        blocks.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "server_tool_use", "tool_search_tool_result", "tool_use"]);
    assert_eq!(blocks[1]["input"], json!({ "query": "weather" }));
    assert_eq!(blocks[2], parse_json(FOUND));
}

#[test]
fn a_found_tool_stays_declared_after_it_is_no_longer_offered() {
    for tools in [vec![], vec![spec("read")], vec![spec("other").with_deferred(true)]] {
        let body = encode_and_lint(items_with_results(&turn_with_search()), tools);
        let declared = body["tools"].as_array().unwrap();
        let found: Vec<_> = declared.iter().filter(|tool| tool["name"] == "forecast").collect();
        assert_eq!(found.len(), 1);
    }
}
