//! Tools that OpenAI defines and the client runs: their declarations, calls and results.

use super::*;
use turnstream::item::{Content, ItemFlag, MediaSource, Part, ToolCall, ToolResult};
use turnstream::provider::{anthropic, gemini, ollama, openai_chat};
use turnstream::request::{ClientTool, McpServer, Options, ToolChoice, WebSearch};
use turnstream::turn::{StopReason, Turn};
use turnstream_testing::{Wire, lint};

fn approval_of(server: &str) -> ClientTool {
    ClientTool::McpApproval { server: server.to_owned() }
}

fn all_tools() -> [ClientTool; 4] {
    [ClientTool::Shell, ClientTool::ApplyPatch, ClientTool::Computer, approval_of("wiki")]
}

fn decoder() -> Decoder {
    Decoder::new(MODEL).with_tools(all_tools().map(ClientTool::spec))
}

fn decode(output: &[Value]) -> Turn {
    let mut list: Vec<Value> =
        (0..).zip(output).map(|(at, item)| output_item_done(at, item.clone())).collect();
    list.push(response_completed(output.to_vec()));
    fold_turn(decode_events_with(decoder(), sse_body(&list))).unwrap()
}

fn shell_call() -> Value {
    json!({ "type": "shell_call", "id": "sh_1", "call_id": "call_1", "status": "completed",
        "action": { "commands": ["ls", "pwd"], "timeout_ms": 500, "max_output_length": 90 },
        "environment": { "type": "local" } })
}

fn patch_call() -> Value {
    json!({ "type": "apply_patch_call", "id": "apc_1", "call_id": "call_2", "status": "completed",
        "operation": { "type": "create_file", "path": "a.md", "diff": "+a" } })
}

fn computer_call() -> Value {
    json!({ "type": "computer_call", "id": "cu_1", "call_id": "call_3", "status": "completed",
        "actions": [{ "type": "click", "button": "left", "x": 1, "y": 2 }],
        "pending_safety_checks": [{ "id": "sc_1", "code": "risky", "message": "Really?" }] })
}

fn approval_request() -> Value {
    json!({ "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki",
        "name": "find", "arguments": "{\"word\": \"a\"}" })
}

/// The calls of a turn: their ids, names and arguments.
fn calls(turn: &Turn) -> Vec<(&str, &str, Value)> {
    let call = |call: &ToolCall| serde_json::from_str(&call.arguments).unwrap();
    turn.tool_calls().map(|it| (&*it.call_id, &*it.name, call(it))).collect()
}

#[test]
fn calls_of_declared_tools_are_tool_calls() {
    let turn = decode(&[shell_call(), patch_call(), computer_call(), approval_request()]);
    let click = json!([{ "type": "click", "button": "left", "x": 1, "y": 2 }]);
    let checks = json!([{ "id": "sc_1", "code": "risky", "message": "Really?" }]);
    assert_eq!(
        calls(&turn),
        [
            ("call_1", "shell", shell_call()["action"].clone()),
            ("call_2", "apply_patch", patch_call()["operation"].clone()),
            ("call_3", "computer", json!({ "actions": click, "pending_safety_checks": checks })),
            (
                "mcpr_1",
                "mcp_approval_wiki",
                json!({ "name": "find", "arguments": { "word": "a" } })
            ),
        ]
    );
    assert_eq!(turn.stop_reason(), &StopReason::ToolCalls);
}

#[test]
fn a_computers_single_action_is_a_list_and_arguments_that_are_not_json_are_a_text() {
    let mut call = computer_call();
    call["actions"].take();
    call["pending_safety_checks"] = json!([]);
    call["action"] = json!({ "type": "screenshot" });
    let mut request = approval_request();
    request["arguments"] = json!("no json");
    let turn = decode(&[call, request]);
    let arguments: Vec<_> = calls(&turn).into_iter().map(|(.., arguments)| arguments).collect();
    let screenshot = json!({ "actions": [{ "type": "screenshot" }] });
    assert_eq!(arguments, [screenshot, json!({ "name": "find", "arguments": "no json" })]);
}

