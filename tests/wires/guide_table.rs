//! Generates the guide's tables of the options, the content and the media that each wire supports,
//! by calling the encoders. A test fails if the guide's table differs; `UPDATE_GUIDE=1 cargo test
//! --test wires table` rewrites the tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};
use turnstream::item::{
    Content, ItemFlag, ItemKind, MediaSource, Part, ProviderData, RawJson, ResultKind, ToolResult,
};
use turnstream::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use turnstream::request::{
    Cache, ClientTool, CodeExecution, Effort, FileSearch, McpServer, Options, Output, OutputSchema,
    PromptCacheRetention, Reasoning, ReasoningSummary, ServerTool, ServiceTier, ToolChoice,
    ToolSpec, Verbosity, WebFetch, WebSearch,
};
use turnstream::{Error, ErrorKind, History, Item, Request};

const MODEL: &str = "any";
const TABLE_BEGIN: &str = "<!-- the table below is made by tests/wires/guide_table.rs -->";
const TABLE_END: &str = "<!-- end of the table -->";

/// A wire of the table.
struct TableWire {
    name: &'static str,
    /// The name in provider data.
    provider: &'static str,
    /// A current model, because some options depend on the model.
    model: &'static str,
    encode: fn(&Request, &str) -> Result<Vec<u8>, Error>,
}

impl TableWire {
    fn encode(&self, request: &Request) -> Result<Vec<u8>, Error> {
        (self.encode)(request, self.model)
    }
}

const WIRES: &[TableWire] = &[
    TableWire {
        name: "Messages",
        provider: "anthropic",
        model: "claude-opus-5-5",
        encode: anthropic::encode,
    },
    TableWire {
        name: "Chat",
        provider: "openai_chat",
        model: "gpt-5.6",
        encode: |request, model| openai_chat::encode(request, model, &openai_chat::Dialect::OPENAI),
    },
    TableWire {
        name: "Chat, strict",
        provider: "openai_compatible",
        model: MODEL,
        encode: |request, model| {
            openai_chat::encode(request, model, &openai_chat::Dialect::MINIMAL)
        },
    },
    TableWire {
        name: "Responses",
        provider: "openai_responses",
        model: "gpt-5.6",
        encode: openai_responses::encode,
    },
    TableWire { name: "Gemini", provider: "gemini", model: "gemini-3-pro", encode: gemini::encode },
    TableWire {
        name: "Ollama",
        provider: "ollama",
        model: "qwen3",
        encode: |request, model| ollama::encode(request, model, &ollama::Chat::default()),
    },
];

#[test]
fn the_guides_wire_table_matches_the_encoders() {
    let options = render_table("Option", &option_rows());
    let content = render_table("Content", &content_table(content_rows()));
    check_tables_of_page("providers.md", TABLE_BEGIN, &format!("{options}\n{content}"));
}

#[test]
fn the_guides_media_table_matches_the_encoders() {
    let wires = render_table("Parts", &merge_equal_rows(content_table(media_rows())));
    check_tables_of_page("media.md", TABLE_BEGIN, &format!("{wires}\n{}", dialect_table()));
}

/// The parts of user messages that each dialect of the Chat wire accepts.
fn dialect_table() -> String {
    let url = || MediaSource::Url("https://a.example/MARK".into());
    let parts = [
        ("images", Part::image("image/png", BASE64_MARK)),
        ("images by URL", Part::image("image/png", url())),
        ("files and audio", Part::file("application/pdf", BASE64_MARK)),
        ("files by URL", Part::file("application/pdf", url())),
    ];
    let mut out = "| Dialects |".to_owned();
    for (name, _) in &parts {
        write!(out, " {name} |").unwrap();
    }
    out += "\n|---|---|---|---|---|\n";
    let rows = openai_chat::Dialect::ALL.iter().map(|dialect| {
        let constant = match dialect.name {
            "openai_compatible" => "MINIMAL".to_owned(),
            "openai_chat" => "OPENAI".to_owned(),
            name => name.to_uppercase(),
        };
        let cells = parts.iter().map(|(_, part)| {
            let request = request_with_items([Item::user(vec![part.clone()])]);
            match openai_chat::encode(&request, MODEL, dialect) {
                Err(error) => refused_cell(&error),
                Ok(body) => mark_position(&parse_json(&body)),
            }
        });
        (format!("`{constant}`"), cells.collect())
    });
    for (names, cells) in merge_equal_rows(rows.collect()) {
        writeln!(out, "| {names} | {} |", cells.join(" | ")).unwrap();
    }
    out
}

