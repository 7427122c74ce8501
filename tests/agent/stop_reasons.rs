//! Unsuccessful stop reasons, and their effects on a run.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnstream::agent::{Limits, hook};
use turnstream::env::CountingIds;
use turnstream::event::{AppendReason, EndReason, Transition};
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::request::Options;
use turnstream::turn::StopReason;
use turnstream::{Agent, ErrorKind, Event, Item};
use turnstream_testing::{Answer, Wire};

use turnstream_test_support::items::token_usage;
use turnstream_test_support::models::{ChunkedProvider, WireProvider};
use turnstream_test_support::runs::{limits_with_max_turns, reply_calling_t, test_agent};
use turnstream_test_support::tools::{Counter, ok_tool, uncounted_tool};
use turnstream_test_support::wires::{encode, read_frames, sse_body, wire_frame};
use turnstream_test_support::world::{self, AgentFixture, finish_run};

mod calls_truncated_by_output_limit {
    //! Calls that the output limit truncated never run and are requested once more.

    use super::*;

    #[tokio::test]
    async fn calls_truncated_by_the_output_limit_never_run_and_are_requested_once_more() {
        let cut = |id| {
            let whole = Reply::new().call_raw("whole", "t", "{}");
            whole.call_unfinished(id, "t", r#"{"path":"/a"#).stop(StopReason::MaxTokens)
        };
        let world = AgentFixture::new([cut("a"), "shorter".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.result_kinds(), [ResultKind::Truncated; 2]);
        assert_eq!(finished.transitions(), [Transition::MaxOutputTokensRecovery]);
        assert!(finished.result_texts()[0].contains("cut off by the output limit"));
        assert_eq!(world.tool_run_count(), 0);
        // The second one in a row ends the run, and each call has a result.
        let world = AgentFixture::new([cut("a"), cut("b"), "never".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Truncated, 2);
        assert_eq!(finished.result_kinds(), [ResultKind::Truncated; 4]);
        assert!(
            finished.outcome.partial
                && finished.outcome.error.is_none()
                && world.tool_run_count() == 0
        );
    }

    #[tokio::test]
    async fn a_truncated_call_is_sent_as_a_valid_call_on_every_wire() {
        let cut =
            Reply::new().call_unfinished("c", "t", r#"{"path":"/a"#).stop(StopReason::MaxTokens);
        let finished = AgentFixture::new([cut, "so".into()]).run().await;
        let history = finished.handle.history();
        let raw = history.iter().find_map(Item::as_tool_call).unwrap();
        assert_eq!(raw.arguments, r#"{"path":"/a"#, "the raw text is kept");
        for wire in Wire::ALL {
            let model = WireProvider::new(wire, "m", ["hello"]);
            let next = test_agent(model.clone()).with_tools([uncounted_tool("t")]);
            assert_reported_ok(next.run_from(history.clone(), "go on")).await;
            assert_eq!(model.sent_bodies().len(), 1);
        }
    }

    #[tokio::test]
    async fn a_truncation_reported_under_another_stop_reason_is_recognized() {
        let truncated = ResultKind::Truncated;
        let odd = || StopReason::Other("odd".into());
        for stop in [StopReason::ToolCalls, StopReason::Stop, odd()] {
            // A hook cannot repair truncated arguments, and even the complete call does not run.
            let repair = hook::repair_arguments(|_, _, _| Some("{}".into()));
            let cut = || truncated_call_with_stop(stop.clone(), 50);
            let world =
                AgentFixture::new([cut(), reply_calling_t("c"), cut(), cut(), "never".into()]);
            let world = world
                .map_agent(with_max_50_output_tokens)
                .map_agent(|agent| agent.with_hook(repair));
            let finished = world.run().await;
            // The turn is retried once, a good turn resets the count, and the second in a row ends
            // the run.
            finished.check_outcome(EndReason::Truncated, 4);
            let kinds = [[truncated; 2].as_slice(), &[ResultKind::Ok], &[truncated; 4]].concat();
            assert_eq!(
                (finished.result_kinds(), world.tool_run_count(), world.request_count()),
                (kinds, 1, 4),
                "{stop:?}"
            );
            assert!(finished.result_texts()[1].contains("cut off by the output limit"));
            let (cut, next) = (Transition::MaxOutputTokensRecovery, Transition::NextTurn);
            assert_eq!(finished.transitions(), [cut, next, cut]);
            assert!(finished.outcome.partial && finished.outcome.error.is_none());
            let turn = finished.events.iter().find_map(Event::turn_complete).unwrap();
            let own = StopReason::as_str(&stop).to_owned();
            assert_eq!(turn.stop_reason(), &StopReason::MaxTokens);
            assert_eq!(turn.raw_stop_reason(), Some(&*own), "the server's word is kept");
        }
    }

    #[tokio::test]
    async fn invalid_arguments_below_the_output_limit_are_a_model_error() {
        let (ok, invalid) = (ResultKind::Ok, ResultKind::InvalidArguments);
        for output_tokens in [49, 0] {
            let reply = truncated_call_with_stop(StopReason::ToolCalls, output_tokens);
            let world =
                AgentFixture::new([reply, "done".into()]).map_agent(with_max_50_output_tokens);
            let finished = world.run().await;
            finished.check_outcome(EndReason::Completed, 2);
            assert_eq!((finished.result_kinds(), world.tool_run_count()), (vec![ok, invalid], 1));
        }
        // A request without an output limit has none to reach.
        let world =
            AgentFixture::new([truncated_call_with_stop(StopReason::ToolCalls, 50), "done".into()]);
        assert_eq!(
            (world.run().await.result_kinds(), world.tool_run_count()),
            (vec![ok, invalid], 1)
        );
    }

    #[tokio::test]
    async fn a_disguised_truncation_is_recognized_on_every_wire_that_can_report_it() {
        for wire in Wire::ALL {
            let cut = match wire {
                // Arguments are an object on this wire, which cannot be truncated: only a call in
                // pieces can.
                Wire::Gemini => sse_body(&[
                    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"t","willContinue":true}}]}}]}"#,
                    r#"{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":"$.a","stringValue":"x","willContinue":true}],"willContinue":true}}]}}]}"#,
                    r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":50}}"#,
                ])
                .into_bytes(),
                // The same applies here; but gateways send arguments as text.
                Wire::Ollama => concat!(
                    r#"{"message":{"tool_calls":[{"function":{"name":"t","arguments":"{\"path\":\"/a"}}]}}"#,
                    "\n",
                    r#"{"done":true,"prompt_eval_count":10,"eval_count":50}"#,
                    "\n",
                )
                .into(),
                _ => {
                    let cut = Reply::new().call_raw("c", "t", r#"{"path":"/a"#);
                    Answer::reply(cut.usage(token_usage(10, 50))).to_bytes(wire)
                }
            };
            let cut = Answer::raw("text/event-stream", cut);
            let model = WireProvider::new(wire, "m", [cut, Answer::reply("shorter")]);
            let ran = Counter::default();
            let agent = with_max_50_output_tokens(test_agent(model.clone()))
                .with_tools([ok_tool("t", &ran)]);
            let finished = finish_run(agent.run("go")).await;
            finished.check_outcome(EndReason::Completed, 2);
            assert_eq!(
                (finished.result_kinds(), ran.started_count()),
                (vec![ResultKind::Truncated], 0),
                "{wire}"
            );
            assert_eq!(model.sent_bodies().len(), 2, "{wire}");
        }
    }
}