#[test]
fn other_calls_for_the_client_are_kept_as_items_of_the_provider() {
    let mut in_container = shell_call();
    in_container["environment"] = json!({ "type": "container_reference", "container_id": "c" });
    let mut cut_off = patch_call();
    cut_off["status"] = json!("incomplete");
    let mut of_another_server = approval_request();
    of_another_server["server_label"] = json!("other");
    let mut without_action = shell_call();
    without_action["action"].take();
    let custom = json!({ "type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "f" });
    for item in [in_container, cut_off, of_another_server, without_action, custom] {
        let turn = decode(std::slice::from_ref(&item));
        assert!(turn.tool_calls().next().is_none(), "{item}");
        assert_eq!(provider_data_value(&turn.items()[0]), item);
    }
    let undeclared =
        decode_turn(&[output_item_done(0, shell_call()), response_completed(json!([]))]);
    assert!(undeclared.unwrap().tool_calls().next().is_none());
}

#[test]
fn a_repeated_call_without_an_id_of_its_own_is_emitted_once() {
    let mut call = shell_call();
    call.as_object_mut().unwrap().shift_remove("id");
    let done = || output_item_done(0, call.clone());
    let list = [done(), done(), response_completed(json!([call]))];
    let turn = fold_turn(decode_events_with(decoder(), sse_body(&list))).unwrap();
    assert_eq!(calls(&turn).len(), 1);
}

#[test]
fn a_call_is_emitted_once_and_again_after_a_retraction() {
    let call = shell_call();
    let begun = json!({ "type": "shell_call", "id": "sh_1", "status": "in_progress" });
    // The final message contradicts its deltas.
    let list = [
        text_delta(0, "a"),
        output_item_added(1, begun),
        output_item_done(1, call.clone()),
        output_item_done(1, call.clone()),
        output_item_done(0, message_item("m", "b")),
        response_completed(json!([message_item("m", "b"), call])),
    ];
    let turn = fold_turn(decode_events_with(decoder(), sse_body(&list))).unwrap();
    assert_eq!(calls(&turn).len(), 1);
    assert_eq!(turn.text(), "b");
}

/// The input after the first message, for a turn with these items and results for its calls.
#[track_caller]
fn input_of(output: &[Value], results: &[(ResultKind, Content)], model: &str) -> Vec<Value> {
    let items = answered(output, results);
    let input = encode_input([vec![Item::user("x")], items].concat(), model);
    input.into_iter().skip(1).collect()
}

fn answered(output: &[Value], results: &[(ResultKind, Content)]) -> Vec<Item> {
    let mut items = decode(output).to_history_items();
    let calls: Vec<ToolCall> = items.iter().filter_map(Item::as_tool_call).cloned().collect();
    assert_eq!(calls.len(), results.len());
    items.extend(calls.iter().zip(results).map(|(call, (kind, content))| {
        Item::tool_result(ToolResult::for_call(call, *kind, content.clone()))
    }));
    items
}

fn ok(content: impl Into<Content>) -> (ResultKind, Content) {
    (ResultKind::Ok, content.into())
}

fn screen() -> Content {
    vec![Part::from("Clicked."), Part::image("image/png", b"\x89PNG")].into()
}

#[test]
fn the_output_of_commands_is_sent_as_the_model_expects_it() {
    let output = |call: Value, result: (ResultKind, Content)| {
        let input = input_of(std::slice::from_ref(&call), &[result], MODEL);
        assert_eq!(input[0], call, "the call is sent back verbatim");
        input[1].clone()
    };
    let exit = |stdout: &str, stderr: &str, code: i64| {
        json!({ "stdout": stdout, "stderr": stderr,
            "outcome": { "type": "exit", "exit_code": code } })
    };
    let expected = |outputs: Value| {
        json!({ "type": "shell_call_output", "call_id": "call_1", "output": outputs,
            "max_output_length": 90 })
    };
    let commands = json!([exit("a\n", "", 0), exit("", "no", 2)]);
    assert_eq!(output(shell_call(), ok(commands.to_string())), expected(commands));
    let late = json!([{ "stdout": "", "stderr": "", "outcome": { "type": "timeout" } }]);
    assert_eq!(output(shell_call(), ok(late.to_string())), expected(late));
    assert_eq!(output(shell_call(), ok("a\n")), expected(json!([exit("a\n", "", 0)])));
    let failed = (ResultKind::Error, "no such file".into());
    assert_eq!(output(shell_call(), failed), expected(json!([exit("", "no such file", 1)])));
    let late = (ResultKind::Timeout, "too slow".into());
    let outcome = json!({ "type": "timeout" });
    let late_output = json!([{ "stdout": "", "stderr": "too slow", "outcome": outcome }]);
    assert_eq!(output(shell_call(), late), expected(late_output));
    // The model has set no limit.
    let mut unlimited = shell_call();
    unlimited["action"]["max_output_length"].take();
    let expected = json!({ "type": "shell_call_output", "call_id": "call_1",
        "output": [exit("a", "", 0)] });
    assert_eq!(output(unlimited, ok("a")), expected);
}

#[test]
fn the_results_of_patches_screens_and_approvals_are_sent_as_items_of_their_types() {
    let output = [patch_call(), patch_call_2(), computer_call(), approval_request()];
    let results =
        [ok("Created."), (ResultKind::Error, "no such file".into()), ok(screen()), ok("approved")];
    let expected = [
        json!({ "type": "apply_patch_call_output", "call_id": "call_2", "status": "completed",
            "output": "Created." }),
        json!({ "type": "apply_patch_call_output", "call_id": "call_4", "status": "failed",
            "output": "no such file" }),
        json!({ "type": "computer_call_output", "call_id": "call_3",
            "output": { "type": "computer_screenshot",
                "image_url": "data:image/png;base64,iVBORw==" },
            "acknowledged_safety_checks":
                [{ "id": "sc_1", "code": "risky", "message": "Really?" }] }),
        json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_1",
            "approve": true }),
    ];
    let input = input_of(&output, &results, MODEL);
    assert_eq!(input, [&output[..], &expected[..]].concat());

    let by_id = Part::image("image/png", MediaSource::FileId("file-1".into()));
    let input = input_of(&[computer_call()], &[ok(vec![by_id])], MODEL);
    let screenshot = json!({ "type": "computer_screenshot", "file_id": "file-1" });
    assert_eq!(input[1]["output"], screenshot);
}

