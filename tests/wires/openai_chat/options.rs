//! Every option in every dialect: how it is encoded, or that it is refused by its name.

use serde_json::{Value, json};
use turnstream::ErrorKind;
use turnstream::provider::openai_chat::{Dialect, EffortNames, OutputForms, ToolChoices};
use turnstream::request::{Effort, Options, Output, OutputSchema, Reasoning, ToolChoice};

use super::{encode_json, encode_with_options, request_with_items};

/// Checks that an option is encoded as these fields, or refused by its name if they are `null`.
#[track_caller]
fn check_option(dialect: &Dialect, option: &str, options: Options, expected: &Value) {
    let sent = encode_with_options(options, dialect);
    let plain = encode_with_options(Options::default(), dialect).unwrap();
    match (sent, expected) {
        (Err(error), Value::Null) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{} {error}", dialect.name);
            assert_eq!(error.parameter(), Some(option), "{}", dialect.name);
        }
        (Ok(mut sent), expected) => {
            let fields = sent.as_object_mut().unwrap();
            fields.retain(|name, value| plain.get(name) != Some(value));
            assert_eq!(&sent, expected, "{option} in {}", dialect.name);
        }
        (Err(error), expected) => panic!("{option} in {}: {error}, not {expected}", dialect.name),
    }
}

#[test]
fn sampling_options_have_the_dialects_names() {
    for dialect in Dialect::ALL {
        let options = Options {
            temperature: Some(0.5),
            top_p: Some(0.25),
            frequency_penalty: Some(1.0),
            presence_penalty: Some(-1.0),
            stop_sequences: vec!["END".into()],
            ..Options::default()
        };
        let expected = json!({ "temperature": 0.5, "top_p": 0.25, "frequency_penalty": 1.0,
            "presence_penalty": -1.0, "stop": ["END"] });
        check_option(dialect, "", options, &expected);
    }
    let top_k = || Options { top_k: Some(7), ..Options::default() };
    check_option(&Dialect::VLLM, "top_k", top_k(), &json!({ "top_k": 7 }));
    check_option(&Dialect::OPENAI, "top_k", top_k(), &Value::Null);
    let seed = || Options { seed: Some(7), ..Options::default() };
    check_option(&Dialect::OPENAI, "seed", seed(), &json!({ "seed": 7 }));
    check_option(&Dialect::MISTRAL, "seed", seed(), &json!({ "random_seed": 7 }));
    check_option(&Dialect::DEEPSEEK, "seed", seed(), &Value::Null);
    let stops = |n: usize| Options { stop_sequences: vec!["x".into(); n], ..Options::default() };
    check_option(
        &Dialect::OPENAI,
        "stop_sequences",
        stops(4),
        &json!({ "stop": ["x", "x", "x", "x"] }),
    );
    check_option(&Dialect::OPENAI, "stop_sequences", stops(5), &Value::Null);
    assert!(encode_with_options(stops(16), &Dialect::DEEPSEEK).is_ok());
}

#[test]
fn the_output_limit_has_the_dialects_name() {
    let limit = || Options { max_output_tokens: Some(9), ..Options::default() };
    check_option(&Dialect::OPENAI, "", limit(), &json!({ "max_completion_tokens": 9 }));
    check_option(&Dialect::MINIMAL, "", limit(), &json!({ "max_tokens": 9 }));
}

#[test]
fn tool_choice_is_encoded_as_far_as_the_dialect_supports_it() {
    let choice = |tool_choice| Options { tool_choice, ..Options::default() };
    let named = || choice(ToolChoice::Tool("f".into()));
    let function = json!({ "type": "function", "function": { "name": "f" } });
    for dialect in Dialect::ALL {
        check_option(dialect, "", choice(ToolChoice::Auto), &json!({}));
        let (none, required, tool) = match dialect.tool_choice {
            ToolChoices::None => (json!({}), Value::Null, Value::Null),
            ToolChoices::Keywords => (
                json!({ "tool_choice": "none" }),
                json!({ "tool_choice": "required" }),
                Value::Null,
            ),
            ToolChoices::KeywordsAndNamed | ToolChoices::KeywordsNamedAndAllowed => (
                json!({ "tool_choice": "none" }),
                json!({ "tool_choice": "required" }),
                json!({ "tool_choice": function }),
            ),
        };
        check_option(dialect, "tool_choice", choice(ToolChoice::None), &none);
        check_option(dialect, "tool_choice", choice(ToolChoice::Required), &required);
        check_option(dialect, "tool_choice", named(), &tool);
    }
    // Without the field, tools are left out to forbid calls.
    let sent = encode_with_options(choice(ToolChoice::None), &Dialect::OLLAMA).unwrap();
    assert!(sent.get("tools").is_none());
}

#[test]
fn parallel_calls_can_be_disabled_if_the_dialect_supports_it() {
    let several = |parallel_tool_calls| Options { parallel_tool_calls, ..Options::default() };
    for dialect in Dialect::ALL {
        let (yes, no) = match dialect.supports_parallel_tool_calls {
            true => {
                (json!({ "parallel_tool_calls": true }), json!({ "parallel_tool_calls": false }))
            }
            false => (json!({}), Value::Null),
        };
        check_option(dialect, "parallel_tool_calls", several(Some(true)), &yes);
        check_option(dialect, "parallel_tool_calls", several(Some(false)), &no);
        // "'parallel_tool_calls' is only allowed when 'tools' are specified".
        let asked =
            request_with_items(vec!["x".into()]).with_tools([]).with_options(several(Some(false)));
        assert!(encode_json(&asked, dialect).unwrap().get("parallel_tool_calls").is_none());
    }
}