async fn assert_reported_ok(run: turnstream::Run) {
    finish_run(run).await.check_outcome(EndReason::Completed, 1);
}

/// A turn whose second call was truncated, with a custom stop reason of the server.
fn truncated_call_with_stop(stop: StopReason, output_tokens: u64) -> Reply {
    let whole = Reply::new().call_raw("", "t", "{}").call_raw("", "t", r#"{"path":"/a"#);
    whole.usage(token_usage(10, output_tokens)).stop(stop)
}

fn with_max_50_output_tokens(agent: Agent) -> Agent {
    agent.with_options(Options { max_output_tokens: Some(50), ..Options::default() })
}

mod complete_calls_of_a_truncated_turn {
    //! Complete calls of a turn that hit the output limit do not run either.

    use super::*;

    #[tokio::test]
    async fn complete_calls_of_a_truncated_turn_do_not_run() {
        let cut = |id: &str| reply_calling_t(id).stop(StopReason::MaxTokens);
        let world = AgentFixture::new([
            cut("a"),
            reply_calling_t("b"),
            cut("c"),
            reply_calling_t("d"),
            "done".into(),
        ]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 5);
        let (truncated, ok) = (ResultKind::Truncated, ResultKind::Ok);
        assert_eq!(
            finished.result_kinds(),
            [truncated, ok, truncated, ok],
            "a good turn resets the count"
        );
        assert_eq!(world.tool_run_count(), 2);
        let finished = AgentFixture::new([cut("a"), cut("b")]).run().await;
        finished.check_outcome(EndReason::Truncated, 2);
        assert_eq!(finished.result_kinds(), [truncated; 2], "never dangling");
    }
}

mod text_truncated_by_output_limit {
    //! A truncated text is continued a bounded number of times.

    use super::*;

    #[tokio::test]
    async fn a_truncated_text_is_continued_at_most_three_times_in_a_row() {
        let cut = |words: &str| Reply::text(words).stop(StopReason::MaxTokens);
        let finished = AgentFixture::new([cut("a"), cut("b"), cut("c"), "d".into()]).run().await;
        finished.check_outcome(EndReason::Completed, 4);
        assert_eq!(finished.transitions(), [Transition::MaxOutputTokensRecovery; 3]);
        let prompts = finished.appended_texts(AppendReason::Continuation);
        let prompt = "user: You were cut off. Please continue from where you stopped.";
        assert_eq!(prompts, [prompt; 3]);
        assert_eq!(
            finished.item_summaries()[1..5],
            ["a", prompt, "b", prompt],
            "all of it is kept"
        );

        let world = AgentFixture::new([cut("a"), cut("b"), cut("c"), cut("d"), "never".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Truncated, 4);
        assert_eq!((finished.text(), world.request_count()), ("abcd", 4));
        assert!(finished.outcome.partial && finished.outcome.error.is_none());
        // A next turn resets the count.
        let world = AgentFixture::new([
            cut("a"),
            cut("b"),
            cut("c"),
            reply_calling_t("x"),
            cut("d"),
            cut("e"),
            cut("f"),
            "g".into(),
        ]);
        world.run().await.check_outcome(EndReason::Completed, 8);
    }
}

mod content_filter {
    //! A content filter ends the run without an error.

    use super::*;

    #[tokio::test]
    async fn a_content_filter_ends_the_run_without_an_error() {
        for reply in [Reply::new(), Reply::text("I was going to")] {
            let world = AgentFixture::new([reply.stop(StopReason::ContentFilter), "never".into()]);
            let finished = world.run().await;
            finished.check_outcome(EndReason::Filtered, 1);
            assert!(finished.outcome.error.is_none() && !finished.outcome.partial);
            assert_eq!(world.request_count(), 1);
        }
    }

    #[test]
    fn an_empty_filtered_response_is_a_turn_on_wires_that_report_the_filter() {
        for (wire, frame) in [
            (Wire::OpenAiChat, r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#),
            (Wire::Gemini, r#"{"candidates":[{"finishReason":"SAFETY"}]}"#),
        ] {
            let turn =
                read_frames(wire, &[frame, "[DONE]"][..1]).map(|turn| turn.stop_reason().clone());
            assert_eq!(turn.unwrap(), StopReason::ContentFilter, "{wire}");
        }
    }
}

mod calls_of_a_filtered_turn {
    //! Calls of a turn that a content filter ended are answered and never run.

    use super::*;

    #[tokio::test]
    async fn calls_of_a_filtered_turn_are_answered_and_never_run() {
        let world = AgentFixture::new([reply_calling_t("a")
            .call("t", json!({}))
            .stop(StopReason::ContentFilter)]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Filtered, 1);
        assert_eq!(
            (finished.result_kinds(), world.tool_run_count()),
            (vec![ResultKind::Skipped; 2], 0)
        );
    }
}

mod refusal {
    //! A refusal ends the run, keeps its text and details, and the history can be forked before it.

    use super::*;

    #[tokio::test]
    async fn a_refusal_ends_the_run_and_keeps_its_text() {
        let world = AgentFixture::new([Reply::new().refuse("I will not."), "never".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Refused, 1);
        assert_eq!((finished.text(), world.request_count()), ("I will not.", 1));
        assert!(finished.outcome.error.is_none());
        let world = AgentFixture::new([reply_calling_t("c").stop(StopReason::Refusal)]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Refused, 1);
        assert_eq!(
            (finished.result_kinds(), world.tool_run_count()),
            (vec![ResultKind::Skipped], 0)
        );
    }

    #[test]
    fn the_details_of_a_refusal_are_kept() {
        let turn = read_frames(
            Wire::Anthropic,
            &[
                r#"{"type":"message_start","message":{"id":"m1"}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"No."}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"category":"cyber"}}}"#,
                r#"{"type":"message_stop"}"#,
            ],
        )
        .unwrap();
        assert_eq!(turn.stop_reason(), &StopReason::Refusal);
        assert!(serde_json::to_string(&*turn).unwrap().contains("cyber"), "{turn:?}");
    }

    #[tokio::test]
    async fn a_history_can_be_truncated_before_the_refused_prompt() {
        let model = Scripted::new(["hi".into(), Reply::new().refuse("No."), "gladly".into()]);
        let agent = test_agent(model.clone());
        let first = finish_run(agent.run("hello")).await;
        let before = first.handle.history();
        let refused = finish_run(agent.run_from(before.clone(), "something bad")).await;
        refused.check_outcome(EndReason::Refused, 1);
        let history = refused.handle.history();
        let fork = history.before_last_prompt().fork(&CountingIds::new("fork"));
        let finished = finish_run(agent.run_from(fork, "something good")).await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(
            finished.item_summaries(),
            ["user: hello", "hi", "user: something good", "gladly"]
        );
        assert_ne!(finished.handle.history().id(), history.id());
    }
}

mod paused_turn {
    //! A turn that the provider pauses is resumed as one logical turn.

    use super::*;

    #[tokio::test]
    async fn a_paused_turn_is_resumed_and_its_usage_summed() {
        let paused =
            |words: &str| Reply::text(words).usage(token_usage(10, 1)).stop(StopReason::Pause);
        let world = AgentFixture::new([
            paused("one"),
            paused("two"),
            Reply::text("three").usage(token_usage(5, 1)),
        ]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(finished.transitions(), [Transition::PauseResumed; 2]);
        assert_eq!(finished.outcome.usage, token_usage(25, 3));
        // The paused turn is sent again as it is, without a user message in between.
        assert_eq!(finished.item_summaries(), ["user: go", "one", "two", "three"]);
        assert_eq!(world.model.requests()[2].history.len(), 3);
    }

    #[tokio::test]
    async fn a_paused_turn_and_its_continuation_count_as_one_turn() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let prepare = hook::prepare_request(move |state, request| {
            noted.lock().unwrap().push((state.counts.model_calls, state.counts.tool_turns));
            async { request }
        });
        let paused =
            |words: &str| Reply::text(words).usage(token_usage(10, 1)).stop(StopReason::Pause);
        let replies = [
            paused("one "),
            paused("two "),
            Reply::text("three"),
            reply_calling_t("c"),
            "end".into(),
        ];
        let world = AgentFixture::new(replies).map_agent(|agent| agent.with_hook(prepare));
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(
            (finished.text(), world.request_count()),
            ("one two three", 3),
            "one answer of three requests"
        );
        // A turn with tool results counts, a pause does not.
        let next = world::finish_run(world.agent.run_from(finished.handle.history(), "more")).await;
        next.check_outcome(EndReason::Completed, 2);
        assert_eq!(*seen.lock().unwrap(), [(1, 0), (2, 0), (3, 0), (1, 0), (2, 1)]);
    }

    #[tokio::test]
    async fn a_paused_turn_is_sent_back_as_the_last_single_message() {
        let paused = |words: &str| Answer::reply(Reply::text(words).stop(StopReason::Pause));
        let model = WireProvider::new(
            Wire::Anthropic,
            "m",
            [paused("one "), paused("two "), Answer::reply("three")],
        );
        let finished = finish_run(test_agent(model.clone()).run("go")).await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(finished.text(), "one two three");
        let expected = [
            vec!["user go"],
            vec!["user go", "assistant one"],
            vec!["user go", "assistant one two"],
        ];
        for (sent, expected) in model.sent_bodies().iter().zip(expected) {
            let text = |message: &Value| {
                let blocks = message["content"].as_array().unwrap().iter();
                let words =
                    blocks.map(|block| format!(" {}", block["text"].as_str().unwrap().trim()));
                format!("{}{}", message["role"].as_str().unwrap(), words.collect::<String>())
            };
            let messages = sent["messages"].as_array().unwrap();
            assert_eq!(messages.iter().map(text).collect::<Vec<_>>(), expected, "{sent}");
        }
    }

    #[tokio::test]
    async fn gemini_continues_a_paused_turn_with_its_token_as_googles_own_sdk_does() {
        let paused = |words: &str| Answer::reply(Reply::text(words).stop(StopReason::Pause));
        let answers =
            [paused("one "), paused("two "), Answer::reply("three"), Answer::reply("And so on.")];
        let model = WireProvider::new(Wire::Gemini, "m", answers);
        let agent = test_agent(model.clone());
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(finished.text(), "one two three");
        assert_eq!(finished.transitions(), [Transition::PauseResumed; 2]);
        finish_run(agent.run_from(finished.handle.history(), "more")).await;
        let sent = model.sent_bodies();
        // A request that continues the turn repeats the contents of the first one.
        assert_eq!(sent[0]["continuationToken"], Value::Null);
        let tokens: Vec<&str> =
            sent[1..3].iter().map(|body| body["continuationToken"].as_str().unwrap()).collect();
        assert_ne!(tokens[0], tokens[1]);
        assert_eq!(sent[1]["contents"], sent[0]["contents"]);
        assert_eq!(sent[2]["contents"], sent[0]["contents"]);
        // Afterwards, the parts of the turn are a single content.
        assert_eq!(sent[3]["continuationToken"], Value::Null);
        let parts = &sent[3]["contents"][1]["parts"];
        let texts: String =
            parts.as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
        assert_eq!(texts, "one two three");
        assert_eq!(sent[3]["contents"].as_array().unwrap().len(), 3);
    }

    #[tokio::test]
    async fn endless_pauses_are_bounded() {
        // By default; the usage is the sum of all parts.
        let paused = |_: &turnstream::Request, _| {
            Reply::text("x").usage(token_usage(10, 1)).stop(StopReason::Pause)
        };
        let finished = AgentFixture::from_model(Scripted::from_fn(paused)).run().await;
        finished.check_outcome(EndReason::MaxTurns, 20);
        assert_eq!(
            (finished.outcome.usage, finished.outcome.partial),
            (token_usage(200, 20), true)
        );
        let model = Scripted::from_fn(|_, _| reply_calling_t("c").stop(StopReason::Pause));
        let world = AgentFixture::from_model(model)
            .map_agent(|agent| agent.with_limits(limits_with_max_turns(4)));
        let finished = world.run().await;
        finished.check_outcome(EndReason::MaxTurns, 4);
        assert_eq!(
            (finished.result_kinds(), world.tool_run_count()),
            (vec![ResultKind::Skipped; 4], 0)
        );
    }
}

/// The frames of a turn that says `words`, if any, and ends for the reason `word`.
fn frames_ending_with(wire: Wire, words: Option<&str>, word: &str) -> Vec<String> {
    let frames = match wire {
        Wire::Anthropic => {
            let block = words.map(|text| {
                let block = json!({ "type": "text", "text": text });
                json!({ "type": "content_block_start", "index": 0, "content_block": block })
            });
            let end = [
                json!({ "type": "message_delta", "delta": { "stop_reason": word } }),
                json!({ "type": "message_stop" }),
            ];
            let start = json!({ "type": "message_start", "message": { "id": "m" } });
            [start].into_iter().chain(block).chain(end).collect()
        }
        Wire::OpenAiChat => vec![
            json!({ "choices": [{ "delta": { "content": words.unwrap_or_default() } }] }),
            json!({ "choices": [{ "delta": {}, "finish_reason": word }] }),
        ],
        Wire::OpenAiResponses => vec![
            json!({ "type": "response.output_text.delta", "output_index": 0,
                "delta": words.unwrap_or_default() }),
            json!({ "type": "response.incomplete", "response": { "status": "incomplete",
                "incomplete_details": { "reason": word } } }),
        ],
        Wire::Ollama => {
            vec![json!({ "message": { "content": words.unwrap_or_default() }, "done": true,
                "done_reason": word })]
        }
        _ => {
            let parts: Vec<_> = words.iter().map(|text| json!({ "text": text })).collect();
            vec![json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": word }] })]
        }
    };
    frames.iter().map(Value::to_string).collect()
}

/// A model that ends each turn with the given words and reason.
fn model_ending_with(wire: Wire, turns: &[(Option<&str>, &str)]) -> ChunkedProvider {
    let frames = |(words, word): &(Option<&str>, &str)| {
        let frames = frames_ending_with(wire, *words, word);
        frames.iter().map(|data| wire_frame(wire, data)).collect()
    };
    ChunkedProvider::new(turns.iter().map(frames).collect(), wire)
}

mod words_for_the_end_of_a_turn {
    //! The words with which vendors and gateways end a turn mean the same on every wire.

    use super::*;

    fn read_end(wire: Wire, word: &str) -> Result<StopReason, ErrorKind> {
        let frames = frames_ending_with(wire, Some("half"), word);
        let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
        let turn = read_frames(wire, &frames).map_err(|error| error.kind())?;
        Ok(turn.stop_reason().clone())
    }

    #[test]
    fn words_of_other_servers_are_known_on_every_wire() {
        use StopReason::{ContentFilter, MaxTokens, Stop};
        for wire in Wire::ALL {
            for (reason, words) in [
                (Ok(Stop), ["eos", "eos_token", "end", "stop_sequence"]),
                (Ok(MaxTokens), ["model_length", "max_messages", "length", "max_tokens"]),
                (Ok(ContentFilter), ["content_filter", "sensitive", "sensitive", "sensitive"]),
                (Err(ErrorKind::Server), ["error", "abort", "network_error", "error"]),
            ] {
                for word in words {
                    assert_eq!(read_end(wire, word), reason, "{wire}: {word}");
                }
            }
        }
    }

    #[test]
    fn googles_words_for_a_filter_are_known() {
        for word in ["ESCALATION", "PUP_LIMITED_DISABLED", "MODEL_ARMOR"] {
            assert_eq!(read_end(Wire::Gemini, word), Ok(StopReason::ContentFilter), "{word}");
        }
        // Without a token, the answer cannot be continued as the vendor does.
        assert_eq!(read_end(Wire::Gemini, "CONTINUATION"), Ok(StopReason::MaxTokens));
        assert_eq!(read_end(Wire::Gemini, "ABORT"), Err(ErrorKind::Server));
    }

    #[tokio::test]
    async fn a_turn_that_the_server_gave_up_is_requested_again() {
        for wire in Wire::ALL {
            let model = model_ending_with(wire, &[(Some("half"), "abort"), (Some("whole"), "end")]);
            let limits = Limits { max_turn_retries: 1, ..Limits::default() };
            let finished = finish_run(test_agent(model).with_limits(limits).run("go")).await;
            finished.check_outcome(EndReason::Completed, 2);
            assert_eq!(finished.transitions(), [Transition::Retry], "{wire}");
            assert_eq!((finished.text(), finished.outcome.partial), ("whole", false), "{wire}");
        }
    }
}

mod unknown_stop_reason {
    //! An unknown stop reason completes text, which is marked as partial, and runs no calls.

    use super::*;

    #[tokio::test]
    async fn text_with_an_unknown_stop_reason_is_partial_and_names_the_reason_on_every_wire() {
        for wire in Wire::ALL {
            for word in ["weird", "steered", "load"] {
                let model = model_ending_with(wire, &[(Some("half an answer"), word)]);
                let finished = finish_run(test_agent(model).run("go")).await;
                finished.check_outcome(EndReason::Completed, 1);
                let outcome = &finished.outcome;
                assert!(outcome.partial && outcome.error.is_none(), "{wire}");
                assert_eq!(outcome.unknown_stop_reason.as_deref(), Some(word), "{wire}");
                assert_eq!(outcome.text, "half an answer", "{wire}");
                let label = outcome.labeled_text();
                assert!(label.contains(word) && label.contains("partial"), "{wire}: {label}");
                let json = serde_json::to_value(outcome).unwrap();
                assert_eq!(json["unknown_stop_reason"], word, "{wire}");
                let read: turnstream::Outcome = serde_json::from_value(json).unwrap();
                assert_eq!(&read, outcome, "{wire}");
            }
        }
    }

    #[tokio::test]
    async fn an_empty_turn_with_an_unknown_stop_reason_is_never_an_answer_on_any_wire() {
        for wire in Wire::ALL {
            for words in [None, Some(" \n")] {
                let empty = (words, "load");
                let model = model_ending_with(wire, &[empty, (Some("here"), "end")]);
                let finished = finish_run(test_agent(model).run("go")).await;
                finished.check_outcome(EndReason::Completed, 2);
                assert_eq!(finished.transitions(), [Transition::Corrective], "{wire}");
                assert_eq!((finished.text(), finished.outcome.partial), ("here", false), "{wire}");
                assert_eq!(finished.outcome.unknown_stop_reason, None, "{wire}");

                let model = model_ending_with(wire, &[empty; 3]);
                let finished = finish_run(test_agent(model).run("go")).await;
                finished.check_outcome(EndReason::Malformed, 3);
                assert_eq!(finished.outcome.unknown_stop_reason.as_deref(), Some("load"), "{wire}");
            }
        }
    }

    #[tokio::test]
    async fn an_empty_turn_with_an_unknown_stop_reason_after_tool_results_is_not_an_answer() {
        let odd = || Reply::new().stop(StopReason::Other("odd".into()));
        let world = AgentFixture::new([reply_calling_t("c"), odd(), "done".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 3);
        assert_eq!(finished.transitions(), [Transition::NextTurn, Transition::Corrective]);
        assert_eq!(finished.text(), "done");
    }

    #[tokio::test]
    async fn a_parent_sees_that_the_answer_of_its_sub_agent_may_be_incomplete() {
        let child = Scripted::new([Reply::text("half").stop(StopReason::Other("odd".into()))]);
        let child = Agent::new(child).as_tool("child", "Answers").unwrap();
        let replies = [Reply::new().call("child", json!({ "prompt": "go" })), "done".into()];
        let finished = finish_run(test_agent(Scripted::new(replies)).with_tool(child).run("go"));
        let texts = finished.await.result_texts();
        assert!(texts[0].starts_with("half") && texts[0].contains("`odd`"), "{texts:?}");
    }

    #[tokio::test]
    async fn an_unknown_stop_reason_completes_text_and_runs_no_calls() {
        let odd = |reply: Reply| reply.stop(StopReason::Other("moon_phase".into()));
        let finished = AgentFixture::new([odd(Reply::text("x"))]).run().await;
        finished.check_outcome(EndReason::Completed, 1);
        let turn = finished.events.iter().find_map(Event::turn_complete).unwrap();
        assert_eq!(turn.raw_stop_reason(), Some("moon_phase"));

        let world = AgentFixture::new([odd(reply_calling_t("a")), "done".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.transitions(), [Transition::Corrective]);
        let world_ = AgentFixture::new([
            odd(reply_calling_t("a")),
            odd(reply_calling_t("b")),
            "never".into(),
        ]);
        let finished = world_.run().await;
        finished.check_outcome(EndReason::Malformed, 2);
        assert_eq!(finished.result_kinds(), [ResultKind::Skipped; 2]);
        assert_eq!((world.tool_run_count(), world_.tool_run_count()), (0, 0));
    }

    #[test]
    fn known_aliases_of_stop_are_recognized_and_unknown_reasons_are_kept() {
        let read = |word: &str| {
            let frame = format!(
                r#"{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"{word}"}}]}}"#
            );
            let turn = read_frames(Wire::OpenAiChat, &[&frame, "[DONE]"]).unwrap();
            (turn.stop_reason().clone(), turn.raw_stop_reason().unwrap().to_owned())
        };
        assert_eq!(read("end"), (StopReason::Stop, "end".into()));
        assert_eq!(read("eclipse"), (StopReason::Other("eclipse".into()), "eclipse".into()));
    }
}

mod calls_for_the_client {
    //! A call that is not a call of a tool and that only the client can answer is an error.

    use super::*;

    /// A response with these output items.
    fn response(items: &[Value]) -> Vec<String> {
        let done = (0..).zip(items).map(|(at, item): (u32, _)| {
            json!({ "type": "response.output_item.done", "output_index": at, "item": item })
        });
        let end = json!({ "type": "response.completed", "response":
            { "id": "r", "status": "completed", "output": items,
              "usage": { "input_tokens": 10, "output_tokens": 3 } } });
        done.chain([end])
            .map(|event| wire_frame(Wire::OpenAiResponses, &event.to_string()))
            .collect()
    }

    fn message(text: &str) -> Value {
        json!({ "type": "message", "id": "m", "role": "assistant",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
    }

    #[tokio::test]
    async fn a_call_that_only_the_client_can_answer_is_a_typed_error_and_the_history_can_be_sent() {
        for kind in [
            "computer_call",
            "shell_call",
            "local_shell_call",
            "apply_patch_call",
            "custom_tool_call",
            "mcp_approval_request",
        ] {
            let call =
                json!({ "type": kind, "id": "call_1", "call_id": "c", "status": "completed" });
            let function = json!({ "type": "function_call", "id": "fc_1", "call_id": "f",
                "name": "t", "arguments": "{}" });
            for before in [vec![], vec![message("I will look.")], vec![function]] {
                let items = [before, vec![call.clone()]].concat();
                let turns = vec![response(&items), response(&[message("Hello.")])];
                let model = ChunkedProvider::new(turns, Wire::OpenAiResponses);
                let requests = Arc::clone(&model.requests);
                let ran = Counter::default();
                let agent = test_agent(model).with_tools([ok_tool("t", &ran)]);
                let finished = finish_run(agent.run("go")).await;
                finished.check_outcome(EndReason::ProviderError, 1);
                let error = finished.outcome.error.as_ref().unwrap();
                assert_eq!(
                    (error.kind(), error.parameter()),
                    (ErrorKind::Unsupported, Some("tools"))
                );
                assert!(error.message().contains(kind), "{error}");
                assert_eq!((ran.started_count(), finished.outcome.usage), (0, token_usage(10, 3)));
                // The next request does not contain a call without an answer.
                let next = agent.run_from(finished.handle.history(), "Hello?");
                finish_run(next).await.check_outcome(EndReason::Completed, 1);
                let sent = requests.lock().unwrap().pop().unwrap();
                let sent = encode(Wire::OpenAiResponses, "m", &sent).to_string();
                assert!(!sent.contains(kind), "{sent}");
            }
        }
    }

    #[tokio::test]
    async fn a_call_that_the_server_answers_itself_is_not_an_error() {
        let call = json!({ "type": "shell_call", "id": "s", "call_id": "c" });
        let output = json!({ "type": "shell_call_output", "id": "o", "call_id": "c" });
        let turns = vec![response(&[call, output, message("Done.")]), response(&[message("Yes.")])];
        let model = ChunkedProvider::new(turns, Wire::OpenAiResponses);
        let requests = Arc::clone(&model.requests);
        let agent = test_agent(model);
        let finished = finish_run(agent.run("go")).await;
        finished.check_outcome(EndReason::Completed, 1);
        let next = agent.run_from(finished.handle.history(), "again");
        finish_run(next).await.check_outcome(EndReason::Completed, 1);
        let sent = requests.lock().unwrap().pop().unwrap();
        let sent = encode(Wire::OpenAiResponses, "m", &sent).to_string();
        assert!(sent.contains("shell_call_output") && sent.contains("\"shell_call\""), "{sent}");
    }
}

mod empty_turn {
    //! An empty or reasoning-only turn is corrected a bounded number of times.

    use super::*;

    #[tokio::test]
    async fn an_empty_or_reasoning_only_turn_is_corrected_and_the_third_in_a_row_ends_the_run() {
        let finished = AgentFixture::new([Reply::new(), "sorry".into()]).run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(finished.transitions(), [Transition::Corrective]);
        assert_eq!(finished.appended_texts(AppendReason::Corrective).len(), 1);
        let world = AgentFixture::new([
            Reply::new(),
            Reply::new().think("hm"),
            Reply::new(),
            "never".into(),
        ]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Malformed, 3);
        assert_eq!(world.request_count(), 3);
        // One good reply in between resets the count. After its results, an empty reply ends the
        // run.
        let finished =
            AgentFixture::new([Reply::new(), Reply::new(), reply_calling_t("c"), Reply::new()]);
        finished.run().await.check_outcome(EndReason::Completed, 4);
    }

    #[tokio::test]
    async fn white_space_alone_is_not_an_answer() {
        let world = AgentFixture::new([Reply::text(" \n\n"), "sorry".into()]);
        let finished = world.run().await;
        finished.check_outcome(EndReason::Completed, 2);
        assert_eq!(
            (finished.text(), finished.transitions()),
            ("sorry", vec![Transition::Corrective])
        );
        // After tool results, it is an empty reply, which ends the run.
        let world = AgentFixture::new([reply_calling_t("c"), Reply::text("\n"), "never".into()]);
        world.run().await.check_outcome(EndReason::Completed, 2);
    }

    #[tokio::test]
    async fn a_corrected_history_is_valid_on_every_wire() {
        for wire in Wire::ALL {
            let model =
                WireProvider::new(wire, "m", [Reply::new().think("hm"), Reply::text("hello")]);
            finish_run(test_agent(model.clone()).run("go"))
                .await
                .check_outcome(EndReason::Completed, 2);
            assert_eq!(model.sent_bodies().len(), 2, "{wire}");
        }
    }

    #[tokio::test]
    async fn an_image_without_text_is_an_answer() {
        let picture =
            json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA" } }]);
        let chunk = |delta, reason: Option<&str>| {
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
            json!({ "choices": [choice] }).to_string()
        };
        let body =
            sse_body(&[chunk(json!({ "images": picture }), None), chunk(json!({}), Some("stop"))]);
        let model = ChunkedProvider::new(vec![vec![body]], Wire::OpenAiChat);
        let finished = finish_run(test_agent(model).run("go")).await;
        finished.check_outcome(EndReason::Completed, 1);
        let kept = finished.handle.history().last().unwrap().provider_data.clone().unwrap();
        assert!(kept.value.as_str().contains("data:image/png"), "{kept:?}");
    }
}

mod events_after_the_end {
    //! Events after the end marker: usage counts, content does not.

    use super::*;

    #[test]
    fn usage_after_the_end_marker_counts_and_content_does_not() {
        let turn = read_frames(
            Wire::OpenAiChat,
            &[
                r#"{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}"#,
                r#"{"choices":[{"delta":{"content":" there"},"finish_reason":null}]}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#,
                "[DONE]",
                r#"{"choices":[{"delta":{"content":"!"}}]}"#,
            ],
        )
        .unwrap();
        assert_eq!((turn.text().as_str(), turn.usage()), ("hi", token_usage(7, 2)));
    }

    #[tokio::test]
    async fn no_event_follows_the_end_of_a_turn() {
        let late = turnstream::TurnEvent::TextDelta { index: 0, text: "late".into() };
        let finished =
            AgentFixture::new([Reply::text("hi").stop(StopReason::Stop).event(late)]).run().await;
        finished.check_outcome(EndReason::Completed, 1);
        assert_eq!(finished.item_summaries(), ["user: go", "hi"]);
    }
}

mod empty_reply_after_tool_results {
    //! An empty reply after tool results completes the run.

    use super::*;

    #[tokio::test]
    async fn an_empty_reply_after_tool_results_completes_the_run() {
        for last in [Reply::new(), Reply::new().think("all done")] {
            let world = AgentFixture::new([reply_calling_t("c"), last, "never".into()]);
            let finished = world.run().await;
            finished.check_outcome(EndReason::Completed, 2);
            assert_eq!((finished.text(), world.request_count()), ("", 2));
        }
    }
}
