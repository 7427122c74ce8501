//! Names, ids, schemas and server tools in requests obey the rules of the server that they go to,
//! and the ids that the server has issued go back to it unchanged.

use std::sync::Arc;

use serde_json::{Value, json};
use turnstream::event::EndReason;
use turnstream::provider::openai_chat::{CallIdRule, Dialect};
use turnstream::provider::{
    Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses, Reply, anthropic, gemini, openai_chat,
    openai_responses,
};
use turnstream::request::{Options, Output, OutputSchema, ToolChoice};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, History, Item, Provider, Request};
use turnstream_testing::{ModelServer, Wire, lint};

use turnstream_test_support::tools::{Counter, ok_tool};
use turnstream_test_support::wires::{encode, encode_bytes};

/// A provider for a server other than the vendor's.
fn compatible_provider(wire: Wire, server: &ModelServer) -> Arc<dyn Provider> {
    match wire {
        Wire::Anthropic => Arc::new(Anthropic::new("m").with_base_url(server.url()).unwrap()),
        Wire::OpenAiChat => {
            Arc::new(OpenAiChat::new("m").with_base_url(format!("{}/v1", server.url())).unwrap())
        }
        Wire::OpenAiResponses => Arc::new(
            OpenAiResponses::new("m").with_base_url(format!("{}/v1", server.url())).unwrap(),
        ),
        Wire::Ollama => Arc::new(Ollama::new("m").with_base_url(server.url()).unwrap()),
        _ => Arc::new(Gemini::new("m").with_base_url(server.url()).unwrap()),
    }
}

/// The declarations of the tools in a request.
fn declared_tools(wire: Wire, body: &Value) -> Vec<&Value> {
    let tools = body["tools"].as_array().unwrap();
    match wire {
        Wire::Anthropic | Wire::OpenAiResponses => tools.iter().collect(),
        Wire::OpenAiChat | Wire::Ollama => tools.iter().map(|tool| &tool["function"]).collect(),
        _ => tools[0]["functionDeclarations"].as_array().unwrap().iter().collect(),
    }
}

fn declared_names(wire: Wire, body: &Value) -> Vec<String> {
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    declared_tools(wire, body).into_iter().map(name).collect()
}

/// The schema of a declared tool's parameters.
fn parameters(tool: &Value) -> &Value {
    ["parameters", "input_schema", "parametersJsonSchema"]
        .iter()
        .find_map(|field| tool.get(*field))
        .unwrap()
}

