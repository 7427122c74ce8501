//! The crate's own providers read the answers of a server, on all wires.

use serde_json::{Value, json};
use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::item::Part;
use turnstream::provider::server::Wire;
use turnstream::provider::{
    Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses, Provider, Reply, Scripted,
};
use turnstream::request::{Options, Output, OutputSchema};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::turn::StopReason;
use turnstream::{Agent, History, Item, Outcome};

use crate::server::{SECRET, Served, search_tool, searching_agent};
use turnstream_server::AgentServer;

/// A client of the server on this wire.
fn provider(wire: Wire, served: &Served, model: &str) -> Box<dyn Provider> {
    let openai = served.url("/v1");
    match wire {
        Wire::OpenAiChat => Box::new(OpenAiChat::new(model).with_base_url(openai).unwrap()),
        Wire::OpenAiResponses => {
            Box::new(OpenAiResponses::new(model).with_base_url(openai).unwrap())
        }
        Wire::Anthropic => Box::new(Anthropic::new(model).with_base_url(served.url("")).unwrap()),
        Wire::Gemini => Box::new(Gemini::new(model).with_base_url(served.url("")).unwrap()),
        _ => Box::new(Ollama::new(model).with_base_url(served.url("")).unwrap()),
    }
}

/// A request of this wire that is not streamed, and the place of the answer's text.
fn plain_request(wire: Wire, text: &str) -> (&'static str, Value, &'static str) {
    let messages = json!([{ "role": "user", "content": text }]);
    let body = json!({ "model": "assistant", "messages": messages });
    match wire {
        Wire::OpenAiChat => ("/v1/chat/completions", body, "/choices/0/message/content"),
        Wire::OpenAiResponses => (
            "/v1/responses",
            json!({ "model": "assistant", "input": text }),
            "/output/0/content/0/text",
        ),
        Wire::Anthropic => {
            let mut body = body;
            body["max_tokens"] = json!(100);
            ("/v1/messages", body, "/content/0/text")
        }
        Wire::Gemini => (
            "/v1beta/models/assistant:generateContent",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }] }),
            "/candidates/0/content/parts/0/text",
        ),
        _ => {
            let mut body = body;
            body["stream"] = json!(false);
            ("/api/chat", body, "/message/content")
        }
    }
}

async fn ask(wire: Wire, served: &Served) -> Outcome {
    Agent::new(provider(wire, served, "assistant")).run("How many?").outcome().await
}

#[tokio::test]
async fn an_agents_turns_are_one_answer_and_its_own_calls_are_hidden() {
    let served = Served::agent(searching_agent()).await;
    for wire in Wire::ALL {
        let outcome = ask(wire, &served).await;
        assert_eq!(outcome.reason, EndReason::Completed, "{wire}: {:?}", outcome.error);
        assert_eq!(outcome.turns, 1, "{wire}");
        let said: String = outcome.history.iter().filter_map(Item::as_text).collect();
        assert_eq!(said, "Let me look.\n\nIt is five.", "{wire}");
        assert!(outcome.history.iter().all(|item| item.as_tool_call().is_none()), "{wire}");
        assert!(outcome.usage.output_tokens > 0 && outcome.usage.input_tokens > 0, "{wire}");
    }
}

