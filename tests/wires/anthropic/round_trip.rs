//! What a model wrote goes back to it as it came, and to no other.

use serde_json::json;
use turnstream::item::{Item, ItemKind, Mark, ResultKind, ToolResult};
use turnstream::testing::{Wire, lint};
use turnstream::turn::{Turn, TurnEvent};
use turnstream::{Event, History, Request};

use super::fixture::*;

const OPAQUE: &str = "EqQBCgIYAhIk+/Zm9v==";

/// What the turn is in the next request to its own model and to another.
fn next(turn: &Turn) -> (String, String) {
    (sent(then_more(turn)), sent_to("another", then_more(turn)))
}

/// The block comes back byte for byte, to its own model only.
#[track_caller]
fn check_bound(block: &str, turn: &Turn) {
    let (own, other) = next(turn);
    assert!(own.contains(block), "{block} is not in {own}");
    assert!(!other.contains(block), "{block} is in {other}");
}

/// What a user said, and this turn.
fn alone(turn: &Turn) -> Vec<Item> {
    let mut items = vec![Item::user("x")];
    items.extend(turn.to_history_items());
    items
}

const THOUGHT: &str = r#"{"type":"thinking","thinking":"t","signature":"s"}"#;
const WORDS: &str = r#"{"type":"text","text":"So."}"#;

/// A turn of this block and some words.
fn beside_words(block: &str) -> std::sync::Arc<Turn> {
    blocks(&[block, WORDS], "pause_turn")
}