/// Checks the tables of a page between the line `begin` and the next end of a table.
#[track_caller]
pub(crate) fn check_tables_of_page(page: &str, begin: &str, tables: &str) {
    static UPDATES: Mutex<()> = Mutex::new(());
    // Several tests update the same page.
    let _update = UPDATES.lock();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide").join(page);
    let text = fs::read_to_string(&guide).unwrap();
    let (head, rest) = text.split_once(begin).expect("the table has its begin");
    let (said, tail) = rest.split_once(TABLE_END).expect("the table has its end");
    let made = format!("\n\n{tables}\n");
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        fs::write(&guide, format!("{head}{begin}{made}{TABLE_END}{tail}")).unwrap();
        return;
    }
    assert!(said == made, "the guide says:\n{said}\nand the encoders do:\n{made}");
}

/// The documentation of an option without effect must say so.
#[test]
fn no_option_is_silently_ignored_unless_documented() {
    for (option, cells) in option_rows() {
        for (TableWire { name: wire, .. }, cell) in WIRES.iter().zip(cells) {
            let may_do_nothing = option.starts_with("`cache`");
            assert!(cell != "nothing" || may_do_nothing, "{option} does nothing on {wire}");
        }
    }
}

/// One row: its name, and the cell of each wire.
type TableRow = (String, Vec<String>);