#[test]
fn reasoning_is_requested_in_the_dialects_form() {
    let check = |dialect: &Dialect, reasoning: Reasoning, expected: Value| {
        let options = Options { reasoning: Some(reasoning), ..Options::default() };
        check_option(dialect, "reasoning", options, &expected);
    };
    let efforts = [
        (Effort::Minimal, "minimal"),
        (Effort::Low, "low"),
        (Effort::Medium, "medium"),
        (Effort::High, "high"),
        (Effort::XHigh, "xhigh"),
        (Effort::Max, "xhigh"),
    ];
    for (effort, word) in efforts {
        let asked = Reasoning::Effort(effort);
        check(&Dialect::OPENAI, asked, json!({ "reasoning_effort": word }));
        let word = if effort == Effort::Max { "max" } else { word };
        check(&Dialect::OPENROUTER, asked, json!({ "reasoning": { "effort": word } }));
        check(&Dialect::MISTRAL, asked, json!({ "reasoning_effort": "high" }));
        check(&Dialect::MINIMAL, asked, Value::Null);
    }
    let max = Reasoning::Effort(Effort::Max);
    check(&Dialect::GROQ, max, json!({ "reasoning_effort": EffortNames::LOW_MEDIUM_HIGH.high }));
    let thinking = |word| json!({ "thinking": { "type": "enabled" }, "reasoning_effort": word });
    check(&Dialect::DEEPSEEK, max, thinking("max"));
    check(&Dialect::DEEPSEEK, Reasoning::Effort(Effort::XHigh), thinking("high"));
    let budget = Reasoning::Budget(2000);
    check(&Dialect::OPENROUTER, budget, json!({ "reasoning": { "max_tokens": 2000 } }));
    for dialect in [Dialect::OPENAI, Dialect::DEEPSEEK, Dialect::MINIMAL] {
        check(&dialect, budget, Value::Null);
    }
    check(&Dialect::OPENAI, Reasoning::Off, json!({ "reasoning_effort": "none" }));
    check(&Dialect::MISTRAL, Reasoning::Off, json!({ "reasoning_effort": "none" }));
    check(&Dialect::OPENROUTER, Reasoning::Off, json!({ "reasoning": { "effort": "none" } }));
    check(&Dialect::DEEPSEEK, Reasoning::Off, json!({ "thinking": { "type": "disabled" } }));
}

#[test]
fn response_format_is_encoded_as_far_as_the_dialect_supports_it() {
    let output = |output| Options { output, ..Options::default() };
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } },
        "required": ["a"], "additionalProperties": false });
    for dialect in Dialect::ALL {
        let object = json!({ "response_format": { "type": "json_object" } });
        let of_schema = |strict: Option<bool>| {
            let mut json_schema = json!({ "name": "n", "schema": schema });
            if let Some(strict) = strict {
                json_schema["strict"] = strict.into();
            }
            json!({ "response_format": { "type": "json_schema", "json_schema": json_schema } })
        };
        let (json, fits) = match dialect.output_forms {
            OutputForms::TextOnly => (Value::Null, Value::Null),
            OutputForms::Object => (object, Value::Null),
            OutputForms::Schema => (Value::Null, of_schema(None)),
            OutputForms::ObjectAndSchema => (object, of_schema(None)),
            OutputForms::ObjectAndStrictSchema => (object, of_schema(Some(true))),
        };
        check_option(dialect, "output", output(Output::Text), &json!({}));
        check_option(dialect, "output", output(Output::Json), &json);
        let asked = OutputSchema { name: "n".into(), schema: schema.clone() };
        check_option(dialect, "output", output(Output::Schema(asked)), &fits);
    }
}

#[test]
fn user_id_and_metadata_are_sent_if_the_dialect_supports_them() {
    let user = || Options { user: Some("u1".into()), ..Options::default() };
    check_option(&Dialect::OPENAI, "user", user(), &json!({ "safety_identifier": "u1" }));
    check_option(&Dialect::AZURE, "user", user(), &json!({ "user": "u1" }));
    check_option(&Dialect::MISTRAL, "user", user(), &Value::Null);
    let metadata = || {
        let metadata = [("k".to_owned(), "v".to_owned())].into();
        Options { metadata, ..Options::default() }
    };
    check_option(&Dialect::OPENAI, "metadata", metadata(), &json!({ "metadata": { "k": "v" } }));
    check_option(&Dialect::GROQ, "metadata", metadata(), &Value::Null);
}

#[test]
fn usage_is_requested_if_required_and_extra_fields_come_last() {
    for dialect in Dialect::ALL {
        let sent = encode_with_options(Options::default(), dialect).unwrap();
        let asked = dialect.stream_usage.then(|| json!({ "include_usage": true }));
        assert_eq!(sent.get("stream_options").cloned(), asked, "{}", dialect.name);
        // The request has no vendor-specific fields that others refuse.
        for name in ["store", "parallel_tool_calls", "reasoning_effort", "response_format"] {
            assert!(sent.get(name).is_none(), "{name} in {}", dialect.name);
        }
    }
    let Value::Object(extra) = json!({ "store": true, "stream_options": { "more": 1 } }) else {
        unreachable!("it is written as an object")
    };
    let sent =
        encode_with_options(Options { extra, ..Options::default() }, &Dialect::OPENAI).unwrap();
    assert_eq!(sent["store"], true);
    assert_eq!(sent["stream_options"], json!({ "include_usage": true, "more": 1 }));
}