fn patch_call_2() -> Value {
    let mut call = patch_call();
    (call["id"], call["call_id"]) = (json!("apc_2"), json!("call_4"));
    call
}

#[test]
fn only_the_word_approved_approves_a_call() {
    for (result, reason) in [
        ((ResultKind::Denied, "Denied: not now".into()), "Denied: not now"),
        ((ResultKind::Error, "approved".into()), "approved"),
        ((ResultKind::Interrupted, "".into()), "It failed without a message."),
        (ok("no"), "no"),
    ] {
        let input = input_of(&[approval_request()], &[result], MODEL);
        let expected = json!({ "type": "mcp_approval_response",
            "approval_request_id": "mcpr_1", "approve": false, "reason": reason });
        assert_eq!(input[1], expected);
    }
}

#[test]
fn a_computers_call_without_a_screenshot_is_sent_as_the_call_of_a_function() {
    let input = input_of(&[computer_call()], &[(ResultKind::Denied, "Denied: no".into())], MODEL);
    assert_eq!(
        (&input[0]["type"], &input[0]["name"]),
        (&json!("function_call"), &json!("computer"))
    );
    let output = json!({ "type": "function_call_output", "call_id": "call_3",
        "output": "Denied: no" });
    assert_eq!(input[1], output);
    // A call without a result is settled before it is sent.
    let request =
        Request::new(History::from_items("h", decode(&[computer_call()]).to_history_items()));
    let body = encode_json(&request, MODEL).unwrap();
    assert_eq!(lint::request(Wire::OpenAiResponses, MODEL, &body), Vec::<String>::new());
}

#[test]
fn calls_of_another_model_or_with_other_arguments_are_calls_of_functions() {
    let output = [shell_call(), patch_call(), computer_call(), approval_request()];
    let results = [ok("a"), ok("b"), ok(screen()), ok("approved")];
    let input = input_of(&output, &results, "gpt-5.6");
    let expected = [vec!["function_call"; 4], vec!["function_call_output"; 4]].concat();
    assert_eq!(kinds(&input), expected);
    assert_eq!(input[4]["output"], "a");

    let mut items = answered(&output, &results);
    for item in &mut items {
        if let ItemKind::ToolCall(call) = &mut item.kind {
            call.arguments = r#"{"changed":true}"#.to_owned();
        }
    }
    let input = encode_input([vec![Item::user("x")], items].concat(), MODEL);
    assert_eq!(kinds(&input[1..]), expected);
}

