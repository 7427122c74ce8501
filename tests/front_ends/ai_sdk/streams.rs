//! Every kind of run as a UI message stream.

use futures::stream;
use turnstream::ui::ErrorTexts;
use turnstream::ui::ai_sdk::{AiSdk, Version};

use super::grammar;
use crate::runs::{Events, body_text, conversations};

pub(super) const VERSIONS: [Version; 3] = [Version::V5, Version::V6, Version::V7];

/// The body that a run is sent as.
pub(super) async fn body_of(run: Events, version: Version, continues: bool) -> String {
    let stream = AiSdk::new(version).with_error_texts(ErrorTexts::shown());
    let stream = match continues {
        true => stream.continue_message("c:1"),
        false => stream.with_message_id("c:1"),
    };
    body_text(stream.respond(stream::iter(run))).await
}

fn known_calls(runs: &[Events]) -> Vec<String> {
    let turns =
        runs.iter().flatten().filter_map(|event| event.as_ref().ok()?.turn_complete().cloned());
    turns
        .flat_map(|turn| turn.tool_calls().map(|call| call.call_id.clone()).collect::<Vec<_>>())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_run_is_a_lawful_stream_however_it_ends() {
    let mut count = 0;
    for conversation in conversations().await {
        for version in VERSIONS {
            let last = conversation.runs.len() - 1;
            for (at, run) in conversation.runs.iter().enumerate() {
                // A run that goes on, cut behind each of its events.
                let lengths = if at == last { 0..=run.len() } else { run.len()..=run.len() };
                for length in lengths {
                    let cut = run[..length].to_vec();
                    let body = body_of(cut, version, at > 0).await;
                    let known = known_calls(&conversation.runs[..at]);
                    if let Err(why) = grammar::check(&body, version, &known) {
                        let name = conversation.name;
                        panic!("{name}, run {at} of {length} events, {version:?}: {why}\n{body}");
                    }
                    count += 1;
                }
            }
        }
    }
    println!("{count} streams are lawful");
    assert!(count > 500);
}