#[tokio::test]
async fn a_response_that_is_not_streamed_has_the_same_text_and_usage() {
    let served = Served::agent(searching_agent()).await;
    let expected = searching_agent().run("How many?").outcome().await.usage;
    for wire in Wire::ALL {
        let (path, body, place) = plain_request(wire, "How many?");
        let answered = served.post(path, &body).await;
        assert_eq!(answered.status, 200, "{wire}: {answered:?}");
        assert!(!answered.text.contains(SECRET), "{wire}");
        let document = answered.json();
        let mut text = document.pointer(place).unwrap().as_str().unwrap().to_owned();
        // On these wires, each turn is a block of its own.
        let second = match wire {
            Wire::Anthropic => "/content/1/text",
            Wire::OpenAiResponses => "/output/1/content/0/text",
            _ => "",
        };
        if !second.is_empty() {
            text += document.pointer(second).unwrap().as_str().unwrap();
        }
        assert_eq!(text, "Let me look.\n\nIt is five.", "{wire}: {document}");
        let usage = match wire {
            Wire::OpenAiChat => &document["usage"]["completion_tokens"],
            Wire::Gemini => &document["usageMetadata"]["candidatesTokenCount"],
            Wire::Ollama => &document["eval_count"],
            _ => &document["usage"]["output_tokens"],
        };
        assert_eq!(*usage, json!(expected.output_tokens), "{wire}: {document}");
    }
}

#[tokio::test]
async fn shown_work_is_reasoning() {
    let agents = AgentServer::new().with_model("assistant", searching_agent()).with_shown_work();
    let served = Served::router(agents.router()).await;
    for wire in Wire::ALL {
        let outcome = ask(wire, &served).await;
        let is_work = |item: &Item| {
            let json = serde_json::to_string(item).unwrap();
            json.contains("\"reasoning\"") && json.contains("Calls search with {}")
        };
        assert!(outcome.history.iter().any(is_work), "{wire}: {:?}", outcome.history);
        assert!(!format!("{:?}", outcome.history).contains(SECRET), "{wire}");
    }
}

/// A tool of the client.
fn double_tool() -> Tool {
    let parameters = json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"],
        "additionalProperties": false,
    });
    let spec = ToolSpec::new("double", "Doubles a number", parameters);
    Tool::raw(
        spec,
        |args, _| async move { (args["n"].as_u64().unwrap_or_default() * 2).to_string() },
    )
    .unwrap()
}

/// An agent that calls the client's tool after its own, and then tells the result.
pub(crate) fn doubling_agent() -> Agent {
    let model = Scripted::from_fn(|request, _| {
        let results: Vec<_> = request.history.iter().filter_map(Item::as_tool_result).collect();
        let doubled = results.iter().find(|result| result.name == "double");
        match doubled {
            Some(result) => Reply::text(format!("It is {}.", result.content.text())),
            None if results.is_empty() => Reply::new().call("search", json!({})),
            None => Reply::new().say("I double.").call("double", json!({ "n": 21 })),
        }
    });
    Agent::new(model).with_tools([search_tool()])
}

#[tokio::test]
async fn a_clients_tool_runs_at_the_client_and_its_result_reaches_the_agent() {
    let served = Served::agent(doubling_agent()).await;
    for wire in Wire::ALL {
        let client = Agent::new(provider(wire, &served, "assistant")).with_tools([double_tool()]);
        let outcome = client.run("Double it.").outcome().await;
        assert_eq!(outcome.reason, EndReason::Completed, "{wire}: {:?}", outcome.error);
        assert_eq!((outcome.turns, outcome.text.as_str()), (2, "It is 42."), "{wire}");
        let calls: Vec<_> = outcome.history.iter().filter_map(Item::as_tool_call).collect();
        assert_eq!(calls.len(), 1, "{wire}");
        assert_eq!(calls[0].name, "double", "{wire}");
    }
}

#[tokio::test]
async fn a_whole_conversation_reaches_the_agent() {
    let model = Scripted::from_fn(|request, _| {
        let of_request = request.system.volatile.clone();
        let of_request = (!of_request.is_empty()).then(|| format!("system {of_request}"));
        let texts = of_request.into_iter().chain(request.history.iter().map(describe));
        Reply::text(texts.collect::<Vec<_>>().join(" | "))
    });
    let served = Served::agent(Agent::new(model).with_system("Own.")).await;
    let items = [Item::user("One"), Item::text("Two"), Item::user("Three")];
    for wire in Wire::ALL {
        let client = Agent::new(provider(wire, &served, "assistant")).with_system("Client.");
        let outcome = client.run_from(History::from_items("h", items.clone()), "Four").outcome();
        let text = outcome.await.text;
        let expected = "system Client. | user One | text Two | user Three | user Four";
        assert_eq!(text, expected, "{wire}");
    }
}

