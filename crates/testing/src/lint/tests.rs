//! Tests of what each lint reports and accepts.

use serde_json::{Value, json};

use super::{anthropic, gemini, gemini_3, ollama, openai_chat, openai_responses};

/// Returns a body with some values changed; `null` removes a value.
fn changed(mut body: Value, changes: &[(&str, Value)]) -> Value {
    for (place, value) in changes {
        match body.pointer_mut(place) {
            Some(at) => *at = value.clone(),
            None => {
                let (parent, field) = place.rsplit_once('/').unwrap();
                let parent = body.pointer_mut(parent).unwrap();
                match parent {
                    Value::Array(list) => list.push(value.clone()),
                    parent => parent[field] = value.clone(),
                }
            }
        }
    }
    body
}

/// A lint and a body that it accepts.
struct Door(fn(&Value) -> Vec<String>, Value);

impl Door {
    #[track_caller]
    fn passes(&self, changes: &[(&str, Value)]) {
        assert_eq!((self.0)(&changed(self.1.clone(), changes)), Vec::<String>::new());
    }

    /// Checks that the lint reports one violation, which contains `says`.
    #[track_caller]
    fn refuses(&self, changes: &[(&str, Value)], says: &str) {
        let violations = (self.0)(&changed(self.1.clone(), changes));
        assert!(
            violations.len() == 1 && violations[0].contains(says),
            "`{says}` is not the one violation in {violations:#?}"
        );
    }
}

fn messages() -> Door {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "add", "input": {} });
    let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": "3" });
    let body = json!({
        "model": "claude", "max_tokens": 4096, "stream": true,
        "system": [{ "type": "text", "text": "Be brief." }],
        "tools": [{ "name": "add", "description": "Adds", "input_schema": { "type": "object" } }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "1 + 2" }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Hm", "signature": "c2ln" },
                { "type": "text", "text": "I add." },
                call("a"),
                call("b"),
            ] },
            { "role": "user", "content": [
                result("a"), result("b"), { "type": "text", "text": "And?" },
            ] },
        ],
    });
    Door(anthropic, body)
}

#[test]
fn anthropic_requires_results_for_exactly_the_preceding_calls() {
    let checker = messages();
    checker.passes(&[]);
    let text = || json!({ "type": "text", "text": "x" });
    let other = json!({ "type": "tool_result", "tool_use_id": "z", "content": "3" });
    let without = "without `tool_result` blocks immediately after: b";
    checker
        .refuses(&[("/messages/2/content/1", text()), ("/messages/2/content/2", text())], without);
    checker.refuses(&[("/messages/2/content/2", other)], "unexpected `tool_use_id`");
    let again = json!({ "type": "tool_result", "tool_use_id": "a", "content": "3" });
    checker.refuses(&[("/messages/2/content/2", again)], "must have a single result");
    let swapped =
        [("/messages/2/content/0/type", json!("text")), ("/messages/2/content/0/text", json!("x"))];
    let violations = anthropic(&changed(checker.1.clone(), &swapped));
    assert!(violations.iter().any(|c| c.contains("must come first")), "{violations:?}");
    checker.refuses(&[("/messages/1/content/4", text())], "`text` block follows a `tool_use`");
    let twins = [
        ("/messages/1/content/3/id", json!("a")),
        ("/messages/2/content/1", json!({ "type": "text", "text": "x" })),
    ];
    checker.refuses(&twins, "ids must be unique: a");
    checker.refuses(&[("/tools", Value::Null)], "must define tools");
}

#[test]
fn anthropic_requires_server_tool_results_before_the_next_user_message() {
    let used = |id: &str| json!({ "type": "server_tool_use", "id": id, "name": "web_search" });
    let found = |id: &str| json!({ "type": "web_search_tool_result", "tool_use_id": id });
    let text_block = || json!({ "type": "text", "text": "x" });
    let message = |content: Value| json!({ "role": "user", "content": content });
    let wrote = |blocks: Vec<Value>| json!({ "role": "assistant", "content": blocks });
    let body = json!({
        "model": "claude", "max_tokens": 4096,
        "tools": [
            { "type": "web_search_20260209", "name": "web_search" },
            { "name": "add", "input_schema": { "type": "object" } },
        ],
        "messages": [message(json!("x")), wrote(vec![text_block(), used("s1")])],
    });
    let checker = Door(anthropic, body);
    // The turn may have paused.
    checker.passes(&[]);
    let without = "server tool use with id 's1' was found without a corresponding";
    checker.refuses(&[("/messages/2", message(json!("y")))], without);
    checker.refuses(&[("/messages/2", message(json!([text_block()])))], without);
    checker.passes(&[("/messages/1/content/2", found("s1")), ("/messages/2", message(json!("y")))]);
    let stray = "unexpected `tool_use_id` found in `web_search_tool_result` blocks: s2";
    checker.refuses(&[("/messages/1/content/2", found("s2"))], stray);
    // Results of other tools may come before the server tool's result.
    let call = json!({ "type": "tool_use", "id": "a", "name": "add", "input": {} });
    let result = || json!({ "type": "tool_result", "tool_use_id": "a", "content": "3" });
    let answered = [("/messages/1/content/2", call), ("/messages/2", message(json!([result()])))];
    checker.passes(&answered);
    let later = ("/messages/3", wrote(vec![found("s1"), text_block()]));
    checker.passes(&[&answered[..], &[later]].concat());
    checker.refuses(&[&answered[..], &[("/messages/2/content/1", text_block())]].concat(), without);
    checker.refuses(
        &[
            &answered[..],
            &[("/tools/0", json!({ "name": "b", "input_schema": { "type": "object" } }))],
        ]
        .concat(),
        without,
    );
}