fn render_table(head: &str, rows: &[TableRow]) -> String {
    let mut out = format!("| {head} |");
    for TableWire { name, .. } in WIRES {
        write!(out, " {name} |").unwrap();
    }
    writeln!(out, "\n|---|{}", "---|".repeat(WIRES.len())).unwrap();
    for (name, cells) in rows {
        writeln!(out, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
    out
}

/// Joins the names of rows with equal cells.
fn merge_equal_rows(rows: Vec<TableRow>) -> Vec<TableRow> {
    let mut merged: Vec<TableRow> = Vec::new();
    for (name, cells) in rows {
        match merged.iter_mut().find(|(_, others)| *others == cells) {
            Some((names, _)) => write!(names, ", {name}").unwrap(),
            None => merged.push((name, cells)),
        }
    }
    merged
}

fn base_request() -> Request {
    let mut history = History::empty("table");
    history.push(Item::user("hello"));
    let tool = ToolSpec::new(
        "add",
        "adds",
        json!({ "type": "object", "properties": { "a": { "type": "integer" } } }),
    );
    Request::new(history).with_tools([tool])
}

fn option_rows() -> Vec<TableRow> {
    let schema = OutputSchema {
        name: "answer".into(),
        schema: json!({ "type": "object", "properties": { "n": { "type": "integer" } },
            "required": ["n"], "additionalProperties": false }),
    };
    let set: Vec<(&str, Options)> = vec![
        ("`max_output_tokens`", Options { max_output_tokens: Some(77), ..Options::default() }),
        ("`temperature`", Options { temperature: Some(0.5), ..Options::default() }),
        ("`top_p`", Options { top_p: Some(0.5), ..Options::default() }),
        ("`top_k`", Options { top_k: Some(5), ..Options::default() }),
        ("`seed`", Options { seed: Some(5), ..Options::default() }),
        ("`frequency_penalty`", Options { frequency_penalty: Some(0.5), ..Options::default() }),
        ("`presence_penalty`", Options { presence_penalty: Some(0.5), ..Options::default() }),
        ("`stop_sequences`", Options { stop_sequences: vec!["END".into()], ..Options::default() }),
        ("`tool_choice`: none", tool_choice_options(ToolChoice::None)),
        ("`tool_choice`: required", tool_choice_options(ToolChoice::Required)),
        ("`tool_choice`: one tool", tool_choice_options(ToolChoice::Tool("add".into()))),
        (
            "`tool_choice`: some tools",
            tool_choice_options(ToolChoice::Allowed { names: vec!["add".into()], required: false }),
        ),
        (
            "`parallel_tool_calls`: off",
            Options { parallel_tool_calls: Some(false), ..Options::default() },
        ),
        ("`reasoning`: off", reasoning_options(Reasoning::Off)),
        ("`reasoning`: effort, minimal", reasoning_options(Reasoning::Effort(Effort::Minimal))),
        ("`reasoning`: effort, high", reasoning_options(Reasoning::Effort(Effort::High))),
        ("`reasoning`: effort, xhigh", reasoning_options(Reasoning::Effort(Effort::XHigh))),
        ("`reasoning`: effort, max", reasoning_options(Reasoning::Effort(Effort::Max))),
        ("`reasoning`: budget", reasoning_options(Reasoning::Budget(2_000))),
        (
            "`reasoning_summary`: off",
            Options {
                reasoning_summary: Some(ReasoningSummary::Off),
                ..reasoning_options(Reasoning::Effort(Effort::High))
            },
        ),
        (
            "`reasoning_summary`: detailed",
            Options {
                reasoning_summary: Some(ReasoningSummary::Detailed),
                ..reasoning_options(Reasoning::Effort(Effort::High))
            },
        ),
        ("`verbosity`", Options { verbosity: Some(Verbosity::Low), ..Options::default() }),
        ("`service_tier`: standard", service_tier_options(ServiceTier::Standard)),
        ("`service_tier`: flex", service_tier_options(ServiceTier::Flex)),
        ("`logprobs`", Options { logprobs: Some(3), ..Options::default() }),
        (
            "`prompt_cache_key`",
            Options { prompt_cache_key: Some("k".into()), ..Options::default() },
        ),
        (
            "`prompt_cache_retention`",
            Options {
                prompt_cache_retention: Some(PromptCacheRetention::Day),
                ..Options::default()
            },
        ),
        ("`output`: JSON", Options { output: Output::Json, ..Options::default() }),
        ("`output`: schema", Options { output: Output::Schema(schema), ..Options::default() }),
        ("`cache`: off", Options { cache: Cache::Off, ..Options::default() }),
        ("`cache`: long", Options { cache: Cache::Long, ..Options::default() }),
        ("`user`", Options { user: Some("u-1".into()), ..Options::default() }),
        (
            "`metadata`",
            Options { metadata: BTreeMap::from([("k".into(), "v".into())]), ..Options::default() },
        ),
        (
            "`extra`",
            Options {
                extra: json!({ "x": 1 }).as_object().cloned().unwrap_or_default(),
                ..Options::default()
            },
        ),
    ];
    let mut cited = base_request();
    let report = Part::file("application/pdf", BASE64_MARK);
    cited.history.push(Item::user(vec![report]));
    cited.context = cited.history.clone();
    let uncited = cited.clone();
    cited.options.citations = true;
    let option_rows =
        set.into_iter().map(|(name, options)| (name, base_request().with_options(options)));
    let plain = base_request();
    let rows = option_rows.chain(tool_rows()).map(|(name, set)| table_row(name, &plain, &set));
    rows.chain([table_row("`citations`", &uncited, &cited)]).collect()
}

/// Requests with a tool that not every wire has.
fn tool_rows() -> Vec<(&'static str, Request)> {
    let mut strict = base_request();
    strict.tools = strict.tools.iter().cloned().map(|tool| tool.with_strict(true)).collect();
    let beside_own = |client_tool: ClientTool, mut request: Request| {
        request.tools = request.tools.iter().cloned().chain([client_tool.spec()]).collect();
        request
    };
    let server = McpServer { require_approval: true, ..McpServer::default() };
    let approval = ClientTool::McpApproval { server: server.name.clone() };
    let with_approvals = beside_own(approval, with_server_tool(server));
    let with_client_tool = beside_own(ClientTool::Shell, base_request());
    vec![
        ("a strict tool", strict),
        ("`server_tools`: web search", with_server_tool(WebSearch::default())),
        ("`server_tools`: web fetch", with_server_tool(WebFetch::default())),
        ("`server_tools`: code execution", with_server_tool(CodeExecution::default())),
        ("`server_tools`: file search", with_server_tool(FileSearch::default())),
        ("`server_tools`: MCP server", with_server_tool(McpServer::default())),
        ("`server_tools`: MCP server, approvals", with_approvals),
        ("a client tool", with_client_tool),
    ]
}

/// The plain request, with a server tool beside its own tool.
fn with_server_tool(tool: impl Into<ServerTool>) -> Request {
    let server_tools = vec![tool.into()];
    base_request().with_options(Options { server_tools, ..Options::default() })
}

/// Encodes a request on each wire, and compares the body with that of a request without the option.
fn table_row(name: &str, without: &Request, set: &Request) -> TableRow {
    let cells = WIRES.iter().map(|wire| match wire.encode(set) {
        Err(error) => refused_cell(&error),
        Ok(body) if wire.encode(without).is_ok_and(|without| without == body) => {
            "nothing".to_owned()
        }
        Ok(body) => effort_cell(set, &parse_json(&body)).unwrap_or("carried").to_owned(),
    });
    (name.to_owned(), cells.collect())
}

/// Whether a body contains the effort that a request sets, or another one.
fn effort_cell(request: &Request, body: &Value) -> Option<&'static str> {
    let Some(Reasoning::Effort(effort)) = request.options.reasoning else { return None };
    let wanted = serde_json::to_value(effort).unwrap();
    let sent = [
        &body["output_config"]["effort"],
        &body["reasoning_effort"],
        &body["reasoning"]["effort"],
        &body["generationConfig"]["thinkingConfig"]["thinkingLevel"],
        &body["think"],
    ];
    let sent = sent.into_iter().find(|value| !value.is_null()).expect("an effort is sent");
    Some(match sent {
        Value::Bool(_) => "switched on",
        sent if *sent == wanted => "carried",
        _ => "nearest level",
    })
}

fn tool_choice_options(tool_choice: ToolChoice) -> Options {
    Options { tool_choice, ..Options::default() }
}

fn service_tier_options(service_tier: ServiceTier) -> Options {
    Options { service_tier: Some(service_tier), ..Options::default() }
}

fn reasoning_options(reasoning: Reasoning) -> Options {
    Options { reasoning: Some(reasoning), ..Options::default() }
}

fn refused_cell(error: &Error) -> String {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.parameter().is_some(), "it says which: {error}");
    "refused".to_owned()
}