fn describe(item: &Item) -> String {
    match (item.as_user(), item.as_text()) {
        // Messages of one role that follow each other may be one message on the wire.
        (Some(content), _) => {
            let parts = content.clone().into_parts();
            let texts: Vec<_> = parts.iter().filter_map(|part| part.as_text()).collect();
            format!("user {}", texts.join(" | user "))
        }
        (_, Some(text)) => format!("text {text}"),
        _ => {
            let json = serde_json::to_value(item).unwrap();
            format!("{} {}", json["type"].as_str().unwrap(), json["text"].as_str().unwrap())
        }
    }
}

#[tokio::test]
async fn several_agents_answer_by_name() {
    let [first, second] = ["I am one.", "I am two."]
        .map(|text| Agent::new(Scripted::from_fn(move |_, _| Reply::text(text))));
    let agents = AgentServer::new().with_model("one", first).with_model("two", second);
    let served = Served::router(agents.router()).await;
    for wire in Wire::ALL {
        for (model, text) in [("one", "I am one."), ("two", "I am two.")] {
            let outcome = Agent::new(provider(wire, &served, model)).run("Who?").outcome().await;
            assert_eq!(outcome.text, text, "{wire}");
        }
        let outcome = Agent::new(provider(wire, &served, "three")).run("Who?").outcome().await;
        assert_eq!(outcome.error.unwrap().status(), Some(404), "{wire}");
    }
}

#[tokio::test]
async fn calls_that_need_approval_are_denied() {
    let denied = |request: &turnstream::request::Request| {
        let mut results = request.history.iter().filter_map(Item::as_tool_result);
        results.next().map(|result| result.kind.as_str())
    };
    let model = Scripted::from_fn(move |request, _| match denied(request) {
        Some(kind) => Reply::text(format!("It was {kind}.")),
        None => Reply::new().call("search", json!({})),
    });
    let agent = Agent::new(model).with_tools([search_tool().requires_approval()]);
    let served = Served::agent(agent).await;
    for wire in Wire::ALL {
        assert_eq!(ask(wire, &served).await.text, "It was denied.", "{wire}");
    }
}

/// An agent that tells how its model was asked, as JSON of the options that are not the defaults.
fn option_telling_agent() -> Agent {
    Agent::new(Scripted::from_fn(|request, _| {
        let set = serde_json::to_value(&request.options).unwrap();
        let usual = serde_json::to_value(Options::default()).unwrap();
        let set = set.as_object().unwrap().iter().filter(|(name, value)| usual[*name] != **value);
        Reply::text(
            set.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";"),
        )
    }))
}

#[tokio::test]
async fn a_clients_options_reach_the_agents_model() {
    let served = Served::agent(option_telling_agent()).await;
    for wire in Wire::ALL {
        let options = Options {
            max_output_tokens: Some(77),
            temperature: Some(0.5),
            top_p: Some(0.25),
            ..Options::default()
        };
        let mut expected = "max_output_tokens=77;temperature=0.5;top_p=0.25".to_owned();
        let options = match wire {
            Wire::OpenAiResponses => options,
            _ => {
                expected += ";stop_sequences=[\"END\"]";
                Options { stop_sequences: vec!["END".into()], ..options }
            }
        };
        let client = Agent::new(provider(wire, &served, "assistant")).with_options(options);
        let text = client.run("Hi").outcome().await.text;
        assert_eq!(text, expected, "{wire}");
    }
}

/// A client that asks for an object with a name.
fn city_client(wire: Wire, served: &Served) -> Agent {
    let schema = json!({
        "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"],
        "additionalProperties": false,
    });
    let output = Output::Schema(OutputSchema { name: "city".into(), schema });
    let options = Options { output, ..Options::default() };
    Agent::new(provider(wire, served, "assistant")).with_options(options)
}