#[test]
fn anthropic_requires_alternating_roles_and_non_empty_blocks() {
    let checker = messages();
    checker
        .refuses(&[("/messages/3", json!({ "role": "user", "content": "x" }))], "must alternate");
    checker.refuses(&[("/messages", json!([]))], "at least one message");
    let only = json!([{ "role": "assistant", "content": "x" }]);
    checker.refuses(&[("/messages", only)], "first message must use the \"user\" role");
    let system = json!({ "role": "system", "content": "x" });
    checker.refuses(&[("/messages/3", system)], "'user' or 'assistant'");
    checker.refuses(&[("/messages/0/content/0/text", json!(" \n"))], "non-whitespace");
    checker.refuses(&[("/messages/0/content", json!(""))], "non-whitespace");
    checker.refuses(&[("/messages/0/content", json!([]))], "non-empty content");
    checker.refuses(&[("/system/0/text", json!(""))], "system.0: text content blocks");
    let end =
        |text: &str| json!({ "role": "assistant", "content": [{ "type": "text", "text": text }] });
    checker.passes(&[("/messages/3", end("So"))]);
    checker.refuses(&[("/messages/3", end("So "))], "trailing whitespace");
    let thought = json!({ "role": "assistant", "content": [
        { "type": "thinking", "thinking": "x", "signature": "c2ln" },
    ] });
    checker.refuses(&[("/messages/3", thought)], "cannot be `thinking`");
    checker.refuses(&[("/messages/1/content/0/signature", json!(""))], "signature: Field required");
    let failed = json!({ "type": "tool_result", "tool_use_id": "a", "is_error": true });
    checker.refuses(&[("/messages/2/content/0", failed)], "cannot be empty if `is_error`");
    let picture = json!({ "type": "image", "source": {} });
    checker.passes(&[("/messages/2/content/3", picture.clone())]);
    checker.refuses(&[("/messages/1/content/1", picture)], "only be in `user` messages");
}

#[test]
fn anthropic_restricts_the_characters_of_ids_and_names() {
    let checker = messages();
    let rename = |id: &str| {
        [("/messages/1/content/2/id", json!(id)), ("/messages/2/content/0/tool_use_id", json!(id))]
    };
    checker.passes(&rename(&"x".repeat(64)));
    checker.refuses(&rename(&"x".repeat(65)), "tool_use.id: String should match");
    checker.refuses(&rename("a:b"), "tool_use.id: String should match");
    checker.refuses(&[("/messages/1/content/2/name", json!("a b"))], "tool_use.name");
    checker.refuses(&[("/messages/1/content/2/input", json!("{}"))], "valid dictionary");
    checker.refuses(&[("/tools/0/name", json!(""))], "tools.0.custom.name");
    checker.refuses(&[("/tools/0/input_schema", json!({}))], "input_schema.type");
    let same = json!({ "name": "add", "input_schema": { "type": "object" } });
    checker.refuses(&[("/tools/1", same)], "Tool names must be unique: add");
}

#[test]
fn anthropic_rejects_conflicting_options() {
    let checker = messages();
    checker.refuses(&[("/max_tokens", Value::Null)], "max_tokens");
    checker.refuses(&[("/temperature", json!(1.5))], "range: 0..1");
    checker.refuses(&[("/seed", json!(1))], "Unknown parameter: 'seed'");
    checker.refuses(&[("/metadata", json!({ "run": "1" }))], "Extra inputs");
    let thinking = ("/thinking", json!({ "type": "enabled", "budget_tokens": 1024 }));
    checker.passes(&[thinking.clone(), ("/temperature", json!(1))]);
    checker.refuses(&[thinking.clone(), ("/temperature", json!(0.5))], "set to 1");
    checker.refuses(
        &[thinking.clone(), ("/tool_choice", json!({ "type": "any" }))],
        "forces tool use",
    );
    checker.refuses(&[thinking, ("/max_tokens", json!(1000))], "must be greater than");
    let tool = |name: &str| json!({ "type": "tool", "name": name });
    checker.passes(&[("/tool_choice", tool("add"))]);
    checker.refuses(&[("/tool_choice", tool("sub"))], "not found in provided tools");
    let mark = || json!({ "type": "ephemeral" });
    let marks: Vec<(&str, Value)> = [
        "/tools/0/cache_control",
        "/system/0/cache_control",
        "/messages/0/content/0/cache_control",
        "/messages/1/content/1/cache_control",
        "/messages/2/content/2/cache_control",
    ]
    .into_iter()
    .map(|place| (place, mark()))
    .collect();
    checker.passes(&marks[..4]);
    checker.refuses(&marks, "A maximum of 4 blocks with cache_control may be provided. Found 5.");
    checker.refuses(&[("/messages/1/content/0/cache_control", mark())], "for thinking blocks");
    let long = || json!({ "type": "ephemeral", "ttl": "1h" });
    checker.passes(&[("/tools/0/cache_control", long()), ("/system/0/cache_control", mark())]);
    let late = [("/tools/0/cache_control", mark()), ("/system/0/cache_control", long())];
    checker.refuses(&late, "must not come after");
}

