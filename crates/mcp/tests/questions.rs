//! Questions of a server while it works on a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::provider::{Reply, Scripted};
use turnstream::{Agent, Event, Usage};
use turnstream_mcp::{Client, ElicitationAnswer, ElicitationForm, Limits};
use turnstream_testing::mcp::{McpAnswer, McpCall, McpEra, McpServer, McpTool};

use crate::support::{builder_of, call_text, client_of, no_arguments, run_call};

const ERAS: [McpEra; 2] = [McpEra::Modern, McpEra::Legacy];

/// A tool that asks a question and returns the raw answer.
fn asking(method: &'static str, params: &Value) -> McpTool {
    let params = params.clone();
    McpTool::new("asks", "Asks", no_arguments(), move |_, call: McpCall| {
        let params = params.clone();
        async move {
            match call.ask("q", method, params).await {
                Ok(answer) => McpAnswer::text(answer.to_string()),
                Err(answer) => answer,
            }
        }
    })
}

fn name_question() -> Value {
    let properties =
        json!({ "name": { "type": "string" }, "age": { "type": "integer", "default": 7 } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["name"] });
    json!({ "mode": "form", "message": "Who are you?", "requestedSchema": schema })
}

async fn answer_of(client: Client) -> String {
    call_text(client.trusted().toolkit().await.unwrap(), "s__asks", json!({})).await
}

#[tokio::test(start_paused = true)]
async fn the_user_answers_a_question_in_both_eras() {
    for era in ERAS {
        let server = McpServer::new()
            .with_era(era)
            .with_tool(asking("elicitation/create", &name_question()));
        let client = builder_of(&server)
            .with_elicitation(|asked| async move {
                assert_eq!((&*asked.server, &*asked.message), ("s", "Who are you?"));
                assert!(matches!(asked.form, ElicitationForm::Fields(_)));
                tokio::time::sleep(Duration::from_secs(100)).await;
                ElicitationAnswer::Accept(json!({ "name": "Ada" }))
            })
            .build();
        let answer: Value = serde_json::from_str(&answer_of(client).await).unwrap();
        assert_eq!(answer, json!({ "action": "accept", "content": { "name": "Ada", "age": 7 } }));
        assert!(server.handle().violations().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_too_long_is_sent_as_cancel() {
    for era in ERAS {
        let server = McpServer::new()
            .with_era(era)
            .with_tool(asking("elicitation/create", &name_question()));
        let limits = Limits { input: Duration::from_secs(30), ..Limits::default() };
        let client = builder_of(&server)
            .with_limits(limits)
            .with_elicitation(|_| std::future::pending())
            .build();
        assert_eq!(answer_of(client).await, r#"{"action":"cancel"}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_hook_no_elicitation_capability_is_announced() {
    for era in ERAS {
        let server = McpServer::new()
            .with_era(era)
            .with_tool(asking("elicitation/create", &name_question()));
        let text = answer_of(client_of(&server)).await;
        assert!(text.contains("the client has no capability `elicitation`"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unexpected_question_is_rejected_and_the_model_gets_a_result() {
    // It asks whatever the client has declared.
    let tool = McpTool::new("asks", "Asks", no_arguments(), |_, _| async {
        McpAnswer::empty().with_field("resultType", "input_required").with_field(
            "inputRequests",
            json!({ "m": {
                "method": "sampling/createMessage",
                "params": { "messages": [], "maxTokens": 1 },
            }}),
        )
    });
    let text =
        answer_of(client_of(&McpServer::new().with_era(McpEra::Modern).with_tool(tool))).await;
    assert!(
        text.starts_with("Declined: the MCP server `s` asked for `sampling/createMessage`"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_endlessly_fails_the_call() {
    let rounds = Arc::new(AtomicUsize::new(0));
    let counted = rounds.clone();
    let tool = McpTool::new("asks", "Asks", no_arguments(), move |_, call: McpCall| {
        let key = format!("q{}", counted.fetch_add(1, Ordering::Relaxed));
        async move { call.ask(&key, "elicitation/create", name_question()).await.unwrap_err() }
    });
    let server = McpServer::new().with_era(McpEra::Modern).with_tool(tool);
    let client =
        builder_of(&server).with_elicitation(|_| async { ElicitationAnswer::Decline }).build();
    let text = answer_of(client).await;
    assert_eq!(rounds.load(Ordering::Relaxed), 11);
    assert!(text.contains("has asked for input more than 10 times"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn sampling_tokens_count_toward_the_run() {
    for era in ERAS {
        let params = json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": "A word?" } }],
            "maxTokens": 10,
        });
        let server =
            McpServer::new().with_era(era).with_tool(asking("sampling/createMessage", &params));
        let usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        let model = Scripted::new([Reply::text("Hello").usage(usage)]);
        let client = builder_of(&server).with_sampling(Agent::new(model)).build().trusted();
        let mut run = run_call(client.toolkit().await.unwrap(), "s__asks", json!({}));
        let (mut nested, mut text, mut used) = (0, String::new(), Usage::default());
        while let Some(event) = run.next().await {
            let event = event.unwrap();
            nested += usize::from(matches!(
                event,
                Event::Nested { .. } | Event::Tool(turnstream::event::ToolEvent::Nested { .. })
            ));
            if let Some(result) = event.tool_output() {
                text = result.content.text();
            }
            if let Some(outcome) = event.outcome() {
                used = *outcome.nested_usage;
            }
        }
        assert!(text.contains(r#""text":"Hello""#), "{text}");
        assert!(nested > 0);
        assert_eq!((used.input_tokens, used.output_tokens), (3, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn roots_are_sent_only_if_configured() {
    for era in ERAS {
        let server = McpServer::new().with_era(era).with_tool(asking("roots/list", &json!({})));
        let client = builder_of(&server);
        assert!(answer_of(client.clone().build()).await.contains("no capability `roots`"));
        let answer = answer_of(client.with_roots(["/srv/data"]).build()).await;
        assert_eq!(answer, r#"{"roots":[{"uri":"file:///srv/data/","name":"data"}]}"#);
    }
}
