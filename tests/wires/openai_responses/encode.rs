//! The encoding of requests.

use super::*;
use turnstream::ErrorKind;
use turnstream::item::{Content, ItemFlag, Media, MediaSource, Part, ProviderData, RawJson};
use turnstream::request::{
    Cache, Effort, Options, Output, OutputSchema, Reasoning, ToolChoice, ToolSpec,
};

fn hello_request(options: Options) -> Request {
    Request::new(History::from_items("h", [Item::user("hello")])).with_options(options)
}

/// The fields of the body that encode the options.
fn option_fields(options: Options) -> Value {
    let mut body = encode_json(&hello_request(options), MODEL).unwrap();
    for always in ["model", "stream", "store", "include", "input"] {
        body.as_object_mut().unwrap().shift_remove(always).expect(always);
    }
    body
}

#[test]
fn a_request_has_the_documented_shape() {
    let mut request = Request::new(History::from_items(
        "h",
        [
            Item::user("one"),
            Item::user(vec!["look".into(), Part::image("image/png", b"\0\0\0")]),
            Item::reasoning("unsigned, not sent"),
            Item::text("I'll look."),
            Item::tool_call("a", "f", ""),
            Item::tool_call("b", "f", "{\"x\": 1"),
            tool_result("a", "fine"),
            tool_result(
                "b",
                vec![
                    "see".into(),
                    Part::image("image/png", MediaSource::Url("https://a.example/b".into())),
                ],
            ),
            Item::system("be kind"),
            Item::text("done"),
            Item::user(""),
        ],
    ))
    .with_system("be brief")
    .with_tools([ToolSpec::new("f", "F", json!({ "type": "object" }))]);
    request.system.volatile = "today".into();
    let message = |role: &str, text: &str| {
        let kind = if role == "assistant" { "output_text" } else { "input_text" };
        json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
    };
    let image = |url: &str| json!({ "type": "input_image", "image_url": url, "detail": "auto" });
    assert_eq!(
        encode_json(&request, MODEL).unwrap(),
        json!({
            "model": MODEL,
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "instructions": "be brief",
            "tools": [{ "type": "function", "name": "f", "description": "F",
                "parameters": { "type": "object", "properties": {} }, "strict": false }],
            "input": [
                message("user", "one"),
                { "type": "message", "role": "user", "content": [
                    { "type": "input_text", "text": "look" },
                    image("data:image/png;base64,AAAA"),
                ] },
                message("assistant", "I'll look."),
                { "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" },
                { "type": "function_call", "call_id": "b", "name": "f",
                    "arguments": "{\"INVALID_JSON\":\"{\\\"x\\\": 1\"}" },
                { "type": "function_call_output", "call_id": "a", "output": "fine" },
                { "type": "function_call_output", "call_id": "b", "output": [
                    { "type": "input_text", "text": "see" },
                    image("https://a.example/b"),
                ] },
                message("developer", "be kind"),
                message("assistant", "done"),
                message("developer", "today"),
            ],
        })
    );
}

#[test]
fn files_are_encoded_in_messages_and_results() {
    let file = |media_type: &str, source: MediaSource| Part::File(Media::new(media_type, source));
    let parts: Vec<Part> = vec![
        file("application/pdf", MediaSource::Data("AAAA".into())),
        file("application/pdf", MediaSource::Data("AAAA".into())).with_name("report.pdf"),
        file("text/x-rust", MediaSource::Data("BBBB".into())),
        file("application/pdf", MediaSource::Url("https://a.example/b.pdf".into())),
    ];
    let expected = json!([
        { "type": "input_file", "filename": "file.pdf",
            "file_data": "data:application/pdf;base64,AAAA" },
        { "type": "input_file", "filename": "report.pdf",
            "file_data": "data:application/pdf;base64,AAAA" },
        { "type": "input_file", "filename": "file.txt", "file_data": "data:text/x-rust;base64,BBBB" },
        { "type": "input_file", "file_url": "https://a.example/b.pdf" },
    ]);
    let input = encode_input(
        [
            Item::user(parts.clone()),
            Item::tool_call("a", "f", "{}"),
            tool_result("a", Content::Parts(parts)),
        ],
        MODEL,
    );
    assert_eq!((&input[0]["content"], &input[2]["output"]), (&expected, &expected));
}

#[test]
fn results_with_images_directly_follow_their_parallel_calls() {
    let image = || Content::Parts(vec!["a picture".into(), Part::image("image/png", b"\0\0\0")]);
    let call = |id: &str| Item::tool_call(id, "f", "{}");
    let items = [
        Item::user("go"),
        call("a"),
        call("b"),
        call("c"),
        tool_result("a", image()),
        tool_result("b", image()),
        tool_result("c", "text only"),
    ];
    let input = encode_input(items, MODEL);
    let is_output = |item: &&Value| item["type"] == "function_call_output";
    assert_eq!(input.iter().filter(is_output).count(), 3);
    assert!(input[4..].iter().all(|item| is_output(&item)), "{input:?}");
    let images = input.iter().filter(|item| item.to_string().contains("data:image/png"));
    assert_eq!(images.count(), 2, "each image is in its own result");
}