#[test]
fn calls_are_sent_without_their_ids_if_their_reasoning_is_missing() {
    let output = [reasoning_item("rs_1", "e"), shell_call(), patch_call()];
    let results = [ok("a"), ok("b")];
    assert_eq!(input_of(&output, &results, MODEL)[..3], output);
    let items = answered(&output, &results).split_off(1);
    let input = encode_input([vec![Item::user("x")], items].concat(), MODEL);
    for (sent, mut call) in input[1..].iter().zip([shell_call(), patch_call()]) {
        call.as_object_mut().unwrap().shift_remove("id");
        assert_eq!(*sent, call);
    }
}

/// The types of items.
fn kinds(input: &[Value]) -> Vec<&str> {
    input.iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[test]
fn a_call_whose_type_requires_an_id_is_the_call_of_a_function_if_its_reasoning_is_missing() {
    for (call, result) in [(computer_call(), ok(screen())), (approval_request(), ok("approved"))] {
        let output = [reasoning_item("rs_1", "e"), call];
        let results = [result];
        assert_eq!(input_of(&output, &results, MODEL)[..2], output);
        let items = answered(&output, &results).split_off(1);
        let input = encode_input([vec![Item::user("x")], items].concat(), MODEL);
        assert_eq!(kinds(&input[1..]), ["function_call", "function_call_output"]);
    }
    let mut without_id = computer_call();
    without_id.as_object_mut().unwrap().shift_remove("id");
    let input = input_of(&[without_id], &[ok(screen())], MODEL);
    assert_eq!(kinds(&input), ["function_call", "function_call_output"]);
}

#[test]
fn an_approval_is_not_sent_again_if_the_model_continued_without_the_result_of_the_call() {
    let called = json!({ "type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1",
        "server_label": "wiki", "name": "find", "arguments": "{}", "output": "found" });
    let approved = || answered(&[approval_request()], &[ok("approved")]);
    let denied = || answered(&[approval_request()], &[ok("no")]);
    let followed = |items: Vec<Item>, next: &[Value], flag: Option<ItemFlag>| {
        let next = decode(next).to_history_items().into_iter();
        let next = next.map(|item| match flag {
            Some(flag) => item.with_flag(flag),
            None => item,
        });
        let items = [vec![Item::user("x")], items, next.collect(), vec![Item::user("y")]].concat();
        let input = encode_input(items, MODEL);
        (input[1]["type"].as_str().unwrap().to_owned(), input[2].clone())
    };
    let text = message_item("m", "So.");
    let interrupted = Some(ItemFlag::Interrupted);
    let calls = std::slice::from_ref(&called);
    let own = "mcp_approval_request";
    assert_eq!(followed(approved(), calls, None).0, own);
    assert_eq!(followed(approved(), &[], None).0, own);
    assert_eq!(followed(denied(), std::slice::from_ref(&text), None).0, own);
    for (next, flag) in [(calls, interrupted), (std::slice::from_ref(&text), None)] {
        let (kind, output) = followed(approved(), next, flag);
        assert_eq!(
            (kind.as_str(), &output["type"]),
            ("function_call", &json!("function_call_output"))
        );
        assert!(output["output"].as_str().unwrap().contains("it is unknown"), "{output}");
    }

    // The same input is sent if earlier requests are cached.
    let mut history = History::from_items("h", [vec![Item::user("x")], approved()].concat());
    let input = |history: &History| {
        let body = encode_json(&Request::new(history.clone()), MODEL).unwrap();
        body["input"].as_array().unwrap().clone()
    };
    assert_eq!(input(&history)[1]["type"], own);
    history.push(Item::user("still there?"));
    assert_eq!(input(&history)[1]["type"], own);
    history.push(Item::text("So."));
    history.push(Item::user("y"));
    for _ in 0..2 {
        assert_eq!(input(&history)[1]["type"], "function_call");
        history.push(Item::user("z"));
    }
}

/// A request for an approval, which is linked to reasoning, its approval, and the call that follows.
fn approved_call() -> Vec<Item> {
    let called = json!({ "type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1",
        "server_label": "wiki", "name": "find", "arguments": "{}", "output": "found" });
    let requested = [reasoning_item("rs_1", "e"), approval_request()];
    let next = decode(&[called, message_item("msg_1", "So.")]).to_history_items();
    [vec![Item::user("x")], answered(&requested, &[ok("approved")]), next].concat()
}

#[test]
fn a_call_does_not_name_a_request_for_an_approval_that_is_not_sent() {
    let items = approved_call();
    let whole = encode_input(items.clone(), MODEL);
    let position = |input: &[Value]| input.iter().position(|it| it["type"] == "mcp_call").unwrap();
    assert_eq!(whole[position(&whole)]["approval_request_id"], "mcpr_1");
    // Without the reasoning, the request is the call of a function. Without both, nothing is left.
    for removed in [vec![1], vec![1, 2, 3]] {
        let mut left = items.clone();
        for at in removed.into_iter().rev() {
            left.remove(at);
        }
        let request =
            Request::new(History::from_items("h", [left, vec![Item::user("y")]].concat()));
        let body = encode_json(&request, MODEL).unwrap();
        assert_eq!(lint::request(Wire::OpenAiResponses, MODEL, &body), Vec::<String>::new());
        let input = body["input"].as_array().unwrap();
        let mut expected = whole[position(&whole)].clone();
        expected.as_object_mut().unwrap().shift_remove("approval_request_id");
        assert_eq!(input[position(input)], expected);
    }
    // The same holds if the request is among the items that are already encoded.
    let mut history = History::from_items("h", items[..4].to_vec());
    encode_json(&Request::new(history.clone()), MODEL).unwrap();
    history.extend(items[4..].to_vec());
    let body = encode_json(&Request::new(history), MODEL).unwrap();
    assert_eq!(body["input"], json!(whole));
}

#[test]
fn a_truncator_keeps_the_reasoning_to_which_a_request_for_an_approval_is_linked() {
    use turnstream::context::Truncator;

    let more = (0..6).flat_map(|_| {
        [vec![Item::user("y")], decode(&[message_item("n", "z")]).to_history_items()]
    });
    let items = [vec![approved_call()], more.collect()].concat().concat();
    let mut history = History::from_items("h", items.clone());
    let shorten = Truncator { keep_turns: 1, max_arguments_bytes: 4, ..Truncator::new() };
    if let Some(compaction) = shorten.plan_compaction(&history) {
        compaction.apply(&mut history);
    }
    let kept: Vec<Item> = history.iter().take(4).cloned().collect();
    assert_eq!(kept, items[..4]);
}

#[test]
fn an_approval_that_is_sent_as_the_result_of_a_function_does_not_read_as_if_the_call_had_run() {
    let items = answered(&[approval_request()], &[ok("approved")]);
    let history = History::from_items("h", [vec![Item::user("x")], items].concat());
    let request = Request::new(history);
    let dialect = openai_chat::Dialect::OPENAI;
    for body in [
        encode(&request, "gpt-5.6").unwrap(),
        openai_chat::encode(&request, MODEL, &dialect).unwrap(),
        anthropic::encode(&request, "claude-sonnet-4-5").unwrap(),
        gemini::encode(&request, "gemini-3-pro").unwrap(),
        ollama::encode(&request, "llama", &ollama::Chat::default()).unwrap(),
    ] {
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("it is unknown whether the call ran"), "{body}");
        assert!(!body.contains("\"approved\""), "{body}");
    }
}

