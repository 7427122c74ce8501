//! The encoding of requests.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use turnstream::item::{ItemFlag, Media, MediaSource, Part, ResultKind, ToolResult};
use turnstream::provider::ollama::{self, Chat, KeepAlive, Think};
use turnstream::request::{
    Effort, Options, Output, OutputSchema, Reasoning, System, ToolChoice, ToolSpec,
};
use turnstream::{ErrorKind, Item, Request};

use super::{
    MODEL, as_last_of_turn, encode_json, encode_messages, request_with_items, request_with_options,
    tool_result, try_encode_json,
};

#[track_caller]
fn check_unsupported(request: &Request, parameter: &str) {
    let error = try_encode_json(request).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some(parameter)));
}

fn request_with_tool_choice(choice: ToolChoice) -> Request {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let tool = ToolSpec::new("f", "adds", parameters);
    request_with_options(Options { tool_choice: choice, ..Options::default() }).with_tools([tool])
}

fn encode_with_settings(chat: Chat) -> Value {
    let bytes = ollama::encode(&request_with_options(Options::default()), MODEL, &chat).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_plain_request_has_only_a_model_and_messages() {
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let expected = json!({ "model": MODEL, "stream": true, "messages": messages });
    assert_eq!(encode_json(&request_with_options(Options::default())), expected);
}

#[test]
fn every_option_has_the_servers_name() {
    let asked = Options {
        max_output_tokens: Some(77),
        temperature: Some(0.5),
        top_p: Some(0.25),
        top_k: Some(5),
        seed: Some(6),
        frequency_penalty: Some(1.5),
        presence_penalty: Some(-1.5),
        stop_sequences: vec!["END".into()],
        ..Options::default()
    };
    let expected = json!({ "num_predict": 77, "temperature": 0.5, "top_p": 0.25, "top_k": 5,
        "seed": 6, "frequency_penalty": 1.5, "presence_penalty": -1.5, "stop": ["END"] });
    assert_eq!(encode_json(&request_with_options(asked))["options"], expected);
}

#[test]
fn the_settings_of_the_wire_are_sent() {
    let chat = Chat { num_ctx: Some(8_192), ..Chat::default() };
    assert_eq!(encode_with_settings(chat)["options"]["num_ctx"], 8_192);
    for (keep_alive, written) in [
        (KeepAlive::Forever, json!(-1)),
        (KeepAlive::Unload, json!(0)),
        (Duration::from_mins(10).into(), json!("600s")),
        (Duration::ZERO.into(), json!("0s")),
        (Duration::from_millis(1_500).into(), json!("1500000000ns")),
        (Duration::MAX.into(), json!(-1)),
    ] {
        let chat = Chat { keep_alive: Some(keep_alive), ..Chat::default() };
        assert_eq!(encode_with_settings(chat)["keep_alive"], written, "{keep_alive:?}");
    }
}

#[test]
fn extra_is_merged_into_the_options_of_the_model() {
    let extra = json!({ "options": { "mirostat": 1, "num_ctx": 5 }, "truncate": false });
    let extra = extra.as_object().cloned().unwrap();
    let request =
        request_with_options(Options { extra, temperature: Some(0.0), ..Options::default() });
    let chat = Chat { num_ctx: Some(8_192), ..Chat::default() };
    let bytes = ollama::encode(&request, MODEL, &chat).unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(body["options"], json!({ "mirostat": 1, "num_ctx": 5, "temperature": 0.0 }));
    assert_eq!(body["truncate"], false);
}

#[test]
fn reasoning_is_a_bool_or_a_level() {
    let think = |reasoning| {
        request_with_options(Options { reasoning: Some(reasoning), ..Options::default() })
    };
    for (effort, level) in [
        (Effort::Minimal, "low"),
        (Effort::Low, "low"),
        (Effort::Medium, "medium"),
        (Effort::High, "high"),
        (Effort::XHigh, "high"),
        (Effort::Max, "high"),
    ] {
        let request = think(Reasoning::Effort(effort));
        assert_eq!(encode_json(&request)["think"], level);
        let chat = Chat { think: Think::Boolean, ..Chat::default() };
        let bytes = ollama::encode(&request, MODEL, &chat).unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(body["think"], true);
    }
    assert_eq!(encode_json(&think(Reasoning::Off))["think"], false);
    assert_eq!(encode_json(&request_with_options(Options::default()))["think"], Value::Null);
    check_unsupported(&think(Reasoning::Budget(5)), "reasoning");
}

#[test]
fn the_response_format_is_json_or_a_schema() {
    let format = |output| {
        encode_json(&request_with_options(Options { output, ..Options::default() }))["format"]
            .take()
    };
    let schema = json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/N" } },
        "$defs": { "N": { "type": "integer" } } });
    assert_eq!(format(Output::Text), Value::Null);
    assert_eq!(format(Output::Json), "json");
    let asked = OutputSchema { name: "n".into(), schema: schema.clone() };
    assert_eq!(format(Output::Schema(asked)), schema);
}