/// What the server's own tool was asked.
fn used(id: &str) -> String {
    format!(r#"{{"type":"server_tool_use","id":"{id}","name":"web_search","input":{{}}}}"#)
}

/// What the server's own tool returned.
fn found(id: &str) -> String {
    format!(r#"{{"type":"web_search_tool_result","tool_use_id":"{id}","content":[]}}"#)
}

#[test]
fn thinking_is_sent_back_with_its_signature() {
    let signature =
        |piece: &str| delta(0, &format!(r#"{{"type":"signature_delta","signature":"{piece}"}}"#));
    let thought = delta(0, r#"{"type":"thinking_delta","thinking":"Hm \"é\"."}"#);
    let (first, rest) = OPAQUE.split_at(7);
    for signed in [vec![signature(OPAQUE)], vec![signature(first), signature(rest)]] {
        let block = r#"{"type":"thinking","thinking":"","signature":""}"#;
        let mut events = vec![begin(0, block), thought.clone()];
        events.extend(signed);
        events.extend([end(0), begin(1, r#"{"type":"text","text":"So."}"#), end(1)]);
        let turn = message(&events, "end_turn");
        assert_eq!(turn.reasoning(), "Hm \"é\".");
        let sent =
            format!(r#"{{"type":"thinking","thinking":"Hm \"é\".","signature":"{OPAQUE}"}}"#);
        check_bound(&sent, &turn);
    }
}

#[test]
fn a_signature_in_the_start_event_is_replaced_by_a_delta() {
    let block = r#"{"type":"thinking","thinking":"Hm.","signature":"old"}"#;
    let piece =
        |piece: &str| delta(0, &format!(r#"{{"type":"signature_delta","signature":"{piece}"}}"#));
    for (pieces, signature) in
        [(vec![], "old"), (vec![piece("")], "old"), (vec![piece("n"), piece("ew")], "new")]
    {
        let events =
            [vec![begin(0, block)], pieces, vec![end(0), begin(1, WORDS), end(1)]].concat();
        check_bound(&block.replace("old", signature), &message(&events, "end_turn"));
    }
}

#[test]
fn hidden_thinking_is_sent_back() {
    let block = format!(r#"{{"type":"thinking","thinking":"","signature":"{OPAQUE}"}}"#);
    let turn = beside_words(&block);
    assert!(matches!(&turn.items()[0].kind, ItemKind::Reasoning { text } if text.is_empty()));
    check_bound(&block, &turn);
}

#[test]
fn redacted_thinking_is_sent_back_byte_for_byte() {
    let block = format!(r#"{{"type":"redacted_thinking","data":"{OPAQUE}","a":1}}"#);
    check_bound(&block, &beside_words(&block));
}

#[test]
fn a_signature_on_a_text_block_is_ignored() {
    let signature = delta(0, r#"{"type":"signature_delta","signature":"no"}"#);
    let events = [text(0, "a"), signature, text(0, "b")];
    let turn = one_block(r#"{"type":"text","text":""}"#, &events, "end_turn");
    assert_eq!(turn.text(), "ab");
    assert_eq!(turn.items()[0].provider_data, None);
}

#[test]
fn thinking_without_a_signature_is_not_sent() {
    let (own, other) = next(&beside_words(r#"{"type":"thinking","thinking":"Unsigned."}"#));
    assert!(!own.contains("Unsigned") && !other.contains("Unsigned"));
}

#[test]
fn thinking_between_calls_keeps_its_position() {
    let thought = |n: u32| format!(r#"{{"type":"thinking","thinking":"{n}","signature":"s{n}"}}"#);
    let call = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
    let told = r#"{"type":"text","text":" Looking. "}"#;
    let came = [&*thought(1), told, &call("a"), &thought(2), &call("b")];
    let body = sent(answered(&blocks(&came, "tool_use")));
    assert!(body.contains(&came.join(",")), "{body}");
}

#[test]
fn citations_are_sent_back_in_order_byte_for_byte() {
    let cite = |n: u32| {
        let citation = format!(r#"{{"type":"char_location","cited_text":"é","a":{n},"Z":[{n}]}}"#);
        (delta(0, &format!(r#"{{"type":"citations_delta","citation":{citation}}}"#)), citation)
    };
    let ((first, one), (second, two)) = (cite(1), cite(2));
    let events = [text(0, "It "), first, text(0, "is "), second];
    let block = r#"{"type":"text","text":"","citations":[]}"#;
    let events = [&[begin(0, block)], &events[..], &[end(0)]].concat();
    let words = [begin(1, r#"{"type":"text","text":"so."}"#), end(1)];
    let turn = message(&[&events[..], &words].concat(), "end_turn");
    let sent = format!(r#"{{"type":"text","text":"It is ","citations":[{one},{two}]}}"#);
    check_bound(&sent, &turn);
    // The words alone go to another.
    assert!(next(&turn).1.contains(r#"{"type":"text","text":"It is "}"#));
}

#[test]
fn server_tool_blocks_are_sent_back_byte_for_byte() {
    for block in [
        r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"url":"u","encrypted_content":"x=="}]}"#,
        r#"{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}}"#,
        r#"{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_result","url":"u"}}"#,
        r#"{"type":"code_execution_tool_result","tool_use_id":"s","content":{"type":"code_execution_result","stdout":"1\n","return_code":0}}"#,
        r#"{"type":"bash_code_execution_tool_result","tool_use_id":"s","content":{"type":"bash_code_execution_tool_result_error","error_code":"unavailable"}}"#,
        r#"{"type":"text_editor_code_execution_tool_result","tool_use_id":"s","content":{"is_file_update":false}}"#,
        r#"{"type":"tool_search_tool_result","tool_use_id":"s","content":{"tool_references":[]}}"#,
        r#"{"type":"mcp_tool_use","id":"mcptoolu_1","name":"n","server_name":"s","input":{}}"#,
        r#"{"type":"mcp_tool_result","tool_use_id":"mcptoolu_1","is_error":true,"content":[]}"#,
        r#"{"type":"advisor_tool_result","tool_use_id":"s","content":{"type":"advisor_redacted_result","encrypted_content":"o=="}}"#,
        r#"{"type":"fallback","from":{"model":"a"},"to":{"model":"b"}}"#,
        r#"{"type":"container_upload","file_id":"file_1"}"#,
        r#"{"type":"compaction","content":"It was said that …"}"#,
    ] {
        let id = |kind: &str| value(block)[kind].as_str().map(str::to_owned);
        let before = id("tool_use_id").map(|id| used(&id));
        let after = id("id").map(|id| found(&id));
        let turn = [before.as_deref(), Some(block), after.as_deref(), Some(WORDS)];
        let turn = blocks(&turn.into_iter().flatten().collect::<Vec<_>>(), "pause_turn");
        check_bound(block, &turn);
    }
}

#[test]
fn deltas_of_an_opaque_block_are_merged_into_it() {
    let turn = one_block(
        r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{},"caller":{"type":"direct"}}"#,
        &[input(0, ""), input(0, "{\"query\":"), input(0, "\"q\"}")],
        "pause_turn",
    );
    let whole = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"q"},"caller":{"type":"direct"}}"#;
    assert_eq!(own(&turn), [whole]);

    let piece =
        |piece: &str| delta(0, &format!(r#"{{"type":"compaction_delta","content":"{piece}"}}"#));
    let block = r#"{"type":"compaction","content":null}"#;
    let turn = one_block(block, &[piece("It was "), piece("said.")], "compaction");
    assert_eq!(own(&turn), [r#"{"type":"compaction","content":"It was said."}"#]);
    // What is encrypted goes back as it came.
    let encrypted = |raw: &str| {
        delta(
            0,
            &format!(r#"{{"type":"compaction_delta","content":null,"encrypted_content":{raw}}}"#),
        )
    };
    let deltas = [encrypted("null"), piece("It."), encrypted(r#""b3Bh""#)];
    let whole = r#"{"type":"compaction","content":"It.","encrypted_content":"b3Bh"}"#;
    let turn = one_block(block, &deltas, "compaction");
    assert_eq!(own(&turn), [whole]);
    assert!(sent(alone(&turn)).contains(whole));
}

#[test]
fn an_unusual_server_block_is_kept() {
    let deep = "[".repeat(3000) + &"]".repeat(3000);
    for input in [
        deep.as_str(),
        r#"{"a":1,"a":2}"#,
        r#"{"n":123456789012345678901234567890}"#,
        &format!(r#"{{"a":{deep},"b":"\"["}}"#),
    ] {
        let block =
            format!(r#"{{"type":"server_tool_use","id":"s","name":"web_search","input":{input}}}"#);
        let turn = blocks(&[&block, &found("s"), WORDS], "pause_turn");
        assert_eq!(own(&turn).len(), 2);
        // It is read again from its record.
        let record = serde_json::to_string(&turn).unwrap();
        assert_eq!(serde_json::from_str::<Turn>(&record).unwrap(), *turn);
        let sent = sent(then_more(&turn));
        let is_float = input.contains("1234567890");
        assert!(sent.contains(&block) || is_float, "{sent:.200}");
        assert!(sent.contains("server_tool_use"));
    }
    // Also from the record of a run that was another's tool.
    for depth in 50..135 {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let block = format!(r#"{{"type":"server_tool_use","id":"s","name":"n","input":{deep}}}"#);
        let turn = blocks(&[&block, &found("s")], "pause_turn");
        assert!(sent(then_more(&turn)).contains(&block), "{depth}");
        let event = Event::Turn(TurnEvent::TurnComplete { turn });
        let (call_id, name) = (String::new(), String::new());
        let nested = Event::Nested { call_id, name, event: Box::new(event) };
        let record = serde_json::to_string(&nested).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&record).unwrap(), nested, "{depth}");
    }
    // The deltas are not lost, however deep.
    let block = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#;
    let turn = one_block(block, &[input(0, &deep)], "pause_turn");
    assert!(sent(alone(&turn)).contains(&block.replace("{}", &deep)));
    // Half an emoji is made whole: no vendor takes it back.
    let block = r#"{"type":"server_tool_use","id":"s","name":"n","input":{"q":"\ud83d"}}"#;
    assert!(sent(alone(&beside_words(block))).contains("{\"q\":\"\u{fffd}\"}"));
}

#[test]
fn a_truncated_opaque_block_is_kept_as_text_and_not_sent() {
    let block = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#;
    let turn = one_block(block, &[input(0, "{\"query\":\"q")], "max_tokens");
    assert_eq!(own(&turn), [block.replace("{}", r#""{\"query\":\"q""#)]);
    assert!(!sent(then_more(&turn)).contains("server_tool_use"));
}

#[test]
fn a_server_tool_use_without_result_is_sent_only_in_a_paused_turn() {
    let came = [WORDS, &used("s1"), &found("s1"), THOUGHT, &used("s2")];
    for (reason, goes_on) in [("max_tokens", false), ("pause_turn", true)] {
        let body = sent(alone(&blocks(&came, reason)));
        assert!(body.contains(&came[..3].join(",")), "{body}");
        assert_eq!(body.contains(&came[3..].join(",")), goes_on, "{body}");
        assert_eq!(body.contains("thinking"), goes_on, "{body}");
    }
}

/// The types of the blocks of each message that is sent, of which a strict vendor refuses none.
#[track_caller]
fn lawful(body: &str) -> Vec<Vec<String>> {
    let body = value(body);
    assert_eq!(lint::request(Wire::Anthropic, "m", &body), [""; 0], "{body}");
    let kinds = |message: &serde_json::Value| -> Vec<String> {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    body["messages"].as_array().unwrap().iter().map(kinds).collect()
}

#[test]
fn a_server_tool_use_without_result_is_omitted_after_user_input() {
    let mut items =
        alone(&blocks(&[WORDS, &used("s1"), &found("s1"), THOUGHT, &used("s2")], "pause_turn"));
    for said in [Item::user("stop that"), Item::system("The run ends."), Item::user(" ")] {
        let speaks = said != Item::user(" ");
        let body = sent([items.clone(), vec![said]].concat());
        let kinds = lawful(&body);
        let all =
            ["text", "server_tool_use", "web_search_tool_result", "thinking", "server_tool_use"];
        assert_eq!(kinds[1], &all[..if speaks { 3 } else { 5 }], "{body}");
    }
    // A turn that was nothing else does not become a message.
    let body = sent(
        [alone(&blocks(&[THOUGHT, &used("s1")], "pause_turn")), vec![Item::user("y")]].concat(),
    );
    assert_eq!(lawful(&body), [["text", "text"]]);
    // The same holds where the turn was cut off after the use.
    let cut_off = Item { turn: None, ..items.pop().unwrap() }.with_mark(Mark::Interrupted);
    let body = sent([items, vec![cut_off]].concat());
    assert_eq!(lawful(&body)[1].len(), 3, "{body}");
}

#[test]
fn a_server_tool_result_without_its_use_is_omitted() {
    let body = sent(then_more(&blocks(&[&found("s1"), WORDS], "end_turn")));
    assert_eq!(lawful(&body)[1], ["text"]);
    // As where a user spoke before the result came, or another model had asked.
    let mut items = alone(&blocks(&[WORDS, &used("s1")], "pause_turn"));
    items.push(Item::user("stop that"));
    items.extend(blocks(&[&found("s1"), WORDS], "end_turn").to_history_items());
    items.push(Item::user("y"));
    assert_eq!(lawful(&sent(items))[1..4], [["text"], ["text"], ["text"]]);
    let twice = blocks(&[&used("s1"), &found("s1"), &found("s1"), WORDS], "end_turn");
    let kinds = lawful(&sent(then_more(&twice)));
    assert_eq!(kinds[1], ["server_tool_use", "web_search_tool_result", "text"]);
}

#[test]
fn a_server_tool_use_without_result_is_sent_only_while_its_calls_are_answered() {
    let caller = r#""caller":{"type":"code_execution_20260120","tool_id":"s1"}"#;
    let call = |id: &str| {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{"a":1}},{caller}}}"#)
    };
    let first = answered(&blocks(&[&used("s1"), &call("t1")], "tool_use"));
    let second = answered(&blocks(&[&call("t2")], "tool_use")).split_off(1);
    let waiting = [first, second].concat();
    let request = |items: Vec<Item>, tools: serde_json::Value| {
        let mut request = Request::new(History::from_items("h", items));
        request.options.extra.insert("tools".into(), tools);
        encoded(&request, MODEL).unwrap()
    };
    let ours = json!({ "name": "f", "input_schema": { "type": "object" } });
    let native = json!([ours, { "type": "code_execution_20260120", "name": "code_execution" }]);
    let of_call = ["server_tool_use", "tool_use"];
    let body = request(waiting.clone(), native.clone());
    assert_eq!(lawful(&body)[1], of_call);
    assert_eq!(body.matches(caller).count(), 2, "{body}");
    // The code does not run any more: what it called stands for itself.
    let gone = |body: String| {
        assert_eq!(lawful(&body)[1..4], [["tool_use"], ["tool_result"], ["tool_use"]]);
        assert!(!body.contains("caller"), "{body}");
    };
    let told = [waiting.clone(), vec![Item::user("stop that")]].concat();
    let closed =
        [told.clone(), blocks(&[WORDS], "end_turn").to_history_items(), vec![Item::user("y")]]
            .concat();
    for items in [told, closed] {
        let body = request(items, native.clone());
        assert!(!body.contains("server_tool_use") && !body.contains("caller"), "{body}");
        lawful(&body);
    }
    gone(request(waiting.clone(), json!([ours])));
    // A later result is sent with its use, whatever is offered now.
    let later = blocks(&[&found("s1"), WORDS], "end_turn").to_history_items();
    let body = request([waiting, later, vec![Item::user("y")]].concat(), json!([ours]));
    assert_eq!(lawful(&body)[1], of_call);
    assert_eq!(body.matches(caller).count(), 2, "{body}");
}

#[test]
fn a_deferred_server_tool_result_may_arrive_in_a_later_response() {
    let server = r#"{"type":"server_tool_use","id":"s1","name":"code_execution","input":{}}"#;
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{"a":1},"caller":{"type":"code_execution_20260120","tool_id":"s1"}}"#;
    let result = r#"{"type":"code_execution_tool_result","tool_use_id":"s1","content":{}}"#;
    let first = blocks(&[server, call], "tool_use");
    let second = blocks(&[result, r#"{"type":"text","text":"Done."}"#], "end_turn");
    let mut items = answered(&first);
    items.extend(second.to_history_items());
    items.push(Item::user("y"));
    let body = sent(items);
    assert!(body.contains(&format!("{server},{call}")), "{body}");
    assert!(body.contains(&format!(r#""content":[{result},{{"type":"text""#)), "{body}");
    let roles = |body: &str| {
        let messages = value(body)["messages"].as_array().unwrap().clone();
        messages.iter().map(|m| m["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(&body), ["user", "assistant", "user", "assistant", "user"]);
}

/// A turn whose code ran in this container, said at its start or at its end.
fn ran_in(container: &str, at_start: bool) -> std::sync::Arc<Turn> {
    let container = format!(r#""container":{{"id":"{container}","expires_at":"2030-01-01"}}"#);
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{},"caller":{"tool_id":"s1","type":"code_execution_20260120"}}"#;
    let start = START.replace(r#""content":[]"#, &format!(r#""content":[{call}],{container}"#));
    let delta = format!(r#"{{"stop_reason":"tool_use",{container}}}"#);
    let end_with = format!(r#"{{"type":"message_delta","delta":{delta}}}"#);
    let events = match at_start {
        true => vec![start, stop("tool_use"), STOP.into()],
        false => vec![START.into(), begin(0, call), end(0), end_with, STOP.into()],
    };
    read(&events).unwrap()
}

#[test]
fn container_and_caller_of_a_programmatic_call_are_sent_back() {
    for at_start in [true, false] {
        let turn = ran_in("container_1", at_start);
        assert_eq!(turn.tool_calls().count(), 1);
        let body = sent(answered(&turn));
        assert_eq!(value(&body)["container"], "container_1");
        let caller = r#""caller":{"tool_id":"s1","type":"code_execution_20260120"}"#;
        assert!(body.contains(caller), "{body}");
        // The message of the results holds nothing else, as the wire demands.
        assert_eq!(value(&body)["messages"][2]["content"].as_array().unwrap().len(), 1);
        let other = sent_to("another", answered(&turn));
        assert!(!other.contains("container") && !other.contains("caller"), "{other}");
    }
}

#[test]
fn the_newest_container_is_sent_until_replaced() {
    let mut items = then_more(&ran_in("container_1", true));
    items.extend(beside_words(r#"{"type":"fallback"}"#).to_history_items());
    items.push(Item::user("z"));
    assert_eq!(value(&sent(items.clone()))["container"], "container_1");
    let call = ran_in("container_2", false);
    items.extend(call.to_history_items());
    items.push(Item::tool_result(ToolResult {
        call_id: "t1".into(),
        name: "f".into(),
        content: "r".into(),
        kind: ResultKind::Ok,
        report: None,
    }));
    assert_eq!(value(&sent(items))["container"], "container_2");
}

#[test]
fn the_caller_of_a_renamed_call_is_sent_back_unchanged() {
    let call = |input: &str| {
        format!(
            r#"{{"type":"tool_use","id":"t1","name":"f","input":{input},"caller":{{"type":"z","b":{{"y":1,"x":2}},"a":1}}}}"#
        )
    };
    let turn = blocks(&[&call(r#"{"n":1}"#), &call(r#"{"n":2}"#)], "tool_use");
    assert_eq!(turn.tool_calls().nth(1).unwrap().call_id, "t1_dup1");
    let body = sent(answered(&turn));
    assert_eq!(body.matches(r#""caller":{"type":"z","b":{"y":1,"x":2},"a":1}"#).count(), 2);
}

#[test]
fn a_paused_turn_is_sent_back_unchanged_and_last() {
    let server = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"q":1}}"#;
    let body = sent(alone(&blocks(&[r#"{"type":"text","text":"Wait. "}"#, server], "pause_turn")));
    let last = format!(
        r#"{{"role":"assistant","content":[{{"type":"text","text":"Wait. "}},{server}]}}]}}"#
    );
    assert!(body.ends_with(&last), "{body}");
}