#[test]
fn the_id_of_a_request_for_an_approval_is_sent_back_whatever_its_form() {
    for id in ["mcpr_".to_owned() + &"a".repeat(90), "mcpr.1:2".to_owned()] {
        let mut request = approval_request();
        request["id"] = json!(id);
        let input = input_of(std::slice::from_ref(&request), &[ok("approved")], MODEL);
        let response = json!({ "type": "mcp_approval_response", "approval_request_id": id,
            "approve": true });
        assert_eq!(input, [request, response]);
    }
}

#[test]
fn a_result_that_the_answers_item_cannot_contain_is_the_result_of_a_function() {
    let other_file = Part::image("image/png", MediaSource::FileId("file_1".into()));
    let failed_screen = (ResultKind::Error, screen());
    let list = r#"[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":1}}"#;
    for (call, result) in [
        (shell_call(), ok(screen())),
        (shell_call(), ok(list)),
        (patch_call(), ok(screen())),
        (computer_call(), ok(vec![other_file])),
        // Such an answer would acknowledge the safety checks.
        (computer_call(), failed_screen.clone()),
    ] {
        let input = input_of(std::slice::from_ref(&call), std::slice::from_ref(&result), MODEL);
        assert_eq!(kinds(&input), ["function_call", "function_call_output"], "{result:?}");
        if result == ok(screen()) {
            assert_eq!(input[1]["output"][1]["type"], "input_image");
        }
    }
    let mut unchecked = computer_call();
    unchecked["pending_safety_checks"] = json!([]);
    let input = input_of(&[unchecked], &[failed_screen], MODEL);
    assert_eq!(kinds(&input), ["computer_call", "computer_call_output"]);
}