fn starts_with_letter(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Returns a request with a tool whose schema is given.
fn request_with_schema(schema: Value) -> Request {
    Request::new(History::from_items("h", [Item::user("go")]))
        .with_tools([ToolSpec::new("f", "F", schema)])
}

/// The schema of the only tool as each wire sends it, after checking that a vendor accepts the
/// request.
#[track_caller]
fn sent_schemas(schema: &Value) -> Vec<(Wire, Value)> {
    let sent = |wire| {
        let mut request = request_with_schema(schema.clone());
        request.options.max_output_tokens = Some(100);
        let body = encode(wire, "m", &request);
        let violations = lint::request(wire, "m", &body);
        assert_eq!(violations, [""; 0], "{wire}: {body}");
        (wire, parameters(declared_tools(wire, &body)[0]).clone())
    };
    Wire::ALL.into_iter().map(sent).collect()
}

mod names {
    use super::*;

    #[tokio::test]
    async fn a_tool_is_called_by_a_name_that_the_server_accepts_on_every_wire() {
        const NAMES: [&str; 4] = ["3d_render", "-x", "_x", "t_3d_render"];
        for wire in Wire::ALL {
            // The model calls each tool by the name under which it sees it.
            let server = ModelServer::start(move |asked| match asked.index {
                0 => declared_names(wire, &asked.body)
                    .into_iter()
                    .enumerate()
                    .fold(Reply::new(), |reply, (n, name)| {
                        reply.call_raw(&format!("c{n}"), &name, "{}")
                    }),
                _ => Reply::text("done"),
            })
            .await
            .unwrap();
            let ran = Counter::default();
            let agent = Agent::new(compatible_provider(wire, &server))
                .with_tools(NAMES.map(|name| ok_tool(name, &ran)));
            let outcome = agent.run("go").outcome().await;
            assert_eq!(outcome.reason, EndReason::Completed, "{wire}: {:?}", outcome.error);
            assert_eq!(ran.started_count(), NAMES.len(), "{wire}");
            let called: Vec<String> = outcome
                .history
                .iter()
                .filter_map(Item::as_tool_call)
                .map(|call| call.name.clone())
                .collect();
            assert_eq!(called, NAMES, "{wire}");
            let sent = declared_names(wire, &server.requests()[0]);
            let accepted = |name: &String| match wire {
                Wire::Ollama => true,
                Wire::Gemini => name.starts_with('_') || starts_with_letter(name),
                _ => starts_with_letter(name),
            };
            assert!(sent.iter().all(accepted), "{wire}: {sent:?}");
            assert_eq!(sent[3], "t_3d_render", "{wire}");
            // The history that is sent back uses the same names.
            let again = server.requests()[1].to_string();
            for name in &sent {
                assert!(again.matches(&format!("\"{name}\"")).count() >= 2, "{wire}: {again}");
            }
            assert_eq!(server.violations(), [""; 0], "{wire}");
        }
    }

    #[test]
    fn openai_accepts_names_that_begin_with_a_digit() {
        for (wire, dialect) in [
            (Wire::OpenAiChat, Dialect::OPENAI),
            (Wire::OpenAiResponses, Dialect::OPENAI),
            (Wire::Anthropic, Dialect::OPENAI),
        ] {
            let mut request = request_with_schema(json!({ "type": "object" }));
            request.tools = [ToolSpec::new("3d", "", json!({ "type": "object" }))].into();
            let body = encode_bytes(wire, "m", &request, &dialect);
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(declared_names(wire, &body), ["3d"], "{wire}");
        }
    }

    #[test]
    fn a_forced_tool_is_named_as_it_is_declared() {
        for wire in [Wire::Gemini, Wire::OpenAiChat] {
            let mut request = request_with_schema(json!({ "type": "object" }));
            request.tools = [ToolSpec::new("3d", "", json!({ "type": "object" }))].into();
            request.options.tool_choice = ToolChoice::Tool("3d".into());
            let mut dialect = Dialect::OPENAI;
            dialect.tool_names_start_with_letter = true;
            let body = encode_bytes(wire, "m", &request, &dialect);
            let body: Value = serde_json::from_slice(&body).unwrap();
            let forced = match wire {
                Wire::OpenAiChat => &body["tool_choice"]["function"]["name"],
                _ => &body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"][0],
            };
            assert_eq!((forced, &declared_names(wire, &body)[0][..]), (&json!("t_3d"), "t_3d"));
        }
    }
}

mod ids {
    use super::*;

    /// Runs a tool twice, in two turns, with the ids that the server chooses. Returns the ids in
    /// the last request: those of the calls and those of the results.
    async fn echoed_ids(
        provider: impl Fn(&ModelServer) -> Arc<dyn Provider>,
        ids: [&str; 2],
    ) -> [Vec<String>; 2] {
        let ids = ids.map(str::to_owned);
        let server = ModelServer::start(move |asked| match ids.get(asked.index) {
            Some(id) => Reply::new().call_raw(id, "add", "{}"),
            None => Reply::text("done"),
        })
        .await
        .unwrap()
        .lenient();
        let agent = Agent::new(provider(&server)).with_tool(ok_tool("add", &Counter::default()));
        let outcome = agent.run("go").outcome().await;
        assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
        let body = server.requests()[2].clone();
        let found = |field: &str| {
            let mut found = Vec::new();
            collect_strings(&body, field, &mut found);
            found
        };
        let calls = [found("id"), found("call_id")].concat();
        let results =
            ["tool_call_id", "tool_use_id"].iter().flat_map(|field| found(field)).collect();
        [calls, results]
    }

    fn collect_strings(value: &Value, field: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value.as_str() {
                        Some(text) if name == field => found.push(text.to_owned()),
                        _ => collect_strings(value, field, found),
                    }
                }
            }
            Value::Array(values) => {
                for value in values {
                    collect_strings(value, field, found);
                }
            }
            _ => {}
        }
    }

    #[tokio::test]
    async fn a_call_id_goes_back_unchanged_in_every_dialect_without_a_rule_of_its_own() {
        let long = "chatcmpl-tool-0123456789abcdef0123456789abcdef";
        let is_free = |dialect: &&Dialect| dialect.call_id_rule == CallIdRule::AnyIssued;
        let dialects: Vec<&Dialect> = Dialect::ALL.iter().filter(is_free).collect();
        // OpenAI, Azure and Mistral have rules.
        assert_eq!(dialects.len(), Dialect::ALL.len() - 3);
        for dialect in dialects {
            let provider = |server: &ModelServer| -> Arc<dyn Provider> {
                let url = format!("{}/v1", server.url());
                let model = OpenAiChat::new("m").with_dialect(*dialect).with_base_url(url);
                Arc::new(model.unwrap().with_api_key("k"))
            };
            let ids = ["functions.add:0", long];
            let [calls, results] = echoed_ids(provider, ids).await;
            assert_eq!((calls, results), (ids.map(Into::into).into(), ids.map(Into::into).into()));
        }
    }

    #[tokio::test]
    async fn an_id_that_a_chat_server_issues_in_each_turn_goes_back_unchanged() {
        let ids = ["functions.add:0"; 2];
        let provider = |server: &ModelServer| compatible_provider(Wire::OpenAiChat, server);
        let [calls, results] = echoed_ids(provider, ids).await;
        assert_eq!((calls, results), (ids.map(Into::into).into(), ids.map(Into::into).into()));
    }

    #[tokio::test]
    async fn a_call_id_goes_back_unchanged_to_compatible_servers_of_the_other_wires() {
        let long = "call_".to_owned() + &"x".repeat(90);
        let ids = ["functions.add:0", &long];
        let provider = |server: &ModelServer| compatible_provider(Wire::Anthropic, server);
        let [calls, results] = echoed_ids(provider, ids).await;
        assert_eq!((calls, results), (ids.map(Into::into).into(), ids.map(Into::into).into()));
        let provider = |server: &ModelServer| compatible_provider(Wire::OpenAiResponses, server);
        let [ids_sent, _] = echoed_ids(provider, ids).await;
        let own: Vec<&String> = ids_sent.iter().filter(|id| ids.contains(&id.as_str())).collect();
        // Each id is that of a call and of its output.
        assert_eq!(own, [ids[0], ids[0], ids[1], ids[1]]);
    }

    /// Returns the id in a Chat request for a call that the named provider issued under `id`.
    async fn id_sent_to_chat(issuer: Wire, id: &str, dialect: &Dialect) -> String {
        let call_id = id.to_owned();
        let server = ModelServer::start(move |asked| match asked.index {
            0 => Reply::new().call_raw(&call_id, "add", "{}"),
            _ => Reply::text("done"),
        })
        .await
        .unwrap()
        .lenient();
        let agent = Agent::new(compatible_provider(issuer, &server))
            .with_tool(ok_tool("add", &Counter::default()));
        let history = agent.run("go").outcome().await.history;
        let request = Request::new(history);
        let body = encode_bytes(Wire::OpenAiChat, "m", &request, dialect);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let sent = body["messages"][1]["tool_calls"][0]["id"].as_str().unwrap().to_owned();
        assert_eq!(body["messages"][2]["tool_call_id"], sent);
        sent
    }

    #[tokio::test]
    async fn an_id_of_another_provider_is_made_portable() {
        let id = "functions.add:0";
        let dialect = Dialect { call_id_rule: CallIdRule::AnyIssued, ..Dialect::OPENAI };
        assert_eq!(id_sent_to_chat(Wire::OpenAiChat, id, &dialect).await, id);
        let foreign = id_sent_to_chat(Wire::Anthropic, id, &dialect).await;
        assert!(foreign.starts_with("functionsadd0_"), "{foreign}");
    }

    #[tokio::test]
    async fn a_server_with_a_rule_for_ids_receives_ids_that_obey_it() {
        let long = "call_".to_owned() + &"x".repeat(41);
        for (id, is_kept) in [("functions.add:0", true), (long.as_str(), false)] {
            let sent = id_sent_to_chat(Wire::OpenAiChat, id, &Dialect::OPENAI).await;
            assert!(sent.len() <= 40 && (sent == id) == is_kept, "{sent}");
        }
        let rule = Dialect { name: "openai_chat", ..Dialect::MISTRAL };
        let sent = id_sent_to_chat(Wire::OpenAiChat, "functions.add:0", &rule).await;
        assert!(sent.len() == 9 && sent.chars().all(|c| c.is_ascii_alphanumeric()), "{sent}");
    }
}