#[tokio::test]
async fn a_clients_schema_reaches_the_agents_model() {
    let model = Scripted::from_fn(|request, _| match &request.options.output {
        Output::Schema(schema) => Reply::text(schema.schema["properties"]["name"].to_string()),
        _ => Reply::text("no schema"),
    });
    let served = Served::agent(Agent::new(model)).await;
    for wire in Wire::ALL {
        let client = city_client(wire, &served);
        assert_eq!(client.run("Hi").outcome().await.text, r#"{"type":"string"}"#, "{wire}");
    }
}

#[tokio::test]
async fn attached_images_reach_the_agent() {
    let model = Scripted::from_fn(|request, _| {
        let contents = request.history.iter().filter_map(Item::as_user);
        let parts: Vec<Part> = contents.flat_map(|content| content.clone().into_parts()).collect();
        Reply::text(serde_json::to_string(&parts).unwrap())
    });
    let served = Served::agent(Agent::new(model)).await;
    // The first bytes of a picture, by which Ollama's wire knows its type.
    let image = Part::image("image/png", b"\x89PNG\r\n\x1a\n");
    for wire in Wire::ALL {
        let client = Agent::new(provider(wire, &served, "assistant"));
        let outcome = client.run(vec![Part::from("Look"), image.clone()]).outcome().await;
        let parts: Vec<Part> = serde_json::from_str(&outcome.text).unwrap();
        assert_eq!(parts, [Part::from("Look"), image.clone()], "{wire}");
    }
}

#[tokio::test]
async fn each_wire_says_how_an_answer_has_ended() {
    for (reason, end) in [
        (StopReason::MaxTokens, [EndReason::Truncated; 5]),
        (
            StopReason::ContentFilter,
            [
                EndReason::Refused,
                EndReason::Filtered,
                EndReason::Filtered,
                EndReason::Filtered,
                EndReason::Completed,
            ],
        ),
    ] {
        let model = Scripted::from_fn(move |_, _| Reply::text("So much").stop(reason.clone()));
        let limits = Limits { max_continuations: 0, ..Limits::default() };
        let served = Served::agent(Agent::new(model).with_limits(limits)).await;
        for (wire, end) in Wire::ALL.into_iter().zip(end) {
            let client = Agent::new(provider(wire, &served, "assistant"));
            let outcome = client.with_limits(limits).run("Hi").outcome().await;
            assert_eq!(outcome.reason, end, "{wire}: {:?}", outcome.error);
            let (path, body, _) = plain_request(wire, "Hi");
            assert_eq!(served.post(path, &body).await.status, 200, "{wire}");
        }
    }
}

#[tokio::test]
async fn a_retracted_turn_is_only_in_the_stream() {
    let model =
        Scripted::from_fn(|_, _| Reply::new().say("I thi").retract("cut off").say("I think."));
    let served = Served::agent(Agent::new(model)).await;
    for wire in Wire::ALL {
        let outcome = ask(wire, &served).await;
        assert_eq!(outcome.text, "I thi\n\nI think.", "{wire}: {:?}", outcome.error);
        let (path, body, place) = plain_request(wire, "Hi");
        let document = served.post(path, &body).await.json();
        assert_eq!(document.pointer(place), Some(&json!("I think.")), "{wire}");
    }
}

#[tokio::test]
async fn a_format_is_not_preceded_by_other_text() {
    let model = Scripted::from_fn(|request, _| {
        match request.history.iter().any(|item| item.as_tool_result().is_some()) {
            false => Reply::new().say("I look.").call("search", json!({})),
            true => Reply::new().say("{\"name\":").say("\"Oslo\"}"),
        }
    });
    let served = Served::agent(Agent::new(model).with_tools([search_tool()])).await;
    for wire in Wire::ALL {
        let client = city_client(wire, &served);
        assert_eq!(client.run("Hi").outcome().await.text, r#"{"name":"Oslo"}"#, "{wire}");
    }
}

#[tokio::test]
async fn an_answer_that_is_rejected_is_sent_only_in_streams() {
    let model = || {
        Scripted::from_fn(|request, _| match request.history.len() {
            1 => Reply::text("A secret."),
            _ => Reply::text("Nothing."),
        })
    };
    let agent = Agent::new(model()).with_validation(|turn| match turn.text().contains("secret") {
        true => Err("do not tell secrets"),
        false => Ok(()),
    });
    let served = Served::agent(agent).await;
    for wire in Wire::ALL {
        let (path, body, place) = plain_request(wire, "Hi");
        let document = served.post(path, &body).await.json();
        assert_eq!(document.pointer(place), Some(&json!("Nothing.")), "{wire}: {document}");
        assert_eq!(ask(wire, &served).await.text, "A secret.\n\nNothing.", "{wire}");
    }
}

#[tokio::test]
async fn a_clients_limit_of_tokens_is_not_extended_by_continuations() {
    let model = Scripted::from_fn(|_, _| Reply::text("quick bro").stop(StopReason::MaxTokens));
    let served = Served::agent(Agent::new(model.clone())).await;
    let body = json!({
        "model": "assistant", "max_tokens": 5, "messages": [{ "role": "user", "content": "Hi" }],
    });
    let document = served.post("/v1/messages", &body).await.json();
    assert_eq!(document["content"][0]["text"], "quick bro");
    assert_eq!((&document["stop_reason"], model.requests().len()), (&json!("max_tokens"), 1));
    // Without a limit, the continuation is part of the same text.
    let model = Scripted::new([
        Reply::text("quick bro").stop(StopReason::MaxTokens),
        Reply::text("wn fox"),
    ]);
    let served = Served::agent(Agent::new(model)).await;
    let outcome = ask(Wire::OpenAiChat, &served).await;
    assert_eq!(outcome.text, "quick brown fox");
}

#[tokio::test]
async fn a_refusal_has_the_form_of_its_wire() {
    let model = Scripted::from_fn(|_, _| Reply::new().refuse("I will not."));
    let served = Served::agent(Agent::new(model)).await;
    for wire in Wire::ALL {
        let (path, body, _) = plain_request(wire, "Hi");
        let document = served.post(path, &body).await.json();
        let (place, end) = match wire {
            Wire::OpenAiChat => ("/choices/0/message/refusal", "/choices/0/finish_reason"),
            Wire::OpenAiResponses => ("/output/0/content/0/refusal", "/status"),
            Wire::Anthropic => ("/content/0/text", "/stop_reason"),
            Wire::Gemini => ("/candidates/0/content/parts/0/text", "/candidates/0/finishReason"),
            _ => ("/message/content", "/done_reason"),
        };
        assert_eq!(document.pointer(place), Some(&json!("I will not.")), "{wire}: {document}");
        let ends = ["stop", "completed", "refusal", "SAFETY"];
        let end = document.pointer(end).unwrap().as_str().unwrap();
        assert!(ends.contains(&end), "{wire}: {end}");
        let reason = ask(wire, &served).await.reason;
        let expected = [EndReason::Refused, EndReason::Filtered, EndReason::Completed];
        assert!(expected.contains(&reason), "{wire}: {reason:?}");
    }
}

/// Replaces each value of a document by each of these, one at a time.
fn variants(document: &Value) -> Vec<Value> {
    fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
        out.push(at.to_owned());
        match value {
            Value::Array(list) => {
                for (n, value) in list.iter().enumerate() {
                    pointers(value, &format!("{at}/{n}"), out);
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    pointers(value, &format!("{at}/{name}"), out);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    pointers(document, "", &mut all);
    let odd = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(""),
        json!("odd"),
        json!([]),
        json!([null]),
        json!({}),
        json!({ "type": "odd" }),
        json!(true),
    ];
    let replaced = |at: &String| {
        odd.iter()
            .map(|odd| {
                let mut document = document.clone();
                document.pointer_mut(at).unwrap().clone_from(odd);
                document
            })
            .collect::<Vec<_>>()
    };
    all.iter().flat_map(replaced).collect()
}

#[tokio::test]
async fn no_odd_value_in_a_request_breaks_the_server() {
    let served = Served::agent(searching_agent()).await;
    let call = json!({ "id": "c", "type": "function", "function": { "name": "double", "arguments": "{}" } });
    let function =
        json!({ "name": "double", "description": "Doubles", "parameters": { "type": "object" } });
    let chat = json!({ "model": "assistant", "max_tokens": 5, "stop": ["a"], "tool_choice": "auto",
        "tools": [{ "type": "function", "function": function }],
        "response_format": { "type": "json_schema", "json_schema": { "name": "a", "schema": { "type": "object" } } },
        "messages": [
            { "role": "system", "content": "Be." },
            { "role": "user", "content": [{ "type": "text", "text": "Hi" }, { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }] },
            { "role": "assistant", "content": "Ok", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c", "content": "1" },
        ] });
    let responses = json!({ "model": "assistant", "instructions": "Be.", "text": { "format": { "type": "text" } },
        "tools": [{ "type": "function", "name": "double", "parameters": { "type": "object" } }],
        "input": [
            { "role": "user", "content": [{ "type": "input_text", "text": "Hi" }, { "type": "input_file", "filename": "a", "file_data": "data:application/pdf;base64,AA==" }] },
            { "type": "function_call", "call_id": "c", "name": "double", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "1" },
        ] });
    let messages = json!({ "model": "assistant", "max_tokens": 5, "system": [{ "type": "text", "text": "Be." }],
        "tools": [{ "name": "double", "input_schema": { "type": "object" } }], "tool_choice": { "type": "auto" },
        "messages": [
            { "role": "user", "content": [{ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } }] },
            { "role": "assistant", "content": [{ "type": "text", "text": "Ok" }, { "type": "tool_use", "id": "c", "name": "double", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "content": [{ "type": "text", "text": "1" }] }] },
        ] });
    let gemini = json!({ "systemInstruction": { "parts": [{ "text": "Be." }] },
        "tools": [{ "functionDeclarations": [{ "name": "double", "parameters": { "type": "OBJECT", "properties": { "n": { "type": "INTEGER" } } } }] }],
        "toolConfig": { "functionCallingConfig": { "mode": "AUTO" } },
        "generationConfig": { "topK": 40, "responseMimeType": "application/json" },
        "contents": [
            { "role": "user", "parts": [{ "text": "Hi" }, { "inlineData": { "mimeType": "image/png", "data": "AA==" } }] },
            { "role": "model", "parts": [{ "functionCall": { "name": "double", "args": {} } }] },
            { "role": "user", "parts": [{ "functionResponse": { "name": "double", "response": { "output": "1" } } }] },
        ] });
    let ollama = json!({ "model": "assistant", "stream": false, "format": "json", "options": { "num_predict": 5 },
        "tools": [{ "type": "function", "function": function }],
        "messages": [
            { "role": "user", "content": "Hi", "images": ["AA=="] },
            { "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "double", "arguments": {} } }] },
            { "role": "tool", "tool_name": "double", "content": "1" },
        ] });
    for (path, body) in [
        ("/v1/chat/completions", chat),
        ("/v1/responses", responses),
        ("/v1/messages", messages),
        ("/v1beta/models/assistant:countTokens", json!({ "generateContentRequest": gemini })),
        ("/v1beta/models/assistant:generateContent", gemini),
        ("/api/chat", ollama),
    ] {
        assert_eq!(served.post(path, &body).await.status, 200, "{path}");
        for body in variants(&body) {
            let answered = served.post(path, &body).await;
            assert!([200, 400, 404, 413].contains(&answered.status), "{path} {body}: {answered:?}");
        }
    }
}