#[test]
fn an_empty_list_is_the_output_of_a_command() {
    let input = input_of(&[shell_call()], &[ok("[]")], MODEL);
    assert_eq!(input[1]["output"][0]["stdout"], "[]");
}

#[test]
fn the_answer_of_a_call_repeats_its_caller() {
    let caller = json!({ "type": "program", "caller_id": "prog_1" });
    for mut call in [shell_call(), patch_call()] {
        call["caller"] = caller.clone();
        let input = input_of(std::slice::from_ref(&call), &[ok("a")], MODEL);
        assert_eq!((&input[0], &input[1]["caller"]), (&call, &caller));
    }
}

#[test]
fn a_renamed_call_and_its_result_are_sent_under_the_new_id() {
    let mut items = answered(&[shell_call(), approval_request()], &[ok("a"), ok("approved")]);
    for item in &mut items {
        match &mut item.kind {
            ItemKind::ToolCall(call) => call.call_id += "_2",
            ItemKind::ToolResult(result) => result.call_id += "_2",
            _ => {}
        }
    }
    let input = encode_input([vec![Item::user("x")], items].concat(), MODEL);
    assert_eq!(
        (&input[1]["type"], &input[1]["call_id"]),
        (&json!("shell_call"), &json!("call_1_2"))
    );
    assert_eq!(input[3]["type"], "shell_call_output");
    assert_eq!(input[3]["call_id"], "call_1_2");
    // The server knows the request for an approval only by its own id.
    assert_eq!(
        (&input[2]["type"], &input[4]["type"]),
        (&json!("function_call"), &json!("function_call_output"))
    );
}

#[test]
fn the_input_with_the_results_extends_the_input_before_them() {
    let output = [reasoning_item("rs_1", "e"), computer_call(), shell_call()];
    let items = answered(&output, &[ok(screen()), ok("a")]);
    let mut history = History::from_items("h", [Item::user("x")]);
    let input = |history: &History| -> Vec<Value> {
        let body = encode_json(&Request::new(history.clone()), MODEL).unwrap();
        body["input"].as_array().unwrap().clone()
    };
    let mut before = input(&history);
    history.extend(items);
    for text in ["y", "z"] {
        let now = input(&history);
        assert!(now.starts_with(&before), "{before:?} and then {now:?}");
        let fresh = History::from_items("h", history.iter().cloned());
        assert_eq!(input(&fresh), now, "what is cached does not change the input");
        before = now;
        history.push(Item::user(text));
    }
    assert_eq!(before.len(), 7);
}

#[test]
fn a_tombstone_or_an_interrupted_call_leaves_a_request_that_the_vendor_accepts() {
    let calls = [shell_call(), computer_call(), patch_call(), approval_request()];
    let output = [vec![reasoning_item("rs_1", "e")], calls.to_vec()].concat();
    let results = [ok("a"), ok(screen()), ok("b"), ok("approved")];
    let items = answered(&output, &results);
    for marked in 0..items.len() {
        for flag in [ItemFlag::Tombstone, ItemFlag::Interrupted] {
            let mut items = items.clone();
            items[marked] = items[marked].clone().with_flag(flag);
            let items = [vec![Item::user("x")], items, vec![Item::user("y")]].concat();
            let request = Request::new(History::from_items("h", items));
            let body = encode_json(&request, MODEL).unwrap();
            let violations = lint::request(Wire::OpenAiResponses, MODEL, &body);
            assert_eq!(violations, Vec::<String>::new(), "{marked} {flag:?}: {body:#}");
        }
    }
}

fn with_tools() -> Request {
    let tools = all_tools().map(ClientTool::spec);
    let wiki = McpServer {
        name: "wiki".into(),
        url: "https://mcp.example".into(),
        require_approval: true,
        ..McpServer::default()
    };
    let options = Options { server_tools: vec![wiki.into()], ..Options::default() };
    Request::new(History::from_items("h", [Item::user("x")]))
        .with_tools(tools)
        .with_options(options)
}