#[test]
fn tools_are_declared_or_omitted_and_a_required_call_is_rejected() {
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let tool = json!({ "type": "function", "function":
        { "name": "f", "description": "adds", "parameters": parameters } });
    assert_eq!(encode_json(&request_with_tool_choice(ToolChoice::Auto))["tools"], json!([tool]));
    assert_eq!(encode_json(&request_with_tool_choice(ToolChoice::None))["tools"], Value::Null);
    check_unsupported(&request_with_tool_choice(ToolChoice::Required), "tool_choice");
    check_unsupported(&request_with_tool_choice(ToolChoice::Tool("f".into())), "tool_choice");
}

#[test]
fn options_the_wire_cannot_express_are_rejected() {
    let with = |change: &dyn Fn(&mut Options)| {
        let mut asked = Options::default();
        change(&mut asked);
        request_with_options(asked)
    };
    check_unsupported(&with(&|o| o.user = Some("u".into())), "user");
    check_unsupported(
        &with(&|o| o.metadata = BTreeMap::from([("k".into(), "v".into())])),
        "metadata",
    );
    check_unsupported(&with(&|o| o.parallel_tool_calls = Some(false)), "parallel_tool_calls");
    check_unsupported(&with(&|o| o.seed = Some(1 << 53)), "seed");
    assert!(try_encode_json(&with(&|o| o.seed = Some((1 << 53) - 1))).is_ok());
    assert!(try_encode_json(&with(&|o| o.parallel_tool_calls = Some(true))).is_ok());
}

#[test]
fn a_request_without_messages_is_rejected() {
    for items in [vec![], vec![Item::text(" ")], vec![Item::system("")]] {
        assert_eq!(
            try_encode_json(&request_with_items(items)).unwrap_err().kind(),
            ErrorKind::InvalidRequest
        );
    }
}

#[test]
fn leading_instructions_come_first_and_later_ones_stay_in_position() {
    let mut request = request_with_items(vec![
        Item::system("First."),
        Item::user("hi"),
        Item::system("Now in French."),
        Item::user("go"),
    ]);
    request.system = System { stable: "Be brief.".into(), volatile: "It is noon.".into() };
    let expected = json!([
        { "role": "system", "content": "Be brief.\n\nFirst.\n\nIt is noon." },
        { "role": "user", "content": "hi" },
        { "role": "system", "content": "Now in French." },
        { "role": "user", "content": "go" },
    ]);
    assert_eq!(encode_json(&request)["messages"], expected);
}

