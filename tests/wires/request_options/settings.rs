//! Single settings: the service tier, the length of the answer, the cache key, summaries, and the
//! choice among some tools.

use turnstream::request::{
    Cache, Effort, Options, PromptCacheRetention, Reasoning, ReasoningSummary, ServiceTier,
    ToolChoice, Verbosity,
};

use super::*;

fn with_options(options: Options) -> Request {
    hello().with_options(options)
}

#[test]
fn the_length_of_the_answer_is_sent_to_openai_also_beside_a_schema() {
    let options = Options { verbosity: Some(Verbosity::Low), ..Options::default() };
    check(
        &with_options(options.clone()),
        "verbosity",
        &[
            (Wire::Chat, json!({ "verbosity": "low" })),
            (Wire::Responses, json!({ "text": { "verbosity": "low" } })),
        ],
    );
    let output = turnstream::request::Output::Json;
    let body = Wire::Responses.encode(&with_options(Options { output, ..options })).unwrap();
    let text = json!({ "format": { "type": "json_object" }, "verbosity": "low" });
    assert_eq!(body["text"], text);
}

#[test]
fn a_service_tier_is_sent_under_the_vendors_name() {
    let tier = |tier| with_options(Options { service_tier: Some(tier), ..Options::default() });
    let is = |field: &str, name: &str| json!({ field: name });
    check(
        &tier(ServiceTier::Standard),
        "service_tier",
        &[
            (Wire::Messages, is("service_tier", "standard_only")),
            (Wire::Chat, is("service_tier", "default")),
            (Wire::Responses, is("service_tier", "default")),
            (Wire::Gemini, is("serviceTier", "standard")),
        ],
    );
    check(
        &tier(ServiceTier::Flex),
        "service_tier",
        &[
            (Wire::Chat, is("service_tier", "flex")),
            (Wire::Responses, is("service_tier", "flex")),
            (Wire::Gemini, is("serviceTier", "flex")),
        ],
    );
    check(
        &tier(ServiceTier::Auto),
        "service_tier",
        &[
            (Wire::Messages, is("service_tier", "auto")),
            (Wire::Chat, is("service_tier", "auto")),
            (Wire::Responses, is("service_tier", "auto")),
        ],
    );
    let groq = openai_chat::encode(&tier(ServiceTier::Standard), "m", &openai_chat::Dialect::GROQ);
    let groq: Value = serde_json::from_slice(&groq.unwrap()).unwrap();
    assert_eq!(groq["service_tier"], "on_demand");
    let other = Wire::Responses.encode(&tier(ServiceTier::Other("ultrafast".into()))).unwrap();
    assert_eq!(other["service_tier"], "ultrafast");
}

