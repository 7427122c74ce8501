//! The messages of a request in each dialect.

use std::collections::HashSet;

use serde_json::{Value, json};
use turnstream::http::KeyHeader;
use turnstream::item::{ItemFlag, Media, MediaSource, Part, ResultKind, StopReason, ToolResult};
use turnstream::provider::openai_chat::{CallIdRule, Dialect, EmptyContent, MediaForms};
use turnstream::request::Cache;
use turnstream::{ErrorKind, Item, Usage};

use super::{encode_json, encode_messages, request_with_items, tool_result};
use turnstream_test_support::items::as_turn_end;

/// A question, a call, its result, an answer.
fn call_items(id: &str) -> Vec<Item> {
    vec![Item::user("x"), Item::tool_call(id, "f", "{}"), tool_result(id, "r")]
}

fn message_roles(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["role"].as_str().unwrap()).collect()
}

#[test]
fn every_preset_has_a_unique_name_and_a_valid_url() {
    let names: HashSet<_> = Dialect::ALL.iter().map(|dialect| dialect.name).collect();
    assert_eq!(names.len(), Dialect::ALL.len());
    for dialect in Dialect::ALL {
        let url = dialect.base_url;
        assert!(url.is_empty() || (url.starts_with("http") && !url.ends_with('/')), "{url}");
        assert_eq!(dialect.key_header == KeyHeader::Named("api-key"), dialect.name == "azure");
    }
}

