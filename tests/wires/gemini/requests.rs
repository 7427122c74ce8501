//! The encoding of requests.

use serde_json::{Value, json};
use turnstream::item::{Media, MediaSource, Part, ResultKind, ToolResult};
use turnstream::provider::gemini;
use turnstream::request::{
    Cache, Effort, Options, Output, OutputSchema, Reasoning, ToolChoice, ToolSpec, WebSearch,
};
use turnstream::{ErrorKind, Item};

use super::{
    MODEL, as_last_of_turn, encode_contents, encode_for_model, request_with_items,
    request_with_options, tool_result,
};

/// Checks the field of the body that encodes the options.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "it is written in place")]
fn check_option_field(given: Options, pointer: &str, expected: Value) {
    let body = encode_for_model(MODEL, &request_with_options(given));
    assert_eq!(body.pointer(pointer).cloned().unwrap_or_default(), expected, "{body}");
}

#[track_caller]
fn check_unsupported(given: Options, parameter: &str) {
    let error = gemini::encode(&request_with_options(given), MODEL).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some(parameter)));
}

fn tool_spec() -> ToolSpec {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    ToolSpec::new("f", "Does", parameters)
}

#[test]
fn a_plain_request_has_only_its_contents() {
    let body = gemini::encode(&request_with_options(Options::default()), MODEL).unwrap();
    let body = String::from_utf8(body).unwrap();
    assert_eq!(body, r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}"#);
}

#[test]
fn the_system_prompt_ends_with_its_volatile_part() {
    let mut request = request_with_items(vec![Item::system("Be brief."), Item::user("hi")]);
    request.system.stable = "You are a bot.".into();
    request.system.volatile = "It is Monday.".into();
    assert_eq!(
        encode_for_model(MODEL, &request)["systemInstruction"],
        json!({ "parts": [{ "text": "You are a bot.\n\nBe brief." }, { "text": "It is Monday." }] })
    );
}

#[test]
fn consecutive_messages_of_one_role_are_merged() {
    assert_eq!(
        encode_contents(vec![
            Item::user("a"),
            Item::system("b"),
            Item::user("c"),
            Item::text("d"),
            as_last_of_turn(Item::text("e")),
            Item::user("f"),
        ]),
        json!([
            { "role": "user", "parts": [{ "text": "a" }, { "text": "b" }, { "text": "c" }] },
            { "role": "model", "parts": [{ "text": "d" }, { "text": "e" }] },
            { "role": "user", "parts": [{ "text": "f" }] },
        ])
    );
}

