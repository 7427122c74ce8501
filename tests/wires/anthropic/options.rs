//! How the options of a request are encoded, and which options this wire refuses.

use serde_json::{Map, Value, json};
use turnstream::request::{Effort, Options, Output, OutputSchema, Reasoning, ToolChoice, ToolSpec};
use turnstream::{ErrorKind, History, Item, Request};

use super::fixture::*;

fn request(options: Options, tools: &[&str]) -> Request {
    let spec = |name: &&str| ToolSpec::new(*name, "d", json!({ "type": "object" }));
    let tools: Vec<_> = tools.iter().map(spec).collect();
    Request::new(History::from_items("h", [Item::user("x")]))
        .with_tools(tools)
        .with_options(options)
}

fn into_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other} is no object"),
    }
}

/// The fields that the options add to a body without any, except for cache marks.
#[track_caller]
fn check_with_tools(tools: &[&str], options: Options, expected: &Value) {
    let body = |options: Options| {
        let body = encode_to_string(&request(options, tools), MODEL);
        into_object(parse_json(&body.unwrap_or_else(|error| panic!("{error}"))))
    };
    let without = body(Options { max_output_tokens: Some(8192), ..Options::default() });
    let mut with = body(options);
    with.retain(|name, value| without.get(name) != Some(value));
    assert_eq!(&Value::Object(with), expected);
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "expectations are written in place")]
fn check_encoded(options: Options, expected: Value) {
    check_with_tools(&["f"], options, &expected);
}

#[track_caller]
fn check_refused(options: &Options, kind: ErrorKind, parameter: &str) {
    let error = encode_to_string(&request(options.clone(), &["f"]), MODEL).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (kind, Some(parameter)), "{options:?}");
}

fn reasoning_options(reasoning: Reasoning) -> Options {
    Options { reasoning: Some(reasoning), ..Options::default() }
}

#[test]
fn without_options_the_required_max_tokens_is_sent() {
    let body = parse_json(&encode_to_string(&request(Options::default(), &[]), MODEL).unwrap());
    let mut names: Vec<_> = into_object(body.clone()).into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["max_tokens", "messages", "model", "stream"]);
    assert_eq!(body["max_tokens"], 8192);
}

#[test]
fn limits_sampling_and_user_id_are_encoded() {
    let options = Options {
        max_output_tokens: Some(9),
        temperature: Some(0.5),
        top_p: Some(0.25),
        top_k: Some(3),
        stop_sequences: vec!["END".into()],
        user: Some("u-1".into()),
        ..Options::default()
    };
    check_encoded(
        options,
        json!({
            "max_tokens": 9, "temperature": 0.5, "top_p": 0.25, "top_k": 3,
            "stop_sequences": ["END"], "metadata": { "user_id": "u-1" },
        }),
    );
}

#[test]
fn the_tool_choice_is_encoded() {
    #[track_caller]
    fn check_choice(tool_choice: ToolChoice, parallel: Option<bool>, expected: Value) {
        let options = Options { tool_choice, parallel_tool_calls: parallel, ..Options::default() };
        check_encoded(options, expected);
    }
    let tool = || ToolChoice::Tool("f".into());
    check_choice(ToolChoice::Auto, None, json!({}));
    check_choice(ToolChoice::Auto, Some(true), json!({}));
    let choice = |choice: Value| json!({ "tool_choice": choice });
    check_choice(ToolChoice::None, Some(false), choice(json!({ "type": "none" })));
    check_choice(ToolChoice::Required, None, choice(json!({ "type": "any" })));
    check_choice(tool(), None, choice(json!({ "type": "tool", "name": "f" })));
    let alone = |kind: &str| choice(json!({ "type": kind, "disable_parallel_tool_use": true }));
    check_choice(ToolChoice::Auto, Some(false), alone("auto"));
    check_choice(ToolChoice::Required, Some(false), alone("any"));
    let alone = json!({ "type": "tool", "name": "f", "disable_parallel_tool_use": true });
    check_choice(tool(), Some(false), choice(alone));
}

#[test]
fn a_tool_choice_without_tools_is_omitted_or_rejected() {
    let choose = |tool_choice| Options { tool_choice, ..Options::default() };
    check_with_tools(&[], choose(ToolChoice::None), &json!({}));
    let error = encode_to_string(&request(choose(ToolChoice::Required), &[]), MODEL).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidRequest, Some("tool_choice")));
    // The server's own tools count as tools.
    let tools = json!([{ "type": "web_search_20250305", "name": "web_search" }]);
    let extra = into_object(json!({ "tools": tools }));
    let options = Options { extra, ..choose(ToolChoice::Required) };
    check_with_tools(&[], options, &json!({ "tool_choice": { "type": "any" }, "tools": tools }));
}

