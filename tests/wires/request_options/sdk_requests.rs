//! The requests that the vendors' own libraries send for each option, compared field by field.
//! `tests/options/run.sh` drives the libraries against a server that records their requests.

use std::collections::BTreeSet;
use std::fs;

use turnstream::http::HttpClient;
use turnstream::item::{
    Content, Detail, MediaSource, Part, ProviderData, RawJson, ResultKind, ToolResult,
};
use turnstream::provider::{
    Anthropic, Gemini, HttpProvider, Ollama, OpenAiChat, OpenAiResponses, Provider,
    Wire as HttpWire,
};
use turnstream::request::{
    Cache, ClientTool, CodeExecution, Effort, FileSearch, McpServer, McpToken, Options, Output,
    OutputSchema, PromptCacheRetention, Reasoning, ReasoningSummary, ServerTool, ServiceTier,
    ToolChoice, UserLocation, Verbosity, WebFetch, WebSearch,
};
use turnstream::stream::TurnStreamExt;
use turnstream_testing::http::{HttpResponse, LoopbackServer};

use super::*;

/// The request for an option, as a user of this crate writes it.
fn request(option: &str, wire: Wire) -> Request {
    let request = options_of(option, wire).map(|options| hello().with_options(options));
    let request = request.or_else(|| request_with_tools(option, wire));
    let request = request.or_else(|| request_with_media(option, wire));
    request.unwrap_or_else(|| panic!("there is no request for {option} on {wire:?}"))
}

/// A tool whose schema has all that strict tools need.
fn strict_look_up() -> ToolSpec {
    let closed = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "required": ["word"],
        "additionalProperties": false,
    });
    ToolSpec::new("look_up", "Looks up a word", closed)
}

/// The options of a request without tools and media.
fn options_of(option: &str, wire: Wire) -> Option<Options> {
    let summary = |reasoning_summary| {
        let reasoning = Some(Reasoning::Effort(Effort::High));
        let reasoning_summary = Some(reasoning_summary);
        Options { reasoning, reasoning_summary, ..Options::default() }
    };
    let reasons = |reasoning| {
        // A summary of the reasoning is another option in OpenAI's library.
        let reasoning_summary = Some(ReasoningSummary::Off).filter(|_| wire == Wire::Responses);
        Options { reasoning: Some(reasoning), reasoning_summary, ..Options::default() }
    };
    let effort = |effort| reasons(Reasoning::Effort(effort));
    let answers = |output| Options { output, ..Options::default() };
    let caches = |cache| Options { cache, ..Options::default() };
    let with_tier = |tier| Options { service_tier: Some(tier), ..Options::default() };
    Some(match option {
        "service_tier" => with_tier(ServiceTier::Standard),
        "tier_flex" => with_tier(ServiceTier::Flex),
        "tier_priority" => with_tier(ServiceTier::Priority),
        "tier_auto" => with_tier(ServiceTier::Auto),
        "verbosity" => Options { verbosity: Some(Verbosity::Low), ..Options::default() },
        "prompt_cache_key" => Options { prompt_cache_key: Some("k".into()), ..Options::default() },
        "prompt_cache_retention" => {
            let prompt_cache_retention = Some(PromptCacheRetention::Day);
            Options { prompt_cache_retention, ..Options::default() }
        }
        "long_cache" | "marks_long" => caches(Cache::Long),
        "marks_short" => caches(Cache::Short),
        "marks_off" => caches(Cache::Off),
        "effort_low" => effort(Effort::Low),
        "effort_medium" => effort(Effort::Medium),
        "effort_high" => effort(Effort::High),
        "effort_max" => effort(Effort::Max),
        "reasoning_off" => reasons(Reasoning::Off),
        "reasoning_budget" => reasons(Reasoning::Budget(2_000)),
        "sampling" => sampling(wire),
        "user" => Options { user: Some("u-1".into()), ..Options::default() },
        "metadata" => {
            let metadata = [("run".to_owned(), "1".to_owned())].into();
            Options { metadata, ..Options::default() }
        }
        "json" => answers(Output::Json),
        "schema" => {
            let schema = serde_json::from_str(strict_look_up().parameters.as_str()).unwrap();
            answers(Output::Schema(OutputSchema { name: "answer".into(), schema }))
        }
        "reasoning_summary" => summary(ReasoningSummary::Detailed),
        "reasoning_summary_off" => summary(ReasoningSummary::Off),
        "logprobs" => Options { logprobs: Some(2), ..Options::default() },
        _ => return None,
    })
}

