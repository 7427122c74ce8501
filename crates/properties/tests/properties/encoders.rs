//! For any history, an encoder's output is accepted by its vendor.

use proptest::prelude::*;
use serde_json::{Value, json};
use turnstream::item::{
    Media, MediaSource, Part, ProviderData, RawJson, ResultKind, ToolResult, TurnInfo,
};
use turnstream::provider::{anthropic, gemini, openai_chat, openai_responses};
use turnstream::request::System;
use turnstream::tool::ToolSpec;
use turnstream::turn::StopReason;
use turnstream::{History, Item, Request, Usage};
use turnstream_testing::{Wire, lint};

/// Texts as people, models and programs write them.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just(" \n".to_owned()),
        Just("trailing ".to_owned()),
        "[a-z ]{1,8}",
        "\\PC{0,4}",
    ]
}

/// Ids and names, valid and invalid.
fn any_id() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[ab]",
        "call_[0-9]{1,2}",
        "[a-z:/ ]{1,3}",
        Just("x".repeat(70))
    ]
}

fn any_arguments() -> impl Strategy<Value = String> {
    prop_oneof![Just("{}"), Just(""), Just("{\"a\":"), Just("[1]"), Just("{\"a\":1}")]
        .prop_map(str::to_owned)
}

fn image_part() -> Part {
    Part::Image(Media::new("image/png", MediaSource::Data("iVBORw0KGgo=".into())))
}

/// A call of one of OpenAI's client tools, which the model `m` or another one has made.
fn client_tool_call(id: &str, at: usize, is_own: bool) -> Item {
    let action = json!({ "commands": ["ls"], "max_output_length": 5 });
    let operation = json!({ "type": "delete_file", "path": "a" });
    let actions = json!([{ "type": "wait" }]);
    let (arguments, item) = match at {
        0 => (
            action.clone(),
            json!({ "type": "shell_call", "call_id": id,
            "action": action }),
        ),
        1 => (
            operation.clone(),
            json!({ "type": "apply_patch_call", "call_id": id,
            "operation": operation, "status": "completed" }),
        ),
        2 => (
            json!({ "actions": actions }),
            json!({ "type": "computer_call", "id": format!("cu_{id}"), "call_id": id,
            "status": "completed", "actions": actions, "pending_safety_checks": [] }),
        ),
        _ => (
            json!({ "name": "t", "arguments": {} }),
            json!({ "type": "mcp_approval_request",
            "id": id, "server_label": "s", "name": "t", "arguments": "{}" }),
        ),
    };
    // A provider issues no id that it does not accept.
    let model = if is_own && id.len() <= 64 { "m" } else { "other" };
    let value = RawJson::from(json!({ "item": item }));
    let data = ProviderData { provider: "openai_responses".into(), model: model.into(), value };
    let call = Item::tool_call(id, "t", arguments.to_string());
    Item { provider_data: Some(data.into()), ..call }
}

/// One step of a conversation.
fn any_conversation_step() -> impl Strategy<Value = Vec<Item>> {
    let said = prop_oneof![
        any_text().prop_map(Item::text),
        any_text().prop_map(Item::reasoning),
        (any_id(), any_id(), any_arguments())
            .prop_map(|(id, name, args)| Item::tool_call(id, name, args)),
        (any_id(), 0..4_usize, any::<bool>())
            .prop_map(|(id, at, is_own)| client_tool_call(&id, at, is_own)),
    ];
    let turn = (prop::collection::vec(said, 1..4), any::<bool>(), 0..4_usize, any_text());
    let turn = turn.prop_map(|(mut items, whole, answered, text)| {
        if !whole {
            for item in &mut items {
                item.interrupted = true;
            }
            return items;
        }
        items.last_mut().unwrap().turn = Some(std::sync::Arc::new(TurnInfo {
            usage: Usage::default(),
            model: None,
            response_id: None,
            stop_reason: StopReason::Stop,
        }));
        let calls: Vec<_> = items.iter().filter_map(Item::as_tool_call).cloned().collect();
        // The last ones may be unanswered.
        for (at, call) in calls.into_iter().take(answered).enumerate() {
            let content = match at {
                0 => vec![text.as_str().into(), image_part()].into(),
                _ => text.clone().into(),
            };
            let kind = if at == 1 { ResultKind::Error } else { ResultKind::Ok };
            let (call_id, name) = (call.call_id, call.name);
            items.push(Item::tool_result(ToolResult {
                call_id,
                name,
                content,
                kind,
                report: None,
            }));
        }
        items
    });
    prop_oneof![
        2 => any_text().prop_map(|text| vec![Item::user(text)]),
        1 => any_text().prop_map(|text| vec![Item::system(text)]),
        4 => turn,
    ]
}

fn any_items() -> impl Strategy<Value = Vec<Item>> {
    prop::collection::vec(any_conversation_step(), 0..5).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn every_encoded_request_is_valid_for_its_vendor(items in any_items(), tools in any::<bool>(), system in any_text()) {
        let mut items = items;
        items.push(Item::user("go on"));
        let mut request = Request::new(History::from_items("h", items));
        request.system = System { stable: system.into(), ..System::default() };
        if tools {
            request.tools = vec![ToolSpec::new("f", "Does", json!({ "type": "object", "properties": {} }))].into();
        }
        let read = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
        let body = read(anthropic::encode(&request, "m").unwrap());
        prop_assert_eq!(lint::request(Wire::Anthropic, "m", &body), Vec::<String>::new(), "{}", body);
        let body = read(openai_chat::encode(&request, "m", &openai_chat::Dialect::OPENAI).unwrap());
        prop_assert_eq!(lint::request(Wire::OpenAiChat, "m", &body), Vec::<String>::new(), "{}", body);
        let body = read(openai_responses::encode(&request, "m").unwrap());
        prop_assert_eq!(lint::request(Wire::OpenAiResponses, "m", &body), Vec::<String>::new(), "{}", body);
        let body = read(gemini::encode(&request, "gemini-2.5-pro").unwrap());
        prop_assert_eq!(lint::request(Wire::Gemini, "gemini-2.5-pro", &body), Vec::<String>::new(), "{}", body);
        let body = read(gemini::encode(&request, "gemini-3-pro").unwrap());
        prop_assert_eq!(lint::request(Wire::Gemini, "gemini-3-pro", &body), Vec::<String>::new(), "{}", body);
    }
}
