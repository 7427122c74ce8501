//! The end of a turn: stop reasons and missing end markers.

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnstream::agent::{Limits, hook};
use turnstream::event::{EndReason, Transition};
use turnstream::provider::openai_chat::{Dialect, TurnEnd};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::turn::{PartialTurn, StopReason};
use turnstream::{Error, ErrorKind, Event, History};
use turnstream_testing::{Answer, Fault, FaultPosition, Wire};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::models::WireProvider;
use turnstream_test_support::runs::{reply_calling_t, test_agent};
use turnstream_test_support::tools::uncounted_tool;
use turnstream_test_support::wires::{read_answer, read_frames};
use turnstream_test_support::world::{self, AgentFixture, finish_run};

fn overloaded_error() -> Error {
    Error::new(ErrorKind::Overloaded, "busy").with_status(529)
}

fn limits_with_retries(retries: u32) -> Limits {
    Limits { max_turn_retries: retries, ..Limits::default() }
}

mod tool_calls_reason_without_calls {
    //! A stop reason of tool calls in a turn without calls.

    use super::*;

    #[tokio::test]
    async fn text_with_a_tool_calls_reason_and_no_calls_completes_the_run() {
        let world = AgentFixture::new([Reply::text("x").stop(StopReason::ToolCalls)]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!((finished.text(), world.request_count()), ("x", 1));
        let turn = finished.events.iter().find_map(Event::turn_complete).unwrap();
        assert_eq!(turn.raw_stop_reason(), Some("tool_calls"), "the raw word is there");
    }

    #[tokio::test]
    async fn an_empty_turn_with_a_tool_calls_reason_is_malformed_and_not_retried() {
        let world = AgentFixture::new([Reply::new().stop(StopReason::ToolCalls), "never".into()]);
        world.run().await.check_outcome(EndReason::Malformed, 1);
        assert_eq!(world.request_count(), 1);
    }
}

mod calls_with_reason_stop {
    //! Calls in a turn whose stop reason is plain stop.

    use super::*;

    #[tokio::test]
    async fn calls_run_under_a_stop_reason_of_stop() {
        for stop in [StopReason::Stop, StopReason::ToolCalls] {
            let world = AgentFixture::new([reply_calling_t("c").stop(stop), "done".into()]);
            world.run().await.check_outcome(EndReason::Completed, 2);
            assert_eq!(world.tool_run_count(), 1);
        }
    }

    #[test]
    fn gemini_calls_run_although_the_reason_is_stop() {
        let turn = read_frames(
            Wire::Gemini,
            &[r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t","args":{}}}]},"finishReason":"STOP"}]}"#],
        )
        .unwrap();
        assert_eq!(turn.raw_stop_reason(), Some("STOP"));
        assert!(turn.calls().len() == 1 && turn.calls().veto().is_none());
    }
}

mod missing_end_marker {
    //! A turn without its end-of-stream marker is incomplete and keeps its partial output.

    use super::*;

    #[test]
    fn a_turn_without_its_end_marker_is_an_error_with_partial_output_on_every_wire() {
        for wire in Wire::ALL {
            let answer = Answer::reply("half a word").with_fault(Fault::NoTerminalMarker);
            let error = read_answer(wire, answer).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "{wire}");
            assert_eq!(error.find_source::<PartialTurn>().unwrap().text(), "half a word", "{wire}");
            assert!(error.is_retryable(), "{wire}");
        }
    }

    #[tokio::test]
    async fn a_run_with_an_incomplete_turn_keeps_its_text_as_interrupted() {
        let finished = AgentFixture::new([Reply::text("half a").disconnect()]).run().await;
        finished.check_outcome(EndReason::Incomplete, 1);
        assert_eq!((finished.text(), finished.outcome.partial), ("half a", true));
        assert_eq!(finished.outcome.error.as_ref().unwrap().kind(), ErrorKind::IncompleteTurn);
        let last = finished.outcome.new_items().last().unwrap();
        assert!(last.interrupted && last.as_text() == Some("half a"));
    }

    #[tokio::test]
    async fn an_empty_stream_is_an_incomplete_turn() {
        let finished = AgentFixture::new([Reply::new().disconnect()]).run().await;
        finished.check_outcome(EndReason::Incomplete, 1);
        assert_eq!(finished.outcome.new_items().len(), 1);
    }
}

mod calls_without_end_marker {
    //! Complete calls of an incomplete turn never run.

    use super::*;

    #[tokio::test]
    async fn complete_calls_of_an_incomplete_turn_never_run() {
        let world = AgentFixture::new([Reply::text("so").call("t", json!({})).disconnect()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Incomplete, 1);
        assert_eq!((world.tool_run_count(), finished.tool_start_count()), (0, 0));
        let settled = finished.handle.history().settled();
        assert!(settled.iter().all(|item| item.as_tool_call().is_none()), "nothing dangles");
        // The next run continues from there.
        let next =
            test_agent(Scripted::new(["hello"])).run_from(finished.handle.history(), "again");
        world::finish_run(next).await.check_outcome(EndReason::Completed, 1);
    }

    #[test]
    fn no_wire_runs_calls_without_an_end_marker() {
        for wire in Wire::ALL {
            let reply = Reply::new().call_raw("c", "t", "{}");
            let error = read_answer(wire, Answer::reply(reply).with_fault(Fault::NoTerminalMarker))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::IncompleteTurn, "{wire}");
        }
    }