mod server_tools {
    use super::*;

    /// The raw declaration of a server tool in each vendor's format.
    fn search_tool(wire: Wire) -> Value {
        match wire {
            Wire::Anthropic => json!({ "type": "web_search_20250305", "name": "web_search" }),
            Wire::Gemini => json!({ "googleSearch": {} }),
            Wire::Ollama => json!({ "type": "function", "function": { "name": "web_search" } }),
            _ => json!({ "type": "web_search" }),
        }
    }

    fn encoded(wire: Wire, request: &Request) -> Value {
        encode(wire, "m", request)
    }

    fn request(wire: Wire) -> Request {
        let mut request = request_with_schema(json!({ "type": "object", "properties": {} }));
        request.options.extra.insert("tools".into(), json!([search_tool(wire)]));
        request
    }

    #[test]
    fn server_tools_are_sent_after_the_requests_own_tools() {
        for wire in Wire::ALL {
            let body = encoded(wire, &request(wire));
            assert_eq!(declared_names(wire, &without_last_tool(&body)), ["f"], "{wire}");
            assert_eq!(body["tools"].as_array().unwrap().last(), Some(&search_tool(wire)));
            // A second request uses the tools that were encoded for the first.
            let again = request(wire);
            assert_eq!(encoded(wire, &again), encoded(wire, &again.clone()), "{wire}");
        }
    }

