//! A real model: llama.cpp's own server on loopback, over each wire that it speaks.
//!
//! `TURNSTREAM_LLAMA` is the server's address; `tests/llama/run.sh` installs and starts the server
//! with two slots. The model is small, so nothing is claimed about what it says, and it cannot call
//! tools.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use turnstream::agent::Limits;
use turnstream::event::EndReason;
use turnstream::http::HttpClient;
use turnstream::provider::{Anthropic, OpenAiChat, OpenAiResponses, Provider};
use turnstream::request::Options;
use turnstream::{Agent, ErrorKind, Event};

fn server_url() -> String {
    std::env::var("TURNSTREAM_LLAMA").expect("tests/llama/run.sh starts the server")
}

/// The model over each wire.
fn models() -> [(&'static str, Arc<dyn Provider>); 3] {
    let url = server_url();
    macro_rules! model {
        ($provider:ident, $path:literal) => {
            Arc::new(
                $provider::new("smollm2")
                    .with_base_url(format!("{url}{}", $path))
                    .unwrap()
                    .with_http_client(HttpClient::without_proxy())
                    .with_api_key("none"),
            )
        };
    }
    [
        ("Chat Completions", model!(OpenAiChat, "/v1")),
        ("Responses", model!(OpenAiResponses, "/v1")),
        ("Messages", model!(Anthropic, "")),
    ]
}

fn options(max_output_tokens: u32) -> Options {
    Options {
        max_output_tokens: Some(max_output_tokens),
        temperature: Some(0.0),
        ..Options::default()
    }
}

fn agent(model: &Arc<dyn Provider>, max_output_tokens: u32) -> Agent {
    let options = options(max_output_tokens);
    let limits = Limits { max_continuations: 0, ..Limits::default() };
    Agent::new(Arc::clone(model)).with_options(options).with_limits(limits)
}

/// The states of the server's slots.
async fn slots() -> Vec<Value> {
    let url = server_url();
    let host = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut connection = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /slots HTTP/1.0\r\nHost: {host}\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).await.unwrap();
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    let slots: Vec<Value> = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    assert_eq!(slots.len(), 2, "{body}");
    slots
}