    #[test]
    fn a_missing_finish_reason_is_accepted_only_by_dialect_setting() {
        assert_eq!(Dialect::default().turn_end, TurnEnd::FinishReason);
        assert_eq!(Dialect::OPENAI.turn_end, TurnEnd::FinishReason);
    }
}

mod error_as_first_event {
    //! An error as the first event of a stream is treated like an error status.

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_error_as_the_first_event_is_retried_like_an_error_status() {
        for wire in Wire::ALL {
            let busy = Answer::reply("x")
                .with_fault(Fault::Error(FaultPosition::Events(0), overloaded_error()));
            let error = read_answer(wire, busy.clone()).unwrap_err();
            assert!(error.is_retryable(), "{wire}: {error:?}");
            assert!(
                Error::new(error.kind(), "").is_retryable()
                    && error.find_source::<PartialTurn>().is_none(),
                "{wire}"
            );

            let model = WireProvider::new(wire, "m", [busy.clone(), busy, Answer::reply("hello")]);
            let finished = finish_run(test_agent(Retry::new(model.clone())).run("go")).await;
            finished.check_outcome(EndReason::Completed, 1);
            assert_eq!((finished.text(), model.sent_bodies().len()), ("hello", 3), "{wire}");
            assert_eq!(finished.retracted_usages(), [], "no output had to be retracted");
        }
    }

    #[tokio::test]
    async fn without_a_retry_it_is_the_runs_error() {
        let world = AgentFixture::new([Reply::error(overloaded_error())]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::ProviderError, 1);
        assert_eq!(finished.outcome.error, Some(overloaded_error()));
        assert_eq!(finished.outcome.new_items().len(), 1, "only the input");
        // The agent itself retries only turns whose stream broke off.
        let world = AgentFixture::new([Reply::error(overloaded_error())])
            .map_agent(|agent| agent.with_limits(limits_with_retries(2)));
        world.run().await.check_outcome(EndReason::ProviderError, 1);
    }

    #[tokio::test]
    async fn hooks_are_notified_of_a_failure_and_cannot_change_it() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let failure = hook::on_failure(move |_, error| noted.lock().unwrap().push(error.kind()));
        let world = AgentFixture::new([Reply::error(overloaded_error())])
            .map_agent(|agent| agent.with_hook(failure));
        world.run().await.check_outcome(EndReason::ProviderError, 1);
        assert_eq!(*seen.lock().unwrap(), [ErrorKind::Overloaded]);
    }
}

/// A reply with text, a complete call and usage, and then an error.
fn failing_reply() -> Reply {
    Reply::text("void").call_raw("v", "t", "{}").usage(token_usage(30, 3)).fail(overloaded_error())
}

mod error_mid_stream {
    //! An error in the middle of a stream: retraction, retries and fallbacks.

    use super::*;