fn request_with_tools(option: &str, wire: Wire) -> Option<Request> {
    let set = |options: Options| hello().with_options(options).with_tools([strict_look_up()]);
    let beside = |tool: ServerTool| set(Options { server_tools: vec![tool], ..Options::default() });
    let wiki = |allowed_tools: Vec<String>| McpServer {
        name: "wiki".into(),
        url: "https://mcp.example".into(),
        authorization: Some(McpToken::new("t")),
        allowed_tools,
        ..McpServer::default()
    };
    let chooses = |tool_choice| set(Options { tool_choice, ..Options::default() });
    Some(match option {
        "strict_tool" => hello().with_tools([strict_look_up().with_strict(true)]),
        "web_search" | "web_search_alone" => {
            let (city, country) = (Some("Oslo".into()), Some("NO".into()));
            let location = UserLocation { city, country, ..UserLocation::default() };
            let search = WebSearch { user_location: Some(location), ..WebSearch::default() };
            let request = beside(search.into());
            if option == "web_search" { request } else { request.with_tools([]) }
        }
        "any_web_search" => beside(WebSearch::default().into()),
        "web_fetch" => beside(
            WebFetch {
                allowed_domains: vec!["docs.rs".into()],
                max_uses: Some(3),
                max_content_tokens: Some(9),
                ..WebFetch::default()
            }
            .into(),
        ),
        "any_web_fetch" => beside(WebFetch::default().into()),
        "code_execution" => beside(CodeExecution::default().into()),
        "code_execution_alone" => beside(CodeExecution::default().into()).with_tools([]),
        "file_search" => {
            beside(FileSearch { stores: vec!["s".into()], max_results: Some(5) }.into())
        }
        "mcp_server" => beside(wiki(vec!["find".into()]).into()),
        "any_mcp_server" => beside(wiki(Vec::new()).into()),
        "mcp_approval" => {
            let approved = McpServer { require_approval: true, ..wiki(Vec::new()) };
            let approval = ClientTool::McpApproval { server: "wiki".into() }.spec();
            beside(approved.into()).with_tools([strict_look_up(), approval])
        }
        "client_tools" => {
            let tools = [ClientTool::Shell, ClientTool::ApplyPatch, ClientTool::Computer];
            hello().with_tools(tools.map(ClientTool::spec))
        }
        "client_tool_results" => client_tool_results(),
        "tool_choice_none" => chooses(ToolChoice::None),
        "tool_choice_required" => chooses(ToolChoice::Required),
        "tool_choice_one" => chooses(ToolChoice::Tool("look_up".into())),
        "allowed_tools" => {
            let names = vec!["look_up".to_owned()];
            chooses(ToolChoice::Allowed { names, required: false })
        }
        "single_calls" => set(Options { parallel_tool_calls: Some(false), ..Options::default() }),
        // Ollama's library drops keywords of the schema.
        "tools" => hello().with_tools([look_up()]),
        // Google's library cannot count tools.
        "token_count" if wire == Wire::Gemini => hello(),
        "token_count" => hello().with_tools([strict_look_up()]),
        _ => return None,
    })
}

fn request_with_media(option: &str, wire: Wire) -> Option<Request> {
    let parts = |parts: Vec<Part>| Request::new(History::from_items("h", [Item::user(parts)]));
    let part = |part: Part| parts(vec![part]);
    let image = |detail| part(Part::image("image/png", b"\x89PNG").with_detail(detail));
    Some(match option {
        "citations" => part(Part::file("application/pdf", b"%PDF"))
            .with_options(Options { citations: true, ..Options::default() }),
        "file_by_id" => {
            let id = if wire == Wire::Messages { "file_1" } else { "file-1" };
            part(Part::file("application/pdf", MediaSource::FileId(id.into())))
        }
        "image_by_id" => {
            let id = match wire {
                Wire::Messages => "file_1",
                Wire::Gemini => "files/1",
                _ => "file-1",
            };
            part(Part::image("image/png", MediaSource::FileId(id.into())))
        }
        "image" => parts(vec![Part::from("look"), Part::image("image/png", b"\x89PNG")]),
        "image_detail" => image(Detail::Low),
        "detail_high" => image(Detail::High),
        "detail_original" => image(Detail::Original),
        _ => return None,
    })
}