fn chat() -> Door {
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "add", "arguments": "{}" } });
    let body = json!({
        "model": "gpt", "stream": true, "stream_options": { "include_usage": true },
        "tools": [{ "type": "function", "function": {
            "name": "add", "description": "Adds",
            "parameters": { "type": "object", "properties": {} },
        } }],
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "1 + 2" },
            { "role": "assistant", "content": null, "tool_calls": [call("a"), call("b")] },
            { "role": "tool", "tool_call_id": "b", "content": "3" },
            { "role": "tool", "tool_call_id": "a", "content": "3" },
            { "role": "user", "content": [{ "type": "text", "text": "And?" }] },
        ],
    });
    Door(openai_chat, body)
}

#[test]
fn chat_requires_results_for_exactly_the_preceding_calls() {
    let checker = chat();
    checker.passes(&[]);
    let user = || json!({ "role": "user", "content": "x" });
    checker.refuses(&[("/messages/4", user())], "did not have response messages: a");
    let early = [("/messages/3", user()), ("/messages/4", user())];
    checker.refuses(&early, "did not have response messages: a, b");
    let stray = json!({ "role": "tool", "tool_call_id": "z", "content": "3" });
    checker.refuses(&[("/messages/6", stray)], "must be a response to a preceeding message");
    let twice = json!({ "role": "tool", "tool_call_id": "b", "content": "3" });
    let twice = openai_chat(&changed(checker.1.clone(), &[("/messages/4", twice)]));
    assert_eq!(twice.len(), 2, "one answered twice, one not at all: {twice:?}");
    let twins = openai_chat(&changed(checker.1, &[("/messages/2/tool_calls/1/id", json!("a"))]));
    assert!(twins.iter().any(|c| c.contains("duplicate id 'a'")), "{twins:?}");
}

#[test]
fn chat_requires_content_in_messages_without_calls() {
    let checker = chat();
    let assistant = json!({ "role": "assistant", "content": null });
    checker.refuses(&[("/messages/6", assistant)], "expected a string, got null");
    checker.refuses(&[("/messages/1/content", Value::Null)], "expected a string, got null");
    checker.refuses(&[("/messages/5/content", json!([]))], "empty array");
    checker.refuses(&[("/messages/5/content/0/text", json!(""))], "non-empty");
    checker.refuses(&[("/messages/1/role", json!("model"))], "Invalid value: 'model'");
    let picture = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64," } });
    checker.passes(&[("/messages/5/content/1", picture.clone())]);
    checker.refuses(&[("/messages/3/content", json!([picture]))], "not allowed for messages");
    let empty = json!({ "role": "assistant", "content": "x", "tool_calls": [] });
    checker.refuses(&[("/messages/6", empty)], "tool_calls': empty array");
}

#[test]
fn chat_restricts_the_characters_of_ids_and_names() {
    let checker = chat();
    let rename = |id: &str| {
        [("/messages/2/tool_calls/0/id", json!(id)), ("/messages/4/tool_call_id", json!(id))]
    };
    checker.passes(&rename(&"x".repeat(40)));
    let violations = openai_chat(&changed(checker.1.clone(), &rename(&"x".repeat(41))));
    assert_eq!(violations.len(), 2, "{violations:?}");
    assert!(violations[0].contains("maximum length 40"), "{violations:?}");
    let name = "/messages/2/tool_calls/0/function/name";
    checker.refuses(&[(name, json!("a.b"))], "does not match pattern");
    let arguments = "/messages/2/tool_calls/0/function/arguments";
    checker.refuses(&[(arguments, json!("{\"a\":"))], "holds a JSON object");
    checker.refuses(&[(arguments, json!({}))], "holds a JSON object");
    checker.refuses(&[("/tools/0/function/name", json!("ä"))], "does not match pattern");
    checker.refuses(&[("/tools/0/function/parameters", json!({}))], "of 'type: \"object\"'");
    let same = json!({ "type": "function", "function": { "name": "add" } });
    checker.refuses(&[("/tools/1", same)], "Duplicate function name");
}

