//! Changes of a history: compaction, crashes, and handoff to another model.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::hook::{self, StopDecision};
use turnstream::context::{Compaction, Compactor, Truncator, Window, compactor_fn};
use turnstream::event::{AppendReason, EndReason, RewriteReason, ToolEvent, Transition};
use turnstream::item::{ItemFlag, ProviderData, ResultKind};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, Verdict};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Toolkit, TurnEvent};
use turnstream_testing::{Answer, Fault, FaultPosition, Wire};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{events_until, reply_calling_t, test_agent};
use turnstream_test_support::tools::{Counter, nap_tool, ok_tool, spec, uncounted_tool};
use turnstream_test_support::world::{AgentFixture, FinishedRun, finish_run, finish_run_from};

fn context_window_error() -> Error {
    Error::new(ErrorKind::ContextWindow, "the prompt is too long").with_status(400)
}

fn overflowing_reply() -> Reply {
    Reply::error(context_window_error())
}

/// A tool with results that are far too long.
fn large_result_tool() -> Tool {
    Tool::raw(spec("t"), |_, _| async { "x".repeat(40_000) }).unwrap()
}

fn agent_with_large_results(replies: impl IntoIterator<Item = Reply>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let clips = Truncator { max_result_bytes: Some(1_024), ..Truncator::new() };
    (test_agent(model.clone()).with_tools([large_result_tool()]).with_compactor(clips), model)
}

fn compaction_count(finished: &FinishedRun) -> usize {
    let compacted =
        |event: &&Event| matches!(event, Event::Rewritten { why: RewriteReason::Compacted, .. });
    finished.events.iter().filter(compacted).count()
}

mod context_overflow {
    //! A context overflow is compacted once and retried.

    use super::*;

    #[tokio::test]
    async fn a_context_overflow_is_compacted_once_and_retried() {
        let (agent, model) =
            agent_with_large_results([reply_calling_t("c"), overflowing_reply(), "done".into()]);
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(
            finished.transitions(),
            [Transition::NextTurn, Transition::ReactiveCompactRetry]
        );
        assert_eq!(compaction_count(&finished), 1);
        let sizes: Vec<_> =
            model.requests().iter().map(|it| format!("{:?}", it.history).len()).collect();
        assert!(sizes[2] < sizes[1] / 2, "{sizes:?}");
        assert!(
            finished.handle.history().iter().any(|item| item.compacted),
            "what was changed is marked"
        );
        assert_eq!(finished.outcome.error, None);
        assert_eq!(finished.refold_history(History::empty("id-1")), finished.handle.history());
    }