#[test]
fn a_turn_is_one_message_and_a_result_names_its_tool_and_its_call() {
    let items = vec![
        Item::user("go"),
        Item::text("So. "),
        Item::text("Two calls."),
        Item::tool_call("c1", "f", "{\"b\": 1,\"a\":2}"),
        as_last_of_turn(Item::tool_call("c2", "f", "")),
        tool_result("c2", "two"),
        tool_result("c1", "one"),
    ];
    let call = |id: &str, arguments: Value| json!({ "id": id, "function": { "name": "f", "arguments": arguments } });
    let result = |id: &str, content: &str| json!({ "role": "tool", "content": content, "tool_name": "f", "tool_call_id": id });
    let found = encode_messages(items);
    assert_eq!(
        found[1],
        json!({ "role": "assistant", "content": "So. Two calls.", "tool_calls":
        [call("c1", json!({ "b": 1, "a": 2 })), call("c2", json!({}))] })
    );
    let results = found.as_array().unwrap()[2..].to_vec();
    assert_eq!(results.len(), 2);
    assert!(results.contains(&result("c1", "one")) && results.contains(&result("c2", "two")));
}

#[test]
fn object_arguments_are_sent_byte_for_byte_and_others_are_wrapped() {
    let body = |arguments: &str| {
        let items = vec![
            Item::user("go"),
            as_last_of_turn(Item::tool_call("c", "f", arguments)),
            tool_result("c", "1"),
        ];
        let bytes = ollama::encode(&request_with_items(items), MODEL, &Chat::default()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert!(body("{\"z\": 1e2,\"a\":[]}").contains(r#""arguments":{"z": 1e2,"a":[]}"#));
    assert!(body("[1]").contains(r#""arguments":{"INVALID_JSON":"[1]"}"#));
}

#[test]
fn images_are_sent_next_to_the_text_of_prompts_and_results() {
    let image = || Part::image("image/png", MediaSource::Data("TUFSSw==".into()));
    let user = Item::user(vec!["see".into(), image(), " it".into(), image()]);
    let result = Item::tool_result(ToolResult {
        call_id: "c".into(),
        name: "f".into(),
        content: vec!["seen".into(), image()].into(),
        kind: ResultKind::Ok,
        report: None,
    });
    let found =
        encode_messages(vec![user, as_last_of_turn(Item::tool_call("c", "f", "{}")), result]);
    let twice = json!(["TUFSSw==", "TUFSSw=="]);
    assert_eq!(found[0], json!({ "role": "user", "content": "see it", "images": twice }));
    assert_eq!((&found[2]["content"], &found[2]["images"]), (&json!("seen"), &json!(["TUFSSw=="])));
}

#[test]
fn other_media_are_rejected() {
    let file = |media_type: &str| {
        let source = MediaSource::Data("TUFSSw==".into());
        Part::File(Media::new(media_type, source))
    };
    for part in [
        Part::image("image/png", MediaSource::Url("https://a.example/a.png".into())),
        file("application/pdf"),
        file("audio/wav"),
        file("text/plain"),
    ] {
        check_unsupported(
            &request_with_items(vec![Item::user(vec!["look".into(), part])]),
            "content",
        );
    }
}

#[test]
fn an_interrupted_text_is_a_separate_message() {
    let items = vec![
        Item::user("go"),
        Item::text("Half ").with_flag(ItemFlag::Interrupted),
        as_last_of_turn(Item::text("Whole.")),
        Item::user("on"),
    ];
    let found = encode_messages(items);
    let contents: Vec<_> = found.as_array().unwrap().iter().map(|it| &it["content"]).collect();
    assert_eq!(contents, ["go", "Half ", "Whole.", "on"]);
}

#[test]
fn a_request_of_nothing_but_instructions_is_refused_before_it_is_sent() {
    let encode = |items| try_encode_json(&request_with_items(items).with_system("be kind"));
    let void = Item::user("hi").with_flag(ItemFlag::Tombstone);
    for items in [vec![], vec![Item::system("wake up")], vec![void, Item::system("wake up")]] {
        assert_eq!(encode(items).unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
    assert!(encode(vec![Item::system("wake up"), Item::user("hi")]).is_ok());
}