#[test]
fn chat_rejects_conflicting_options() {
    let checker = chat();
    let limits = [("/max_tokens", json!(9)), ("/max_completion_tokens", json!(9))];
    checker.refuses(&limits, "at the same time");
    checker.refuses(&[("/stream", json!(false))], "only allowed when 'stream'");
    checker.refuses(&[("/temperature", json!(2.5))], "'temperature'");
    checker.refuses(&[("/stop", json!(["a", "b", "c", "d", "e"]))], "maximum length 4");
    checker.refuses(&[("/tools", json!([]))], "Invalid 'tools': empty array");
    let alone = [("/tools", Value::Null), ("/parallel_tool_calls", json!(false))];
    checker.refuses(&alone, "only allowed when 'tools'");
    let choice = |name: &str| json!({ "type": "function", "function": { "name": name } });
    checker.passes(&[("/tool_choice", choice("add"))]);
    checker.refuses(&[("/tool_choice", choice("sub"))], "not found in 'tools'");
    checker.refuses(&[("/response_format", json!({ "type": "json_object" }))], "the word 'json'");
    let format = |schema: Value| {
        let schema = json!({ "name": "sum", "strict": true, "schema": schema });
        [("/response_format", json!({ "type": "json_schema", "json_schema": schema }))]
    };
    let open = json!({ "type": "object", "properties": { "a": {} }, "required": ["a"] });
    checker.passes(&format(changed(open.clone(), &[("/additionalProperties", json!(false))])));
    checker.refuses(&format(open), "'additionalProperties' is required");
    let inner =
        json!({ "type": "object", "properties": { "b": {} }, "additionalProperties": false });
    let list = json!({
        "type": "object", "additionalProperties": false, "required": ["a"],
        "properties": { "a": { "type": "array", "items": inner } },
    });
    checker.refuses(&format(list), "Missing 'b'");
}

fn responses() -> Door {
    let call = |n: u32| {
        json!({ "type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"),
                "name": "add", "arguments": "{}" })
    };
    let result = |n: u32| json!({ "type": "function_call_output", "call_id": format!("call_{n}"), "output": "3" });
    let body = json!({
        "model": "gpt", "stream": true, "store": false, "instructions": "Be brief.",
        "tools": [{ "type": "function", "name": "add",
                    "parameters": { "type": "object", "properties": {} } }],
        "input": [
            { "role": "user", "content": [{ "type": "input_text", "text": "1 + 2" }] },
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3Bh" },
            { "type": "message", "id": "msg_1", "role": "assistant",
              "content": [{ "type": "output_text", "text": "I add." }] },
            call(1),
            call(2),
            result(1),
            result(2),
        ],
    });
    Door(openai_responses, body)
}

#[test]
fn responses_require_one_output_after_each_call() {
    let checker = responses();
    checker.passes(&[]);
    let user = || json!({ "role": "user", "content": "x" });
    checker.refuses(&[("/input/6", user())], "No tool output found for function call call_2.");
    checker.refuses(
        &[("/input/4", user())],
        "No tool call found for function call output with call_id call_2.",
    );
    let twice = json!({ "type": "function_call_output", "call_id": "call_1", "output": "3" });
    checker.refuses(&[("/input/7", twice)], "Duplicate function call output");
    checker.passes(&[("/input/4", user()), ("/previous_response_id", json!("resp_1"))]);
    checker.refuses(&[("/input/4/id", json!("fc_1"))], "Duplicate item found with id fc_1");
}