    #[tokio::test]
    async fn a_second_overflow_ends_the_run_with_its_error() {
        let (agent, model) = agent_with_large_results([
            reply_calling_t("c"),
            overflowing_reply(),
            overflowing_reply(),
            "never".into(),
        ]);
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::ContextWindow, 3);
        assert_eq!((compaction_count(&finished), model.requests().len()), (1, 3));
        assert_eq!(finished.outcome.error, Some(context_window_error()));
    }

    #[tokio::test]
    async fn an_overflow_with_nothing_to_compact_ends_the_run_with_its_error() {
        let world = AgentFixture::new([overflowing_reply(), "never".into()]);
        let told_ = world.run().await;
        told_.check_outcome(EndReason::ContextWindow, 1);
        assert_eq!(
            (told_.outcome.error.clone(), compaction_count(&told_)),
            (Some(context_window_error()), 0)
        );
        let (agent, _) =
            agent_with_large_results([reply_calling_t("c"), overflowing_reply(), "never".into()]);
        let told_ = finish_run(agent.without_compactor().run("go")).await;
        told_.check_outcome(EndReason::ContextWindow, 2);
    }

    #[tokio::test]
    async fn the_compaction_note_is_in_the_history_and_survives_runs_and_stores() {
        let (agent, _) = agent_with_large_results([
            reply_calling_t("c"),
            overflowing_reply(),
            "one".into(),
            reply_calling_t("d"),
            overflowing_reply(),
            "never".into(),
        ]);
        let first = finish_run(agent.run("go")).await;
        first.check_outcome(EndReason::Completed, 3);
        let stored = serde_json::to_string(&first.handle.history()).unwrap();
        let loaded: History = serde_json::from_str(&stored).unwrap();
        let second = finish_run(agent.run_from(loaded, "more")).await;
        second.check_outcome(EndReason::ContextWindow, 2);
        assert_eq!(
            (compaction_count(&second), second.outcome.error.clone()),
            (0, Some(context_window_error()))
        );
    }

    #[tokio::test]
    async fn the_compaction_note_survives_a_stop_hook() {
        let (agent, _) = agent_with_large_results([
            reply_calling_t("c"),
            overflowing_reply(),
            "done".into(),
            reply_calling_t("d"),
            overflowing_reply(),
            "never".into(),
        ]);
        let once = AtomicUsize::new(0);
        let stop = hook::before_stop(move |_, _| {
            let first = once.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if first { StopDecision::Continue("more".into()) } else { StopDecision::Allow }
            }
        });
        let finished = finish_run(agent.with_hook(stop).run("go")).await;
        finished.check_outcome(EndReason::ContextWindow, 5);
        assert_eq!(compaction_count(&finished), 1);
    }

    #[tokio::test]
    async fn a_context_window_stop_reason_is_compacted() {
        let full = || Reply::text("so").stop(StopReason::ContextWindow);
        let (agent, _) =
            agent_with_large_results([reply_calling_t("c"), full(), "done".into(), full()]);
        let told_ = finish_run(agent.run("go")).await;
        told_.check_outcome(EndReason::Completed, 3);
        assert_eq!(
            (compaction_count(&told_), told_.appended_texts(AppendReason::Continuation).len()),
            (1, 1)
        );
        let told_ = finish_run(agent.run_from(told_.handle.history(), "more")).await;
        told_.check_outcome(EndReason::ContextWindow, 1);
        assert_eq!(told_.outcome.error, None, "the provider gave no error");
    }

    #[tokio::test]
    async fn output_before_the_overflow_is_retracted() {
        let midway = Reply::text("void").usage(token_usage(9, 1)).fail(context_window_error());
        let (agent, _) = agent_with_large_results([reply_calling_t("c"), midway, "done".into()]);
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(
            (finished.retracted_usages(), finished.outcome.usage),
            (vec![token_usage(9, 1)], token_usage(9, 1))
        );
        assert!(!finished.item_summaries().contains(&"void".to_owned()));
    }

    #[tokio::test]
    async fn a_rate_limit_is_not_treated_as_an_overflow() {
        let limited = Error::new(ErrorKind::RateLimited, "too many tokens").with_status(429);
        let (agent, model) = agent_with_large_results([
            reply_calling_t("c"),
            Reply::error(limited.clone()),
            "never".into(),
        ]);
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::ProviderError, 2);
        assert_eq!((compaction_count(&finished), model.requests().len()), (0, 2));
        assert_eq!(finished.outcome.error, Some(limited));
    }

    #[tokio::test]
    async fn usage_from_before_a_compaction_does_not_trigger_another() {
        // The compaction is followed by the turn whose usage nearly filled the window, and by turns
        // whose usage is unknown.
        let full = reply_calling_t("d").usage(token_usage(900, 10));
        let (agent, _) = agent_with_large_results([
            reply_calling_t("c"),
            full,
            reply_calling_t("e"),
            reply_calling_t("f"),
            "done".into(),
        ]);
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let first = compactor_fn(move |_: &History| {
            counter.fetch_add(1, Ordering::Relaxed);
            let summary = Item::user("in short").with_flag(ItemFlag::Compacted);
            Ok(Some(Compaction::new(0, 3, vec![summary])))
        });
        let agent = agent
            .with_toolkit(Toolkit::new([nap_tool("t")]))
            .with_compactor(first)
            .with_window(Window::new(1_000));
        let told_ = finish_run(agent.run("go")).await;
        told_.check_outcome(EndReason::Completed, 5);
        assert_eq!((compaction_count(&told_), asked.load(Ordering::Relaxed)), (1, 1));
        let stored = serde_json::to_string(&told_.handle.history()).unwrap();
        let loaded: History = serde_json::from_str(&stored).unwrap();
        let again = self::test_agent(Scripted::new(["more"])).with_window(Window::new(1_000));
        assert_eq!(compaction_count(&finish_run(again.run_from(loaded, "more")).await), 0);
    }

    #[tokio::test]
    async fn queued_input_survives_a_compaction() {
        let (agent, model) = agent_with_large_results([
            reply_calling_t("c"),
            overflowing_reply(),
            "done".into(),
            "bye".into(),
        ]);
        let mut run = agent.run("go");
        let started = |event: &Event| matches!(event, Event::TurnStarted { turn: 2, .. });
        let events = events_until(&mut run, started).await;
        run.steer("be brief").unwrap();
        run.follow_up("thanks").unwrap();
        let finished = finish_run_from(events, run).await;
        finished.check_outcome(EndReason::Completed, 4);
        assert_eq!(compaction_count(&finished), 1);
        assert!(finished.outcome.undelivered.is_empty());
        let said = finished.item_summaries();
        assert_eq!(said[said.len() - 4..], ["user: be brief", "done", "user: thanks", "bye"]);
        assert_eq!(model.requests().len(), 4);
    }

    #[tokio::test]
    async fn a_compaction_that_separates_a_call_from_its_result_is_rejected() {
        let parting = compactor_fn(|history: &History| {
            let to = history.iter().position(|item| item.as_tool_call().is_some()).unwrap() + 1;
            Ok(Some(Compaction::new(0, to, vec![Item::user("a summary")])))
        });
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let failure = hook::on_failure(move |_, error| noted.lock().unwrap().push(error.kind()));
        let (agent, _) =
            agent_with_large_results([reply_calling_t("c"), overflowing_reply(), "never".into()]);
        let finished = finish_run(agent.with_compactor(parting).with_hook(failure).run("go")).await;
        finished.check_outcome(EndReason::ContextWindow, 2);
        assert_eq!(*seen.lock().unwrap(), [ErrorKind::ContextWindow, ErrorKind::InvalidRequest]);
        assert_eq!(
            (compaction_count(&finished), finished.result_kinds()),
            (0, vec![ResultKind::Ok])
        );
    }

    #[tokio::test]
    async fn the_compaction_note_is_never_inside_a_turn() {
        // The range ends between a turn's text and its call.
        let careless = compactor_fn(|history: &History| {
            let to = history.iter().position(|item| item.as_tool_call().is_some()).unwrap();
            Ok(Some(Compaction::new(0, to, vec![Item::user("a summary")])))
        });
        let (agent, _) = agent_with_large_results([
            Reply::text("so").call("t", json!({})),
            overflowing_reply(),
            "done".into(),
        ]);
        let finished = finish_run(agent.with_compactor(careless).run("go")).await;
        finished.check_outcome(EndReason::Completed, 3);
        assert!(finished.handle.history().is_settled());
    }

    #[test]
    fn shortening_keeps_every_call_with_its_result() {
        let mut history = History::empty("h");
        for n in 0..9 {
            history.push(Item::user("u"));
            let finished = futures::executor::block_on(async {
                let reply = reply_calling_t(&format!("a{n}")).call("t", json!({ "ms": 1 }));
                let model = Scripted::new([reply.think("x"), "done".into()]);
                finish_run(
                    test_agent(model)
                        .with_tools([large_result_tool()])
                        .run_from(history.clone(), "more"),
                )
                .await
            });
            history = finished.handle.history();
        }
        let clips = Truncator { max_result_bytes: Some(1_024), ..Truncator::new() };
        let compaction = futures::executor::block_on(clips.compact(&history));
        let compaction = compaction.unwrap().unwrap();
        compaction.validate(&history).unwrap();
        let before: Vec<_> = history.iter().filter_map(Item::as_tool_call).cloned().collect();
        compaction.apply(&mut history);
        let behind: Vec<_> = history.iter().filter_map(Item::as_tool_call).cloned().collect();
        assert_eq!((before.len(), before), (18, behind));
        assert!(history.is_settled());
    }
}