#[test]
fn a_service_tier_is_a_string_in_json() {
    for (tier, json) in [
        (ServiceTier::Priority, r#""priority""#),
        (ServiceTier::Other("ultrafast".into()), r#""ultrafast""#),
    ] {
        assert_eq!(serde_json::to_string(&tier).unwrap(), json);
        assert_eq!(serde_json::from_str::<ServiceTier>(json).unwrap(), tier);
    }
}

#[test]
fn a_cache_key_is_sent_to_openai() {
    let prompt_cache_key = Some("tenant-7".to_owned());
    let fields = json!({ "prompt_cache_key": "tenant-7" });
    check(
        &with_options(Options { prompt_cache_key, ..Options::default() }),
        "prompt_cache_key",
        &[(Wire::Chat, fields.clone()), (Wire::Responses, fields)],
    );
}

#[test]
fn the_retention_of_the_cache_is_sent_to_openai() {
    for (retention, name) in
        [(PromptCacheRetention::InMemory, "in_memory"), (PromptCacheRetention::Day, "24h")]
    {
        let options = Options { prompt_cache_retention: Some(retention), ..Options::default() };
        let fields = json!({ "prompt_cache_retention": name });
        check(
            &with_options(options),
            "prompt_cache_retention",
            &[(Wire::Chat, fields.clone()), (Wire::Responses, fields)],
        );
    }
}

#[test]
fn a_long_cache_is_sent_to_the_models_of_openai_that_have_two_durations() {
    let request = with_options(Options { cache: Cache::Long, ..Options::default() });
    for (model, expected) in [
        ("gpt-5.6-sol", json!({ "ttl": "12h" })),
        ("gpt-6", json!({ "ttl": "12h" })),
        ("gpt-5.5", Value::Null),
        ("o3", Value::Null),
    ] {
        let body = turnstream::provider::openai_responses::encode(&request, model).unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["prompt_cache_options"], expected, "{model}");
    }
    let short = with_options(Options { cache: Cache::Short, ..Options::default() });
    let body = turnstream::provider::openai_responses::encode(&short, "gpt-5.6").unwrap();
    assert!(!String::from_utf8(body).unwrap().contains("prompt_cache_options"));
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_long_cache_is_not_sent_to_a_server_that_has_copied_the_wire() {
    use turnstream::http::HttpClient;
    use turnstream::provider::{OpenAiResponses, Provider, Reply};
    use turnstream::stream::TurnStreamExt;

    let server = turnstream_testing::ModelServer::openai_responses(|_, _| Reply::text("ok"));
    let server = server.await.unwrap();
    let model = OpenAiResponses::new("gpt-5.6")
        .with_base_url(server.url())
        .unwrap()
        .with_http_client(HttpClient::without_proxy());
    let request = with_options(Options { cache: Cache::Long, ..Options::default() });
    model.stream_turn(request).into_turn().await.unwrap();
    let body = server.requests().remove(0);
    assert_eq!(body.get("prompt_cache_options"), None);
}

fn with_summary(reasoning: Option<Reasoning>, summary: ReasoningSummary) -> Request {
    let reasoning_summary = Some(summary);
    with_options(Options { reasoning, reasoning_summary, ..Options::default() })
}

#[test]
fn a_summary_of_the_reasoning_is_requested_at_the_level_that_the_wire_has() {
    let effort = Some(Reasoning::Effort(Effort::High));
    let adaptive = |display: &str| json!({ "type": "adaptive", "display": display });
    let gemini = |shown: bool| {
        let thinking = json!({ "includeThoughts": shown, "thinkingLevel": "high" });
        json!({ "generationConfig": { "thinkingConfig": thinking } })
    };
    check(
        &with_summary(effort, ReasoningSummary::Off),
        "reasoning_summary",
        &[
            (Wire::Messages, json!({ "thinking": adaptive("omitted") })),
            (Wire::Responses, json!({ "reasoning": { "effort": "high" } })),
            (Wire::Gemini, gemini(false)),
        ],
    );
    check(
        &with_summary(effort, ReasoningSummary::Auto),
        "reasoning_summary",
        &[
            (Wire::Messages, json!({ "thinking": adaptive("summarized") })),
            (Wire::Responses, json!({ "reasoning": { "effort": "high", "summary": "auto" } })),
            (Wire::Gemini, gemini(true)),
        ],
    );
    let detailed = json!({ "effort": "high", "summary": "detailed" });
    check(
        &with_summary(effort, ReasoningSummary::Detailed),
        "reasoning_summary",
        &[(Wire::Responses, json!({ "reasoning": detailed }))],
    );
}

#[test]
fn a_summary_does_not_require_an_effort_except_on_the_messages_wire() {
    let request = with_summary(None, ReasoningSummary::Auto);
    let body = Wire::Responses.encode(&request).unwrap();
    assert_eq!(body["reasoning"], json!({ "summary": "auto" }));
    let body = Wire::Gemini.encode(&request).unwrap();
    let config = json!({ "thinkingConfig": { "includeThoughts": true } });
    assert_eq!(body["generationConfig"], config);
    let error = Wire::Messages.encode(&request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.parameter(), Some("reasoning_summary"));
}

#[test]
fn a_summary_has_no_effect_if_reasoning_is_off() {
    for wire in [Wire::Messages, Wire::Responses, Wire::Gemini] {
        let off = with_options(Options { reasoning: Some(Reasoning::Off), ..Options::default() });
        let summarized = with_summary(Some(Reasoning::Off), ReasoningSummary::Auto);
        assert_eq!(wire.encode(&summarized).unwrap(), wire.encode(&off).unwrap(), "{wire:?}");
    }
}

#[test]
fn only_some_of_the_declared_tools_may_be_called() {
    let choice = |required| {
        let tool_choice = ToolChoice::Allowed { names: vec!["look_up".into()], required };
        let other = ToolSpec::new("other", "Other", json!({ "type": "object" }));
        with_options(Options { tool_choice, ..Options::default() }).with_tools([look_up(), other])
    };
    let chat = |mode: &str| {
        let tools = json!([{ "type": "function", "function": { "name": "look_up" } }]);
        let allowed = json!({ "mode": mode, "tools": tools });
        json!({ "tool_choice": { "type": "allowed_tools", "allowed_tools": allowed } })
    };
    let responses = |mode: &str| {
        let tools = json!([{ "type": "function", "name": "look_up" }]);
        json!({ "tool_choice": { "type": "allowed_tools", "mode": mode, "tools": tools } })
    };
    let gemini = |mode: &str| {
        let config = json!({ "mode": mode, "allowedFunctionNames": ["look_up"] });
        json!({ "toolConfig": { "functionCallingConfig": config } })
    };
    for (required, openai, google) in [(false, "auto", "VALIDATED"), (true, "required", "ANY")] {
        check(
            &choice(required),
            "tool_choice",
            &[
                (Wire::Chat, chat(openai)),
                (Wire::Responses, responses(openai)),
                (Wire::Gemini, gemini(google)),
            ],
        );
    }
    let body = Wire::Chat.encode(&choice(true)).unwrap();
    assert_eq!(body["tools"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_required_choice_among_some_tools_applies_until_calls_are_answered() {
    use turnstream::provider::{Reply, Scripted};
    use turnstream::{Agent, Tool};

    let model = Scripted::new([Reply::new().call("look_up", json!({ "word": "a" })), "So.".into()]);
    let look_up = Tool::raw(look_up(), |_, _| async { "found" }).unwrap();
    let tool_choice = ToolChoice::Allowed { names: vec!["look_up".into()], required: true };
    let options = Options { tool_choice: tool_choice.clone(), ..Options::default() };
    let agent = Agent::new(model.clone()).with_tools([look_up]).with_options(options);
    agent.run("?").outcome().await.into_result().unwrap();
    let choices: Vec<_> =
        model.requests().iter().map(|request| request.options.tool_choice.clone()).collect();
    let optional = ToolChoice::Allowed { names: vec!["look_up".into()], required: false };
    assert_eq!(choices, [tool_choice, optional]);
}

#[test]
fn options_that_are_not_set_are_not_stored() {
    let json = serde_json::to_value(Options::default()).unwrap();
    for name in [
        "server_tools",
        "reasoning_summary",
        "verbosity",
        "service_tier",
        "logprobs",
        "citations",
        "prompt_cache_key",
        "prompt_cache_retention",
    ] {
        assert!(json.get(name).is_none(), "{name}");
    }
}