#[test]
fn the_tools_are_declared_under_their_own_types() {
    let body = encode_json(&with_tools(), MODEL).unwrap();
    let expected = json!([
        { "type": "shell", "environment": { "type": "local" } },
        { "type": "apply_patch" },
        { "type": "computer" },
        { "type": "mcp", "server_label": "wiki", "server_url": "https://mcp.example",
            "require_approval": "always" },
    ]);
    assert_eq!(body["tools"], expected);
    for (name, expected) in [
        ("shell", json!({ "type": "shell" })),
        ("apply_patch", json!({ "type": "apply_patch" })),
        ("computer", json!({ "type": "computer" })),
        ("mcp_approval_wiki", json!({ "type": "mcp", "server_label": "wiki" })),
    ] {
        let choice = |tool_choice| {
            let options = Options { tool_choice, ..Options::default() };
            encode_json(&with_tools().with_options(options), MODEL).unwrap()["tool_choice"].clone()
        };
        assert_eq!(choice(ToolChoice::Tool(name.into())), expected);
        let allowed = ToolChoice::Allowed { names: vec![name.into()], required: true };
        assert_eq!(choice(allowed)["tools"], json!([expected]));
    }
}

#[test]
fn on_other_wires_the_tools_are_functions_and_approvals_are_refused() {
    let error = anthropic::encode(&with_tools(), "claude-sonnet-4-5").unwrap_err();
    assert_eq!(error.parameter(), Some("server_tools.mcp.require_approval"));
    let error = gemini::encode(&with_tools(), "gemini-3-pro").unwrap_err();
    assert_eq!(error.parameter(), Some("server_tools.mcp.require_approval"));
    let mut request = with_tools();
    request.options.server_tools.clear();
    let chat = openai_chat::encode(&request, MODEL, &openai_chat::Dialect::OPENAI).unwrap();
    for body in [
        chat,
        anthropic::encode(&request, "claude-sonnet-4-5").unwrap(),
        gemini::encode(&request, "gemini-3-pro").unwrap(),
    ] {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let tools = body["tools"].to_string();
        for name in ["shell", "apply_patch", "computer"] {
            assert!(tools.contains(&format!("\"name\":\"{name}\"")), "{tools}");
        }
        assert!(!tools.contains("mcp_approval"), "no model may call it: {tools}");
    }
}

#[test]
fn a_tool_that_approves_calls_of_a_server_leaves_the_other_declarations_valid() {
    let spec = turnstream::request::ToolSpec::new(
        "look_up",
        "Looks up a word",
        json!({ "type": "object", "properties": {} }),
    );
    let request = |tools: Vec<turnstream::request::ToolSpec>| {
        Request::new(History::from_items("h", [Item::user("x")])).with_tools(tools)
    };
    let alone = request(vec![approval_of("wiki").spec()]);
    let last = request(vec![spec, approval_of("wiki").spec()]);
    let bodies = |request: &Request| {
        let router = openai_chat::Dialect::OPENROUTER;
        [
            openai_chat::encode(request, MODEL, &router).unwrap(),
            anthropic::encode(request, "claude-sonnet-4-5").unwrap(),
            ollama::encode(request, "llama", &ollama::Chat::default()).unwrap(),
            gemini::encode(request, "gemini-3-pro").unwrap(),
        ]
        .map(|body| serde_json::from_slice::<Value>(&body).unwrap())
    };
    for body in bodies(&alone) {
        assert_eq!(body.get("tools"), None, "{body}");
    }
    for body in &bodies(&last)[..2] {
        let tools = body["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 1, "{body}");
        assert_eq!(tools[0]["cache_control"]["type"], "ephemeral", "{body}");
    }
    // The declarations of tools that run on the vendor's servers follow.
    let options = Options { server_tools: vec![WebSearch::default().into()], ..Options::default() };
    let body = anthropic::encode(&alone.with_options(options), "claude-sonnet-4-5").unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["tools"].as_array().unwrap().len(), 1);
}

#[test]
fn a_spec_is_stored_with_its_tool() {
    for tool in all_tools() {
        let spec = tool.clone().spec();
        let json = serde_json::to_string(&spec).unwrap();
        let read: turnstream::request::ToolSpec = serde_json::from_str(&json).unwrap();
        assert_eq!((read.client_tool.as_ref(), &read), (Some(&tool), &spec));
        assert!(turnstream::Tool::external(spec).is_ok(), "the schema is valid");
    }
}