/// A tool that counts its calls, and records how much of the turn was stored when it ran.
fn call_observing_tool(ran: &Arc<AtomicUsize>) -> Tool {
    let ran = ran.clone();
    let run = move |_, _| {
        ran.fetch_add(1, Ordering::Relaxed);
        async { "fine" }
    };
    Tool::raw(spec("t"), run).unwrap()
}

mod crash_of_a_stored_run {
    //! A store that lost everything after any event still restores a sendable history.

    use super::*;

    #[tokio::test]
    async fn a_turn_is_stored_before_its_tools_start_and_each_result_as_it_arrives() {
        let ran = Arc::default();
        let model = Scripted::new([
            Reply::text("so").call("t", json!({})).call("t", json!({})),
            "x".into(),
        ]);
        let mut run = test_agent(model).with_tools([call_observing_tool(&ran)]).run("go");
        let (mut complete, mut results) = (false, 0);
        while let Some(event) = run.next().await {
            let history = run.history();
            match event.unwrap() {
                event if event.turn_complete().is_some() => {
                    complete = true;
                    assert!(history.iter().any(|item| item.turn.is_some()), "the turn is written");
                    assert_eq!(ran.load(Ordering::Relaxed), results, "and nothing runs yet");
                }
                Event::Tool(ToolEvent::Started { .. }) => {
                    assert!(complete);
                    assert_eq!(history.iter().filter_map(Item::as_tool_call).count(), 2);
                }
                Event::Tool(ToolEvent::Output(result)) => {
                    results += 1;
                    let written = history.iter().filter_map(Item::as_tool_result);
                    assert!(written.clone().any(|it| *it == result), "in the poll that shows it");
                    assert_eq!(written.count(), results);
                }
                _ => {}
            }
        }
        assert_eq!((results, ran.load(Ordering::Relaxed)), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_truncated_after_any_event_restores_a_sendable_history() {
        let calls =
            Reply::text("so").call("nap", json!({ "ms": 20 })).call("nap", json!({ "ms": 10 }));
        let model = Scripted::new([calls, "x".into()]);
        let finished = finish_run(
            test_agent(model).with_tools([nap_tool("nap")]).run_from(History::empty("h"), "go"),
        )
        .await;
        finished.check_outcome(EndReason::Completed, 2);
        for len in 0..finished.events.len() {
            let crashed =
                FinishedRun { events: finished.events[..len].to_vec(), ..finished.clone() };
            let history = crashed.refold_history(History::empty("h"));
            let settled = history.settled();
            assert!(settled.is_settled());
            let kinds: Vec<_> = settled.iter().filter_map(Item::as_tool_result).collect();
            for result in kinds {
                let came = crashed.events.iter().any(|event| event.tool_output() == Some(result));
                assert_eq!(
                    came,
                    result.kind == ResultKind::Ok,
                    "real ones are kept, others say so"
                );
            }
        }
    }
}

/// A tool that records its idempotency keys, and hangs the first time.
fn hang_once_tool(keys: &Arc<Mutex<Vec<String>>>) -> Tool {
    let keys = keys.clone();
    let run = move |_, cx: turnstream::tool::ToolContext| {
        let mut keys = keys.lock().unwrap();
        keys.push(cx.idempotency_key().to_owned());
        let first = keys.len() == 1;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            "applied"
        }
    };
    Tool::raw(spec("t"), run).unwrap()
}

/// The stored history of a run that was killed while its tool ran.
async fn history_after_crash(agent: &Agent) -> History {
    let mut run = agent.run("go");
    events_until(&mut run, |event| matches!(event, Event::Tool(ToolEvent::Started { .. }))).await;
    // The tool is polled, and hangs.
    assert!(futures::FutureExt::now_or_never(run.next()).is_none());
    let stored = serde_json::to_string(&run.history()).unwrap();
    drop(run);
    serde_json::from_str(&stored).unwrap()
}

mod calls_running_at_a_crash {
    //! Calls that ran when the process died are interrupted and run again only on request.

