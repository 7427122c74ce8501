//! Tools whose arguments the provider guarantees to match the schema.

use super::*;

#[test]
fn a_strict_tool_is_declared_as_such_on_the_wires_that_have_strict_tools() {
    let request = hello().with_tools([look_up().with_strict(true)]);
    let schema = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "required": ["word"],
        "additionalProperties": false,
    });
    let messages = json!({
        "name": "look_up",
        "description": "Looks up a word",
        "input_schema": schema,
        "strict": true,
        "cache_control": { "type": "ephemeral" },
    });
    let function = json!({
        "name": "look_up",
        "description": "Looks up a word",
        "parameters": schema,
        "strict": true,
    });
    let mut flat = function.clone();
    flat["type"] = json!("function");
    check(
        &request,
        "strict",
        &[
            (Wire::Messages, json!({ "tools": [messages] })),
            (Wire::Chat, json!({ "tools": [{ "type": "function", "function": function }] })),
            (Wire::Responses, json!({ "tools": [flat] })),
        ],
    );
}

#[test]
fn optional_arguments_of_a_strict_tool_are_nullable_where_all_must_be_written() {
    let parameters = json!({
        "type": "object",
        "properties": {
            "word": { "type": "string" },
            "limit": { "type": "integer", "maxLength": 3 },
        },
        "required": ["word"],
    });
    let tool = ToolSpec::new("look_up", "Looks up a word", parameters).with_strict(true);
    let request = hello().with_tools([tool]);
    let sent = Wire::Responses.encode(&request).unwrap()["tools"][0]["parameters"].clone();
    assert_eq!(sent["required"], json!(["word", "limit"]));
    assert_eq!(sent["properties"]["limit"]["type"], json!(["integer", "null"]));
    let sent = Wire::Messages.encode(&request).unwrap()["tools"][0]["input_schema"].clone();
    assert_eq!(sent["required"], json!(["word"]));
    assert_eq!(sent["properties"]["limit"]["type"], json!("integer"));
}

#[test]
fn a_schema_that_strict_mode_cannot_express_is_an_error_that_names_the_tool_and_the_place() {
    let parameters = json!({
        "type": "object",
        "properties": { "tags": { "type": "object", "additionalProperties": { "type": "string" } } },
    });
    let tool = ToolSpec::new("tag", "Tags", parameters);
    let request = hello().with_tools([tool.clone().with_strict(true)]);
    for wire in [Wire::Messages, Wire::Chat, Wire::Responses] {
        let error = wire.encode(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.parameter(), Some("#/properties/tags/additionalProperties"), "{wire:?}");
        assert!(error.message().contains("the tool `tag` cannot be strict"), "{error}");
        assert!(wire.encode(&hello().with_tools([tool.clone()])).is_ok());
    }
}

#[test]
fn a_tool_without_parameters_can_be_strict() {
    let empty = ToolSpec::new("now", "The time", json!({ "type": "object", "properties": {} }));
    let request = hello().with_tools([empty.with_strict(true)]);
    for wire in [Wire::Messages, Wire::Chat, Wire::Responses] {
        wire.encode(&request).unwrap_or_else(|error| panic!("{wire:?}: {error}"));
    }
}

#[test]
fn the_strict_form_of_a_list_of_tools_is_not_sent_to_a_server_without_strict_tools() {
    // The list's encoding is cached, so both dialects share the cache.
    let request = hello().with_tools([look_up().with_strict(true)]);
    assert!(Wire::Chat.encode(&request).is_ok());
    assert!(Wire::CompatibleChat.encode(&request).is_err());
}

#[test]
fn a_stored_spec_without_the_field_is_not_strict() {
    let json = r#"{"name":"t","description":"d","parameters":{"type":"object"}}"#;
    let spec: ToolSpec = serde_json::from_str(json).unwrap();
    assert!(!spec.strict);
    assert_eq!(serde_json::to_string(&spec).unwrap(), json);
}