/// The options for sampling that a wire has.
fn sampling(wire: Wire) -> Options {
    let has = |wires: &[Wire]| wires.contains(&wire);
    let has_penalties = has(&[Wire::Chat, Wire::Gemini, Wire::Ollama]);
    let stops = !has(&[Wire::Responses]);
    Options {
        temperature: (!has(&[Wire::Messages])).then_some(0.5),
        top_p: (!has(&[Wire::Messages])).then_some(0.75),
        top_k: has(&[Wire::Gemini, Wire::Ollama]).then_some(5),
        seed: has_penalties.then_some(7),
        frequency_penalty: has_penalties.then_some(0.5),
        presence_penalty: has_penalties.then_some(0.25),
        stop_sequences: if stops { vec!["END".into()] } else { Vec::new() },
        // The Messages wire always sends a limit. Anthropic's library has no temperature.
        max_output_tokens: (!has(&[Wire::Messages])).then_some(77),
        ..Options::default()
    }
}

/// A request that sends back a call of each client tool, with its result.
fn client_tool_results() -> Request {
    let call = |id: &str, spec: &ToolSpec, arguments: Value, item: Value| {
        let (provider, model) = ("openai_responses".to_owned(), "gpt-5.6".to_owned());
        let value = RawJson::from(json!({ "item": item }));
        let data = ProviderData { provider, model, value };
        let call = Item::tool_call(id, &spec.name, arguments.to_string());
        Item { provider_data: Some(data.into()), ..call }
    };
    let action = json!({ "commands": ["pwd"] });
    let operation = json!({ "type": "delete_file", "path": "a.md" });
    let actions = json!([{ "type": "screenshot" }]);
    let calls = [
        (
            "call_1",
            ClientTool::Shell,
            action.clone(),
            json!({ "type": "shell_call", "call_id": "call_1", "action": action }),
            "/home".into(),
        ),
        (
            "call_2",
            ClientTool::ApplyPatch,
            operation.clone(),
            json!({ "type": "apply_patch_call", "call_id": "call_2", "operation": operation,
                "status": "completed" }),
            "Deleted.".into(),
        ),
        (
            "call_3",
            ClientTool::Computer,
            json!({ "actions": actions }),
            json!({ "type": "computer_call", "id": "cu_1", "call_id": "call_3",
                "actions": actions, "pending_safety_checks": [], "status": "completed" }),
            Content::from(vec![Part::image("image/png", b"\x89PNG")]),
        ),
        (
            "mcpr_1",
            ClientTool::McpApproval { server: "wiki".into() },
            json!({ "name": "find", "arguments": {} }),
            json!({ "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "wiki",
                "name": "find", "arguments": "{}" }),
            "approved".into(),
        ),
    ];
    let mut items = vec![Item::user("hello")];
    for (id, tool, arguments, item, content) in calls {
        let item = call(id, &tool.spec(), arguments, item);
        let tool_call = item.as_tool_call().expect("it is a call").clone();
        let result = ToolResult::for_call(&tool_call, ResultKind::Ok, content);
        items.extend([item, Item::tool_result(result)]);
    }
    Request::new(History::from_items("h", items))
}