    use super::*;

    #[tokio::test]
    async fn a_call_running_at_a_crash_is_interrupted_and_not_run_again() {
        let keys = Arc::default();
        let model = Scripted::new([reply_calling_t("c"), "I see".into()]);
        let agent = test_agent(model.clone()).with_tools([hang_once_tool(&keys)]);
        let history = history_after_crash(&agent).await;
        assert_eq!(history.unanswered_calls().len(), 1);
        let finished = finish_run(agent.run_from(history, "what happened?")).await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(
            (finished.result_kinds(), finished.result_texts()),
            (vec![ResultKind::Interrupted], vec!["Interrupted mid-execution".to_owned()],)
        );
        assert_eq!(keys.lock().unwrap().len(), 1, "not silently run again");
        assert!(model.requests()[1].history.is_settled());
    }

    #[tokio::test]
    async fn a_call_known_to_be_repeatable_can_be_resumed_with_the_same_key() {
        let keys = Arc::default();
        let agent = test_agent(Scripted::new([reply_calling_t("c"), "good".into()]))
            .with_tools([hang_once_tool(&keys)]);
        let history = history_after_crash(&agent).await;
        let verdicts = history.pending_calls().into_iter().map(|call| (call, Verdict::Approve));
        let finished = finish_run(agent.resume(history, verdicts).unwrap()).await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(finished.result_texts(), ["applied"]);
        let keys = keys.lock().unwrap();
        assert_eq!((keys.len(), &keys[0]), (2, &keys[1]));
    }
}

/// The first model emits signed reasoning and a call; then its answer breaks off.
fn failing_first_model(wire: Wire) -> WireProvider {
    let thought = Reply::new().think("Thought-one.");
    // Ollama's wire has no signatures.
    let signed = if wire == Wire::Ollama { thought } else { thought.sign("U0VDUkVU") };
    let signed = signed.say("Word-one.").call_raw("c", "t", "{\"ms\":1}");
    let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
    let broken =
        Answer::reply("Half a word of").with_fault(Fault::Error(FaultPosition::Events(4), busy));
    WireProvider::new(wire, "gemini-2-one", [Answer::reply(signed), broken])
}

mod model_handoff {
    //! A history is handed to another model without foreign signatures or retracted output.