#[test]
fn responses_require_one_answer_after_each_call_of_a_client_tool() {
    let checker = responses();
    let screen = json!({ "type": "computer_screenshot", "image_url": "data:image/png;base64,AA" });
    for (call, answer) in [
        (
            json!({ "type": "shell_call", "call_id": "c", "action": { "commands": [] } }),
            json!({ "type": "shell_call_output", "call_id": "c", "output": [] }),
        ),
        (
            json!({ "type": "apply_patch_call", "call_id": "c", "operation": {} }),
            json!({ "type": "apply_patch_call_output", "call_id": "c", "status": "failed" }),
        ),
        (
            computer_call(),
            json!({ "type": "computer_call_output", "call_id": "c", "output": screen }),
        ),
        (
            json!({ "type": "mcp_approval_request", "id": "c", "name": "t" }),
            json!({ "type": "mcp_approval_response", "approval_request_id": "c", "approve": true }),
        ),
    ] {
        checker.passes(&[("/input/7", call.clone()), ("/input/8", answer.clone())]);
        checker.refuses(&[("/input/7", call.clone())], "No tool output found for");
        checker.refuses(&[("/input/7", answer.clone())], "found for");
        let (first, second) = (("/input/8", answer.clone()), ("/input/9", answer));
        checker.refuses(&[("/input/7", call), first, second], "found for");
    }
    let called =
        |of: Value| json!({ "type": "mcp_call", "id": "mcp_1", "approval_request_id": of });
    let request = json!({ "type": "mcp_approval_request", "id": "c", "name": "t" });
    let response =
        json!({ "type": "mcp_approval_response", "approval_request_id": "c", "approve": true });
    checker.passes(&[("/input/7", called(Value::Null))]);
    checker.passes(&[
        ("/input/7", request),
        ("/input/8", response),
        ("/input/9", called(json!("c"))),
    ]);
    checker.refuses(&[("/input/7", called(json!("c")))], "No mcp_approval_request found");
    let in_container = json!({ "type": "shell_call", "id": "sh_1", "call_id": "c",
        "environment": { "type": "container_reference" } });
    let output =
        json!({ "type": "shell_call_output", "id": "sho_1", "call_id": "c", "output": [] });
    checker.passes(&[("/input/7", in_container), ("/input/8", output)]);
    for (answer, says) in [
        (json!({ "type": "computer_call_output", "call_id": "c", "output": "x" }), "a screenshot"),
        (
            json!({ "type": "computer_call_output", "call_id": "c",
            "output": { "type": "computer_screenshot" } }),
            "a screenshot",
        ),
    ] {
        checker.refuses(&[("/input/7", computer_call()), ("/input/8", answer)], says);
    }
    for field in ["id", "status", "pending_safety_checks"] {
        let mut call = computer_call();
        call[field].take();
        let says = format!("input[7].{field}");
        let screen = json!({ "type": "computer_screenshot", "file_id": "file-1" });
        let answer = json!({ "type": "computer_call_output", "call_id": "c", "output": screen });
        checker.refuses(&[("/input/7", call), ("/input/8", answer)], &says);
    }
}

fn computer_call() -> Value {
    json!({ "type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed",
        "actions": [], "pending_safety_checks": [] })
}

