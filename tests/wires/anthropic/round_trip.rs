//! The model's own blocks are sent back to it unchanged, and to no other model.

use serde_json::json;
use turnstream::item::{Item, ItemFlag, ItemKind, ResultKind, ToolResult};
use turnstream::turn::{PartialTurn, Turn, TurnEvent};
use turnstream::{Event, History, Request};
use turnstream_testing::{Wire, lint};

use super::fixture::*;

const OPAQUE_SIGNATURE: &str = "EqQBCgIYAhIk+/Zm9v==";

/// The turn in the next request to its own model and to another one.
fn encode_for_own_and_other(turn: &Turn) -> (String, String) {
    (
        encode_items(items_with_follow_up(turn)),
        encode_items_for("another", items_with_follow_up(turn)),
    )
}

/// Checks that the block is sent back byte for byte, to its own model only.
#[track_caller]
fn check_model_bound(block: &str, turn: &Turn) {
    let (own, other) = encode_for_own_and_other(turn);
    assert!(own.contains(block), "{block} is not in {own}");
    assert!(!other.contains(block), "{block} is in {other}");
}

/// A user message, and this turn.
fn items_without_results(turn: &Turn) -> Vec<Item> {
    let mut items = vec![Item::user("x")];
    items.extend(turn.to_history_items());
    items
}

const THINKING_BLOCK: &str = r#"{"type":"thinking","thinking":"t","signature":"s"}"#;
const TEXT_BLOCK: &str = r#"{"type":"text","text":"So."}"#;

/// A turn with this block and some text.
fn turn_with_text(block: &str) -> std::sync::Arc<Turn> {
    decode_blocks(&[block, TEXT_BLOCK], "pause_turn")
}

