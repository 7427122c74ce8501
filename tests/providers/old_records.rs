//! Records that earlier versions have written can be replayed: those of version 1, in which each
//! request is written in full, and those of version 2, which have only the new items.

use futures::StreamExt;
use serde_json::json;
use turnstream::provider::{Provider, Replay, Reply, Scripted};
use turnstream::request::Options;
use turnstream::tool::ToolSpec;
use turnstream::turn::PartialTurn;
use turnstream::{Error, ErrorKind, History, Item, Request, Usage};

use crate::support::providers::collect_turn;

const SECRET: &str = "hunter2";

fn model() -> Scripted {
    let overloaded = Error::new(ErrorKind::Overloaded, "too much at once").with_status(529);
    Scripted::new([
        Reply::new().think("hm").say("Let me look.").call("look", json!({ "n": 1 })),
        Reply::new().call("look", json!({ "n": 2 })).usage(Usage {
            input_tokens: 9,
            output_tokens: 4,
            ..Usage::default()
        }),
        Reply::text("I see").fail(overloaded),
        Reply::text("I see").say(" rain, twice, and hunter2."),
        Reply::text("It is").hang(),
    ])
}

/// A growing conversation; the last three requests have a context that differs from the history.
fn requests() -> Vec<Request> {
    let look = ToolSpec::new(
        "look",
        "Looks out of the window",
        json!({ "type": "object", "properties": { "n": { "type": "integer" } } }),
    );
    let mut history = History::empty("h");
    let mut requests = Vec::new();
    for n in 0..5 {
        history.push(Item::user(format!("How is it for the {n}th time? It is {SECRET}.")));
        let mut request = Request::new(history.clone())
            .with_system("Be brief.")
            .with_options(Options { temperature: Some(0.5), ..Options::default() })
            .with_tools([look.clone()]);
        request.system.volatile = "It is Monday.".into();
        if n >= 2 {
            request.context = History::from_items("h", history.iter().skip(n - 1).cloned());
        }
        requests.push(request);
        history.push(Item::text(format!("It is the {n}th time.")));
    }
    requests
}

async fn check_replay(record: &str) {
    let replay = Replay::from_text(record).unwrap().with_secret(SECRET);
    assert_eq!(replay.model(), "scripted");
    let model = model();
    for (n, request) in requests().into_iter().enumerate() {
        let (events, failed) = collect_turn(replay.stream_turn(request.clone())).await;
        let mut turn = model.stream_turn(request);
        match n {
            // The turn was dropped after these events.
            4 => {
                assert_eq!(events.len(), 2);
                for event in events {
                    assert_eq!(event, turn.next().await.unwrap().unwrap());
                }
                let failed = failed.unwrap();
                assert_eq!(failed.kind(), ErrorKind::IncompleteTurn);
                assert_eq!(failed.find_source::<PartialTurn>().unwrap().text(), "It is");
            }
            _ => {
                let (recorded, error) = collect_turn(turn).await;
                let masked = |text: String| text.replace(SECRET, "…");
                let json = |it| masked(serde_json::to_string(it).unwrap());
                assert_eq!(json(&events), json(&recorded), "turn {n}");
                assert_eq!(failed, error, "turn {n}");
            }
        }
    }
    assert_eq!(replay.remaining(), 0);
}

#[tokio::test]
async fn version_1_records_can_be_replayed() {
    let record = include_str!("recordings/version_1.jsonl");
    assert!(record.starts_with(r#"{"type":"recording","version":1,"#));
    check_replay(record).await;
}

#[tokio::test]
async fn version_2_records_can_be_replayed() {
    let record = include_str!("recordings/version_2.jsonl");
    assert!(record.starts_with(r#"{"type":"recording","version":2,"#) && record.contains("since"));
    check_replay(record).await;
}