#[test]
fn responses_require_reasoning_to_be_followed_by_its_item() {
    let checker = responses();
    let reasoning =
        json!({ "type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "x" });
    let says = "without its required following item";
    checker.refuses(&[("/input/7", reasoning.clone())], says);
    checker.refuses(
        &[("/input/7", reasoning), ("/input/8", json!({ "role": "user", "content": "x" }))],
        says,
    );
    let gone = "Items are not persisted when `store` is set to false";
    checker.refuses(&[("/input/1/encrypted_content", Value::Null)], gone);
    checker.passes(&[("/input/1/encrypted_content", Value::Null), ("/store", json!(true))]);
    let reference = json!({ "type": "item_reference", "id": "msg_9" });
    checker.refuses(&[("/input/7", reference)], gone);
}

#[test]
fn responses_require_ids_with_the_prefix_of_their_item_type() {
    let checker = responses();
    checker.refuses(&[("/input/3/id", json!("call_1"))], "begins with 'fc'");
    checker.refuses(&[("/input/1/id", json!("msg_2"))], "begins with 'rs'");
    checker.refuses(&[("/input/2/id", json!("rs_2"))], "begins with 'msg'");
    checker
        .refuses(&[("/input/3/id", json!(format!("fc_{}", "x".repeat(64))))], "maximum length 64");
    checker.refuses(&[("/input/3/name", json!("a b"))], "does not match pattern");
    checker.refuses(&[("/input/3/arguments", json!("[]"))], "holds a JSON object");
    checker.refuses(&[("/input/0/content/0/type", json!("output_text"))], "Supported values are");
    checker.refuses(&[("/input/2/content/0/type", json!("input_text"))], "Supported values are");
    checker.refuses(&[("/input/0/content/0/text", json!(""))], "non-empty");
}

#[test]
fn responses_reject_options_of_other_wires() {
    let checker = responses();
    checker.refuses(&[("/max_tokens", json!(99))], "Unknown parameter: 'max_tokens'");
    checker.refuses(&[("/max_output_tokens", json!(5))], ">= 16");
    checker.refuses(&[("/input", Value::Null)], "Missing required parameter: 'input'");
    let nested = json!({ "type": "function", "name": "sub", "function": { "name": "sub" } });
    checker.refuses(&[("/tools/1", nested)], "Unknown parameter: 'tools[1].function'");
    checker.refuses(
        &[("/tool_choice", json!({ "type": "function", "name": "sub" }))],
        "'sub' not found",
    );
    let strict = json!({ "type": "function", "name": "sub", "strict": true,
                         "parameters": { "type": "object", "properties": {} } });
    checker.refuses(&[("/tools/1", strict)], "'additionalProperties' is required");
    let nameless = json!({ "format": { "type": "json_schema", "schema": {} } });
    checker.refuses(&[("/text", nameless)], "'text.format.name'");
}

#[test]
fn openai_rejects_parameters_without_properties_or_items_and_with_alternatives() {
    for (checker, place) in
        [(chat(), "/tools/0/function/parameters"), (responses(), "/tools/0/parameters")]
    {
        let with = |property: Value| {
            [(place, json!({ "type": "object", "properties": { "a": property } }))]
        };
        checker.passes(&with(json!({ "type": "array", "items": {} })));
        checker
            .refuses(&[(place, json!({ "type": "object" }))], "object schema missing properties");
        checker.refuses(&with(json!({ "type": "array" })), "array schema missing items");
        checker.refuses(
            &with(json!({ "type": "array", "items": [{ "type": "string" }] })),
            "a list is not of type",
        );
        for keyword in ["oneOf", "anyOf", "allOf", "enum", "not"] {
            let mut schema = json!({ "type": "object", "properties": {} });
            schema[keyword] = json!([]);
            checker.refuses(&[(place, schema)], "at the top level");
        }
    }
}

#[test]
fn openai_rejects_unknown_formats_in_strict_mode_only() {
    let checker = responses();
    let format = |strict: bool, format: &str| {
        let schema = json!({ "type": "object", "additionalProperties": false, "required": ["n"],
            "properties": { "n": { "type": "string", "format": format } } });
        let format =
            json!({ "type": "json_schema", "name": "n", "strict": strict, "schema": schema });
        [("/text", json!({ "format": format }))]
    };
    checker.passes(&format(true, "date-time"));
    checker.passes(&format(false, "uint64"));
    checker.refuses(&format(true, "uint64"), "'uint64' is not a valid format");
}

#[test]
fn anthropic_rejects_alternatives_at_the_root_and_answers_with_open_objects() {
    let checker = messages();
    for keyword in ["oneOf", "anyOf", "allOf"] {
        let mut schema = json!({ "type": "object" });
        schema[keyword] = json!([]);
        checker.refuses(&[("/tools/0/input_schema", schema)], "at the top level");
    }
    let format = |schema: Value| {
        let format = json!({ "type": "json_schema", "schema": schema });
        [("/output_config", json!({ "format": format }))]
    };
    let closed = json!({ "type": "object", "additionalProperties": false });
    checker.passes(&format(closed));
    let says = "'additionalProperties' must be explicitly set to false";
    let map = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    checker.refuses(&format(json!({ "type": "array", "items": map })), says);
}

#[test]
fn gemini_rejects_keywords_that_it_does_not_support_in_json_schemas() {
    let checker = contents();
    let with = |property: Value| {
        let schema = json!({ "type": "object", "properties": { "a": property } });
        [("/tools/0/functionDeclarations/1/parametersJsonSchema", schema)]
    };
    checker.passes(&with(json!({ "type": ["string", "null"], "enum": ["x", 1] })));
    checker.passes(&with(json!({ "$ref": "#/properties/a" })));
    checker.refuses(&with(json!({ "const": "x" })), "the keyword `const` is not supported");
    checker.refuses(&with(json!({ "enum": [null] })), "only strings and numbers");
    checker.refuses(&with(json!({ "$ref": "#/$defs/a" })), "cannot be resolved");
    let beside = json!({ "$ref": "#/properties/a", "description": "A" });
    checker.refuses(&with(beside), "other fields are set besides $ref");
    let place = "/tools/0/functionDeclarations/1/parametersJsonSchema";
    checker.refuses(&[(place, json!({ "anyOf": [{ "type": "object" }] }))], "of type OBJECT");
}

fn contents() -> Door {
    let call = |name: &str| json!({ "functionCall": { "name": name, "args": {} } });
    let result =
        |name: &str| json!({ "functionResponse": { "name": name, "response": { "output": 3 } } });
    let mut first = call("add");
    first["thoughtSignature"] = "c2ln".into();
    let body = json!({
        "systemInstruction": { "parts": [{ "text": "Be brief." }] },
        "tools": [{ "functionDeclarations": [
            { "name": "add", "parameters": { "type": "OBJECT", "properties": { "a": { "type": "STRING" } } } },
            { "name": "sub", "parametersJsonSchema": { "type": "object", "additionalProperties": false } },
        ] }],
        "generationConfig": { "temperature": 1.0 },
        "contents": [
            { "role": "user", "parts": [{ "text": "1 + 2" }] },
            { "role": "model", "parts": [{ "text": "Hm", "thought": true }, first, call("sub")] },
            { "role": "user", "parts": [result("add"), result("sub")] },
        ],
    });
    Door(gemini, body)
}

#[test]
fn gemini_requires_one_response_per_call_in_call_order() {
    let checker = contents();
    checker.passes(&[]);
    let text = || json!({ "text": "x" });
    let number = "number of function response parts is equal";
    checker.refuses(&[("/contents/2/parts/1", text())], number);
    let third = json!({ "functionResponse": { "name": "sub", "response": {} } });
    checker.refuses(&[("/contents/2/parts/2", third)], number);
    let name = "/contents/2/parts/0/functionResponse/name";
    checker.refuses(&[(name, json!("sub"))], "is in the position of the call of `add`");
    let ids = |call: &str, response: &str| {
        [
            ("/contents/1/parts/1/functionCall/id", json!(call)),
            ("/contents/2/parts/0/functionResponse/id", json!(response)),
        ]
    };
    checker.passes(&ids("a", "a"));
    checker.refuses(&ids("a", "b"), "has the id `b`");
    let open = json!([
        { "role": "user", "parts": [text()] },
        { "role": "model", "parts": [{ "functionCall": { "name": "add" } }] },
    ]);
    checker.refuses(&[("/contents", open)], "unanswered function calls");
    let response = "/contents/2/parts/0/functionResponse/response";
    checker.refuses(&[(response, json!("3"))], "function_response.response': expected an object");
}

#[test]
fn gemini_requires_alternating_roles_and_non_empty_parts() {
    let checker = contents();
    let user = json!({ "role": "user", "parts": [{ "text": "x" }] });
    checker.refuses(&[("/contents/3", user)], "alternate between user and model");
    let assistant = json!({ "role": "assistant", "parts": [{ "text": "x" }] });
    checker.refuses(&[("/contents/3", assistant)], "valid role");
    checker.refuses(&[("/contents/0/parts/0/text", json!(""))], "empty text parameter");
    checker.passes(&[("/contents/1/parts/0", json!({ "text": "", "thoughtSignature": "c2ln" }))]);
    checker.refuses(
        &[("/contents/1/parts/0", json!({ "thoughtSignature": "c2ln" }))],
        "must have one initialized",
    );
    let both = json!({ "text": "x", "inlineData": {} });
    checker.refuses(&[("/contents/0/parts/0", both)], "already set: text, inlineData");
    checker.refuses(&[("/contents/0/parts", json!([]))], "must not be empty");
}

#[test]
fn gemini_rejects_schemas_and_fields_of_other_wires() {
    let checker = contents();
    let parameters = "/tools/0/functionDeclarations/0/parameters";
    let with = |field: &str, value: Value| {
        let mut schema = json!({ "type": "OBJECT", "properties": { "a": { "type": "STRING" } } });
        schema["properties"]["a"][field] = value;
        [(parameters, schema)]
    };
    checker.passes(&with("enum", json!(["x"])));
    checker.refuses(
        &with("additionalProperties", json!(false)),
        "Unknown name \"additionalProperties\"",
    );
    checker.refuses(&with("const", json!("x")), "Unknown name \"const\"");
    checker.refuses(&with("type", json!("ARRAY")), "items: missing field");
    checker.refuses(&with("type", json!(["string", "null"])), "cannot start list");
    let required = json!({ "type": "OBJECT", "properties": {}, "required": ["b"] });
    checker.refuses(&[(parameters, required)], "property 'b' is not defined");
    checker
        .refuses(&[("/tools/0/functionDeclarations/1/name", json!("add"))], "Duplicate function");
    checker.refuses(
        &[("/tools/0/functionDeclarations/1/name", json!("1st"))],
        "Invalid function name",
    );
    checker.refuses(&[("/messages", json!([]))], "Unknown name \"messages\"");
    let cached = ("/cachedContent", json!("cachedContents/1"));
    checker.refuses(std::slice::from_ref(&cached), "CachedContent can not be used");
    checker.passes(&[cached, ("/tools", Value::Null), ("/systemInstruction", Value::Null)]);
    checker.passes(&[(
        "/tool_config",
        json!({ "function_calling_config": {
        "mode": "ANY", "allowed_function_names": ["add"],
    } }),
    )]);
    checker.refuses(
        &[(
            "/toolConfig",
            json!({ "functionCallingConfig": {
            "mode": "ANY", "allowedFunctionNames": ["mul"],
        } }),
        )],
        "`mul` is not among",
    );
    checker.refuses(
        &[("/generationConfig/responseSchema", json!({ "type": "OBJECT" }))],
        "only supported with response_mime_type",
    );
    let violations = gemini(&json!({ "system_instruction": {}, "contents": [] }));
    assert_eq!(violations, ["contents is not specified"]);
}

#[test]
fn gemini_3_requires_the_first_call_of_each_step_to_be_signed() {
    let Door(_, body) = contents();
    let checker = Door(gemini_3, body);
    checker.passes(&[]);
    let signature = "/contents/1/parts/1/thoughtSignature";
    checker.refuses(&[(signature, Value::Null)], "missing a thought_signature");
    // Contents before the last user message are not checked.
    let later = [
        (signature, Value::Null),
        ("/contents/3", json!({ "role": "model", "parts": [{ "text": "3" }] })),
        ("/contents/4", json!({ "role": "user", "parts": [{ "text": "thanks" }] })),
    ];
    checker.passes(&later);
}

fn lines() -> Door {
    let call = |name: &str| json!({ "function": { "name": name, "arguments": { "a": 1 } } });
    let body = json!({
        "model": "qwen", "stream": true, "think": "low", "format": "json", "keep_alive": "5m",
        "options": { "num_ctx": 4096, "temperature": 0.5, "stop": ["END"] },
        "tools": [{ "type": "function", "function": {
            "name": "add", "description": "Adds", "parameters": { "type": "object" },
        } }],
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "1 + 2", "images": ["aGk="] },
            { "role": "assistant", "content": "", "thinking": "Hm",
              "tool_calls": [call("add"), call("add"), call("now")] },
            { "role": "tool", "content": "3", "tool_name": "now" },
            { "role": "tool", "content": "3", "tool_name": "add" },
            { "role": "tool", "content": "3", "tool_name": "add" },
        ],
    });
    Door(ollama, body)
}