/// The use of a server tool.
fn server_tool_use(id: &str) -> String {
    format!(r#"{{"type":"server_tool_use","id":"{id}","name":"web_search","input":{{}}}}"#)
}

/// The result of a server tool.
fn server_tool_result(id: &str) -> String {
    format!(r#"{{"type":"web_search_tool_result","tool_use_id":"{id}","content":[]}}"#)
}

#[test]
fn thinking_is_sent_back_with_its_signature() {
    let signature = |piece: &str| {
        content_block_delta(0, &format!(r#"{{"type":"signature_delta","signature":"{piece}"}}"#))
    };
    let thought = content_block_delta(0, r#"{"type":"thinking_delta","thinking":"Hm \"é\"."}"#);
    let (first, rest) = OPAQUE_SIGNATURE.split_at(7);
    for signed in [vec![signature(OPAQUE_SIGNATURE)], vec![signature(first), signature(rest)]] {
        let block = r#"{"type":"thinking","thinking":"","signature":""}"#;
        let mut events = vec![content_block_start(0, block), thought.clone()];
        events.extend(signed);
        events.extend([
            content_block_stop(0),
            content_block_start(1, r#"{"type":"text","text":"So."}"#),
            content_block_stop(1),
        ]);
        let turn = decode_message(&events, "end_turn");
        assert_eq!(turn.reasoning(), "Hm \"é\".");
        let sent = format!(
            r#"{{"type":"thinking","thinking":"Hm \"é\".","signature":"{OPAQUE_SIGNATURE}"}}"#
        );
        check_model_bound(&sent, &turn);
    }
}

#[test]
fn a_signature_in_the_start_event_is_replaced_by_a_delta() {
    let block = r#"{"type":"thinking","thinking":"Hm.","signature":"old"}"#;
    let piece = |piece: &str| {
        content_block_delta(0, &format!(r#"{{"type":"signature_delta","signature":"{piece}"}}"#))
    };
    for (pieces, signature) in
        [(vec![], "old"), (vec![piece("")], "old"), (vec![piece("n"), piece("ew")], "new")]
    {
        let events = [
            vec![content_block_start(0, block)],
            pieces,
            vec![content_block_stop(0), content_block_start(1, TEXT_BLOCK), content_block_stop(1)],
        ]
        .concat();
        check_model_bound(&block.replace("old", signature), &decode_message(&events, "end_turn"));
    }
}

#[test]
fn hidden_thinking_is_sent_back() {
    let block = format!(r#"{{"type":"thinking","thinking":"","signature":"{OPAQUE_SIGNATURE}"}}"#);
    let turn = turn_with_text(&block);
    assert!(matches!(&turn.items()[0].kind, ItemKind::Reasoning { text } if text.is_empty()));
    check_model_bound(&block, &turn);
}

#[test]
fn redacted_thinking_is_sent_back_byte_for_byte() {
    let block = format!(r#"{{"type":"redacted_thinking","data":"{OPAQUE_SIGNATURE}","a":1}}"#);
    check_model_bound(&block, &turn_with_text(&block));
}

#[test]
fn a_signature_on_a_text_block_is_ignored() {
    let signature = content_block_delta(0, r#"{"type":"signature_delta","signature":"no"}"#);
    let events = [text_delta(0, "a"), signature, text_delta(0, "b")];
    let turn = decode_one_block(r#"{"type":"text","text":""}"#, &events, "end_turn");
    assert_eq!(turn.text(), "ab");
    assert_eq!(turn.items()[0].provider_data, None);
}

#[test]
fn thinking_without_a_signature_is_not_sent() {
    let (own, other) =
        encode_for_own_and_other(&turn_with_text(r#"{"type":"thinking","thinking":"Unsigned."}"#));
    assert!(!own.contains("Unsigned") && !other.contains("Unsigned"));
}

#[test]
fn an_interrupted_turn_with_interleaved_thinking_can_be_continued() {
    let call = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
    let thought = |n: u32| format!(r#"{{"type":"thinking","thinking":"{n}","signature":"s{n}"}}"#);
    let half = [
        content_block_start(4, r#"{"type":"thinking","thinking":"","signature":""}"#),
        content_block_delta(4, r#"{"type":"thinking_delta","thinking":"half"}"#),
    ];
    let blocks = [thought(1), call("a"), thought(2), call("b")];
    let whole = (0..)
        .zip(&blocks)
        .flat_map(|(at, block)| [content_block_start(at, block), content_block_stop(at)]);
    let events = [vec![MESSAGE_START.to_owned()], whole.collect(), half.to_vec()].concat();
    let error = decode_turn(&events).unwrap_err();
    let partial = error.find_source::<PartialTurn>().unwrap().items();
    let items = [vec![Item::user("go")], partial, vec![Item::user("again")]].concat();
    let body = encode_items(items);
    assert!(!body.contains("half"), "{body}");
    let json = parse_json(&body);
    assert_eq!(lint::request(Wire::Anthropic, MODEL, &json), [""; 0], "{body}");
    let content = |role: &str, kind: &str| -> usize {
        let messages = json["messages"].as_array().unwrap().iter();
        let own = messages.filter(|message| message["role"] == role);
        let blocks = own.flat_map(|message| message["content"].as_array().unwrap());
        blocks.filter(|block| block["type"] == kind).count()
    };
    assert_eq!(content("assistant", "tool_use"), content("user", "tool_result"), "{body}");
}

#[test]
fn thinking_between_calls_keeps_its_position() {
    let thought = |n: u32| format!(r#"{{"type":"thinking","thinking":"{n}","signature":"s{n}"}}"#);
    let call = |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{}}}}"#);
    let told = r#"{"type":"text","text":" Looking. "}"#;
    let came = [&*thought(1), told, &call("a"), &thought(2), &call("b")];
    let body = encode_items(items_with_results(&decode_blocks(&came, "tool_use")));
    assert!(body.contains(&came.join(",")), "{body}");
}

#[test]
fn citations_are_sent_back_in_order_byte_for_byte() {
    let cite = |n: u32| {
        let citation = format!(r#"{{"type":"char_location","cited_text":"é","a":{n},"Z":[{n}]}}"#);
        (
            content_block_delta(
                0,
                &format!(r#"{{"type":"citations_delta","citation":{citation}}}"#),
            ),
            citation,
        )
    };
    let ((first, one), (second, two)) = (cite(1), cite(2));
    let events = [text_delta(0, "It "), first, text_delta(0, "is "), second];
    let block = r#"{"type":"text","text":"","citations":[]}"#;
    let events = [&[content_block_start(0, block)], &events[..], &[content_block_stop(0)]].concat();
    let words = [content_block_start(1, r#"{"type":"text","text":"so."}"#), content_block_stop(1)];
    let turn = decode_message(&[&events[..], &words].concat(), "end_turn");
    let sent = format!(r#"{{"type":"text","text":"It is ","citations":[{one},{two}]}}"#);
    check_model_bound(&sent, &turn);
    // Only the text is sent to another model.
    assert!(encode_for_own_and_other(&turn).1.contains(r#"{"type":"text","text":"It is "}"#));
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
        let id = |kind: &str| parse_json(block)[kind].as_str().map(str::to_owned);
        let before = id("tool_use_id").map(|id| server_tool_use(&id));
        let after = id("id").map(|id| server_tool_result(&id));
        let turn = [before.as_deref(), Some(block), after.as_deref(), Some(TEXT_BLOCK)];
        let turn = decode_blocks(&turn.into_iter().flatten().collect::<Vec<_>>(), "pause_turn");
        check_model_bound(block, &turn);
    }
}

#[test]
fn deltas_of_an_opaque_block_are_merged_into_it() {
    let turn = decode_one_block(
        r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{},"caller":{"type":"direct"}}"#,
        &[
            input_json_delta(0, ""),
            input_json_delta(0, "{\"query\":"),
            input_json_delta(0, "\"q\"}"),
        ],
        "pause_turn",
    );
    let whole = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"q"},"caller":{"type":"direct"}}"#;
    assert_eq!(provider_item_texts(&turn), [whole]);

    let piece = |piece: &str| {
        content_block_delta(0, &format!(r#"{{"type":"compaction_delta","content":"{piece}"}}"#))
    };
    let block = r#"{"type":"compaction","content":null}"#;
    let turn = decode_one_block(block, &[piece("It was "), piece("said.")], "compaction");
    assert_eq!(provider_item_texts(&turn), [r#"{"type":"compaction","content":"It was said."}"#]);
    // Encrypted content is sent back unchanged.
    let encrypted = |raw: &str| {
        content_block_delta(
            0,
            &format!(r#"{{"type":"compaction_delta","content":null,"encrypted_content":{raw}}}"#),
        )
    };
    let deltas = [encrypted("null"), piece("It."), encrypted(r#""b3Bh""#)];
    let whole = r#"{"type":"compaction","content":"It.","encrypted_content":"b3Bh"}"#;
    let turn = decode_one_block(block, &deltas, "compaction");
    assert_eq!(provider_item_texts(&turn), [whole]);
    assert!(encode_items(items_without_results(&turn)).contains(whole));
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
        let turn = decode_blocks(&[&block, &server_tool_result("s"), TEXT_BLOCK], "pause_turn");
        assert_eq!(provider_item_texts(&turn).len(), 2);
        // The turn is read back from its record.
        let record = serde_json::to_string(&turn).unwrap();
        assert_eq!(serde_json::from_str::<Turn>(&record).unwrap(), *turn);
        let sent = encode_items(items_with_follow_up(&turn));
        let is_float = input.contains("1234567890");
        assert!(sent.contains(&block) || is_float, "{sent:.200}");
        assert!(sent.contains("server_tool_use"));
    }
    // Also from the record of a run that was a tool of another run.
    for depth in 50..135 {
        let deep = "[".repeat(depth) + &"]".repeat(depth);
        let block = format!(r#"{{"type":"server_tool_use","id":"s","name":"n","input":{deep}}}"#);
        let turn = decode_blocks(&[&block, &server_tool_result("s")], "pause_turn");
        assert!(encode_items(items_with_follow_up(&turn)).contains(&block), "{depth}");
        let event = Event::Turn(TurnEvent::TurnComplete { turn });
        let (call_id, name) = (String::new(), String::new());
        let nested = Event::Nested { call_id, name, event: Box::new(event) };
        let record = serde_json::to_string(&nested).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&record).unwrap(), nested, "{depth}");
    }
    // The deltas are not lost, however deep they are nested.
    let block = r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#;
    let turn = decode_one_block(block, &[input_json_delta(0, &deep)], "pause_turn");
    assert!(encode_items(items_without_results(&turn)).contains(&block.replace("{}", &deep)));
    // Half of a surrogate pair is replaced, since no vendor accepts it.
    let block = r#"{"type":"server_tool_use","id":"s","name":"n","input":{"q":"\ud83d"}}"#;
    assert!(
        encode_items(items_without_results(&turn_with_text(block)))
            .contains("{\"q\":\"\u{fffd}\"}")
    );
}

#[test]
fn a_truncated_opaque_block_is_kept_as_text_and_not_sent() {
    let block = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#;
    let turn = decode_one_block(block, &[input_json_delta(0, "{\"query\":\"q")], "max_tokens");
    assert_eq!(provider_item_texts(&turn), [block.replace("{}", r#""{\"query\":\"q""#)]);
    assert!(!encode_items(items_with_follow_up(&turn)).contains("server_tool_use"));
}

#[test]
fn a_server_tool_use_without_result_is_sent_only_in_a_paused_turn() {
    let came = [
        TEXT_BLOCK,
        &server_tool_use("s1"),
        &server_tool_result("s1"),
        THINKING_BLOCK,
        &server_tool_use("s2"),
    ];
    for (reason, goes_on) in [("max_tokens", false), ("pause_turn", true)] {
        let body = encode_items(items_without_results(&decode_blocks(&came, reason)));
        assert!(body.contains(&came[..3].join(",")), "{body}");
        assert_eq!(body.contains(&came[3..].join(",")), goes_on, "{body}");
        assert_eq!(body.contains("thinking"), goes_on, "{body}");
    }
}

/// The types of the blocks of each sent message, after checking that a strict vendor accepts them.
#[track_caller]
fn linted_block_types(body: &str) -> Vec<Vec<String>> {
    let body = parse_json(body);
    assert_eq!(lint::request(Wire::Anthropic, "m", &body), [""; 0], "{body}");
    let kinds = |message: &serde_json::Value| -> Vec<String> {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    body["messages"].as_array().unwrap().iter().map(kinds).collect()
}

#[test]
fn a_server_tool_use_without_result_is_omitted_after_user_input() {
    let mut items = items_without_results(&decode_blocks(
        &[
            TEXT_BLOCK,
            &server_tool_use("s1"),
            &server_tool_result("s1"),
            THINKING_BLOCK,
            &server_tool_use("s2"),
        ],
        "pause_turn",
    ));
    for said in [Item::user("stop that"), Item::system("The run ends."), Item::user(" ")] {
        let speaks = said != Item::user(" ");
        let body = encode_items([items.clone(), vec![said]].concat());
        let kinds = linted_block_types(&body);
        let all =
            ["text", "server_tool_use", "web_search_tool_result", "thinking", "server_tool_use"];
        assert_eq!(kinds[1], &all[..if speaks { 3 } else { 5 }], "{body}");
    }
    // A turn with no other blocks does not become a message.
    let body = encode_items(
        [
            items_without_results(&decode_blocks(
                &[THINKING_BLOCK, &server_tool_use("s1")],
                "pause_turn",
            )),
            vec![Item::user("y")],
        ]
        .concat(),
    );
    assert_eq!(linted_block_types(&body), [["text", "text"]]);
    // The same holds if the turn broke off after the use.
    let cut_off = Item { turn: None, ..items.pop().unwrap() }.with_flag(ItemFlag::Interrupted);
    let body = encode_items([items, vec![cut_off]].concat());
    assert_eq!(linted_block_types(&body)[1].len(), 3, "{body}");
}

#[test]
fn a_server_tool_result_without_its_use_is_omitted() {
    let body = encode_items(items_with_follow_up(&decode_blocks(
        &[&server_tool_result("s1"), TEXT_BLOCK],
        "end_turn",
    )));
    assert_eq!(linted_block_types(&body)[1], ["text"]);
    // Also if a user message came before the result, or another model had made the use.
    let mut items =
        items_without_results(&decode_blocks(&[TEXT_BLOCK, &server_tool_use("s1")], "pause_turn"));
    items.push(Item::user("stop that"));
    items.extend(
        decode_blocks(&[&server_tool_result("s1"), TEXT_BLOCK], "end_turn").to_history_items(),
    );
    items.push(Item::user("y"));
    assert_eq!(linted_block_types(&encode_items(items))[1..4], [["text"], ["text"], ["text"]]);
    let twice = decode_blocks(
        &[&server_tool_use("s1"), &server_tool_result("s1"), &server_tool_result("s1"), TEXT_BLOCK],
        "end_turn",
    );
    let kinds = linted_block_types(&encode_items(items_with_follow_up(&twice)));
    assert_eq!(kinds[1], ["server_tool_use", "web_search_tool_result", "text"]);
}

#[test]
fn a_server_tool_use_without_result_is_sent_only_while_its_calls_are_answered() {
    let caller = r#""caller":{"type":"code_execution_20260120","tool_id":"s1"}"#;
    let call = |id: &str| {
        format!(r#"{{"type":"tool_use","id":"{id}","name":"f","input":{{"a":1}},{caller}}}"#)
    };
    let first =
        items_with_results(&decode_blocks(&[&server_tool_use("s1"), &call("t1")], "tool_use"));
    let second = items_with_results(&decode_blocks(&[&call("t2")], "tool_use")).split_off(1);
    let waiting = [first, second].concat();
    let request = |items: Vec<Item>, tools: serde_json::Value| {
        let mut request = Request::new(History::from_items("h", items));
        request.options.extra.insert("tools".into(), tools);
        encode_to_string(&request, MODEL).unwrap()
    };
    let ours = json!({ "name": "f", "input_schema": { "type": "object" } });
    let native = json!([ours, { "type": "code_execution_20260120", "name": "code_execution" }]);
    let of_call = ["server_tool_use", "tool_use"];
    let body = request(waiting.clone(), native.clone());
    assert_eq!(linted_block_types(&body)[1], of_call);
    assert_eq!(body.matches(caller).count(), 2, "{body}");
    // The code does not run any more: the calls that it made are sent as ordinary calls.
    let gone = |body: String| {
        assert_eq!(linted_block_types(&body)[1..4], [["tool_use"], ["tool_result"], ["tool_use"]]);
        assert!(!body.contains("caller"), "{body}");
    };
    let told = [waiting.clone(), vec![Item::user("stop that")]].concat();
    let closed = [
        told.clone(),
        decode_blocks(&[TEXT_BLOCK], "end_turn").to_history_items(),
        vec![Item::user("y")],
    ]
    .concat();
    for items in [told, closed] {
        let body = request(items, native.clone());
        assert!(!body.contains("server_tool_use") && !body.contains("caller"), "{body}");
        linted_block_types(&body);
    }
    gone(request(waiting.clone(), json!([ours])));
    // A later result is sent with its use, whatever tools are offered now.
    let later =
        decode_blocks(&[&server_tool_result("s1"), TEXT_BLOCK], "end_turn").to_history_items();
    let body = request([waiting, later, vec![Item::user("y")]].concat(), json!([ours]));
    assert_eq!(linted_block_types(&body)[1], of_call);
    assert_eq!(body.matches(caller).count(), 2, "{body}");
}

#[test]
fn a_deferred_server_tool_result_may_arrive_in_a_later_response() {
    let server = r#"{"type":"server_tool_use","id":"s1","name":"code_execution","input":{}}"#;
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{"a":1},"caller":{"type":"code_execution_20260120","tool_id":"s1"}}"#;
    let result = r#"{"type":"code_execution_tool_result","tool_use_id":"s1","content":{}}"#;
    let first = decode_blocks(&[server, call], "tool_use");
    let second = decode_blocks(&[result, r#"{"type":"text","text":"Done."}"#], "end_turn");
    let mut items = items_with_results(&first);
    items.extend(second.to_history_items());
    items.push(Item::user("y"));
    let body = encode_items(items);
    assert!(body.contains(&format!("{server},{call}")), "{body}");
    assert!(body.contains(&format!(r#""content":[{result},{{"type":"text""#)), "{body}");
    let roles = |body: &str| {
        let messages = parse_json(body)["messages"].as_array().unwrap().clone();
        messages.iter().map(|m| m["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(&body), ["user", "assistant", "user", "assistant", "user"]);
}

/// A turn whose code ran in this container, which is reported at its start or at its end.
fn turn_in_container(container: &str, at_start: bool) -> std::sync::Arc<Turn> {
    let container = format!(r#""container":{{"id":"{container}","expires_at":"2030-01-01"}}"#);
    let call = r#"{"type":"tool_use","id":"t1","name":"f","input":{},"caller":{"tool_id":"s1","type":"code_execution_20260120"}}"#;
    let start =
        MESSAGE_START.replace(r#""content":[]"#, &format!(r#""content":[{call}],{container}"#));
    let delta = format!(r#"{{"stop_reason":"tool_use",{container}}}"#);
    let end_with = format!(r#"{{"type":"message_delta","delta":{delta}}}"#);
    let events = match at_start {
        true => vec![start, message_delta("tool_use"), MESSAGE_STOP.into()],
        false => vec![
            MESSAGE_START.into(),
            content_block_start(0, call),
            content_block_stop(0),
            end_with,
            MESSAGE_STOP.into(),
        ],
    };
    decode_turn(&events).unwrap()
}

#[test]
fn container_and_caller_of_a_programmatic_call_are_sent_back() {
    for at_start in [true, false] {
        let turn = turn_in_container("container_1", at_start);
        assert_eq!(turn.tool_calls().count(), 1);
        let body = encode_items(items_with_results(&turn));
        assert_eq!(parse_json(&body)["container"], "container_1");
        let caller = r#""caller":{"tool_id":"s1","type":"code_execution_20260120"}"#;
        assert!(body.contains(caller), "{body}");
        // The message with the results contains nothing else, as the wire requires.
        assert_eq!(parse_json(&body)["messages"][2]["content"].as_array().unwrap().len(), 1);
        let other = encode_items_for("another", items_with_results(&turn));
        assert!(!other.contains("container") && !other.contains("caller"), "{other}");
    }
}

#[test]
fn the_newest_container_is_sent_until_replaced() {
    let mut items = items_with_follow_up(&turn_in_container("container_1", true));
    items.extend(turn_with_text(r#"{"type":"fallback"}"#).to_history_items());
    items.push(Item::user("z"));
    assert_eq!(parse_json(&encode_items(items.clone()))["container"], "container_1");
    let call = turn_in_container("container_2", false);
    items.extend(call.to_history_items());
    items.push(Item::tool_result(ToolResult {
        call_id: "t1".into(),
        name: "f".into(),
        content: "r".into(),
        kind: ResultKind::Ok,
        report: None,
    }));
    assert_eq!(parse_json(&encode_items(items))["container"], "container_2");
}

#[test]
fn the_caller_of_a_renamed_call_is_sent_back_unchanged() {
    let call = |input: &str| {
        format!(
            r#"{{"type":"tool_use","id":"t1","name":"f","input":{input},"caller":{{"type":"z","b":{{"y":1,"x":2}},"a":1}}}}"#
        )
    };
    let turn = decode_blocks(&[&call(r#"{"n":1}"#), &call(r#"{"n":2}"#)], "tool_use");
    assert_eq!(turn.tool_calls().nth(1).unwrap().call_id, "t1_dup1");
    let body = encode_items(items_with_results(&turn));
    assert_eq!(body.matches(r#""caller":{"type":"z","b":{"y":1,"x":2},"a":1}"#).count(), 2);
}

#[test]
fn a_paused_turn_is_sent_back_unchanged_and_last() {
    let server = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{"q":1}}"#;
    let body = encode_items(items_without_results(&decode_blocks(
        &[r#"{"type":"text","text":"Wait. "}"#, server],
        "pause_turn",
    )));
    let last = format!(
        r#"{{"role":"assistant","content":[{{"type":"text","text":"Wait. "}},{server}]}}]}}"#
    );
    assert!(body.ends_with(&last), "{body}");
}
