//! Content is recorded only if it is asked for.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::Value;
use turnstream_otel::{ContentKind, Telemetry};

use crate::recorder::Recorder;
use crate::scenarios::{SECRET, scenario};
use crate::trees::recorded_telemetry;

async fn record(name: &str, change: impl FnOnce(Telemetry) -> Telemetry) -> Recorder {
    let recorder = Recorder::default();
    let telemetry = change(recorded_telemetry(&recorder));
    let scenario = scenario(name);
    (scenario.start)(&telemetry).collect::<Vec<_>>().await;
    recorder
}

#[tokio::test(start_paused = true)]
async fn messages_arguments_and_results_are_recorded_if_content_is_enabled() {
    let recorder = record("parallel tools", |it| it.with_content(true)).await;
    let spans = recorder.spans();
    let chats: Vec<_> = spans.iter().filter(|it| it.name == "chat m").collect();
    let messages = |index: usize, name: &str| -> Value {
        serde_json::from_str(&chats[index].text(name).unwrap()).unwrap()
    };
    let input = messages(1, "gen_ai.input.messages");
    let roles: Vec<_> =
        input.as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    assert_eq!(input[2]["parts"].as_array().unwrap().len(), 2);
    let output = messages(1, "gen_ai.output.messages");
    assert_eq!(output[0]["parts"][1]["content"], format!("Done. {SECRET}"));
    let look = recorder.span("execute_tool look");
    let arguments = look.text("gen_ai.tool.call.arguments").unwrap();
    assert!(arguments.contains(SECRET), "{arguments}");
    assert_eq!(look.text("gen_ai.tool.call.result"), Some(format!("\"seen {SECRET}\"")));
}

#[tokio::test(start_paused = true)]
async fn a_hook_edits_or_drops_content() {
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&kinds);
    let recorder = record("parallel tools", |it| {
        it.with_content_hook(move |kind, content| {
            seen.lock().unwrap().push(kind);
            (kind != ContentKind::ToolResult).then(|| content.replace(SECRET, "***"))
        })
    })
    .await;
    let look = recorder.span("execute_tool look");
    assert!(look.text("gen_ai.tool.call.arguments").unwrap().contains("***"));
    assert_eq!(look.get("gen_ai.tool.call.result"), None);
    assert!(!format!("{:?}", recorder.spans()).contains(SECRET));
    assert_eq!(kinds.lock().unwrap().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_error_text_is_not_recorded_even_if_content_is_enabled() {
    let recorder = record("a failure of the first request", |it| it.with_content(true)).await;
    assert!(!format!("{:?}", recorder.spans()).contains("the prompt was"));
}