#[test]
fn ollama_requires_results_for_exactly_the_preceding_calls() {
    let checker = lines();
    checker.passes(&[]);
    let user = || json!({ "role": "user", "content": "x" });
    checker.refuses(&[("/messages/5", user())], "did not have response messages: add");
    let stray = json!({ "role": "tool", "content": "3", "tool_name": "add" });
    checker.refuses(&[("/messages/6", stray)], "must be a response to a preceeding message");
    let (call, result) = ("/messages/2/tool_calls/2/id", "/messages/3/tool_call_id");
    checker.passes(&[(call, json!("c1")), (result, json!("c1"))]);
    let found = ollama(&changed(checker.1, &[(call, json!("c1")), (result, json!("c2"))]));
    assert_eq!(found.len(), 2, "one that answers nothing, one not answered: {found:?}");
}

#[test]
fn ollama_requires_messages_of_known_roles_and_types() {
    let checker = lines();
    let role = [("/messages/1/role", json!("developer"))];
    checker.refuses(&role, "messages[1]: invalid role: developer");
    let parts = json!([{ "type": "text", "text": "1 + 2" }]);
    checker
        .refuses(&[("/messages/1/content", parts)], "messages[1].content must be of type string");
    let arguments = "/messages/2/tool_calls/0/function/arguments";
    let refusal = "messages[2].tool_calls[0].function.arguments must be of type object";
    for no_object in [json!("{}"), json!([]), json!(null)] {
        checker.refuses(&[(arguments, no_object)], refusal);
    }
    checker.refuses(&[("/messages/1/images", json!([5]))], "must be of type array of strings");
    checker.refuses(&[("/messages/0/thinking", json!("Hm"))], "only the assistant has it");
    checker.refuses(&[("/messages", json!([]))], "the model is only loaded");
}