#[test]
fn a_thinking_budget_raises_the_output_limit() {
    #[track_caller]
    fn check_budget(budget: u32, limit: Option<u32>, expected: Value) {
        let options =
            Options { max_output_tokens: limit, ..reasoning_options(Reasoning::Budget(budget)) };
        let mut fields = into_object(expected);
        let thinking = json!({ "type": "enabled", "budget_tokens": budget });
        fields.insert("thinking".into(), thinking);
        check_encoded(options, Value::Object(fields));
    }
    check_budget(1024, None, json!({}));
    check_budget(8192, None, json!({ "max_tokens": 16384 }));
    check_budget(2000, Some(2001), json!({ "max_tokens": 2001 }));
    check_budget(2000, Some(500), json!({ "max_tokens": 2500 }));
    check_budget(u32::MAX, Some(500), json!({ "max_tokens": u32::MAX }));
}

#[test]
fn an_effort_enables_adaptive_thinking_with_visible_summaries() {
    #[track_caller]
    fn check_effort(effort: Effort, word: &str) {
        let thinking_field = json!({ "type": "adaptive", "display": "summarized" });
        let expected = json!({ "thinking": thinking_field, "output_config": { "effort": word } });
        check_encoded(reasoning_options(Reasoning::Effort(effort)), expected);
    }
    check_effort(Effort::Minimal, "low");
    check_effort(Effort::Low, "low");
    check_effort(Effort::Medium, "medium");
    check_effort(Effort::High, "high");
    check_effort(Effort::XHigh, "xhigh");
    check_effort(Effort::Max, "max");
    check_encoded(reasoning_options(Reasoning::Off), json!({ "thinking": { "type": "disabled" } }));
}

#[test]
fn options_incompatible_with_thinking_are_rejected_locally() {
    const INVALID: ErrorKind = ErrorKind::InvalidRequest;
    for reasoning in [Reasoning::Budget(2000), Reasoning::Effort(Effort::High)] {
        let with = || reasoning_options(reasoning);
        check_refused(&Options { temperature: Some(0.5), ..with() }, INVALID, "temperature");
        check_refused(&Options { top_k: Some(3), ..with() }, INVALID, "top_k");
        check_refused(&Options { top_p: Some(0.9), ..with() }, INVALID, "top_p");
        let fine = Options { temperature: Some(1.0), top_p: Some(0.95), ..with() };
        assert!(encode_to_string(&request(fine, &["f"]), MODEL).is_ok());
    }
    for tool_choice in [ToolChoice::Required, ToolChoice::Tool("f".into())] {
        let with = |reasoning| Options {
            tool_choice: tool_choice.clone(),
            ..reasoning_options(reasoning)
        };
        check_refused(&with(Reasoning::Budget(2000)), INVALID, "tool_choice");
        let fine = with(Reasoning::Effort(Effort::Low));
        assert!(encode_to_string(&request(fine, &["f"]), MODEL).is_ok());
    }
    check_refused(&reasoning_options(Reasoning::Budget(1023)), INVALID, "reasoning");
    let cold =
        Options { temperature: Some(0.0), top_k: Some(1), ..reasoning_options(Reasoning::Off) };
    assert!(encode_to_string(&request(cold, &["f"]), MODEL).is_ok());
}

#[test]
fn an_output_schema_is_sent_as_output_format() {
    let schema = json!({
        "type": "object", "properties": { "a": { "type": "string" } },
        "required": ["a"], "additionalProperties": false,
    });
    let output = Output::Schema(OutputSchema { name: "n".into(), schema: schema.clone() });
    let format = json!({ "type": "json_schema", "schema": schema });
    let options = Options { output: output.clone(), ..Options::default() };
    check_encoded(options, json!({ "output_config": { "format": format } }));
    // With an effort, it is in the same object.
    let options = Options { output, ..reasoning_options(Reasoning::Effort(Effort::Low)) };
    let body = parse_json(&encode_to_string(&request(options, &[]), MODEL).unwrap());
    assert_eq!(body["output_config"], json!({ "effort": "low", "format": format }));
}

#[test]
fn options_the_wire_cannot_express_are_typed_errors() {
    let check = |options: Options, parameter: &str| {
        check_refused(&options, ErrorKind::Unsupported, parameter);
    };
    check(Options { seed: Some(1), ..Options::default() }, "seed");
    check(Options { frequency_penalty: Some(0.1), ..Options::default() }, "frequency_penalty");
    check(Options { presence_penalty: Some(0.1), ..Options::default() }, "presence_penalty");
    check(Options { output: Output::Json, ..Options::default() }, "output");
    let metadata = [("a".to_owned(), "b".to_owned())].into();
    check(Options { metadata, ..Options::default() }, "metadata");
}

#[test]
fn extra_fields_are_merged_last() {
    let extra = into_object(json!({
        "container": "c", "output_config": { "effort": "xhigh" }, "service_tier": "auto",
    }));
    let options = Options { extra, ..reasoning_options(Reasoning::Effort(Effort::Max)) };
    let body = parse_json(&encode_to_string(&request(options, &[]), MODEL).unwrap());
    assert_eq!(body["output_config"], json!({ "effort": "xhigh" }));
    assert_eq!((&body["container"], &body["service_tier"]), (&json!("c"), &json!("auto")));
}
