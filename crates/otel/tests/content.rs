//! Content is recorded only if it is asked for.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::hook;
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, History, Item};
use turnstream_otel::{ContentKind, Telemetry, TelemetryExt};

use crate::recorder::Recorder;
use crate::scenarios::{SECRET, agent, answer, model, scenario, usage};
use crate::trees::{recorded_telemetry, silent_meter};

/// The environment variable that enables content.
pub(crate) const VARIABLE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

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

/// An agent whose hooks mask the secret in requests and in results.
fn masking_agent(model: &Scripted) -> Agent {
    let mask_result = hook::after_tool(|_, _, result| {
        result.content = result.content.text().replace(SECRET, "***").into();
    });
    let mask_request = hook::transform_context(|_, context| async move {
        let masked = context.iter().map(|item| match item.as_user() {
            Some(content) => Item::user(content.text().replace(SECRET, "***")),
            None => item.clone(),
        });
        History::from_items(context.id().to_owned(), masked.collect::<Vec<_>>())
    });
    agent(model.clone()).with_hook(mask_result).with_hook(mask_request)
}

#[tokio::test(start_paused = true)]
async fn the_hooks_that_mask_results_and_requests_have_masked_the_recorded_messages() {
    let reply = || Reply::new().usage(usage(100, 10));
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder).with_content(true);
    let model = model([reply().call("look", json!({})), reply().say("Done.")]);
    let agent = masking_agent(&model).with_run_observer(telemetry);
    agent.run(format!("Go. {SECRET}")).collect::<Vec<_>>().await;
    let spans = recorder.spans();
    let inputs: Vec<_> = spans.iter().filter_map(|it| it.text("gen_ai.input.messages")).collect();
    assert_eq!(inputs.len(), 2);
    for input in inputs {
        assert!(input.contains("Go. ***") && !input.contains(SECRET), "{input}");
    }
    let result = recorder.span("execute_tool look").text("gen_ai.tool.call.result").unwrap();
    assert_eq!(result, "\"seen ***\"");
    // The messages are those that were sent.
    let sent = model.requests()[0].context.iter().next().unwrap().as_user().unwrap().text();
    assert_eq!(sent, "Go. ***");
}

#[tokio::test(start_paused = true)]
async fn without_its_contexts_a_runs_messages_are_those_of_its_events() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder).with_content(true);
    let run = masking_agent(&model([answer("Done.")])).run(format!("Go. {SECRET}"));
    run.with_telemetry(&telemetry).collect::<Vec<_>>().await;
    // The events do not contain the input.
    let input = recorder.span("chat m").text("gen_ai.input.messages").unwrap();
    assert!(input.contains(SECRET), "{input}");
}

/// The variable that makes the following test a program that prints whether content is recorded.
const CHILD: &str = "TURNSTREAM_OTEL_CONTENT_CHILD";

#[test]
fn the_environment_variable_of_a_program_enables_content() {
    if std::env::var_os(CHILD).is_some() {
        println!("{:?}", Telemetry::new(Recorder::default(), &silent_meter()));
        return;
    }
    for (value, is_on) in [(None, false), (Some("true"), true), (Some("no_content"), false)] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "content::the_environment_variable_of_a_program_enables_content";
        child.args([test, "--exact", "--nocapture"]).env(CHILD, "1").env_remove(VARIABLE);
        child.envs(value.map(|value| (VARIABLE, value)));
        let output = child.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(&format!("content: {is_on}")), "{value:?}: {printed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_text_is_not_recorded_even_if_content_is_enabled() {
    let recorder = record("a failure of the first request", |it| it.with_content(true)).await;
    assert!(!format!("{:?}", recorder.spans()).contains("the prompt was"));
}