#[test]
fn the_first_content_is_the_users_and_empty_ones_are_omitted() {
    let said =
        encode_contents(vec![Item::user(""), as_last_of_turn(Item::text("a")), Item::text(" \n")]);
    assert_eq!(said[0]["role"], "user");
    assert_eq!(said[1], json!({ "role": "model", "parts": [{ "text": "a" }] }));
    assert_eq!(said.as_array().unwrap().len(), 2);
    let error = gemini::encode(&request_with_items(vec![Item::user("")]), MODEL).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

#[test]
fn results_of_a_turn_are_one_content_in_the_order_of_the_calls() {
    assert_eq!(
        encode_contents(vec![
            Item::user("go"),
            Item::text("So."),
            Item::tool_call("c1", "f", r#"{"a":1}"#),
            as_last_of_turn(Item::tool_call("c2", "g", "")),
            tool_result("c2", ResultKind::Error, "broken"),
            tool_result("c1", ResultKind::Ok, r#"{"n":12345678901234567890}"#),
            Item::user("and?"),
        ]),
        json!([
            { "role": "user", "parts": [{ "text": "go" }] },
            { "role": "model", "parts": [
                { "text": "So." },
                { "functionCall": { "name": "f", "args": { "a": 1 } },
                  "thoughtSignature": "skip_thought_signature_validator" },
                { "functionCall": { "name": "g", "args": {} } },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "name": "f", "response": { "output": r#"{"n":12345678901234567890}"# } } },
                { "functionResponse": { "name": "g", "response": { "error": "broken" } } },
                { "text": "and?" },
            ] },
        ])
    );
}

#[test]
fn an_empty_error_result_is_sent_with_a_message() {
    let items = vec![
        Item::user("go"),
        as_last_of_turn(Item::tool_call("c", "f", "{}")),
        tool_result("c", ResultKind::Panic, ""),
    ];
    let response = &encode_contents(items)[2]["parts"][0]["functionResponse"]["response"];
    assert!(!response["error"].as_str().unwrap().is_empty());
}

#[test]
fn non_object_arguments_are_wrapped() {
    let items = vec![
        Item::user("go"),
        as_last_of_turn(Item::tool_call("c", "f", "[1")),
        tool_result("c", ResultKind::Ok, ""),
    ];
    let call = &encode_contents(items)[1]["parts"][0]["functionCall"];
    assert_eq!(call["args"], json!({ "INVALID_JSON": "[1" }));
}

#[test]
fn an_unsigned_call_carries_the_skip_signature_value() {
    let items = || {
        vec![
            Item::user("go"),
            as_last_of_turn(Item::tool_call("c1", "f", "{}")),
            tool_result("c1", ResultKind::Ok, "1"),
            Item::tool_call("c2", "f", "{}"),
            as_last_of_turn(Item::tool_call("c3", "f", "{}")),
            tool_result("c2", ResultKind::Ok, "2"),
            tool_result("c3", ResultKind::Ok, "3"),
        ]
    };
    let signatures = |model: &str| -> Vec<Value> {
        let body = encode_for_model(model, &request_with_items(items()));
        let parts = body["contents"].as_array().unwrap().iter().flat_map(|content| {
            content["parts"].as_array().unwrap().iter().filter(|p| p.get("functionCall").is_some())
        });
        parts.map(|part| part["thoughtSignature"].clone()).collect()
    };
    let skip = json!("skip_thought_signature_validator");
    assert_eq!(signatures("gemini-3-pro"), [skip.clone(), skip, Value::Null]);
    assert_eq!(signatures("gemini-2.5-pro"), [Value::Null, Value::Null, Value::Null]);
}

#[test]
fn images_and_files_are_sent_as_bytes_or_url() {
    let url = MediaSource::Url("https://a.example/b.pdf".into());
    let parts = vec![
        "look".into(),
        Part::image("image/png", b"\0\0\0"),
        Part::File(Media::new("application/pdf", url)),
    ];
    assert_eq!(
        encode_contents(vec![Item::user(parts)])[0]["parts"],
        json!([
            { "text": "look" },
            { "inlineData": { "mimeType": "image/png", "data": "AAAA" } },
            { "fileData": { "mimeType": "application/pdf", "fileUri": "https://a.example/b.pdf" } },
        ])
    );
}

#[test]
fn files_of_a_result_are_sent_inside_it_or_after_the_results() {
    let result = |id: &str, parts: Vec<Part>| {
        let (call_id, content) = (id.into(), parts.into());
        let (name, kind) = ("f".into(), ResultKind::Ok);
        Item::tool_result(ToolResult { call_id, name, content, kind, report: None })
    };
    let items = || {
        vec![
            Item::user("go"),
            Item::tool_call("c1", "f", "{}"),
            as_last_of_turn(Item::tool_call("c2", "f", "{}")),
            result(
                "c1",
                vec![
                    "see".into(),
                    Part::image("image/png", b"\0\0\0"),
                    Part::image("image/png", MediaSource::Url("https://a.example/b.png".into())),
                ],
            ),
            result("c2", vec!["2".into()]),
        ]
    };
    let inline = json!({ "inlineData": { "mimeType": "image/png", "data": "AAAA" } });
    let by_url =
        json!({ "fileData": { "mimeType": "image/png", "fileUri": "https://a.example/b.png" } });
    let second = json!({ "functionResponse": { "name": "f", "response": { "output": "2" } } });
    assert_eq!(
        encode_for_model("gemini-3-pro", &request_with_items(items()))["contents"][2]["parts"],
        json!([
            { "functionResponse":
                { "name": "f", "response": { "output": "see" }, "parts": [inline] } },
            second,
            by_url,
        ])
    );
    assert_eq!(
        encode_for_model("gemini-2.5-pro", &request_with_items(items()))["contents"][2]["parts"],
        json!([
            { "functionResponse": { "name": "f", "response": { "output": "see" } } },
            second,
            inline,
            by_url,
        ])
    );
}

#[test]
fn tools_and_tool_choice_are_encoded() {
    let choose = |tool_choice: ToolChoice| {
        let given = Options { tool_choice, ..Options::default() };
        encode_for_model(MODEL, &request_with_options(given).with_tools([tool_spec()]))
    };
    let body = choose(ToolChoice::Auto);
    assert_eq!(
        body["tools"],
        json!([{ "functionDeclarations": [{
            "name": "f", "description": "Does", "parametersJsonSchema": tool_spec().parameters,
        }] }])
    );
    assert_eq!(body.get("toolConfig"), None);
    for (choice, config) in [
        (ToolChoice::None, json!({ "mode": "NONE" })),
        (ToolChoice::Required, json!({ "mode": "ANY" })),
        (ToolChoice::Tool("f".into()), json!({ "mode": "ANY", "allowedFunctionNames": ["f"] })),
    ] {
        assert_eq!(choose(choice)["toolConfig"], json!({ "functionCallingConfig": config }));
    }
    check_option_field(
        Options { tool_choice: ToolChoice::None, ..Options::default() },
        "/toolConfig",
        Value::Null,
    );
}

#[test]
fn sampling_and_limits_are_encoded() {
    let given = Options {
        max_output_tokens: Some(100),
        temperature: Some(0.7),
        top_p: Some(0.9),
        top_k: Some(40),
        seed: Some(7),
        frequency_penalty: Some(0.5),
        presence_penalty: Some(-0.5),
        stop_sequences: vec!["END".into()],
        ..Options::default()
    };
    let body =
        String::from_utf8(gemini::encode(&request_with_options(given), MODEL).unwrap()).unwrap();
    let config = r#""generationConfig":{"maxOutputTokens":100,"temperature":0.7,"topP":0.9,"topK":40,"seed":7,"frequencyPenalty":0.5,"presencePenalty":-0.5,"stopSequences":["END"]}"#;
    assert!(body.contains(config), "{body}");
}

#[test]
fn thinking_is_a_budget_or_a_level() {
    let config = |model: &str, reasoning| {
        let given = Options { reasoning: Some(reasoning), ..Options::default() };
        encode_for_model(model, &request_with_options(given))["generationConfig"]["thinkingConfig"]
            .take()
    };
    for (reasoning, third, second) in [
        (Reasoning::Effort(Effort::Minimal), json!({ "thinkingLevel": "minimal" }), 1_024),
        (Reasoning::Effort(Effort::Low), json!({ "thinkingLevel": "low" }), 1_024),
        (Reasoning::Effort(Effort::Medium), json!({ "thinkingLevel": "medium" }), 8_192),
        (Reasoning::Effort(Effort::High), json!({ "thinkingLevel": "high" }), 24_576),
        (Reasoning::Effort(Effort::XHigh), json!({ "thinkingLevel": "high" }), 24_576),
        (Reasoning::Effort(Effort::Max), json!({ "thinkingLevel": "high" }), 24_576),
        (Reasoning::Budget(500), json!({ "thinkingBudget": 500 }), 500),
    ] {
        let mut third = third;
        third["includeThoughts"] = json!(true);
        assert_eq!(config("gemini-3-pro", reasoning), third);
        let second = json!({ "thinkingBudget": second, "includeThoughts": true });
        assert_eq!(config("gemini-2.5-pro", reasoning), second);
    }
    for model in ["gemini-3-pro", "gemini-2.5-flash"] {
        assert_eq!(config(model, Reasoning::Off), json!({ "thinkingBudget": 0 }));
    }
}

#[test]
fn the_response_format_is_json_or_a_schema() {
    let form = |output| Options { output, ..Options::default() };
    check_option_field(
        form(Output::Json),
        "/generationConfig",
        json!({ "responseMimeType": "application/json" }),
    );
    let schema = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
    let output = OutputSchema { name: "answer".into(), schema: schema.clone() };
    check_option_field(
        form(Output::Schema(output)),
        "/generationConfig",
        json!({ "responseMimeType": "application/json", "responseJsonSchema": schema }),
    );
}

#[test]
fn options_the_wire_cannot_express_are_rejected() {
    let none = Options::default;
    check_unsupported(Options { user: Some("u".into()), ..none() }, "user");
    let metadata = [("k".to_owned(), "v".to_owned())].into();
    check_unsupported(Options { metadata, ..none() }, "metadata");
    check_unsupported(Options { seed: Some(u64::MAX), ..none() }, "seed");
    let parallel_tool_calls = Some(false);
    check_unsupported(Options { parallel_tool_calls, ..none() }, "parallel_tool_calls");
    check_option_field(
        Options { parallel_tool_calls: Some(true), ..none() },
        "/toolConfig",
        Value::Null,
    );
}

#[test]
fn caching_does_nothing_and_extra_fields_are_merged() {
    let plain = encode_for_model(MODEL, &request_with_options(Options::default()));
    for cache in [Cache::Off, Cache::Short, Cache::Long] {
        assert_eq!(
            encode_for_model(MODEL, &request_with_options(Options { cache, ..Options::default() })),
            plain
        );
    }
    let Value::Object(extra) =
        json!({ "safetySettings": [], "generationConfig": { "candidateCount": 1 } })
    else {
        unreachable!("it is written as an object")
    };
    let given = Options { top_k: Some(1), extra, ..Options::default() };
    check_option_field(
        given.clone(),
        "/generationConfig",
        json!({ "topK": 1, "candidateCount": 1 }),
    );
    check_option_field(given, "/safetySettings", json!([]));
}

#[test]
fn instructions_and_tools_are_not_sent_beside_a_stored_prefix_that_contains_them() {
    let with_prefix = |name: Value| {
        let mut request = request_with_items(vec![Item::system("Be brief."), Item::user("hi")]);
        request.system.stable = "You are a bot.".into();
        request.system.volatile = "It is Monday.".into();
        let server_tools = vec![WebSearch::default().into()];
        let mut options =
            Options { tool_choice: ToolChoice::Required, server_tools, ..Options::default() };
        options.extra.insert("cachedContent".into(), name);
        encode_for_model(MODEL, &request.with_tools([tool_spec()]).with_options(options))
    };
    let contents = json!([{ "role": "user", "parts": [{ "text": "hi" }] }]);
    assert_eq!(
        with_prefix(json!("cachedContents/1")),
        json!({ "cachedContent": "cachedContents/1", "contents": contents })
    );
    let body = with_prefix(Value::Null);
    for name in ["systemInstruction", "tools", "toolConfig"] {
        assert!(body[name].is_object() || body[name].is_array(), "{name} is sent: {body}");
    }
}