/// The texts that are searched for in a body: `MARK` in base64 and in plain text.
const BASE64_MARK: &str = "TUFSSw==";
const PLAIN_MARK: &str = "MARK";

const INSTRUCTION_ROW: &str = "an instruction between messages";
const FAILED_RESULT_ROW: &str = "a failed result";

/// The items of a row, for the wire that encodes them.
type ItemsForWire = Box<dyn Fn(&str) -> Vec<Item>>;

/// A row's name, and its items for the wire that encodes them.
type ContentRow = (&'static str, ItemsForWire);

fn content_rows() -> Vec<ContentRow> {
    let turn = |item: Item| vec![Item::user("hello"), item, Item::text("so"), Item::user("on")];
    vec![
        (INSTRUCTION_ROW, Box::new(move |_| turn(Item::system(PLAIN_MARK)))),
        ("a result", Box::new(|_| items_with_result(ResultKind::Ok, PLAIN_MARK.into()))),
        (FAILED_RESULT_ROW, Box::new(|_| items_with_result(ResultKind::Error, PLAIN_MARK.into()))),
        ("unsigned reasoning", Box::new(move |_| turn(Item::reasoning(PLAIN_MARK)))),
        (
            "text of a turn that was cut off",
            Box::new(move |_| turn(Item::text(PLAIN_MARK).with_flag(ItemFlag::Interrupted))),
        ),
        (
            "arguments that are not JSON",
            Box::new(|_| {
                let mut items = items_with_result(ResultKind::InvalidArguments, "no".into());
                items[1] = Item::tool_call("c1", "add", "{MARK");
                items
            }),
        ),
        (
            "the provider's own item",
            Box::new(move |wire| {
                let model = WIRES.iter().find(|known| known.provider == wire).unwrap().model;
                turn(Item::provider_item(provider_data(wire, model)))
            }),
        ),
        (
            "another model's own item",
            Box::new(move |wire| turn(Item::provider_item(provider_data(wire, "other")))),
        ),
    ]
}

fn media_rows() -> Vec<ContentRow> {
    const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    let image = |media_type: &'static str| Part::image(media_type, BASE64_MARK);
    let file = |media_type: &'static str| Part::file(media_type, BASE64_MARK);
    let url = |name: &str| MediaSource::Url(format!("https://a.example/{name}").into());
    // The id has the form of the vendor's ids.
    let id = |wire: &str| {
        let prefix = match wire {
            "anthropic" => "file_",
            "gemini" => "files/",
            _ => "file-",
        };
        MediaSource::FileId(format!("{prefix}MARK").into())
    };
    let named = || Part::file("application/pdf", b"%PDF-1.7").with_name("MARK.pdf");
    let user = |part: Part| vec![Item::user(vec!["look".into(), part])];
    let result = |part: Part| items_with_result(ResultKind::Ok, part.into());
    vec![
        ("an image: PNG, JPEG, GIF or WebP", Box::new(move |_| user(image("image/png")))),
        ("an image of another type", Box::new(move |_| user(image("image/bmp")))),
        ("an image by URL", Box::new(move |_| user(Part::image("image/png", url("MARK.png"))))),
        ("an image by id", Box::new(move |wire| user(Part::image("image/png", id(wire))))),
        ("an image as a file", Box::new(move |_| user(file("image/png")))),
        ("a PDF", Box::new(move |_| user(file("application/pdf")))),
        ("the name of a PDF", Box::new(move |_| user(named()))),
        ("a PDF by URL", Box::new(move |_| user(Part::file("application/pdf", url("MARK.pdf"))))),
        ("a PDF by id", Box::new(move |wire| user(Part::file("application/pdf", id(wire))))),
        ("a text file", Box::new(move |_| user(file("text/plain")))),
        ("an office document", Box::new(move |_| user(file(DOCX)))),
        ("audio", Box::new(move |_| user(file("audio/wav")))),
        ("a video", Box::new(move |_| user(file("video/mp4")))),
        ("an image in a result", Box::new(move |_| result(image("image/png")))),
        ("a PDF in a result", Box::new(move |_| result(file("application/pdf")))),
    ]
}

/// A call and its result.
fn items_with_result(kind: ResultKind, content: Content) -> Vec<Item> {
    let (call_id, name) = ("c1".to_owned(), "add".to_owned());
    vec![
        Item::user("hello"),
        Item::tool_call("c1", "add", "{}"),
        Item::tool_result(ToolResult { call_id, name, content, kind, report: None }),
    ]
}

/// Encodes each row on each wire.
fn content_table(rows: Vec<ContentRow>) -> Vec<TableRow> {
    rows.into_iter()
        .map(|(name, items)| {
            let cells = WIRES.iter().map(|wire| {
                let items = items(wire.provider);
                match wire.encode(&request_with_items(items.clone())) {
                    Err(error) => refused_cell(&error),
                    Ok(body) => {
                        let body = parse_json(&body);
                        special_row_cell(name, &items, &body, wire)
                            .unwrap_or_else(|| mark_position(&body))
                    }
                }
            });
            (name.to_owned(), cells.collect())
        })
        .collect()
}

fn provider_data(wire: &str, model: &str) -> ProviderData {
    let value =
        RawJson::from(json!({ "type": "web_search_call", "id": "ws", "status": PLAIN_MARK }));
    ProviderData { provider: wire.into(), model: model.into(), value }
}

/// How the mark occurs in a body.
fn mark_position(body: &Value) -> String {
    let holds = |value: &Value| {
        let text = value.to_string();
        text.contains(PLAIN_MARK) || text.contains(BASE64_MARK)
    };
    if body.to_string().contains("was omitted, because this model cannot receive it") {
        return "described".to_owned();
    }
    if !holds(body) {
        return "left out".to_owned();
    }
    if body.to_string().contains("INVALID_JSON") {
        return "wrapped".to_owned();
    }
    let messages = ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array());
    let Some(messages) = messages else { return "carried".to_owned() };
    let answers = |message: &&Value| {
        ["tool_result", "\"tool\"", "function_call_output", "functionResponse"]
            .iter()
            .any(|word| message.to_string().contains(word))
    };
    let last = messages.iter().rfind(|message| holds(message));
    let is_behind = messages.iter().any(|message| answers(&message))
        && last.is_some_and(|last| !answers(&last) && last["role"] == "user");
    if is_behind { "after the results" } else { "carried" }.to_owned()
}