    use super::*;

    #[tokio::test]
    async fn another_model_receives_text_and_calls_without_foreign_signatures() {
        for from in Wire::ALL {
            for to in Wire::ALL {
                let (one, two) =
                    (failing_first_model(from), WireProvider::new(to, "gemini-2-two", ["Done."]));
                let agent = test_agent(one.clone())
                    .with_tools([uncounted_tool("t")])
                    .with_fallback(two.clone());
                let finished = finish_run(agent.run("go")).await;
                finished.check_outcome(EndReason::Completed, 3);
                assert_eq!(finished.models(), ["gemini-2-one", "gemini-2-one", "gemini-2-two"]);
                assert_eq!(finished.transitions()[1], Transition::Fallback);
                let sent = two.sent_bodies();
                let body = sent[0].to_string();
                for words in ["Word-one.", "fine", "ms"] {
                    assert!(body.contains(words), "{from} to {to}: {body}");
                }
                for foreign in ["U0VDUkVU", "Half a word"] {
                    assert!(!body.contains(foreign), "{from} to {to}: {body}");
                }
                assert!(!finished.item_summaries().join(" ").contains("Half"), "{from} to {to}");
                if from == Wire::Anthropic {
                    assert!(
                        one.sent_bodies()[1].to_string().contains("U0VDUkVU"),
                        "its own goes back"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn call_ids_of_another_wire_are_rewritten_consistently() {
        // No other vendor accepts such an id, because of its length and characters.
        let odd = format!("call|{}/ä==", "x".repeat(80));
        for from in Wire::ALL {
            for to in Wire::ALL {
                let calls = Reply::new().call_raw(&odd, "t", "{}").call_raw("", "t", "{\"n\":2}");
                let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
                let one =
                    WireProvider::new(from, "gemini-2-one", [Answer::reply(calls), busy.into()]);
                let two = WireProvider::new(to, "gemini-2-two", ["Done."]);
                let agent =
                    test_agent(one).with_tools([uncounted_tool("t")]).with_fallback(two.clone());
                finish_run(agent.run("go")).await.check_outcome(EndReason::Completed, 3);
                // The vendor's lint checks the characters and the length.
                let sent = two.sent_bodies().remove(0);
                let (calls, results) = match to {
                    Wire::Anthropic => {
                        (string_fields(&sent, &["id"]), string_fields(&sent, &["tool_use_id"]))
                    }
                    Wire::OpenAiChat | Wire::Ollama => {
                        (string_fields(&sent, &["id"]), string_fields(&sent, &["tool_call_id"]))
                    }
                    Wire::OpenAiResponses => {
                        let all = string_fields(&sent, &["call_id"]);
                        (all[..2].to_vec(), all[2..].to_vec())
                    }
                    // Ids are optional on this wire; calls and results are paired by their order.
                    _ => (string_fields(&sent, &["id"]), string_fields(&sent, &["id"])),
                };
                assert_eq!(calls, results, "{from} to {to}: {sent}");
                let optional = to == Wire::Gemini;
                assert!(
                    optional || calls.len() == 2 && calls[0] != calls[1],
                    "{from} to {to}: {sent}"
                );
            }
        }
    }

    #[tokio::test]
    async fn partial_output_is_retracted_before_the_fallback_request() {
        for from in Wire::ALL {
            for to in Wire::ALL {
                let ran = Counter::default();
                let begun = Reply::new().think("Half a thought of").say("Half a word of");
                let begun = begun.call_raw("half", "t", "{}");
                let busy = Error::new(ErrorKind::Overloaded, "busy").with_status(529);
                let broken = Answer::reply(begun).with_fault(Fault::NoTerminalMarker);
                let broken = broken.with_fault(Fault::Error(FaultPosition::Events(99), busy));
                let two = WireProvider::new(to, "gemini-2-two", ["Done."]);
                let agent = test_agent(WireProvider::new(from, "gemini-2-one", [broken]))
                    .with_tools([ok_tool("t", &ran)])
                    .with_fallback(two.clone());
                let finished = finish_run(agent.run("go")).await;
                finished.check_outcome(EndReason::Completed, 2);
                assert_eq!(
                    (ran.started_count(), finished.retracted_usages().len()),
                    (0, 1),
                    "{from} to {to}"
                );
                let place =
                    |fits: fn(&Event) -> bool| finished.events.iter().position(fits).unwrap();
                let retracted =
                    place(|event| matches!(event, Event::Turn(TurnEvent::Retracted { .. })));
                let begun =
                    place(|event| matches!(event, Event::Turn(TurnEvent::TextDelta { .. })));
                let continued = place(|event| matches!(event, Event::Continued { .. }));
                assert!(begun < retracted && retracted < continued, "{from} to {to}");
                // Nothing of the incomplete turn is left, in the history or for the other model.
                assert_eq!(finished.item_summaries(), ["user: go", "Done."], "{from} to {to}");
                assert_eq!(finished.text(), "Done.");
                assert!(!two.sent_bodies()[0].to_string().contains("alf"), "{from} to {to}");
            }
        }
    }

    #[tokio::test]
    async fn encrypted_reasoning_is_dropped_and_visible_text_kept_for_another_model() {
        for to in Wire::ALL {
            let own = |provider: &str, value: Value| {
                let (provider, model) = (provider.to_owned(), "one".to_owned());
                Arc::new(ProviderData { provider, model, value: value.into() })
            };
            let hidden = |provider, value| {
                let item = Item::reasoning("");
                Item { provider_data: Some(own(provider, value)), ..item }
            };
            let history = History::from_items(
                "h",
                [
                    Item::user("hello"),
                    hidden(
                        "anthropic",
                        json!({ "type": "redacted_thinking", "data": "FOREIGN-A" }),
                    ),
                    hidden(
                        "openai_responses",
                        json!({ "type": "reasoning", "id": "rs_1",
                    "summary": [], "encrypted_content": "FOREIGN-B" }),
                    ),
                    Item {
                        provider_data: Some(own(
                            "gemini",
                            json!({ "thoughtSignature": "FOREIGN-C" }),
                        )),
                        ..Item::text("Word-one.")
                    },
                    Item::provider_item(ProviderData {
                        provider: "anthropic".into(),
                        model: "one".into(),
                        value: json!({ "type": "server_tool_use", "id": "FOREIGN-D" }).into(),
                    }),
                    Item::text("Word-two."),
                ],
            );
            let model = WireProvider::new(to, "two", ["Done."]);
            finish_run(test_agent(model.clone()).run_from(history, "go"))
                .await
                .check_outcome(EndReason::Completed, 1);
            let sent = model.sent_bodies()[0].to_string();
            assert!(!sent.contains("FOREIGN"), "{to}: {sent}");
            assert!(sent.contains("Word-one.") && sent.contains("Word-two."), "{to}: {sent}");
        }
    }

    #[tokio::test]
    async fn a_tombstone_stays_in_the_history_and_is_never_sent() {
        let void = Item::text("Void-word.").with_flag(ItemFlag::Tombstone);
        let history = History::from_items("h", [Item::user("hello"), void, Item::text("hi")]);
        for wire in Wire::ALL {
            let model = WireProvider::new(wire, "m", ["Done."]);
            let finished =
                finish_run(test_agent(model.clone()).run_from(history.clone(), "go")).await;
            finished.check_outcome(EndReason::Completed, 1);
            assert!(!model.sent_bodies()[0].to_string().contains("Void-word."), "{wire}");
            assert!(finished.item_summaries().contains(&"Void-word.".to_owned()));
        }
    }
}

/// All string values of fields with one of these names, anywhere in a body.
fn string_fields(json: &Value, names: &[&str]) -> Vec<String> {
    match json {
        Value::Array(list) => list.iter().flat_map(|item| string_fields(item, names)).collect(),
        Value::Object(object) => {
            let own = object.iter().filter(|(name, _)| names.contains(&name.as_str()));
            let own = own.filter_map(|(_, value)| value.as_str().map(str::to_owned));
            own.chain(object.values().flat_map(|value| string_fields(value, names))).collect()
        }
        _ => Vec::new(),
    }
}