/// Puts values that mean the same into the same form.
fn normalize(value: &mut Value, keeps_marks: bool) {
    match value {
        Value::Object(fields) => {
            if !keeps_marks {
                // Marks are placed by this crate on its own.
                fields.shift_remove("cache_control");
            }
            // A text is also a list with a single part.
            if let Some(content @ Value::String(_)) = fields.get_mut("content") {
                *content = json!([{ "type": "text", "text": content }]);
            }
            // Google's library sends some names in snake case, and its API accepts both.
            let names = ["function_declarations", "parameters_json_schema", "mime_type"]
                .into_iter()
                .chain(["streamable_http_transport", "file_search_store_names", "top_k"])
                .chain(["include_thoughts", "thinking_level", "thinking_budget", "file_uri"]);
            for name in names {
                if let Some(value) = fields.shift_remove(name) {
                    fields.insert(camel_case(name), value);
                }
            }
            if let Some(level) = fields.get_mut("thinkingLevel") {
                *level = level.as_str().unwrap_or_default().to_lowercase().into();
            }
            for value in fields.values_mut() {
                normalize(value, keeps_marks);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| normalize(value, keeps_marks)),
        Value::String(text) if text == "input_text" => "text".clone_into(text),
        // Google's library writes some whole numbers as floats.
        Value::Number(number) if number.as_i64().is_none() => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            *value = whole.map_or_else(|| value.clone(), |number| json!(format!("{number:.0}")));
        }
        Value::Number(number) => *value = json!(number.to_string()),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut name, word| {
        name.push_str(&word[..1].to_uppercase());
        name.push_str(&word[1..]);
        name
    })
}

/// The fields that this crate always sends, and that a call of the library leaves out or sets to
/// something else: answers are streamed, and nothing is stored at the vendor.
fn constants(wire: Wire) -> Value {
    match wire {
        Wire::Messages | Wire::Ollama => json!({ "stream": true }),
        Wire::Chat | Wire::CompatibleChat => {
            json!({ "stream": true, "stream_options": { "include_usage": true } })
        }
        Wire::Responses => {
            let include = ["reasoning.encrypted_content"];
            json!({ "stream": true, "store": false, "include": include })
        }
        Wire::Gemini => json!({}),
    }
}

/// The fields that differ, in both directions, without those whose value depends on the library and
/// not on the option.
fn differences(constants: &Value, ours: &Value, theirs: &Value) -> Vec<String> {
    let names = |body: &Value| -> BTreeSet<String> {
        body.as_object().expect("a body is an object").keys().cloned().collect()
    };
    let mut differing = Vec::new();
    for name in names(theirs).union(&names(ours)) {
        let (found, expected) = (&ours[name], &theirs[name]);
        let constant = constants.get(name);
        let is_equal = match name.as_str() {
            "model" => true,
            // This crate also includes what it sends back to the model, or keeps in the history.
            "include" => {
                let own = "code_interpreter_call.outputs file_search_call.results";
                let found = found.as_array().cloned().unwrap_or_default();
                let is_own = |it: &&Value| own.contains(it.as_str().unwrap_or_default());
                let others: Vec<_> = found.iter().filter(|it| !is_own(it)).cloned().collect();
                let mut all = expected.as_array().cloned().unwrap_or_default();
                all.extend(constants["include"].as_array().into_iter().flatten().cloned());
                let (all, others) = (Value::from(all), Value::from(others));
                contains_all(&all, &others) && contains_all(&others, &all)
            }
            // The order of the tools has no meaning.
            "tools" => contains_all(expected, found) && contains_all(found, expected),
            _ if constant.is_some() => constant == Some(found),
            _ => expected == found || (found.is_null() && is_empty(expected)),
        };
        if !is_equal {
            differing.push(format!("{name}: {found} instead of {expected}"));
        }
    }
    differing
}

/// Returns whether a value is an object or a list without elements, which some libraries send.
fn is_empty(value: &Value) -> bool {
    [json!({}), json!([])].contains(value)
}

/// Returns whether each element of the first list is in the second list.
fn contains_all(list: &Value, other: &Value) -> bool {
    let elements = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let other = elements(other);
    elements(list).iter().all(|element| other.contains(element))
}

/// A request over HTTP.
struct SentRequest {
    path: String,
    beta: Option<String>,
    body: Value,
}

