//! Lists of tools, resources, templates and prompts: their pages and their order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;
use turnstream::event::AppendReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event};
use turnstream_mcp::Client;

use crate::raw_server::{discovered, listed, raw_client};

/// The lists of a server: the method, the field of the entries, and an entry with a name.
type Entry = fn(&str) -> Value;
const LISTS: [(&str, &str, Entry); 4] = [
    ("tools/list", "tools", |name| json!({ "name": name, "inputSchema": { "type": "object" } })),
    ("resources/list", "resources", |name| json!({ "uri": name, "name": name })),
    (
        "resources/templates/list",
        "resourceTemplates",
        |name| json!({ "uriTemplate": name, "name": name }),
    ),
    ("prompts/list", "prompts", |name| json!({ "name": name })),
];

/// A client of a server that answers a list request with the names and the next cursor that `page`
/// returns for a cursor, or with an error for `None`.
fn client_of_pages(
    page: impl Fn(Option<&str>) -> Option<(Vec<&'static str>, Option<&'static str>)>
    + Send
    + Sync
    + 'static,
) -> Client {
    raw_client(move |_, message, out| {
        let method = message["method"].as_str().unwrap_or_default();
        if method == "server/discover" {
            let mut result = discovered();
            result["capabilities"] = json!({ "tools": {}, "resources": {}, "prompts": {} });
            return out.result(&message, result);
        }
        let Some((_, field, entry)) = LISTS.iter().find(|list| list.0 == method) else { return };
        match page(message["params"]["cursor"].as_str()) {
            Some((names, next)) => {
                let entries: Vec<Value> = names.into_iter().map(entry).collect();
                let mut result =
                    json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
                result[field] = entries.into();
                result["nextCursor"] = next.map_or(Value::Null, Value::from);
                out.result(&message, result);
            }
            None => out.send(&json!({
                "jsonrpc": "2.0", "id": message["id"],
                "error": { "code": -32602, "message": "invalid cursor" },
            })),
        }
    })
}

/// The names in each list of a server, without the prefix of its tools.
async fn names_in_lists(client: &Client) -> [Vec<String>; 4] {
    let kit = client.toolkit().await.unwrap();
    let tools = kit.specs().iter().map(|tool| tool.name.replace("s__", "")).collect();
    let uris = |list: Vec<turnstream_mcp::Resource>| list.into_iter().map(|it| it.uri).collect();
    let resources = uris(client.resources().await.unwrap());
    let templates = uris(client.resource_templates().await.unwrap());
    let prompts = client.prompts().await.unwrap().into_iter().map(|it| it.name).collect();
    [tools, resources, templates, prompts]
}

#[track_caller]
fn assert_names(lists: &[Vec<String>; 4], names: &[&str]) {
    for (list, (_, field, _)) in lists.iter().zip(LISTS) {
        assert_eq!(list, names, "{field}");
    }
}

