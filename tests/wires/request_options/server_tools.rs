//! Tools that run on the provider's servers, beside the request's own tools.

use turnstream::request::{
    ClientTool, CodeExecution, FileSearch, McpServer, McpToken, Options, ServerTool, UserLocation,
    VendorTool, WebFetch, WebSearch,
};

use super::*;

fn with_tool(tool: impl Into<ServerTool>) -> Request {
    let server_tools = vec![tool.into()];
    hello().with_tools([look_up()]).with_options(Options { server_tools, ..Options::default() })
}

/// Checks that each server tool is sent after the request's own tool on the wires in `expected`,
/// and that all other wires report that they lack `parameter`.
#[track_caller]
fn check_tool(tool: impl Into<ServerTool>, parameter: &str, expected: &[(Wire, Value)]) {
    let request = with_tool(tool);
    for wire in WIRES {
        let Some((_, declaration)) = expected.iter().find(|(known, _)| *known == wire) else {
            let error = wire.encode(&request).expect_err(&format!("{wire:?} lacks {parameter}"));
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{wire:?}: {error}");
            assert_eq!(error.parameter(), Some(parameter), "{wire:?}: {error}");
            continue;
        };
        let body = wire.encode(&request).unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        let tools = body["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 2, "{wire:?}: the own tool is still declared");
        assert!(tools[0].to_string().contains("look_up"), "{wire:?}");
        assert_eq!(&tools[1], declaration, "{wire:?}");
    }
}

#[test]
fn a_web_search_is_declared_beside_the_own_tools() {
    check_tool(
        WebSearch::default(),
        "server_tools.web_search",
        &[
            (Wire::Messages, json!({ "type": "web_search_20250305", "name": "web_search" })),
            (Wire::Responses, json!({ "type": "web_search" })),
            (Wire::Gemini, json!({ "googleSearch": {} })),
        ],
    );
}

#[test]
fn the_settings_of_a_web_search_are_sent_or_refused() {
    let location = UserLocation {
        city: Some("Oslo".into()),
        country: Some("NO".into()),
        ..UserLocation::default()
    };
    let near = json!({ "type": "approximate", "city": "Oslo", "country": "NO" });
    let located = WebSearch { user_location: Some(location), ..WebSearch::default() };
    let approximate = json!({ "city": "Oslo", "country": "NO" });
    let chat = json!({ "user_location": { "type": "approximate", "approximate": approximate } });
    let messages = json!({ "type": "web_search_20250305", "name": "web_search",
        "user_location": near });
    let body = |wire: Wire, search: &WebSearch| wire.encode(&with_tool(search.clone()));
    assert_eq!(body(Wire::Messages, &located).unwrap()["tools"][1], messages);
    assert_eq!(chat_body(&located).unwrap()["web_search_options"], chat);
    let responses = json!({ "type": "web_search", "user_location": near });
    assert_eq!(body(Wire::Responses, &located).unwrap()["tools"][1], responses);

    let limited = WebSearch {
        allowed_domains: vec!["docs.rs".into()],
        max_uses: Some(3),
        ..WebSearch::default()
    };
    let messages = json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 3,
        "allowed_domains": ["docs.rs"] });
    assert_eq!(body(Wire::Messages, &limited).unwrap()["tools"][1], messages);
    let within = WebSearch { max_uses: None, ..limited.clone() };
    let responses = json!({ "type": "web_search",
        "filters": { "allowed_domains": ["docs.rs"] } });
    assert_eq!(body(Wire::Responses, &within).unwrap()["tools"][1], responses);

    for (wire, search, setting) in [
        (Wire::Responses, &limited, "max_uses"),
        (Wire::Gemini, &within, "allowed_domains"),
        (Wire::Gemini, &located, "user_location"),
    ] {
        let error = body(wire, search).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.parameter(), Some(&*format!("server_tools.web_search.{setting}")));
    }
    let error = chat_body(&within).unwrap_err();
    assert_eq!(error.parameter(), Some("server_tools.web_search.allowed_domains"));
}

/// The body of a request to a search model of OpenAI, which has no other tools.
fn chat_body(search: &WebSearch) -> Result<Value, Error> {
    let alone = with_tool(search.clone()).with_tools([]);
    Wire::Chat.encode_for_model(&alone, Some("gpt-5-search-api"))
}

