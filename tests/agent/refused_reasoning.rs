//! A provider that refuses reasoning which a history contains.

use serde_json::{Value, json};
use turnstream::event::{EndReason, RewriteReason, Transition};
use turnstream::item::ItemKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::session::{MemoryStore, Session};
use turnstream::{Error, ErrorKind, Event, History, Item};
use turnstream_testing::{Answer, Wire};

use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{reply_calling_t, test_agent};
use turnstream_test_support::tools::uncounted_tool;
use turnstream_test_support::wires::{encode, read_answer};
use turnstream_test_support::world::{FinishedRun, finish_run};

/// The wires on which reasoning is signed or encrypted.
const WIRES: [Wire; 3] = [Wire::Anthropic, Wire::OpenAiResponses, Wire::Gemini];

/// The signature of the reasoning, which is also its encrypted form.
const SIGNATURE: &str = "U0VDUkVU";

fn reasoning_and_call() -> Answer {
    Answer::reply(Reply::new().think("Hm.").sign(SIGNATURE).call_raw("c", "t", "{\"ms\":1}"))
}

fn refusal() -> Answer {
    // It is sent within the stream.
    Answer::reply(Reply::error(Error::new(ErrorKind::ReasoningRefused, "the key has changed")))
}

async fn run_with(model: &WireProvider) -> FinishedRun {
    let agent = test_agent(model.clone()).with_tools([uncounted_tool("t")]);
    finish_run(agent.run("go")).await
}

fn rewrites(finished: &FinishedRun) -> Vec<&Event> {
    let is_rewrite = |event: &&Event| matches!(event, Event::Rewritten { .. });
    finished.events.iter().filter(is_rewrite).collect()
}

mod refused_reasoning {
    //! Reasoning that the provider refuses is removed, and the request is sent once more.

    use super::*;

    #[test]
    fn a_refusal_of_reasoning_has_a_kind_of_its_own_on_each_wire() {
        for wire in WIRES {
            let error = read_answer(wire, refusal()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReasoningRefused, "{wire}: {error}");
            assert!(!error.is_retryable(), "{wire}");
        }
    }

    #[tokio::test]
    async fn the_request_is_sent_once_more_without_the_refused_reasoning() {
        for wire in WIRES {
            let answers = [reasoning_and_call(), refusal(), Answer::reply("Done.")];
            let model = WireProvider::new(wire, "gemini-3-m", answers);
            let finished = run_with(&model).await;
            finished.check_outcome(EndReason::Completed, 3);
            let transitions = [Transition::NextTurn, Transition::ReasoningRefused];
            assert_eq!(finished.transitions(), transitions, "{wire}");
            assert_eq!(finished.text(), "Done.", "{wire}");
            // The request contains everything else.
            let sent = model.sent_bodies().iter().map(Value::to_string).collect::<Vec<_>>();
            let has_signature = |body: &String| body.contains(SIGNATURE);
            assert_eq!(sent.iter().map(has_signature).collect::<Vec<_>>(), [false, true, false]);
            assert!(sent[2].contains("\"t\"") && sent[2].contains("ms"), "{wire}: {}", sent[2]);
            // The event tells readers and stores what was removed.
            let [Event::Rewritten { why, from, to, items, .. }] = *rewrites(&finished) else {
                panic!("{wire}: {:?}", rewrites(&finished))
            };
            assert_eq!(*why, RewriteReason::ReasoningRefused, "{wire}");
            assert_eq!(to - from, items.len(), "{wire}: no item moves");
            let event = serde_json::to_value(rewrites(&finished)[0]).unwrap();
            assert_eq!(
                (&event["type"], &event["why"]),
                (&json!("rewritten"), &json!("reasoning_refused"))
            );
            let history = finished.handle.history();
            assert_eq!(finished.refold_history(History::empty(history.id())), history, "{wire}");
            let thoughts = history.iter().filter_map(|item| match &item.kind {
                ItemKind::Reasoning { text } => Some(text.as_str()),
                _ => None,
            });
            assert_eq!(thoughts.collect::<String>(), "Hm.", "{wire}: its text is kept");
            // The history can be continued.
            let mut next = history;
            next.push(Item::user("more"));
            let next = encode(wire, "gemini-3-m", &turnstream::Request::new(next));
            assert!(!next.to_string().contains(SIGNATURE), "{wire}: {next}");
        }
    }

    #[tokio::test]
    async fn a_second_refusal_in_a_row_ends_the_run_with_its_error() {
        for wire in WIRES {
            let answers = [reasoning_and_call(), refusal(), refusal()];
            let finished = run_with(&WireProvider::new(wire, "gemini-3-m", answers)).await;
            finished.check_outcome(EndReason::ProviderError, 3);
            let error = finished.outcome.error.as_ref().unwrap();
            assert_eq!(error.kind(), ErrorKind::ReasoningRefused, "{wire}");
            assert_eq!(rewrites(&finished).len(), 1, "{wire}");
        }
    }

    #[tokio::test]
    async fn a_later_refusal_of_new_reasoning_is_handled_again() {
        let second = Reply::new().think("Hm.").sign(SIGNATURE).call_raw("d", "t", "{\"ms\":2}");
        let answers = [
            reasoning_and_call(),
            refusal(),
            Answer::reply(second),
            refusal(),
            Answer::reply("Done."),
        ];
        let finished = run_with(&WireProvider::new(Wire::Anthropic, "m", answers)).await;
        finished.check_outcome(EndReason::Completed, 5);
        assert_eq!(rewrites(&finished).len(), 2);
    }

    #[tokio::test]
    async fn a_refusal_without_any_reasoning_to_remove_ends_the_run() {
        for wire in WIRES {
            let answers = [Answer::reply(reply_calling_t("c")), refusal()];
            let finished = run_with(&WireProvider::new(wire, "m", answers)).await;
            finished.check_outcome(EndReason::ProviderError, 2);
            assert!(rewrites(&finished).is_empty(), "{wire}");
        }
    }

    #[tokio::test]
    async fn a_session_no_longer_sends_the_refused_reasoning() {
        for wire in WIRES {
            let store = MemoryStore::new();
            let answers =
                [reasoning_and_call(), refusal(), Answer::reply("Done."), Answer::reply("Well.")];
            let model = WireProvider::new(wire, "gemini-3-m", answers);
            let agent = test_agent(model.clone()).with_tools([uncounted_tool("t")]);
            let session = Session::open(store.clone(), "s").await.unwrap();
            session.run(&agent, "go").await.unwrap().outcome().await.unwrap();
            drop(session);
            let session = Session::open(store, "s").await.unwrap();
            let outcome = session.run(&agent, "more").await.unwrap().outcome().await.unwrap();
            assert_eq!((outcome.reason, outcome.turns), (EndReason::Completed, 1), "{wire}");
            let last = model.sent_bodies().pop().unwrap().to_string();
            assert!(!last.contains(SIGNATURE), "{wire}: {last}");
        }
    }

    #[tokio::test]
    async fn a_fallback_is_used_if_the_reasoning_cannot_be_removed() {
        let refused = Error::new(ErrorKind::ReasoningRefused, "stale");
        let other = Scripted::new(["Done."]).with_model("other");
        let agent = test_agent(Scripted::new([Reply::error(refused)])).with_fallback(other);
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.transitions(), [Transition::Fallback]);
    }
}