#[test]
fn instructions_have_the_dialects_role_and_position() {
    let items = vec![Item::user("a"), Item::system("b"), Item::user("c")];
    let mut request = request_with_items(items).with_system("stable");
    request.system.volatile = "today".into();
    let messages = |dialect: &Dialect| {
        let body = encode_json(&request, dialect).unwrap();
        let messages = body["messages"].as_array().unwrap().clone();
        messages
            .iter()
            .map(|message| format!("{}: {}", message["role"], message["content"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        messages(&Dialect::OPENAI),
        ["system: stable", "user: a", "system: b", "user: c", "system: today"]
    );
    assert_eq!(
        messages(&Dialect::MINIMAL),
        ["system: stable\\n\\ntoday", "user: a", "user: b", "user: c"]
    );
    let developer = Dialect { system_role: "developer", ..Dialect::OPENAI };
    assert_eq!(messages(&developer)[0], "developer: stable");
    request.system = turnstream::request::System::default();
    assert_eq!(message_roles(&encode_messages(vec![Item::user("a")], &Dialect::MINIMAL)), ["user"]);
}

#[test]
fn an_assistant_message_with_only_calls_has_the_dialects_content() {
    let content = |empty_content: EmptyContent| {
        let dialect = Dialect { empty_content, ..Dialect::MINIMAL };
        encode_messages(call_items("a"), &dialect)[1].get("content").cloned()
    };
    assert_eq!(content(EmptyContent::Null), Some(Value::Null));
    assert_eq!(content(EmptyContent::EmptyString), Some(json!("")));
    assert_eq!(content(EmptyContent::Absent), None);
}

#[test]
fn an_empty_assistant_message_is_omitted() {
    let items = vec![Item::user("x"), Item::text(" "), Item::reasoning("hm"), Item::user("y")];
    for dialect in Dialect::ALL {
        assert_eq!(
            message_roles(&encode_messages(items.clone(), dialect)),
            ["user", "user"],
            "{}",
            dialect.name
        );
    }
}

#[test]
fn an_empty_tool_list_is_sent_only_if_the_dialect_requires_it_after_calls() {
    let tools = |items: Vec<Item>, dialect: &Dialect| {
        let body = encode_json(&request_with_items(items).with_tools([]), dialect).unwrap();
        body.get("tools").cloned()
    };
    for dialect in Dialect::ALL {
        let expected = dialect.sends_empty_tools.then(|| json!([]));
        assert_eq!(tools(call_items("a"), dialect), expected, "{}", dialect.name);
        assert_eq!(tools(vec![Item::user("x")], dialect), None, "{}", dialect.name);
    }
    assert!(Dialect::ALL.iter().any(|dialect| dialect.sends_empty_tools));
}

#[test]
fn a_result_names_its_tool_if_the_dialect_requires_it() {
    assert_eq!(encode_messages(call_items("a"), &Dialect::MISTRAL)[2]["name"], "f");
    assert!(encode_messages(call_items("a"), &Dialect::OPENAI)[2].get("name").is_none());
}

#[test]
fn ids_have_the_dialects_format_and_results_match_their_calls() {
    let long = "call_".to_owned() + &"é.1".repeat(30);
    for dialect in Dialect::ALL {
        for id in ["a", "abcdefghi", "call_1_1", long.as_str()] {
            let messages = encode_messages(call_items(id), dialect);
            let sent = messages[1]["tool_calls"][0]["id"].as_str().unwrap();
            assert_eq!(messages[2]["tool_call_id"], sent);
            let legal = match dialect.call_id_rule {
                CallIdRule::AnyIssued | CallIdRule::Max40Chars => {
                    sent.len() <= 40 && sent.is_ascii()
                }
                CallIdRule::NineAlphanumerics => {
                    sent.len() == 9 && sent.chars().all(|c| c.is_ascii_alphanumeric())
                }
            };
            assert!(legal, "{sent} in {}", dialect.name);
        }
    }
    assert_eq!(
        encode_messages(call_items("abcdefghi"), &Dialect::MISTRAL)[2]["tool_call_id"],
        "abcdefghi"
    );
}

#[test]
fn an_assistant_message_separates_result_and_user_if_the_dialect_requires_it() {
    let mut items = call_items("a");
    items.push(Item::user("y"));
    assert_eq!(
        message_roles(&encode_messages(items.clone(), &Dialect::MISTRAL)),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    assert_eq!(
        message_roles(&encode_messages(items, &Dialect::OPENAI)),
        ["user", "assistant", "tool", "user"]
    );
    // Images of a result are sent in a user message, too.
    let content = vec!["see".into(), Part::image("image/png", b"\0\0\0")].into();
    let kind = ResultKind::Ok;
    let mut items = call_items("a");
    items[2] = Item::tool_result(ToolResult {
        call_id: "a".into(),
        name: "f".into(),
        content,
        kind,
        report: None,
    });
    let messages = encode_messages(items, &Dialect::MISTRAL);
    assert_eq!(message_roles(&messages), ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(messages[2]["content"], "see");
    assert_eq!(messages[4]["content"][0]["type"], "image_url");
}

#[test]
fn media_are_encoded_or_rejected_according_to_the_dialect() {
    let media = |media_type: &str, source: MediaSource| Media::new(media_type, source);
    let data = || MediaSource::Data("AAAA".into());
    let url = || MediaSource::Url("https://a.example/b".into());
    let parts = [
        (MediaForms::ImageBytes, Part::Image(media("image/png", data()))),
        (MediaForms::ImageUrls, Part::Image(media("image/png", url()))),
        (MediaForms::FileBytes, Part::File(media("application/pdf", data()))),
        (MediaForms::FileBytes, Part::File(media("audio/wav", data()))),
        (MediaForms::FileUrls, Part::File(media("application/pdf", url()))),
    ];
    for dialect in Dialect::ALL {
        for (needs, part) in &parts {
            let asked = request_with_items(vec![Item::user(vec!["see".into(), part.clone()])]);
            match encode_json(&asked, dialect) {
                Ok(_) => assert!(dialect.media_forms >= *needs, "{} {part:?}", dialect.name),
                Err(error) => {
                    assert!(dialect.media_forms < *needs, "{} {part:?}", dialect.name);
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                    assert_eq!(error.parameter(), Some("content"));
                }
            }
        }
    }
    let all = parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>();
    let content =
        encode_messages(vec![Item::user(all)], &Dialect::OPENROUTER)[0]["content"].clone();
    assert_eq!(
        content,
        json!([
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
            { "type": "image_url", "image_url": { "url": "https://a.example/b" } },
            { "type": "file", "file": { "filename": "file", "file_data": "data:application/pdf;base64,AAAA" } },
            { "type": "input_audio", "input_audio": { "data": "AAAA", "format": "wav" } },
            { "type": "file", "file": { "filename": "file", "file_data": "https://a.example/b" } },
        ])
    );
}

#[test]
fn cache_marks_are_on_tools_stable_prompt_and_newest_message() {
    let mut asked = request_with_items(call_items("a")).with_system("stable");
    asked.system.volatile = "today".into();
    let marks = |body: &Value| {
        let mut found = Vec::new();
        let mut stack = vec![(String::new(), body)];
        while let Some((path, value)) = stack.pop() {
            if let Some(mark) = value.get("cache_control") {
                found.push((path.clone(), mark.clone()));
            }
            match value {
                Value::Array(all) => {
                    stack.extend(all.iter().enumerate().map(|(at, v)| (format!("{path}/{at}"), v)));
                }
                Value::Object(all) => {
                    stack.extend(all.iter().map(|(name, v)| (format!("{path}/{name}"), v)));
                }
                _ => {}
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let places = ["/messages/0/content/0", "/messages/1/content/0", "/tools/0"];
    let short = json!({ "type": "ephemeral" });
    let expected: Vec<_> = places.iter().map(|at| ((*at).to_owned(), short.clone())).collect();
    let sent = encode_json(&asked, &Dialect::OPENROUTER).unwrap();
    assert_eq!(marks(&sent), expected);
    assert_eq!(sent["messages"][0]["content"][1]["text"], "today");
    asked.options.cache = Cache::Long;
    let long = encode_json(&asked, &Dialect::OPENROUTER).unwrap();
    assert_eq!(long["tools"][0]["cache_control"], json!({ "type": "ephemeral", "ttl": "1h" }));
    // In other dialects the option has no effect.
    assert!(marks(&encode_json(&asked, &Dialect::OPENAI).unwrap()).is_empty());
    asked.options.cache = Cache::Off;
    let off = encode_json(&asked, &Dialect::OPENROUTER).unwrap();
    assert!(marks(&off).is_empty());
    assert_eq!(off["messages"][1]["content"], "x");
}

#[test]
fn nothing_is_sent_between_a_call_and_its_result() {
    let cut = |item: Item| item.with_flag(ItemFlag::Interrupted);
    for between in [Item::reasoning("hm"), Item::text("I wo")] {
        let items = vec![
            Item::user("x"),
            Item::tool_call("a", "f", "{}"),
            cut(between),
            Item::text("So."),
            Item::user("y"),
        ];
        let roles: Vec<Value> = encode_messages(items, &Dialect::OPENAI)
            .iter()
            .map(|message| message["role"].clone())
            .collect();
        assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    }
}

#[test]
fn a_request_of_nothing_but_instructions_is_refused_if_the_server_never_answers_it() {
    for dialect in Dialect::ALL {
        let only = |items| encode_json(&request_with_items(items).with_system("be kind"), dialect);
        let refused = only(vec![Item::system("wake up")]).map_err(|error| error.kind());
        match dialect.requires_message {
            true => assert_eq!(refused, Err(ErrorKind::InvalidRequest), "{}", dialect.name),
            false => assert!(refused.is_ok(), "{}", dialect.name),
        }
        assert!(only(vec![Item::system("wake up"), Item::user("hi")]).is_ok());
    }
    let names = Dialect::ALL.iter().filter(|dialect| dialect.requires_message);
    assert_eq!(names.map(|dialect| dialect.name).collect::<Vec<_>>(), ["mistral", "ollama"]);
}

#[test]
fn later_items_do_not_change_how_an_interrupted_text_was_sent() {
    let mut items = vec![Item::user("x"), Item::text("one").with_flag(ItemFlag::Interrupted)];
    let before = encode_messages(items.clone(), &Dialect::OPENAI);
    items.push(as_turn_end(StopReason::Pause, Item::text("two"), Usage::default()));
    assert_eq!(before[1], encode_messages(items, &Dialect::OPENAI)[1]);
}