#[test]
fn on_the_chat_wire_only_search_models_search_the_web_and_they_have_no_other_tools() {
    assert_eq!(chat_body(&WebSearch::default()).unwrap()["web_search_options"], json!({}));
    let request = with_tool(WebSearch::default());
    let refused = |request: &Request, model: &str| {
        let error = Wire::Chat.encode_for_model(request, Some(model)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.parameter().unwrap().to_owned()
    };
    assert_eq!(refused(&request, "gpt-5-search-api"), "server_tools");
    for model in ["gpt-5.6", "gpt-4o"] {
        assert_eq!(refused(&request, model), "server_tools.web_search");
        assert_eq!(refused(&request.clone().with_tools([]), model), "server_tools.web_search");
    }
    // The user has declared the tool in the vendor's format.
    let mut with_extra = request.with_tools([]);
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    with_extra.options.extra.insert("tools".into(), json!([tool]));
    assert_eq!(refused(&with_extra, "gpt-4o-search-preview"), "server_tools");
}

#[test]
fn pages_are_fetched_on_the_wires_that_can() {
    check_tool(
        WebFetch::default(),
        "server_tools.web_fetch",
        &[
            (Wire::Messages, json!({ "type": "web_fetch_20250910", "name": "web_fetch" })),
            (Wire::Gemini, json!({ "urlContext": {} })),
        ],
    );
    let limited = WebFetch { max_content_tokens: Some(9), ..WebFetch::default() };
    let fetch = json!({ "type": "web_fetch_20250910", "name": "web_fetch",
        "max_content_tokens": 9 });
    check_tool(limited, "server_tools.web_fetch", &[(Wire::Messages, fetch)]);
}

#[test]
fn code_is_executed_on_the_wires_that_can() {
    let messages = json!({ "type": "code_execution_20250825", "name": "code_execution" });
    let responses = json!({ "type": "code_interpreter", "container": { "type": "auto" } });
    check_tool(
        CodeExecution::default(),
        "server_tools.code_execution",
        &[
            (Wire::Messages, messages),
            (Wire::Responses, responses),
            (Wire::Gemini, json!({ "codeExecution": {} })),
        ],
    );
    let with_file = with_tool(CodeExecution { file_ids: vec!["file-1".into()] });
    let container = json!({ "type": "auto", "file_ids": ["file-1"] });
    let body = Wire::Responses.encode(&with_file).unwrap();
    assert_eq!(body["tools"][1]["container"], container);
    let error = Wire::Gemini.encode(&with_file).unwrap_err();
    assert_eq!(error.parameter(), Some("server_tools.code_execution.file_ids"));
}

#[test]
fn files_are_searched_on_the_wires_that_can() {
    let responses = json!({ "type": "file_search", "vector_store_ids": ["s"],
        "max_num_results": 5 });
    let gemini = json!({ "fileSearch": { "fileSearchStoreNames": ["s"], "topK": 5 } });
    check_tool(
        FileSearch { stores: vec!["s".into()], max_results: Some(5) },
        "server_tools.file_search",
        &[(Wire::Responses, responses), (Wire::Gemini, gemini)],
    );
}

fn mcp_server() -> McpServer {
    McpServer {
        name: "wiki".into(),
        url: "https://mcp.example/mcp".into(),
        authorization: Some(McpToken::new("secret")),
        ..McpServer::default()
    }
}

#[test]
fn an_mcp_server_is_declared_with_its_token() {
    let responses = json!({ "type": "mcp", "server_label": "wiki",
        "server_url": "https://mcp.example/mcp", "require_approval": "never",
        "authorization": "secret" });
    let headers = json!({ "Authorization": "Bearer secret" });
    let transport = json!({ "url": "https://mcp.example/mcp", "headers": headers });
    let server = json!({ "name": "wiki", "streamableHttpTransport": transport });
    check_tool(
        mcp_server(),
        "server_tools.mcp",
        &[
            (Wire::Messages, json!({ "type": "mcp_toolset", "mcp_server_name": "wiki" })),
            (Wire::Responses, responses),
            (Wire::Gemini, json!({ "mcpServers": [server] })),
        ],
    );
    let limited = McpServer { allowed_tools: vec!["search".into()], ..mcp_server() };
    let body = Wire::Messages.encode(&with_tool(limited.clone())).unwrap();
    let server = json!({ "type": "url", "name": "wiki", "url": "https://mcp.example/mcp",
        "authorization_token": "secret" });
    assert_eq!(body["mcp_servers"], json!([server]));
    let toolset = json!({ "type": "mcp_toolset", "mcp_server_name": "wiki",
        "default_config": { "enabled": false }, "configs": { "search": { "enabled": true } } });
    assert_eq!(body["tools"][1], toolset);
    let body = Wire::Responses.encode(&with_tool(limited)).unwrap();
    assert_eq!(body["tools"][1]["allowed_tools"], json!(["search"]));
}

#[test]
fn approvals_of_calls_to_an_mcp_server_are_requested_or_refused() {
    let server = McpServer { require_approval: true, ..mcp_server() };
    let mut request = with_tool(server.clone());
    let error = Wire::Responses.encode(&request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("no tool approves the calls of the MCP server"), "{error}");
    let parameter = "server_tools.mcp.require_approval";
    assert_eq!(error.parameter(), Some(parameter));
    let of_another = ClientTool::McpApproval { server: "another".to_owned() };
    request = request.with_tools([of_another.spec()]);
    assert_eq!(Wire::Responses.encode(&request).unwrap_err().parameter(), Some(parameter));
    request = request.with_tools([ClientTool::McpApproval { server: server.name }.spec()]);
    let body = Wire::Responses.encode(&request).unwrap();
    assert_eq!(body["tools"][0]["require_approval"], "always");
    for wire in [Wire::Messages, Wire::Gemini] {
        let error = wire.encode(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{wire:?}");
        assert_eq!(error.parameter(), Some("server_tools.mcp.require_approval"), "{wire:?}");
    }
}

#[test]
fn the_outputs_of_hosted_tools_are_requested() {
    let include = |tool: ServerTool| {
        let body = Wire::Responses.encode(&with_tool(tool)).unwrap();
        serde_json::from_value::<Vec<String>>(body["include"].clone()).unwrap()
    };
    let reasoning = "reasoning.encrypted_content";
    let outputs = "code_interpreter_call.outputs";
    assert_eq!(include(CodeExecution::default().into()), [reasoning, outputs]);
    assert_eq!(include(FileSearch::default().into()), [reasoning, "file_search_call.results"]);
    assert_eq!(include(WebSearch::default().into()), [reasoning]);
}

#[test]
fn stored_options_do_not_contain_a_token_and_a_request_without_it_is_refused() {
    let options = with_tool(mcp_server()).options;
    let json = serde_json::to_string(&options).unwrap();
    assert!(!json.contains("secret") && !format!("{options:?}").contains("secret"), "{json}");
    let stored: Options = serde_json::from_str(&json).unwrap();
    assert_eq!(stored, options);
    let error = Wire::Responses.encode(&hello().with_options(stored)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.parameter(), Some("server_tools.mcp"));
}

#[test]
fn a_vendors_own_tool_is_sent_to_this_vendor_only() {
    let declaration = json!({ "type": "image_generation", "quality": "low" });
    let tool = VendorTool::new("openai_responses", declaration.clone());
    check_tool(tool, "server_tools.vendor", &[(Wire::Responses, declaration)]);
    let declaration = json!({ "type": "custom", "custom": { "name": "sql" } });
    let tool = VendorTool::new("openai_chat", declaration.clone());
    check_tool(tool, "server_tools.vendor", &[(Wire::Chat, declaration)]);
    let declaration = json!({ "type": "function", "function": { "name": "web_search" } });
    let tool = VendorTool::new("ollama", declaration.clone());
    check_tool(tool, "server_tools.vendor", &[(Wire::Ollama, declaration)]);
}

#[test]
fn server_tools_alone_are_the_only_tools() {
    let options = with_tool(CodeExecution::default()).options;
    let request = hello().with_options(options);
    for (wire, tool) in [
        (Wire::Messages, json!({ "type": "code_execution_20250825", "name": "code_execution" })),
        (Wire::Responses, json!({ "type": "code_interpreter", "container": { "type": "auto" } })),
        (Wire::Gemini, json!({ "codeExecution": {} })),
    ] {
        let body = wire.encode(&request).unwrap();
        assert_eq!(body["tools"], json!([tool]), "{wire:?}");
        assert_eq!(body["toolConfig"], Value::Null, "{wire:?}");
    }
}

#[test]
fn gemini_is_asked_to_combine_server_tools_with_own_tools_and_older_models_refuse() {
    let request = with_tool(WebSearch::default());
    let body = Wire::Gemini.encode(&request).unwrap();
    assert_eq!(body["toolConfig"], json!({ "includeServerSideToolInvocations": true }));
    let error = gemini::encode(&request, "gemini-2.5-flash").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.parameter(), Some("server_tools"));
    let alone = hello().with_options(request.options);
    assert!(gemini::encode(&alone, "gemini-2.5-flash").is_ok());
}

#[test]
fn an_own_tool_with_the_name_of_a_server_tool_is_refused() {
    let own = ToolSpec::new("web_search", "Mine", json!({ "type": "object" }));
    let request = with_tool(WebSearch::default()).with_tools([own]);
    let error = Wire::Messages.encode(&request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("web_search"), "{error}");
}

#[cfg(feature = "http")]
mod over_http {
    use turnstream::http::{Credential, HttpClient};
    use turnstream::item::{ProviderData, RawJson};
    use turnstream::provider::{Anthropic, Gemini, Reply};
    use turnstream::{Provider, TurnStreamExt};
    use turnstream_testing::ModelServer;

    use super::*;

    #[tokio::test]
    async fn an_mcp_server_enables_the_connector_and_its_items_are_sent_back() {
        let server = ModelServer::anthropic(|_, _| Reply::text("ok")).await.unwrap();
        let model = Anthropic::new("claude-sonnet-4-5")
            .with_api_key("k")
            .with_base_url(server.url())
            .unwrap()
            .with_http_client(HttpClient::without_proxy());
        let mut request = with_tool(mcp_server());
        let call = json!({ "type": "mcp_tool_use", "id": "mcptoolu_1", "name": "search",
            "server_name": "wiki", "input": {}, "unknown": [1] });
        let result = json!({ "type": "mcp_tool_result", "tool_use_id": "mcptoolu_1",
            "is_error": false, "content": [], "later": { "b": 1, "a": 2 } });
        for value in [&call, &result] {
            let (provider, model) = ("anthropic".to_owned(), "claude-sonnet-4-5".to_owned());
            let value = RawJson::from(value.clone());
            let data = ProviderData { provider, model, value };
            request.history.push(Item::provider_item(data));
        }
        request.history.extend([Item::text("So."), Item::user("And?")]);
        request.context = request.history.clone();
        model.stream_turn(request).into_turn().await.unwrap();
        let sent = &server.http_server().requests()[0];
        assert_eq!(sent.header("anthropic-beta"), Some("mcp-client-2025-11-20"));
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(body["messages"][1]["content"][0], call);
        assert_eq!(body["messages"][1]["content"][1], result);
    }

    #[tokio::test]
    async fn vertex_refuses_the_server_tools_that_it_lacks_before_anything_is_sent() {
        let token = || Credential::key("k");
        let claude = Anthropic::vertex("p", "global", "claude-sonnet-4-5").unwrap();
        let gemini = Gemini::vertex("p", "global", "gemini-3-pro").unwrap();
        let alone = |tool: ServerTool| hello().with_options(with_tool(tool).options);
        let search = FileSearch { stores: vec!["s".into()], max_results: None };
        let combined = with_tool(WebSearch::default());
        for (error, parameter) in [
            (
                claude.with_credential(token()).stream_turn(alone(mcp_server().into())),
                "server_tools.mcp",
            ),
            (
                gemini.clone().with_credential(token()).stream_turn(alone(search.into())),
                "server_tools.file_search",
            ),
            (gemini.with_credential(token()).stream_turn(combined), "server_tools"),
        ] {
            let error = error.into_turn().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert_eq!(error.parameter(), Some(parameter));
        }
    }
}