/// Sends the request for an option, or asks for the number of its tokens, at a server that refuses
/// everything.
async fn send(option: &str, wire: Wire, model: &str, http: &HttpClient) -> SentRequest {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "recorded")).await.unwrap();
    let request = request(option, wire);
    match wire {
        Wire::Messages => send_to(Anthropic::new(model), &server, "", option, &request, http).await,
        Wire::Chat | Wire::CompatibleChat => {
            let model = OpenAiChat::new(model).with_dialect(openai_chat::Dialect::OPENAI);
            send_to(model, &server, "/v1", option, &request, http).await;
        }
        Wire::Responses => {
            send_to(OpenAiResponses::new(model), &server, "/v1", option, &request, http).await;
        }
        Wire::Gemini => send_to(Gemini::new(model), &server, "", option, &request, http).await,
        Wire::Ollama => send_to(Ollama::new(model), &server, "", option, &request, http).await,
    }
    let received = server.requests().pop().expect("a request was sent");
    SentRequest {
        path: received.path.split('?').next().unwrap_or_default().to_owned(),
        beta: received.header("anthropic-beta").map(str::to_owned),
        body: serde_json::from_slice(&received.body).unwrap(),
    }
}

async fn send_to<W: HttpWire>(
    model: HttpProvider<W>,
    server: &LoopbackServer,
    path: &str,
    option: &str,
    request: &Request,
    http: &HttpClient,
) where
    HttpProvider<W>: Provider,
{
    let model = model.with_api_key("k").with_base_url(server.url() + path).unwrap();
    let model = model.with_http_client(http.clone()).without_retries();
    let error = match option {
        "token_count" => model.count_tokens(request).expect("it counts").await.err(),
        _ => model.stream_turn(request.clone()).into_turn().await.err(),
    };
    assert_eq!(error.expect("it is refused").status(), Some(400));
}

/// The differences between the requests of the library and of this crate for an option.
async fn compare(line: &Value, http: &HttpClient) -> Vec<String> {
    let option = line["option"].as_str().unwrap();
    let wire = match line["wire"].as_str().unwrap() {
        "messages" => Wire::Messages,
        "chat" => Wire::Chat,
        "responses" => Wire::Responses,
        "gemini" => Wire::Gemini,
        "ollama" => Wire::Ollama,
        other => panic!("there is no wire {other}"),
    };
    let mut theirs = line["body"].clone();
    // Some options depend on the model.
    let model = line["body"]["model"].as_str().unwrap_or("gemini-3-pro").to_owned();
    let sent = send(option, wire, &model, http).await;
    let mut ours = match (option, wire) {
        // Google's API counts a whole request only in this form, which its library lacks.
        ("token_count", Wire::Gemini) => sent.body["generateContentRequest"].clone(),
        ("token_count", _) => sent.body,
        // The vendor's own server receives some fields that other servers do not.
        _ => wire.encode_for_model(&request(option, wire), Some(&model)).unwrap(),
    };
    let keeps_marks = option.starts_with("marks_");
    normalize(&mut ours, keeps_marks);
    normalize(&mut theirs, keeps_marks);
    let constants = if option == "token_count" { json!({}) } else { constants(wire) };
    let mut all = differences(&constants, &ours, &theirs);
    // This crate streams, and the library was asked for a whole response.
    let path = sent.path.replace(":streamGenerateContent", ":generateContent");
    // Google's library uses the stable version of the API, whose requests are the same.
    let path = path.replace("/v1beta/", "/v1/");
    if line["path"] != path.as_str() {
        all.push(format!("the path {path} instead of {}", line["path"]));
    }
    if line["beta"].as_str() != sent.beta.as_deref() {
        all.push(format!("the beta {:?} instead of {}", sent.beta, line["beta"]));
    }
    all.iter().map(|difference| format!("{option} on {wire:?}: {difference}")).collect()
}

#[tokio::test]
#[ignore = "needs the libraries of the vendors: tests/options/run.sh"]
async fn each_option_is_sent_as_the_vendors_own_library_sends_it() {
    let path = std::env::var_os("TURNSTREAM_SDK_REQUESTS").expect("tests/options/run.sh sets it");
    let recorded = fs::read_to_string(path).unwrap();
    let (mut failures, http) = (Vec::new(), HttpClient::without_proxy());
    for line in recorded.lines() {
        failures.extend(compare(&serde_json::from_str(line).unwrap(), &http).await);
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(recorded.lines().count(), 130, "each request was compared");
}