#[test]
fn an_empty_error_result_is_sent_with_a_message() {
    let mut failed = tool_result("a", "");
    if let ItemKind::ToolResult(result) = &mut failed.kind {
        result.kind = ResultKind::Error;
    }
    let input = encode_input([Item::tool_call("a", "f", "{}"), failed], MODEL);
    assert_eq!(input[1]["output"], "It failed without a message.");
}

#[test]
fn ids_and_names_are_sanitized_consistently_for_calls_and_results() {
    let id = "resp_yqqp:call 0|".repeat(9);
    let input = encode_input([Item::tool_call(&*id, "a tool", "{}"), tool_result(&id, "x")], MODEL);
    let wire_id = input[0]["call_id"].as_str().unwrap();
    assert!(wire_id.len() <= 64 && wire_id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
    assert_eq!(input[1]["call_id"], wire_id);
    assert_eq!(input[0]["name"], "a_tool");
}

#[test]
fn no_call_without_result_and_no_result_without_call_is_sent() {
    let cut_off = Item::tool_call("b", "f", "{").with_flag(ItemFlag::Interrupted);
    let input = encode_input(
        [Item::user("x"), tool_result("nobody", "?"), Item::tool_call("a", "f", "{}"), cut_off],
        MODEL,
    );
    let types: Vec<_> = input.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["message", "function_call", "function_call_output"]);
    assert_eq!((&input[1]["call_id"], &input[2]["call_id"]), (&json!("a"), &json!("a")));
}

#[test]
fn an_empty_request_is_rejected() {
    let request = Request::new(History::from_items("h", [Item::user("")])).with_system("s");
    assert_eq!(encode(&request, MODEL).unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[test]
fn options_are_encoded() {
    #[track_caller]
    fn check(options: Options, expected: impl Into<Value>) {
        assert_eq!(option_fields(options), expected.into());
    }
    let default = Options::default;
    check(default(), json!({}));
    check(
        Options {
            max_output_tokens: Some(99),
            temperature: Some(0.5),
            top_p: Some(0.25),
            parallel_tool_calls: Some(false),
            user: Some("u1".into()),
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            cache: Cache::Long,
            ..default()
        },
        json!({ "max_output_tokens": 99, "temperature": 0.5, "top_p": 0.25,
            "parallel_tool_calls": false, "safety_identifier": "u1", "metadata": { "k": "v" } }),
    );
    for (choice, word) in [
        (ToolChoice::None, json!("none")),
        (ToolChoice::Required, json!("required")),
        (ToolChoice::Tool("f".into()), json!({ "type": "function", "name": "f" })),
    ] {
        check(Options { tool_choice: choice, ..default() }, json!({ "tool_choice": word }));
    }
    // GPT-5.1 has three levels.
    for (effort, word) in [
        (Effort::Minimal, "low"),
        (Effort::Low, "low"),
        (Effort::Medium, "medium"),
        (Effort::High, "high"),
        (Effort::XHigh, "high"),
        (Effort::Max, "high"),
    ] {
        let reasoning = Some(Reasoning::Effort(effort));
        let expected = json!({ "reasoning": { "effort": word, "summary": "auto" } });
        check(Options { reasoning, ..default() }, expected);
    }
    let off = Options { reasoning: Some(Reasoning::Off), ..default() };
    check(off, json!({ "reasoning": { "effort": "none" } }));
    let json = Options { output: Output::Json, ..default() };
    check(json, json!({ "text": { "format": { "type": "json_object" } } }));
}

#[test]
fn an_output_schema_is_strict() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } },
        "required": ["a"], "additionalProperties": false });
    let output = Output::Schema(OutputSchema { name: "answer".into(), schema: schema.clone() });
    let format = &option_fields(Options { output, ..Options::default() })["text"]["format"];
    let expected =
        json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": true });
    assert_eq!(format, &expected);
}

#[test]
fn options_the_wire_cannot_express_are_rejected_by_name() {
    let default = Options::default;
    for (options, name) in [
        (Options { stop_sequences: vec!["x".into()], ..default() }, "stop_sequences"),
        (Options { top_k: Some(1), ..default() }, "top_k"),
        (Options { seed: Some(1), ..default() }, "seed"),
        (Options { frequency_penalty: Some(0.0), ..default() }, "frequency_penalty"),
        (Options { presence_penalty: Some(0.0), ..default() }, "presence_penalty"),
        (Options { reasoning: Some(Reasoning::Budget(9)), ..default() }, "reasoning"),
    ] {
        let error = encode(&hello_request(options), MODEL).unwrap_err();
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some(name)));
    }
}

