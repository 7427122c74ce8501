//! How a request is encoded: messages, media, cache marks.

use serde_json::{Value, json};
use turnstream::item::{Item, ItemFlag, MediaSource, Part, ResultKind, StopReason, ToolResult};
use turnstream::request::{Cache, Options, System, ToolSpec, ToolSpecs};
use turnstream::{ErrorKind, History, Request, Usage};

use super::fixture::*;
use turnstream_test_support::items::as_turn_end;

/// An item that ends its turn.
fn as_last_of_turn(item: Item) -> Item {
    as_turn_end(StopReason::Stop, item, Usage::default())
}

fn tool_result(id: &str) -> Item {
    let (call_id, name, content) = (id.into(), "f".into(), "r".into());
    Item::tool_result(ToolResult { call_id, name, content, kind: ResultKind::Ok, report: None })
}

fn encode_messages(items: Vec<Item>) -> Vec<Value> {
    parse_json(&encode_items(items))["messages"].as_array().unwrap().clone()
}

/// Each message as its role and the types of its blocks.
fn message_shapes(items: Vec<Item>) -> Vec<String> {
    let types = |message: &Value| {
        let blocks = message["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let role = |message: &Value| message["role"].as_str().unwrap().to_owned();
    encode_messages(items).iter().map(|message| role(message) + ": " + &types(message)).collect()
}

#[test]
fn results_come_first_in_one_message_right_after_their_calls() {
    let mut items = vec![Item::user("x"), Item::tool_call("a", "f", "{}")];
    items.extend([
        as_last_of_turn(Item::tool_call("b", "f", "{}")),
        tool_result("a"),
        tool_result("b"),
    ]);
    items.extend([Item::user("and"), Item::system("be brief")]);
    let expected =
        ["user: text", "assistant: tool_use tool_use", "user: tool_result tool_result text text"];
    assert_eq!(message_shapes(items), expected);
}

#[test]
fn calls_come_last_in_the_assistant_message() {
    let items = vec![
        Item::user("x"),
        Item::tool_call("a", "f", "{}"),
        as_last_of_turn(Item::text("said after the call")),
        tool_result("a"),
    ];
    assert_eq!(
        message_shapes(items),
        ["user: text", "assistant: text tool_use", "user: tool_result"]
    );
}

#[test]
fn consecutive_messages_of_one_role_are_merged() {
    let mut items = vec![Item::user("a"), Item::user("b"), as_last_of_turn(Item::text("c"))];
    items.extend([as_last_of_turn(Item::text("d")), Item::user("e")]);
    assert_eq!(message_shapes(items), ["user: text text", "assistant: text text", "user: text"]);
}

#[test]
fn empty_text_is_not_sent() {
    let parts: Vec<Part> = vec![" \n".into(), "a".into(), "".into()];
    let items = vec![Item::user(parts), as_last_of_turn(Item::text("\n")), Item::user("b")];
    assert_eq!(message_shapes(items), ["user: text text"]);
}

#[test]
fn a_final_assistant_text_does_not_end_in_white_space() {
    let texts = |items: Vec<Item>| {
        let messages = encode_messages(items);
        let blocks = messages[1]["content"].as_array().unwrap().clone();
        blocks.iter().map(|b| b["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let x = || Item::user("x");
    assert_eq!(texts(vec![x(), as_last_of_turn(Item::text("a \n"))]), ["a"]);
    assert_eq!(texts(vec![x(), Item::text("a ").with_flag(ItemFlag::Interrupted), x()]), ["a"]);
    assert_eq!(texts(vec![x(), Item::text("begin with ")]), ["begin with"]);
    // The items before the current turn are unchanged.
    assert_eq!(
        texts(vec![x(), Item::text("As "), as_last_of_turn(Item::text("said. ")), x()]),
        ["As ", "said."]
    );
}

#[test]
fn ids_and_names_are_sanitized_consistently_for_calls_and_results() {
    let id = "call.1:x y".to_owned() + &"z".repeat(80);
    let mut call = Item::tool_call(&*id, "functions.get weather", "{}");
    call = as_last_of_turn(call);
    let messages = encode_messages(vec![Item::user("x"), call, tool_result(&id)]);
    let (call, result) = (&messages[1]["content"][0], &messages[2]["content"][0]);
    for name in [&call["id"], &call["name"]] {
        let name = name.as_str().unwrap();
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        assert!((1..=64).contains(&name.len()) && name.chars().all(plain), "{name}");
    }
    assert_eq!(call["id"], result["tool_use_id"]);
}

#[test]
fn tools_are_declared_while_the_history_has_calls() {
    let items =
        vec![Item::user("x"), as_last_of_turn(Item::tool_call("a", "f", "{}")), tool_result("a")];
    assert_eq!(parse_json(&encode_items(items))["tools"][0]["name"], "f");
    assert_eq!(parse_json(&encode_items(vec![Item::user("x")])).get("tools"), None);
}

/// The encoding of one part, in a user message and in a tool result.
fn encode_part(part: Part) -> Result<Value, (ErrorKind, Option<String>)> {
    let mut in_result = tool_result("a");
    let of_user = Item::user(vec![part.clone(), "end".into()]);
    if let turnstream::item::ItemKind::ToolResult(result) = &mut in_result.kind {
        result.content = vec![part, "end".into()].into();
    }
    let encode = |items: Vec<Item>| {
        let body = encode_to_string(&Request::new(History::from_items("h", items)), MODEL);
        body.map_err(|error| (error.kind(), error.parameter().map(str::to_owned)))
    };
    // In an earlier message, the part would be described instead of refused.
    encode(vec![of_user.clone()])?;
    let call = as_last_of_turn(Item::tool_call("a", "f", "{}"));
    let body = encode(vec![of_user, call, in_result])?;
    let body = parse_json(&body);
    let sent = body["messages"][0]["content"][0].clone();
    assert_eq!(body["messages"][2]["content"][0]["content"][0], sent);
    Ok(sent)
}

fn data_source(base64: &str) -> MediaSource {
    MediaSource::Data(base64.into())
}

fn url_source() -> MediaSource {
    MediaSource::Url("https://x.example/a".into())
}

#[test]
fn images_and_documents_are_encoded_in_prompts_and_results() {
    #[track_caller]
    fn check(given: Part, kind: &str, source: &Value) {
        assert_eq!(encode_part(given), Ok(json!({ "type": kind, "source": source })));
    }
    let base64 = |kind: &str| json!({ "type": "base64", "media_type": kind, "data": "AAAA" });
    let fetched = json!({ "type": "url", "url": "https://x.example/a" });
    check(Part::image("image/png", b"\0\0\0"), "image", &base64("image/png"));
    check(Part::image("IMAGE/JPG", b"\0\0\0"), "image", &base64("image/jpeg"));
    check(file_part("image/webp", data_source("AAAA")), "image", &base64("image/webp"));
    check(
        Part::image("image/gif", MediaSource::Url("https://x.example/a".into())),
        "image",
        &fetched,
    );
    check(
        file_part("application/pdf", data_source("AAAA")),
        "document",
        &base64("application/pdf"),
    );
    check(file_part("application/pdf", url_source()), "document", &fetched);
    let text = |data: &str| json!({ "type": "text", "media_type": "text/plain", "data": data });
    check(file_part("text/plain; charset=utf-8", data_source("w6k=")), "document", &text("é"));
    check(file_part("text/csv", data_source("YSxi")), "document", &text("a,b"));
    check(file_part("application/json", data_source("e30=")), "document", &text("{}"));
}

#[test]
fn a_documents_name_is_its_title() {
    let report = file_part("application/pdf", data_source("AAAA")).with_name("report.pdf");
    assert_eq!(encode_part(report).unwrap()["title"], "report.pdf");
}

#[test]
fn media_the_wire_cannot_express_are_a_typed_error() {
    #[track_caller]
    fn check(given: Part) {
        let expected = (ErrorKind::Unsupported, Some("content".to_owned()));
        assert_eq!(encode_part(given), Err(expected));
    }
    check(Part::image("image/svg+xml", b"\0\0\0"));
    check(file_part("audio/wav", data_source("AAAA")));
    check(file_part("application/zip", url_source()));
    check(file_part("text/plain", url_source()));
    check(file_part("", data_source("AAAA")));
    assert_eq!(
        encode_part(file_part("text/plain", data_source("gA=="))),
        Err((ErrorKind::InvalidRequest, None))
    );
}

#[test]
fn an_empty_document_is_omitted_like_empty_text() {
    assert_eq!(encode_part(file_part("text/plain", data_source("IAo="))).unwrap()["text"], "end");
}

fn tool_spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object" });
    ToolSpec::new(name, "d", parameters)
}

/// A request with two tools, both zones, and an unfinished turn with tool calls.
fn tool_loop_request() -> Request {
    let calls =
        vec![Item::user("x"), as_last_of_turn(Item::tool_call("a", "f", "{}")), tool_result("a")];
    let mut request = Request::new(History::from_items("h", calls));
    request.tools = vec![tool_spec("f"), tool_spec("g")].into();
    request.system = System { stable: "stable".into(), volatile: "volatile".into() };
    request
}

/// The positions and values of the cache marks.
fn cache_marks(request: &Request) -> Vec<(String, Value)> {
    fn walk(at: &str, value: &Value, found: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "cache_control" => found.push((at.to_owned(), value.clone())),
                        _ => walk(&format!("{at}/{name}"), value, found),
                    }
                }
            }
            Value::Array(elements) => {
                for (n, element) in elements.iter().enumerate() {
                    walk(&format!("{at}/{n}"), element, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk("", &parse_json(&encode_to_string(request, MODEL).unwrap()), &mut found);
    found
}

#[test]
fn cache_marks_are_on_tools_stable_prompt_and_last_user_message() {
    let request = tool_loop_request();
    let at: Vec<_> = cache_marks(&request).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, ["/system/0", "/tools/1", "/messages/2/content/0"]);
    let mut request = request;
    request.system.stable = "".into();
    request.tools = ToolSpecs::default();
    request.context.push(Item::user(vec!["look".into(), Part::image("image/png", b"\0\0\0")]));
    let at: Vec<_> = cache_marks(&request).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, ["/tools/0", "/messages/2/content/2"]);
}

#[test]
fn cache_marks_carry_their_ttl() {
    let marked = |cache: Cache| {
        cache_marks(&tool_loop_request().with_options(Options { cache, ..Options::default() }))
    };
    assert!(marked(Cache::Off).is_empty());
    let short = json!({ "type": "ephemeral" });
    assert!(marked(Cache::Short).iter().all(|(_, mark)| *mark == short));
    let long = json!({ "type": "ephemeral", "ttl": "1h" });
    assert_eq!(marked(Cache::Long).len(), 3);
    assert!(marked(Cache::Long).iter().all(|(_, mark)| *mark == long));
}

#[test]
fn the_last_user_message_is_marked_even_if_the_assistant_is_last() {
    let thought = r#"{"type":"thinking","thinking":"t","signature":"s"}"#;
    let own = r#"{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}"#;
    let turn = decode_blocks(&[thought, own], "pause_turn");
    let mut items = vec![Item::user("x")];
    items.extend(turn.to_history_items());
    let request = Request::new(History::from_items("h", items));
    let at: Vec<_> = cache_marks(&request).into_iter().map(|(at, _)| at).collect();
    assert_eq!(at, ["/messages/0/content/0"]);
}

#[test]
fn the_volatile_prompt_follows_the_stable_one_and_changes_no_earlier_byte() {
    let encode = |volatile: &str| {
        let mut request = tool_loop_request();
        request.system.volatile = volatile.into();
        parse_json(&encode_to_string(&request, MODEL).unwrap())
    };
    let (one, two, none) = (encode("one"), encode("two"), encode(" "));
    assert_eq!(one["system"][1], json!({ "type": "text", "text": "one" }));
    assert_eq!(none["system"].as_array().unwrap().len(), 1);
    for field in ["tools", "messages"] {
        assert_eq!((&one[field], &one[field]), (&two[field], &none[field]));
    }
    assert_eq!((&one["system"][0], &one["system"][0]), (&two["system"][0], &none["system"][0]));
}