    fn without_last_tool(body: &Value) -> Value {
        let mut body = body.clone();
        body["tools"].as_array_mut().unwrap().pop();
        body
    }

    #[test]
    fn server_tools_alone_are_sent_and_count_as_tools() {
        for wire in Wire::ALL {
            let mut request = request(wire).with_tools([]);
            assert_eq!(encoded(wire, &request)["tools"], json!([search_tool(wire)]), "{wire}");
            request.options.tool_choice = ToolChoice::Required;
            if wire == Wire::OpenAiChat {
                request.options.parallel_tool_calls = Some(false);
                assert_eq!(encoded(wire, &request)["parallel_tool_calls"], false);
            }
            match wire {
                Wire::OpenAiChat | Wire::OpenAiResponses => {
                    assert_eq!(encoded(wire, &request)["tool_choice"], "required");
                }
                Wire::Anthropic => {
                    assert_eq!(encoded(wire, &request)["tool_choice"]["type"], "any");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn no_tools_are_sent_if_the_model_must_not_call_any_and_cannot_be_told() {
        let options = |wire| {
            let mut request = request(wire);
            request.options.tool_choice = ToolChoice::None;
            request
        };
        let ollama = encoded(Wire::Ollama, &options(Wire::Ollama));
        assert_eq!(ollama.get("tools"), None);
        let request = options(Wire::OpenAiChat);
        let chat = encode_bytes(Wire::OpenAiChat, "m", &request, &Dialect::MINIMAL);
        assert_eq!(serde_json::from_slice::<Value>(&chat).unwrap().get("tools"), None);
    }

    #[test]
    fn a_server_tool_with_the_name_of_an_own_tool_is_an_error() {
        for (wire, tool) in [
            (Wire::Anthropic, json!({ "type": "web_search_20250305", "name": "f" })),
            (Wire::OpenAiChat, json!({ "type": "function", "function": { "name": "f" } })),
            (Wire::Gemini, json!({ "functionDeclarations": [{ "name": "f" }] })),
        ] {
            let mut request = request(wire);
            request.options.extra.insert("tools".into(), json!([tool]));
            let error = match wire {
                Wire::Anthropic => anthropic::encode(&request, "m"),
                Wire::Gemini => gemini::encode(&request, "m"),
                _ => openai_chat::encode(&request, "m", &Dialect::OPENAI),
            }
            .unwrap_err();
            assert!(error.message().contains("two tools have the name `f`"), "{error}");
            assert_eq!(error.parameter(), Some("tools"));
        }
    }

    #[test]
    fn what_the_caller_includes_is_added_to_what_reasoning_needs() {
        let include = |extra: Value| {
            let mut request = request(Wire::OpenAiResponses);
            request.options.extra = json!({ "include": extra }).as_object().unwrap().clone();
            let body = openai_responses::encode(&request, "gpt-5").unwrap();
            serde_json::from_slice::<Value>(&body).unwrap()["include"].clone()
        };
        let (own, more) = ("reasoning.encrypted_content", "web_search_call.action.sources");
        assert_eq!(include(json!([more])), json!([own, more]));
        assert_eq!(include(json!([own])), json!([own]));
        assert_eq!(include(Value::Null), Value::Null);
    }
}

mod schemas {
    use super::*;

    #[test]
    fn a_tool_without_arguments_has_properties_where_the_vendor_requires_them() {
        for schema in [
            json!({ "type": "object" }),
            json!({ "type": "object", "properties": {} }),
            json!({ "type": "object", "additionalProperties": false }),
        ] {
            for (wire, sent) in sent_schemas(&schema) {
                let needs = matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses);
                assert!(!needs || sent["properties"] == json!({}), "{wire}: {sent}");
            }
        }
    }

    #[test]
    fn formats_that_vendors_do_not_know_are_omitted() {
        let number = |format: &str| json!({ "type": "integer", "format": format });
        let schema = json!({ "type": "object", "properties": {
            "a": number("uint64"), "b": number("uint"), "c": number("uint8"), "d": number("int64"),
            "e": { "type": "number", "format": "float" },
            "f": { "type": "string", "format": "date-time" },
            "g": { "type": "string", "format": "semver", "description": "A version" },
            "format": { "type": "array", "items": { "anyOf": [number("uint32")] } },
        } });
        for (wire, sent) in sent_schemas(&schema) {
            let text = sent.to_string();
            for format in ["uint", "int64", "\"float\"", "\"semver\""] {
                assert!(!text.contains(format), "{wire}: {sent}");
            }
            assert_eq!(sent["properties"]["g"]["description"], "A version\n\n{format: semver}");
            assert!(sent["properties"]["format"].is_object(), "{wire}: {sent}");
            let keeps = wire != Wire::Ollama;
            assert_eq!(sent["properties"]["f"]["format"] == "date-time", keeps, "{wire}: {sent}");
        }
    }

    #[test]
    fn alternatives_at_the_root_become_one_object_on_every_wire() {
        let schema = json!({ "type": "object", "oneOf": [
            { "type": "object", "required": ["kind", "radius"], "properties": {
                "kind": { "type": "string", "const": "circle" }, "radius": { "type": "number" } } },
            { "$ref": "#/$defs/square" },
        ], "$defs": { "square": { "type": "object", "required": ["kind", "side"], "properties": {
            "kind": { "type": "string", "const": "square" }, "side": { "type": "number" } } } } });
        for (wire, sent) in sent_schemas(&schema) {
            assert_eq!(sent["type"], "object", "{wire}: {sent}");
            assert!(sent.get("oneOf").is_none() && sent.get("anyOf").is_none(), "{wire}: {sent}");
            let names: Vec<_> = sent["properties"].as_object().unwrap().keys().collect();
            assert_eq!(names, ["kind", "radius", "side"], "{wire}: {sent}");
            assert_eq!(sent["properties"]["kind"]["enum"], json!(["circle", "square"]), "{wire}");
            assert_eq!(sent["required"], json!(["kind"]), "{wire}: {sent}");
            assert!(sent["description"].as_str().unwrap().contains("oneOf"), "{wire}: {sent}");
        }
    }

    #[test]
    fn schemas_of_older_drafts_are_valid_for_every_vendor() {
        let schema = json!({ "type": "object", "required": true, "properties": {
            "point": { "type": "array", "items": [{ "type": "number" }, { "type": "number" }] },
            "list": { "type": "array" },
            "any": true,
            "odd": { "type": "any" },
            "n": { "type": "integer", "minimum": 0, "exclusiveMinimum": true },
        } });
        for (wire, sent) in sent_schemas(&schema) {
            let property = |name: &str| &sent["properties"][name];
            assert!(property("any").is_object() && property("odd").get("type").is_none(), "{sent}");
            assert!(!property("point")["items"].is_array(), "{wire}: {sent}");
            assert!(!sent["required"].is_boolean(), "{wire}: {sent}");
            if matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses) {
                assert_eq!(property("list")["items"], json!({}));
            }
            if matches!(wire, Wire::OpenAiChat | Wire::OpenAiResponses | Wire::Anthropic) {
                assert_eq!(property("n"), &json!({ "type": "integer", "exclusiveMinimum": 0 }));
            }
        }
    }

    #[test]
    fn a_reference_into_the_properties_is_resolved_for_gemini() {
        let schema = json!({ "type": "object", "properties": {
            "headers": { "type": "object", "properties": { "n": { "type": "string" } } },
            "actions": { "type": "array", "items": { "$ref": "#/properties/headers" } },
        } });
        for (wire, sent) in sent_schemas(&schema) {
            if matches!(wire, Wire::Gemini | Wire::Ollama) {
                let items = &sent["properties"]["actions"]["items"];
                assert_eq!(items["properties"]["n"]["type"], "string", "{wire}: {sent}");
            }
        }
    }

    #[test]
    fn type_lists_and_fixed_values_are_rewritten_for_gemini() {
        let schema = json!({ "type": "object", "required": ["b"], "properties": {
            "a": { "type": ["string", "null"] },
            "b": { "const": "insert_text" },
            "c": { "oneOf": [{ "type": "string" },
                { "type": ["array", "null"], "items": { "type": ["integer", "string"] } }] },
            "d": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
            "e": { "type": "array",
                "items": { "type": ["object", "null"], "additionalProperties": true } },
        } });
        let sent = sent_schemas(&schema);
        let (_, gemini) = sent.iter().find(|(wire, _)| *wire == Wire::Gemini).unwrap();
        assert_eq!(gemini["properties"]["b"]["enum"], json!(["insert_text"]));
        assert!(!gemini.to_string().contains("const"), "{gemini}");
    }

    #[test]
    fn an_answer_with_a_map_is_requested_without_strict_mode() {
        let schema = json!({ "type": "object", "required": ["title", "state"], "properties": {
            "title": { "type": "string" },
            "state": { "type": "object", "additionalProperties": true },
            "any": true,
        } });
        for wire in Wire::ALL {
            let mut request = Request::new(History::from_items("h", [Item::user("go")]));
            let output = OutputSchema { name: "n".into(), schema: schema.clone() };
            request.options = Options { output: Output::Schema(output), ..Options::default() };
            let body = encode(wire, "gpt-5", &request);
            assert_eq!(lint::request(wire, "gpt-5", &body), [""; 0], "{body}");
            match wire {
                Wire::OpenAiChat => {
                    assert_eq!(body["response_format"]["json_schema"]["strict"], false);
                }
                Wire::OpenAiResponses => assert_eq!(body["text"]["format"]["strict"], false),
                Wire::Anthropic => {
                    assert_eq!(body.get("output_config"), None);
                    let system = body["system"].as_array().unwrap().last().unwrap();
                    assert!(system["text"].as_str().unwrap().contains("additionalProperties"));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn formats_are_omitted_from_an_answer_for_a_server_without_strict_mode() {
        let schema = json!({ "type": "object", "properties": {
            "n": { "type": "integer", "format": "uint64" } } });
        let mut request = Request::new(History::from_items("h", [Item::user("go")]));
        let output = OutputSchema { name: "n".into(), schema };
        request.options = Options { output: Output::Schema(output), ..Options::default() };
        let body = encode_bytes(Wire::OpenAiChat, "m", &request, &Dialect::VLLM);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let sent = &body["response_format"]["json_schema"]["schema"];
        assert_eq!(sent["properties"]["n"], json!({ "type": "integer" }));
    }

    #[test]
    fn an_answer_that_no_mode_expresses_is_an_error() {
        for schema in [
            json!({ "type": "array", "items": { "type": "string" } }),
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/none" } } }),
        ] {
            let mut request = Request::new(History::from_items("h", [Item::user("go")]));
            let output = OutputSchema { name: "n".into(), schema };
            request.options = Options { output: Output::Schema(output), ..Options::default() };
            assert!(openai_responses::encode(&request, "gpt-5").is_err());
            assert!(openai_chat::encode(&request, "m", &Dialect::OPENAI).is_err());
        }
    }

    #[tokio::test]
    async fn a_typed_tool_without_arguments_has_properties() {
        let tool = Tool::new("f", "F", |(), _cx| async { "ok" });
        let sent = sent_schemas(&tool.spec().parameters.to_value());
        assert!(sent.iter().all(|(_, schema)| schema["properties"] == json!({})), "{sent:?}");
    }
}