/// Whether instructions between messages, and failed calls, are encoded as such.
fn special_row_cell(name: &str, items: &[Item], body: &Value, wire: &TableWire) -> Option<String> {
    let said_by = |role: &str| {
        let messages =
            ["messages", "input", "contents"].iter().find_map(|name| body[name].as_array());
        let mut of_role = messages.into_iter().flatten().filter(|message| message["role"] == role);
        of_role.any(|message| message.to_string().contains(PLAIN_MARK))
    };
    match name {
        INSTRUCTION_ROW if said_by("user") => Some("as a user message".to_owned()),
        FAILED_RESULT_ROW => {
            let succeeded = items.iter().cloned().map(|item| match item.kind {
                ItemKind::ToolResult(result) => {
                    Item::tool_result(ToolResult { kind: ResultKind::Ok, ..result })
                }
                _ => item,
            });
            let same = wire
                .encode(&request_with_items(succeeded))
                .is_ok_and(|bytes| &parse_json(&bytes) == body);
            same.then(|| "in the text".to_owned())
        }
        _ => None,
    }
}

fn request_with_items(items: impl IntoIterator<Item = Item>) -> Request {
    let mut history = History::empty("table");
    history.extend(items);
    Request::new(history).with_tools(base_request().tools)
}

fn parse_json(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("a body is JSON")
}