#[test]
fn extra_fields_are_merged_last() {
    let Value::Object(extra) = json!({ "store": true, "include": null, "service_tier": "flex" })
    else {
        unreachable!("it is written as an object")
    };
    let body = encode_json(&hello_request(Options { extra, ..Options::default() }), MODEL).unwrap();
    assert_eq!((&body["store"], &body["include"]), (&json!(true), &Value::Null));
    assert_eq!(body["service_tier"], "flex");
}

#[test]
fn encrypted_reasoning_is_requested_only_from_reasoning_models() {
    let asks = |model: &str| {
        encode_json(&hello_request(Options::default()), model).unwrap().get("include").is_some()
    };
    for model in [
        "gpt-4o-mini",
        "gpt-4.1",
        "chatgpt-4o-latest",
        "gpt-5-chat-latest",
        "openai/gpt-4o",
        "ft:gpt-4o:x",
    ] {
        assert!(!asks(model), "{model}");
    }
    for model in ["gpt-5.1", "o3", "o4-mini", "grok-4", "openai/gpt-oss-20b", "my-deployment"] {
        assert!(asks(model), "{model}");
    }
}

#[test]
fn a_provider_item_that_answers_another_is_sent_verbatim() {
    let data = |value: &str| ProviderData {
        provider: "openai_responses".into(),
        model: MODEL.into(),
        value: RawJson::parse(value).unwrap(),
    };
    let call =
        Item::provider_item(data(r#"{"type":"local_shell_call","id":"lsh_1","call_id":"c"}"#));
    let answer =
        Item::provider_item(data(r#"{"type":"local_shell_call_output","id":"c","output":"x"}"#));
    let input = encode_input([Item::user("x"), call, answer], MODEL);
    assert_eq!(input[1]["type"], "local_shell_call");
    assert_eq!(input[2], json!({ "type": "local_shell_call_output", "id": "c", "output": "x" }));
}

#[test]
fn a_call_for_the_client_without_an_answer_is_not_sent() {
    let data = |value: &str| ProviderData {
        provider: "openai_responses".into(),
        model: MODEL.into(),
        value: RawJson::parse(value).unwrap(),
    };
    let item = |value: &str| Item::provider_item(data(value));
    let call = || item(r#"{"type":"computer_call","id":"cu_1","call_id":"c"}"#);
    let answer = || item(r#"{"type":"computer_call_output","call_id":"c","output":{}}"#);
    let request = || item(r#"{"type":"mcp_approval_request","id":"mcpr_1"}"#);
    let approval = || {
        item(r#"{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}"#)
    };
    let kinds = |items: Vec<Item>| {
        let items = [vec![Item::user("x")], items].concat();
        let input = encode_input(items, MODEL);
        let kinds = input.iter().skip(1).map(|item| item["type"].to_string());
        kinds.collect::<Vec<_>>().join(" ").replace('"', "")
    };
    assert_eq!(kinds(vec![call()]), "");
    assert_eq!(kinds(vec![call(), answer()]), "computer_call computer_call_output");
    assert_eq!(kinds(vec![request()]), "");
    assert_eq!(kinds(vec![request(), approval()]), "mcp_approval_request mcp_approval_response");
    assert_eq!(kinds(vec![call(), Item::user("y"), request(), Item::text("z")]), "message message");

    // An answer that is appended after a request was sent makes its call part of the next one.
    let mut history = History::from_items("h", [Item::user("x"), call()]);
    let body = |history: &History| encode_json(&Request::new(history.clone()), MODEL).unwrap();
    assert_eq!(body(&history)["input"].as_array().unwrap().len(), 1);
    history.push(answer());
    assert_eq!(body(&history)["input"].as_array().unwrap().len(), 3);
}

#[test]
fn deferred_tools_are_sent_with_the_vendors_search() {
    let spec = |name: &str| ToolSpec::new(name, "What it does", json!({ "type": "object" }));
    let request = hello_request(Options::default())
        .with_tools([spec("read"), spec("forecast").with_deferred(true)]);
    let body = encode_json(&request, MODEL).unwrap();
    let lint =
        turnstream_testing::lint::request(turnstream_testing::Wire::OpenAiResponses, MODEL, &body);
    assert_eq!(lint, [""; 0]);
    assert_eq!(body["tools"][0], json!({ "type": "tool_search" }));
    assert_eq!(body["tools"][1].get("defer_loading"), None);
    assert_eq!(
        (&body["tools"][2]["name"], &body["tools"][2]["defer_loading"]),
        (&json!("forecast"), &json!(true))
    );
    let plain = encode_json(&hello_request(Options::default()).with_tools([spec("read")]), MODEL);
    assert_eq!(plain.unwrap()["tools"].as_array().unwrap().len(), 1);
}
