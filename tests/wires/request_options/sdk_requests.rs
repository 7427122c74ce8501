//! The requests that the vendors' own libraries send for each option, compared field by field.
//! `tests/options/run.sh` drives the libraries against a server that records their requests.

use std::collections::BTreeSet;
use std::fs;

use turnstream::item::{
    Content, Detail, MediaSource, Part, ProviderData, RawJson, ResultKind, ToolResult,
};
use turnstream::request::{
    Cache, ClientTool, CodeExecution, Effort, FileSearch, McpServer, McpToken, Options,
    PromptCacheRetention, Reasoning, ReasoningSummary, ServerTool, ServiceTier, ToolChoice,
    UserLocation, Verbosity, WebFetch, WebSearch,
};

use super::*;

/// The request for an option, as a user of this crate writes it.
fn request(option: &str, wire: Wire) -> Request {
    let closed = json!({
        "type": "object",
        "properties": { "word": { "type": "string" } },
        "required": ["word"],
        "additionalProperties": false,
    });
    let look_up = ToolSpec::new("look_up", "Looks up a word", closed);
    let set = |options: Options| hello().with_options(options);
    let beside = |tool: ServerTool| {
        let options = Options { server_tools: vec![tool], ..Options::default() };
        set(options).with_tools([look_up.clone()])
    };
    let part = |part: Part| Request::new(History::from_items("h", [Item::user(vec![part])]));
    let summary = |reasoning_summary| {
        let reasoning = Some(Reasoning::Effort(Effort::High));
        set(Options { reasoning, reasoning_summary: Some(reasoning_summary), ..Options::default() })
    };
    let wiki = |allowed_tools: Vec<String>| McpServer {
        name: "wiki".into(),
        url: "https://mcp.example".into(),
        authorization: Some(McpToken::new("t")),
        allowed_tools,
        ..McpServer::default()
    };
    match option {
        "strict_tool" => hello().with_tools([look_up.clone().with_strict(true)]),
        "web_search" => {
            let (city, country) = (Some("Oslo".into()), Some("NO".into()));
            let location = UserLocation { city, country, ..UserLocation::default() };
            let search = WebSearch { user_location: Some(location), ..WebSearch::default() };
            beside(search.into())
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
        "service_tier" => {
            set(Options { service_tier: Some(ServiceTier::Standard), ..Options::default() })
        }
        "verbosity" => set(Options { verbosity: Some(Verbosity::Low), ..Options::default() }),
        "prompt_cache_key" => {
            set(Options { prompt_cache_key: Some("k".into()), ..Options::default() })
        }
        "prompt_cache_retention" => {
            let prompt_cache_retention = Some(PromptCacheRetention::Day);
            set(Options { prompt_cache_retention, ..Options::default() })
        }
        "long_cache" => set(Options { cache: Cache::Long, ..Options::default() }),
        "effort_max" => {
            let reasoning = Some(Reasoning::Effort(Effort::Max));
            let reasoning_summary = Some(ReasoningSummary::Off);
            let reasoning_summary = reasoning_summary.filter(|_| wire == Wire::Responses);
            set(Options { reasoning, reasoning_summary, ..Options::default() })
        }
        "mcp_approval" => {
            let server = McpServer { require_approval: true, ..wiki(Vec::new()) };
            let request = beside(server.into());
            let approval = ClientTool::McpApproval { server: "wiki".into() }.spec();
            request.with_tools([look_up, approval])
        }
        "client_tools" => {
            let tools = [ClientTool::Shell, ClientTool::ApplyPatch, ClientTool::Computer];
            hello().with_tools(tools.map(ClientTool::spec))
        }
        "client_tool_results" => client_tool_results(),
        "reasoning_summary" => summary(ReasoningSummary::Detailed),
        "reasoning_summary_off" => summary(ReasoningSummary::Off),
        "logprobs" => set(Options { logprobs: Some(2), ..Options::default() }),
        "allowed_tools" => {
            let names = vec!["look_up".to_owned()];
            let tool_choice = ToolChoice::Allowed { names, required: false };
            set(Options { tool_choice, ..Options::default() }).with_tools([look_up])
        }
        "citations" => part(Part::file("application/pdf", b"%PDF"))
            .with_options(Options { citations: true, ..Options::default() }),
        "file_by_id" => {
            let id = if wire == Wire::Messages { "file_1" } else { "file-1" };
            part(Part::file("application/pdf", MediaSource::FileId(id.into())))
        }
        "image_detail" => part(Part::image("image/png", b"\x89PNG").with_detail(Detail::Low)),
        "token_count" => hello().with_tools([look_up]),
        other => panic!("there is no request for {other} on {wire:?}"),
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
fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // Marks are placed by this crate on its own.
            fields.shift_remove("cache_control");
            // A text is also a list with a single part.
            if let Some(content @ Value::String(_)) = fields.get_mut("content") {
                *content = json!([{ "type": "text", "text": content }]);
            }
            // Google's library sends some names in snake case, and its API accepts both.
            let names = ["function_declarations", "parameters_json_schema", "mime_type"]
                .into_iter()
                .chain(["streamable_http_transport", "file_search_store_names", "top_k"])
                .chain(["include_thoughts", "thinking_level"]);
            for name in names {
                if let Some(value) = fields.shift_remove(name) {
                    fields.insert(camel_case(name), value);
                }
            }
            if let Some(level) = fields.get_mut("thinkingLevel") {
                *level = level.as_str().unwrap_or_default().to_lowercase().into();
            }
            for value in fields.values_mut() {
                normalize(value);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(normalize),
        Value::String(text) if text == "input_text" => "text".clone_into(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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

/// The fields that differ, without those whose value depends on the library and not on the option.
fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let fields = theirs.as_object().expect("a body is an object");
    let mut differing = Vec::new();
    for (name, expected) in fields {
        let found = &ours[name];
        let is_equal = match name.as_str() {
            "model" => true,
            // This crate also includes what it sends back to reasoning models.
            "include" => contains_all(expected, found),
            // The order of the tools has no meaning.
            "tools" => contains_all(expected, found) && contains_all(found, expected),
            _ => expected == found || (found.is_null() && *expected == json!({})),
        };
        if !is_equal {
            differing.push(format!("{name}: {found} instead of {expected}"));
        }
    }
    differing
}

/// Returns whether each element of the first list is in the second list.
fn contains_all(list: &Value, other: &Value) -> bool {
    let elements = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let other = elements(other);
    elements(list).iter().all(|element| other.contains(element))
}

#[test]
#[ignore = "needs the libraries of the vendors: tests/options/run.sh"]
fn each_option_is_sent_as_the_vendors_own_library_sends_it() {
    let path = std::env::var_os("TURNSTREAM_SDK_REQUESTS").expect("tests/options/run.sh sets it");
    let recorded = fs::read_to_string(path).unwrap();
    let mut failures = Vec::new();
    let mut options = BTreeSet::new();
    for line in recorded.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let option = line["option"].as_str().unwrap();
        let wire = match line["wire"].as_str().unwrap() {
            "messages" => Wire::Messages,
            "chat" => Wire::Chat,
            "responses" => Wire::Responses,
            "gemini" => Wire::Gemini,
            other => panic!("there is no wire {other}"),
        };
        let mut theirs = line["body"].clone();
        // Some options depend on the model.
        let model = line["body"]["model"].as_str();
        let model = model.filter(|_| wire == Wire::Responses || wire == Wire::Chat);
        let mut ours = wire.encode_for_model(&request(option, wire), model).unwrap();
        normalize(&mut ours);
        normalize(&mut theirs);
        for difference in differences(&ours, &theirs) {
            failures.push(format!("{option} on {wire:?}: {difference}"));
        }
        options.insert(format!("{option} on {wire:?}"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(options.len(), 51, "each request was compared");
}