/// Waits until the number of generating slots is `wanted`. Returns the largest number of tokens
/// that a slot was seen to have generated before.
async fn wait_for_busy_slots(wanted: usize) -> u64 {
    let mut most = 0;
    loop {
        let slots = slots().await;
        let busy: Vec<_> = slots.iter().filter(|slot| slot["is_processing"] == true).collect();
        if busy.len() == wanted {
            return most;
        }
        let generated = |slot: &&Value| slot["next_token"][0]["n_decoded"].as_u64();
        most = most.max(busy.iter().filter_map(generated).max().unwrap_or(0));
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn a_real_model_streams_text_and_reports_usage() {
    for (wire, model) in models() {
        let mut run = agent(&model, 64).run("Say hello.");
        let (mut streamed, mut deltas) = (String::new(), 0);
        while let Some(event) = run.next().await {
            if let Some(text) = event.unwrap().text_delta() {
                streamed += text;
                deltas += 1;
            }
        }
        let outcome = run.outcome().await;
        assert!(!outcome.text.trim().is_empty(), "{wire}");
        assert_eq!((streamed, deltas > 1), (outcome.text.clone(), true), "{wire}");
        assert!(outcome.usage.input_tokens > 5, "{wire}: {:?}", outcome.usage);
        assert!((2..=64).contains(&outcome.usage.output_tokens), "{wire}: {:?}", outcome.usage);
        println!("{wire}: {:?}, {:?}", outcome.text, outcome.usage);
    }
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn the_second_turn_of_a_conversation_reads_the_servers_cache() {
    for (wire, model) in models() {
        let agent = agent(&model, 16);
        let first = agent.run(format!("My name is Ada, and I like {wire}.")).outcome().await;
        let second = agent.run_from(first.history, "What is my name?").outcome().await;
        let usage = second.usage;
        assert!(usage.cache_read_input_tokens > 10, "{wire}: {usage:?}");
        assert!(usage.cache_read_input_tokens < usage.input_tokens, "{wire}: {usage:?}");
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Weather {
    city: String,
    degrees: i32,
    sunny: bool,
}

const WEATHER_PROMPT: &str = "It is sunny in Rome, and 25 degrees warm.";

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn a_typed_answer_follows_the_schema() {
    let [chat, responses, _] = models();
    for (wire, model) in [chat, responses] {
        let mut options = options(200);
        if wire == "Responses" {
            // In requests of this API, the server reads the schema only from the field of Chat
            // Completions.
            let schema = schemars::schema_for!(Weather);
            let format = json!({ "name": "weather", "strict": true, "schema": schema });
            let format = json!({ "type": "json_schema", "json_schema": format });
            options.extra.insert("response_format".to_owned(), format);
        }
        let agent = agent(&model, 200).with_options(options).with_output::<Weather>();
        let outcome = agent.run(WEATHER_PROMPT).outcome().await;
        assert_eq!(outcome.reason, EndReason::Completed, "{wire}: {outcome:?}");
        let weather: Weather = outcome.parse().unwrap();
        println!("{wire}: {weather:?}");
        assert!(weather.city.contains("Rome") || weather.degrees == 25 || weather.sunny, "{wire}");
    }
}

/// The server ignores the schemas of Messages, so that the small model answers in prose.
#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn an_answer_that_ignores_the_schema_ends_the_run_as_malformed() {
    let [_, _, (wire, model)] = models();
    let agent = agent(&model, 60).with_output::<Weather>();
    let outcome = agent.run(WEATHER_PROMPT).outcome().await;
    assert_eq!(outcome.reason, EndReason::Malformed, "{wire}: {outcome:?}");
    assert!(outcome.turns > 1, "the model was asked again: {outcome:?}");
    outcome.parse::<Weather>().unwrap_err();
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn characters_that_are_split_over_tokens_arrive_whole() {
    const TEXT: &str = "🌍🎉 世界 Grüße";
    for (wire, model) in models() {
        let mut run = agent(&model, 24).run(format!("Repeat: {TEXT}"));
        let (mut streamed, mut deltas) = (String::new(), 0);
        while let Some(event) = run.next().await {
            if let Some(text) = event.unwrap().text_delta() {
                streamed += text;
                deltas += 1;
            }
        }
        let outcome = run.outcome().await;
        assert!(streamed.contains(TEXT) && deltas > 3, "{wire}: {streamed}");
        assert_eq!(streamed, outcome.text, "{wire}");
        // The model needs more tokens than there are characters.
        let characters = u64::try_from(outcome.text.chars().count()).unwrap();
        assert!(outcome.usage.output_tokens > characters, "{wire}: {:?}", outcome.usage);
    }
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn an_answer_that_reaches_max_tokens_is_truncated() {
    for (wire, model) in models() {
        let outcome = agent(&model, 5).run("Count from 1 to 100 in words.").outcome().await;
        assert_eq!(outcome.usage.output_tokens, 5, "{wire}");
        let expected = match wire {
            // The server reports such a response as `completed`.
            "Responses" => EndReason::Completed,
            _ => EndReason::Truncated,
        };
        assert_eq!(outcome.reason, expected, "{wire}: {outcome:?}");
    }
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn the_answer_ends_before_a_stop_sequence() {
    for (wire, model) in models() {
        let options = Options { stop_sequences: vec!["e".to_owned()], ..options(64) };
        let outcome = agent(&model, 64).with_options(options).run("Say hello.").outcome().await;
        if wire == "Responses" {
            // This API has no such option.
            assert_eq!(outcome.error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
            continue;
        }
        assert_eq!(outcome.reason, EndReason::Completed, "{wire}: {outcome:?}");
        assert!(!outcome.text.is_empty() && !outcome.text.contains('e'), "{wire}: {outcome:?}");
    }
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn an_interrupt_frees_the_servers_slot() {
    const STORY: &str = "Write a very long story about the sea.";
    for (wire, model) in models() {
        let whole = agent(&model, 150).run(STORY).outcome().await.usage.output_tokens;
        assert!(whole > 100, "{wire}: the story is too short for this test: {whole} tokens");
        wait_for_busy_slots(0).await;
        let mut run = agent(&model, 150).run(STORY);
        let handle = run.handle();
        let mut interrupted = false;
        while let Some(event) = run.next().await {
            if event.unwrap().text_delta().is_some() && !interrupted {
                wait_for_busy_slots(1).await;
                handle.interrupt();
                interrupted = true;
            }
        }
        let outcome = run.outcome().await;
        assert!(matches!(outcome.reason, EndReason::Interrupted(_)), "{wire}: {outcome:?}");
        let generated = wait_for_busy_slots(0).await;
        assert!(generated < whole / 2, "{wire}: {generated} of {whole} tokens after the interrupt");
    }
}

#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn twenty_concurrent_agents_share_two_slots() {
    for (wire, model) in models() {
        let runs = (0..20).map(|n| {
            let agent = agent(&model, 8);
            async move { agent.run(format!("Say the number {n}.")).outcome().await }
        });
        for outcome in join_all(runs).await {
            let ended = matches!(outcome.reason, EndReason::Completed | EndReason::Truncated);
            assert!(ended && !outcome.text.is_empty(), "{wire}: {outcome:?}");
        }
    }
}

/// The events of a run can be read by a program that does not know the wire.
#[tokio::test]
#[ignore = "needs llama.cpp: tests/llama/run.sh"]
async fn the_events_of_all_wires_have_the_same_order() {
    let mut orders = Vec::new();
    for (wire, model) in models() {
        let mut run = agent(&model, 8).run("Say hello.");
        let mut order: Vec<&str> = Vec::new();
        while let Some(event) = run.next().await {
            let sign = match event.unwrap() {
                Event::TurnStarted { .. } => "started",
                Event::Finished { .. } => "finished",
                event if event.text_delta().is_some() => "text",
                event if event.turn_complete().is_some() => "complete",
                _ => continue,
            };
            if order.last() != Some(&sign) {
                order.push(sign);
            }
        }
        orders.push((wire, order));
    }
    assert!(orders.windows(2).all(|pair| pair[0].1 == pair[1].1), "{orders:?}");
}