#[track_caller]
fn assert_end_notes(client: &Client, why: &str) {
    let notes = client.notes();
    assert_eq!(notes.len(), LISTS.len(), "{notes:?}");
    for (_, field, _) in LISTS {
        let note = format!(
            "the MCP server `s` lists its {field} with a cursor that {why}, and the list ends there"
        );
        assert!(notes.contains(&note), "{notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_cursor_ends_each_list_with_a_note() {
    for cursor in ["", "same"] {
        let client = client_of_pages(move |_| Some((vec!["a", "b"], Some(cursor))));
        assert_names(&names_in_lists(&client).await, &["a", "b"]);
        assert_end_notes(&client, "repeats an earlier one");
    }
}

#[tokio::test(start_paused = true)]
async fn cursors_that_form_a_circle_end_each_list_with_all_of_its_pages() {
    let client = client_of_pages(|cursor| match cursor {
        None => Some((vec!["a"], Some("1"))),
        Some("1") => Some((vec!["b"], Some("2"))),
        _ => Some((vec!["c"], Some("1"))),
    });
    assert_names(&names_in_lists(&client).await, &["a", "b", "c"]);
    assert_end_notes(&client, "repeats an earlier one");
}

#[tokio::test(start_paused = true)]
async fn an_empty_cursor_leads_to_the_next_page_if_there_is_one() {
    let client = client_of_pages(|cursor| match cursor {
        None => Some((vec!["a"], Some(""))),
        Some(_) => Some((vec!["b"], None)),
    });
    assert_names(&names_in_lists(&client).await, &["a", "b"]);
    assert!(client.notes().is_empty(), "{:?}", client.notes());
}

#[tokio::test(start_paused = true)]
async fn an_empty_cursor_that_the_server_rejects_ends_each_list_with_a_note() {
    let client = client_of_pages(|cursor| match cursor {
        None => Some((vec!["a"], Some(""))),
        Some(_) => None,
    });
    assert_names(&names_in_lists(&client).await, &["a"]);
    assert_end_notes(&client, "is empty");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_cursor_that_is_not_empty_is_an_error() {
    let client = client_of_pages(|cursor| cursor.is_none().then(|| (vec!["a"], Some("next"))));
    assert!(client.toolkit().await.unwrap_err().message().contains("invalid cursor"));
}

#[tokio::test(start_paused = true)]
async fn the_note_about_a_list_is_gone_once_the_list_has_an_end() {
    let has_end = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&has_end);
    let client = client_of_pages(move |_| {
        let next = if ends.load(Ordering::SeqCst) { None } else { Some("same") };
        Some((vec!["a"], next))
    });
    client.prompts().await.unwrap();
    assert_eq!(client.notes().len(), 1);
    has_end.store(true, Ordering::SeqCst);
    client.prompts().await.unwrap();
    assert!(client.notes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_clients_get_each_list_in_the_same_order() {
    let one = client_of_pages(|_| Some((vec!["b", "c", "a"], None)));
    let other = client_of_pages(|_| Some((vec!["c", "a", "b"], None)));
    assert_names(&names_in_lists(&one).await, &["a", "b", "c"]);
    assert_names(&names_in_lists(&other).await, &["a", "b", "c"]);
    assert_eq!(one.fingerprints().await.unwrap(), other.fingerprints().await.unwrap());
}

/// A client of a server that closes the connection after each call, and lists its tools and the
/// fields of their schemas in another order each time.
fn client_of_shuffled_tools() -> Client {
    let count = Mutex::new(0);
    let client =
        raw_client(move |_, message, out| match message["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                let mut result = discovered();
                result["capabilities"] = json!({ "tools": {} });
                out.result(&message, result);
            }
            "tools/list" => {
                let mut count = count.lock().unwrap();
                *count += 1;
                let schema = match *count % 2 {
                    0 => r#"{"type":"object","properties":{"x":{},"y":{}},"required":["x","y"]}"#,
                    _ => r#"{"required":["y","x"],"properties":{"y":{},"x":{}},"type":"object"}"#,
                };
                let schema: Value = serde_json::from_str(schema).unwrap();
                let mut tools = ["a", "b", "c"].map(
                    |name| json!({ "name": name, "description": name, "inputSchema": schema }),
                );
                tools.rotate_left(*count % 3);
                let mut result =
                    json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
                result["tools"] = tools.into_iter().collect();
                out.result(&message, result);
            }
            "tools/call" => {
                let content = json!([{ "type": "text", "text": "fine" }]);
                out.result(&message, json!({ "resultType": "complete", "content": content }));
                out.end();
            }
            _ => {}
        });
    client.trusted()
}

#[tokio::test(start_paused = true)]
async fn a_list_in_another_order_is_not_a_change() {
    let call = || Reply::new().call("s__a", json!({ "x": 1, "y": 2 }));
    let model = Scripted::new([call(), call(), call(), Reply::text("done")]);
    let client = client_of_shuffled_tools();
    let mut run = Agent::new(model.clone()).with_tool_source(client.clone()).run("go");
    let (mut notices, mut results) = (Vec::new(), Vec::new());
    while let Some(event) = run.next().await {
        match event.unwrap() {
            Event::Appended { why: AppendReason::Hook, items, .. } => notices.extend(items),
            event => results.extend(event.tool_output().map(|result| result.content.text())),
        }
    }
    assert_eq!(results, ["fine"; 3], "no call is denied");
    assert!(notices.is_empty(), "{notices:?}");
    let requests = model.requests();
    let offered = |at: usize| serde_json::to_string(&requests[at].tools).unwrap();
    assert_eq!(requests.len(), 4);
    assert!((1..requests.len()).all(|at| offered(at) == offered(0)));
    assert!(client.notes().is_empty(), "{:?}", client.notes());
}

#[tokio::test(start_paused = true)]
async fn the_delay_before_subscribing_again_doubles_up_to_a_minute() {
    let subscribed_at: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let log = Arc::clone(&subscribed_at);
    let client = raw_client(move |_, message, out| match message["method"].as_str() {
        Some("server/discover") => out.result(&message, discovered()),
        Some("tools/list") => out.result(&message, listed(&json!([]))),
        Some("subscriptions/listen") => {
            log.lock().unwrap().push(Instant::now());
            let error = json!({ "code": -32603, "message": "not now" });
            out.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
        }
        _ => {}
    });
    client.toolkit().await.unwrap();
    tokio::time::sleep(Duration::from_mins(5)).await;
    let times = subscribed_at.lock().unwrap();
    let delays: Vec<u64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(delays[..8], [1, 2, 4, 8, 16, 32, 60, 60]);
    drop(client);
}