    #[tokio::test]
    async fn an_error_mid_stream_ends_the_run_and_no_call_runs() {
        let world = AgentFixture::new([failing_reply(), "never".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::ProviderError, 1);
        assert_eq!(
            (world.tool_run_count(), world.request_count(), finished.text()),
            (0, 1, "void")
        );
        let error = finished.outcome.error.as_ref().unwrap();
        assert_eq!(
            error.find_source::<PartialTurn>().unwrap().text(),
            "void",
            "the partial turn is there"
        );
        assert_eq!(finished.retracted_usages(), []);
        assert_eq!(finished.outcome.usage, token_usage(30, 3));
        assert!(finished.outcome.new_items()[1..].iter().all(|item| item.interrupted));
    }

    #[tokio::test]
    async fn an_agent_retry_first_retracts_the_turn() {
        let world =
            AgentFixture::new([failing_reply(), Reply::text("good").usage(token_usage(10, 1))])
                .map_agent(|agent| agent.with_limits(limits_with_retries(1)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.transitions(), [Transition::Retry]);
        assert_eq!(finished.retracted_usages(), [token_usage(30, 3)]);
        assert_eq!(world.tool_run_count(), 0);
        let place = |fits: fn(&Event) -> bool| finished.events.iter().position(fits).unwrap();
        let retracted =
            place(|event| matches!(event, Event::Turn(turnstream::TurnEvent::Retracted { .. })));
        assert!(retracted < place(|event| matches!(event, Event::Continued { .. })));
        // Only the usage of the retracted turn is left.
        assert_eq!(finished.item_summaries(), ["user: go", "good"]);
        assert_eq!(finished.outcome.usage, token_usage(40, 4));
        assert_eq!(finished.refold_history(History::empty("id-1")), finished.handle.history());
        assert_eq!(world.model.requests()[1].history.len(), 1);
    }

    #[tokio::test]
    async fn a_turn_cut_inside_a_calls_arguments_is_requested_again_and_its_call_runs_once() {
        let cut = Reply::text("Running.").call_unfinished("a", "t", "{\"p\":\"pri").disconnect();
        let whole = Reply::text("Running.").call_raw("a", "t", "{\"p\":\"print(1)\"}");
        let world = AgentFixture::new([cut, whole, "ok".into()])
            .map_agent(|agent| agent.with_limits(limits_with_retries(1)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!((world.tool_run_count(), finished.text()), (1, "ok"));
        let history = finished.handle.history();
        let texts = history.iter().filter(|item| item.as_text() == Some("Running."));
        assert_eq!(texts.count(), 1, "nothing of the first attempt is left");
        let call = history.iter().find_map(turnstream::Item::as_tool_call).unwrap();
        assert_eq!(call.arguments, "{\"p\":\"print(1)\"}");
    }

    #[tokio::test]
    async fn consecutive_agent_retries_are_bounded_and_reset_by_a_turn() {
        let limited = |agent: turnstream::Agent| agent.with_limits(limits_with_retries(2));
        let finished =
            AgentFixture::new([failing_reply(), failing_reply(), failing_reply(), "never".into()])
                .map_agent(limited)
                .run()
                .await;
        finished.check_outcome(EndReason::ProviderError, 3);
        assert_eq!(finished.transitions(), [Transition::Retry, Transition::Retry]);
        assert_eq!(finished.outcome.usage, token_usage(90, 9), "each try is counted once");
        let world = AgentFixture::new([
            failing_reply(),
            failing_reply(),
            reply_calling_t("c"),
            failing_reply(),
            failing_reply(),
            "done".into(),
        ]);
        world.map_agent(limited).run().await.check_outcome(EndReason::Completed, 6);
    }

    #[tokio::test]
    async fn an_incomplete_turn_is_retried_like_an_error_mid_stream() {
        let world = AgentFixture::new([reply_calling_t("v").disconnect(), "good".into()])
            .map_agent(|agent| agent.with_limits(limits_with_retries(1)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!((finished.transitions(), world.tool_run_count()), (vec![Transition::Retry], 0));
        assert_eq!(finished.item_summaries(), ["user: go", "good"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retrying_provider_retracts_output_only_if_configured() {
        let model = || Scripted::new([failing_reply(), "good".into()]);
        let told_ = finish_run(test_agent(Retry::new(model())).run("go")).await;
        told_.check_outcome(EndReason::ProviderError, 1);
        let retry = Retry::new(model()).with_retraction();
        let told_ = finish_run(test_agent(retry).with_tools([uncounted_tool("t")]).run("go")).await;
        // The retry is within one turn: no transition, and one request of the agent.
        told_.check_outcome(EndReason::Completed, 1);
        assert_eq!(
            (told_.transitions(), told_.retracted_usages()),
            (vec![], vec![token_usage(30, 3)])
        );
        assert_eq!(told_.item_summaries(), ["user: go", "good"]);
        assert_eq!(told_.outcome.usage, token_usage(30, 3), "the void attempt is paid for once");
    }

    #[tokio::test]
    async fn a_fallback_retracts_the_partial_turn_and_names_the_next_model() {
        let other = Scripted::new(["good", "and again"]).with_model("other");
        let world = AgentFixture::new([reply_calling_t("c"), failing_reply()])
            .map_agent(|agent| agent.with_fallback(other.clone()));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(finished.transitions(), [Transition::NextTurn, Transition::Fallback]);
        assert_eq!(finished.models(), ["scripted", "scripted", "other"]);
        assert_eq!(finished.retracted_usages(), [token_usage(30, 3)]);
        assert_eq!(finished.item_summaries(), ["user: go", "call c", "result c", "good"]);
        assert_eq!(
            (world.tool_run_count(), world.request_count(), other.requests().len()),
            (1, 2, 1)
        );
        assert_eq!(finished.outcome.usage, token_usage(30, 3));
    }

    #[tokio::test]
    async fn after_all_fallbacks_fail_the_last_error_is_the_runs() {
        let other = Scripted::new([reply_calling_t("d"), Reply::error(overloaded_error())])
            .with_model("other");
        let world = AgentFixture::new([Reply::error(overloaded_error())])
            .map_agent(|agent| agent.with_fallback(other.clone()));
        let finished = world.run().await;
        finished.check_outcome(EndReason::ProviderError, 3);
        assert_eq!(finished.models(), ["scripted", "other", "other"]);
        // An error that another model could not avoid causes no fallback.
        let refused = Error::new(ErrorKind::InvalidRequest, "no");
        let world = AgentFixture::new([Reply::error(refused)])
            .map_agent(|agent| agent.with_fallback(other));
        world.run().await.check_outcome(EndReason::ProviderError, 1);
    }
}