#[test]
fn ollama_requires_options_of_the_right_type_and_position() {
    let checker = lines();
    for (place, value) in [
        ("/think", json!(true)),
        ("/format", json!({ "type": "object" })),
        ("/keep_alive", json!(-1)),
        ("/options/temperature", json!(5)),
        ("/stream", json!(null)),
    ] {
        checker.passes(&[(place, value)]);
    }
    for (place, value, says) in [
        ("/model", json!(""), "model is required"),
        ("/stream", json!("yes"), "stream must be of type bool"),
        ("/think", json!("max"), "invalid think value: \"max\""),
        ("/format", json!("yaml"), "invalid format: \"yaml\""),
        ("/keep_alive", json!(true), "keep_alive must be"),
        ("/options", json!([]), "options must be of type object"),
        ("/options/num_ctx", json!("4096"), "option num_ctx must be of type integer"),
        ("/options/seed", json!(1.5), "option seed must be of type integer"),
        ("/options/temperature", json!("hot"), "option temperature must be of type float32"),
        ("/options/stop", json!("END"), "option stop must be of type array of strings"),
        ("/temperature", json!(0.5), "Unknown parameter: 'temperature'"),
        ("/num_ctx", json!(4096), "Unknown parameter: 'num_ctx'"),
        ("/tool_choice", json!("auto"), "Unknown parameter: 'tool_choice'"),
        ("/tools/0/type", json!("web_search"), "tools[0].type must be \"function\""),
        ("/tools/0/function/name", json!(""), "a function needs a name"),
        ("/tools/0/function/parameters", json!({}), "must be a schema of an object"),
    ] {
        checker.refuses(&[(place, value)], says);
    }
    let twin = checker.1["tools"][0].clone();
    checker.refuses(&[("/tools/1", twin)], "duplicate function name: add");
}

#[test]
fn every_malformed_body_is_reported_without_a_panic() {
    for odd in [
        json!(null),
        json!([]),
        json!({ "messages": 5, "input": {}, "contents": "x", "tools": [null, 1], "system": [1] }),
        json!({ "messages": [null, [], { "content": [null] }], "input": [null, 1], "contents": [null] }),
    ] {
        for lint in [anthropic, openai_chat, openai_responses, gemini, gemini_3, ollama] {
            assert!(!lint(&odd).is_empty());
        }
    }
}
