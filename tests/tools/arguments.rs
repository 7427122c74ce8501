//! Unusable arguments, and call ids that are empty or used twice.

use futures::future::ready;
use serde_json::json;
use turnstream::agent::hook::{self, Hook};
use turnstream::event::EndReason;
use turnstream::item::ResultKind;
use turnstream::provider::Reply;
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Event, History, Outcome};
use turnstream_testing::Wire;

use turnstream_test_support::models::ChunkedProvider;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    check_outcome, collect_rest, final_outcome, is_tool_started, result_kinds, result_summaries,
    run_outcome, run_to_end, scripted_agent, tool_calls, tool_results,
};
use turnstream_test_support::tools::{Counter, echo_tool, strict_tool};
use turnstream_test_support::wires::{encode_and_lint, sse_frame};

mod invalid_json_arguments {
    //! Arguments that are not valid JSON are kept verbatim, answered, and may be repaired by a
    //! hook.

    use super::*;

    #[tokio::test]
    async fn invalid_json_arguments_are_kept_verbatim_and_answered_with_an_error() {
        let counter = Counter::default();
        let reply =
            Reply::new().call_raw("c1", "echo", r#"{"path": nope"#).call_raw("c2", "echo", "{}");
        let (outcome, history, requests) =
            run_to_end([reply, "done".into()], vec![echo_tool(&counter)]).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(
            result_kinds(outcome.new_items()),
            [ResultKind::InvalidArguments, ResultKind::Ok]
        );
        assert_eq!(tool_calls(&history)[0].arguments, r#"{"path": nope"#);
        assert_eq!(tool_calls(&requests[1].history)[0].arguments, r#"{"path": nope"#);
        assert!(tool_results(&history)[0].content.text().contains("not JSON"));
        assert_eq!(counter.started_count(), 1);
        for wire in Wire::ALL {
            encode_and_lint(wire, &history);
        }
    }

    #[tokio::test]
    async fn the_third_consecutive_turn_with_invalid_arguments_ends_the_run() {
        let wrong = || Reply::new().call_raw("", "echo", "{");
        let fine = || Reply::new().call_raw("", "echo", "{}");
        let ends = run_outcome(
            [wrong(), wrong(), wrong(), "never".into()],
            vec![echo_tool(&Counter::default())],
        );
        check_outcome(&ends.await, EndReason::Malformed, 3);
        let replies = [wrong(), wrong(), fine(), wrong(), wrong(), "done".into()];
        check_outcome(
            &run_outcome(replies, vec![echo_tool(&Counter::default())]).await,
            EndReason::Completed,
            6,
        );
    }

    #[tokio::test]
    async fn a_hook_may_repair_arguments_and_the_history_keeps_the_original() {
        let counter = Counter::default();
        let raw = r#"{"path":"/a""#;
        let replies = [Reply::new().call_raw("c1", "echo", raw), "done".into()];
        let (agent, model) = scripted_agent(replies, vec![echo_tool(&counter)]);
        let mut run = agent.with_hook(bracket_closing_hook()).run("go");
        check_outcome(final_outcome(&collect_rest(&mut run).await), EndReason::Completed, 2);
        let history = run.history();
        assert_eq!(
            result_summaries(&history),
            [("c1", ResultKind::Ok, r#"{"path":"/a"}"#.to_owned())]
        );
        assert_eq!(tool_calls(&history)[0].arguments, raw);
        assert_eq!(tool_calls(&model.requests()[1].history)[0].arguments, raw);
        assert_eq!(counter.started_count(), 1);
        for wire in Wire::ALL {
            encode_and_lint(wire, &history);
        }
    }

    #[tokio::test]
    async fn only_unrepairable_calls_count_as_malformed() {
        let wrong = || Reply::new().call_raw("", "echo", "{");
        let replies = || [wrong(), wrong(), wrong(), wrong(), "done".into()];
        let (agent, _) = scripted_agent(replies(), vec![echo_tool(&Counter::default())]);
        check_outcome(
            &agent.with_hook(bracket_closing_hook()).run("go").outcome().await,
            EndReason::Completed,
            5,
        );

        let useless = hook::repair_arguments(|_, _, _| Some("[]".to_owned()));
        let (agent, _) = scripted_agent(replies(), vec![echo_tool(&Counter::default())]);
        let outcome = agent.with_hook(useless).run("go").outcome().await;
        check_outcome(&outcome, EndReason::Malformed, 3);
        let told = tool_results(outcome.new_items())[0].content.text();
        assert!(told.contains("not JSON"), "of what the model wrote: {told}");
    }

    #[tokio::test]
    async fn approval_shows_repaired_arguments_and_a_resume_repairs_again() {
        let counter = Counter::default();
        let reply = Reply::new().call_raw("c1", "echo", r#"{"n":1"#);
        let (first, _) = scripted_agent([reply], vec![echo_tool(&counter).requires_approval()]);
        let mut run = first.with_hook(bracket_closing_hook()).run("go");
        let events = collect_rest(&mut run).await;
        let asked = events.iter().find_map(Event::approval_request).unwrap();
        assert_eq!(asked.arguments, r#"{"n":1}"#);
        let pending = &final_outcome(&events).pending;
        assert_eq!(pending[..], [asked]);

        let otherwise = || hook::repair_arguments(|_, _, _| Some("{}".to_owned()));
        let hooks: [(Box<dyn Hook>, &[ResultKind]); 2] = [
            (Box::new(bracket_closing_hook()), &[ResultKind::Ok]),
            // A verdict holds for the arguments that were shown. Others need another verdict.
            (Box::new(otherwise()), &[]),
        ];
        for (hook, kinds) in hooks {
            let tools = vec![echo_tool(&counter).requires_approval()];
            let next = scripted_agent(["done".into()], tools).0.with_hook(hook);
            let verdicts = [(pending[0].clone(), Verdict::Approve)];
            let outcome = next.resume(run.history(), verdicts).unwrap().outcome().await;
            assert_eq!(result_kinds(outcome.new_items()), kinds);
            let again: Vec<&str> = outcome.pending.iter().map(|call| &*call.arguments).collect();
            assert_eq!(again, if kinds.is_empty() { &["{}"][..] } else { &[] });
        }
        assert_eq!(counter.started_count(), 1);
    }
}

/// A hook that adds missing closing brackets.
fn bracket_closing_hook() -> impl Hook + 'static {
    hook::repair_arguments(|_, call, _| Some(format!("{}}}", call.arguments)))
}

mod schema_mismatch {
    //! Arguments that do not match the tool's schema are reported with their path.

    use super::*;

    #[tokio::test]
    async fn a_schema_mismatch_is_reported_with_its_path_and_the_call_does_not_run() {
        for (arguments, path) in [
            ("{}", "n"),
            (r#"{"n":"1"}"#, "n"),
            (r#"{"n":1,"deep":{"list":["a",2]}}"#, "deep.list[1]"),
        ] {
            let counter = Counter::default();
            let (agent, _) = scripted_agent(
                [Reply::new().call_raw("c1", "strict", arguments), "done".into()],
                vec![strict_tool(&counter)],
            );
            let events = collect_rest(&mut agent.run("go")).await;
            let [result] = &tool_results(final_outcome(&events).new_items())[..] else {
                panic!("one result")
            };
            assert_eq!(result.kind, ResultKind::InvalidArguments);
            assert!(result.content.text().contains(path), "{path}: {result:?}");
            assert!(!events.iter().any(is_tool_started), "nothing says that it ran");
            assert_eq!(counter.started_count(), 0);
        }
    }

    #[tokio::test]
    async fn a_repair_hook_receives_the_mismatch_and_may_fix_it() {
        let counter = Counter::default();
        let number = hook::repair_arguments(|_, call, why| {
            why.contains('n').then(|| call.arguments.replace(r#""1""#, "1"))
        });
        let reply = Reply::new().call_raw("c1", "strict", r#"{"n":"1"}"#);
        let (agent, _) = scripted_agent([reply, "done".into()], vec![strict_tool(&counter)]);
        let outcome = agent.with_hook(number).run("go").outcome().await;
        let expected = ("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned());
        assert_eq!(result_summaries(outcome.new_items()), [expected]);
    }
}

mod empty_arguments {
    //! Empty or omitted arguments are an empty object.

    use super::*;

    #[tokio::test]
    async fn empty_arguments_are_an_empty_object_for_the_tool_and_on_the_wire() {
        for arguments in ["", "null", "  \n", "{}"] {
            let reply = Reply::new().call_raw("c1", "echo", arguments);
            let (outcome, history, _) =
                run_to_end([reply, "done".into()], vec![echo_tool(&Counter::default())]).await;
            let expected = ("c1", ResultKind::Ok, "{}".to_owned());
            assert_eq!(result_summaries(outcome.new_items()), [expected], "{arguments:?}");
            for wire in Wire::ALL {
                let body = encode_and_lint(wire, &history);
                let sent = match wire {
                    Wire::Anthropic => body["messages"][1]["content"][0]["input"].clone(),
                    Wire::OpenAiChat => {
                        let call = &body["messages"][1]["tool_calls"][0];
                        serde_json::from_str(call["function"]["arguments"].as_str().unwrap())
                            .unwrap()
                    }
                    Wire::OpenAiResponses => {
                        serde_json::from_str(body["input"][1]["arguments"].as_str().unwrap())
                            .unwrap()
                    }
                    Wire::Ollama => {
                        body["messages"][1]["tool_calls"][0]["function"]["arguments"].clone()
                    }
                    _ => body["contents"][1]["parts"][0]["functionCall"]["args"].clone(),
                };
                assert!(
                    sent == json!({}) || (sent.is_null() && wire == Wire::Gemini),
                    "{wire:?} {body}"
                );
            }
        }
    }

    #[tokio::test]
    async fn a_tool_with_a_required_field_does_not_run_with_empty_arguments() {
        for arguments in ["", "null", " "] {
            let counter = Counter::default();
            let reply = Reply::new().call_raw("c1", "strict", arguments);
            let outcome = run_outcome([reply, "done".into()], vec![strict_tool(&counter)]).await;
            assert_eq!(result_kinds(outcome.new_items()), [ResultKind::InvalidArguments]);
            assert_eq!(counter.started_count(), 0);
        }
    }

    #[tokio::test]
    async fn omitted_arguments_are_an_empty_object() {
        let delta = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"echo"}}]},"finish_reason":"tool_calls"}]}"#;
        let (outcome, _) = run_over_chat(&[delta], vec![echo_tool(&Counter::default())]).await;
        assert_eq!(
            result_summaries(outcome.new_items()),
            [("c1", ResultKind::Ok, "{}".to_owned())]
        );
    }
}

/// A run over the Chat Completions wire: one turn of these frames, then text.
async fn run_over_chat(frames: &[&str], tools: Vec<Tool>) -> (Outcome, History) {
    let done = r#"{"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}"#;
    let body = |frames: &[&str]| {
        frames.iter().chain(&["[DONE]"]).map(|data| sse_frame(data)).collect::<Vec<_>>()
    };
    let model = ChunkedProvider::new(vec![body(frames), body(&[done])], Wire::OpenAiChat);
    let run = Agent::new(model)
        .with_recorder(replays::replaying_recorder())
        .with_tools(tools)
        .run_from(History::empty("h"), "go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    check_outcome(&outcome, EndReason::Completed, 2);
    (outcome, handle.history())
}

mod non_object_arguments {
    //! Arguments that are JSON but not an object are invalid.

    use super::*;

    #[tokio::test]
    async fn non_object_json_arguments_are_invalid_and_not_converted() {
        for arguments in ["[]", r#""x""#, r#""{\"n\":1}""#, "3", "true", r#"[{"n":1}]"#] {
            let counter = Counter::default();
            let reply = Reply::new().call_raw("c1", "strict", arguments);
            let (outcome, history, _) =
                run_to_end([reply, "done".into()], vec![strict_tool(&counter)]).await;
            assert_eq!(
                result_kinds(outcome.new_items()),
                [ResultKind::InvalidArguments],
                "{arguments}"
            );
            assert_eq!(tool_calls(&history)[0].arguments, arguments, "kept as it was written");
            assert_eq!(counter.started_count(), 0);
            for wire in Wire::ALL {
                encode_and_lint(wire, &history);
            }
        }
    }

    #[tokio::test]
    async fn a_hook_may_unwrap_an_object_encoded_as_a_string() {
        for (arguments, kind) in [
            (r#""{\"n\":1}""#, ResultKind::Ok),
            (r#""\"{\\\"n\\\":1}\"""#, ResultKind::Ok),
            (r#""{\"n\":\"1\"}""#, ResultKind::InvalidArguments),
            (r#""n""#, ResultKind::InvalidArguments),
            (r#"[{"n":1}]"#, ResultKind::InvalidArguments),
        ] {
            let counter = Counter::default();
            let reply = Reply::new().call_raw("c1", "strict", arguments);
            let (agent, _) = scripted_agent([reply, "done".into()], vec![strict_tool(&counter)]);
            let mut run = agent.with_hook(hook::unwrap_json_string()).run("go");
            let events = collect_rest(&mut run).await;
            assert_eq!(result_kinds(final_outcome(&events).new_items()), [kind], "{arguments}");
            assert_eq!(counter.started_count(), usize::from(kind == ResultKind::Ok));
            let history = run.history();
            assert_eq!(tool_calls(&history)[0].arguments, arguments, "kept as it was written");
            for wire in Wire::ALL {
                encode_and_lint(wire, &history);
            }
        }
    }

    #[tokio::test]
    async fn typed_arguments_are_not_deserialized_from_an_array() {
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        struct NumberArgs {
            n: u8,
        }
        let counter = Counter::default();
        let ran = counter.clone();
        let typed = Tool::new("t", "", move |args: NumberArgs, _| {
            let _alive = ran.enter();
            ready(args.n)
        });
        for (arguments, kind) in
            [("[1]", ResultKind::InvalidArguments), (r#"{"n":1}"#, ResultKind::Ok)]
        {
            let reply = Reply::new().call_raw("c1", "t", arguments);
            let outcome = run_outcome([reply, "done".into()], vec![typed.clone()]).await;
            assert_eq!(result_kinds(outcome.new_items()), [kind], "{arguments}");
        }
        assert_eq!(counter.started_count(), 1);
    }
}

mod identical_calls_with_one_id {
    //! The same call repeated under one id is one call.

    use super::*;

    #[tokio::test]
    async fn identical_calls_with_one_id_run_once() {
        let counter = Counter::default();
        let reply =
            Reply::new().call_raw("c1", "echo", r#"{"n":1}"#).call_raw("c1", "echo", r#"{"n":1}"#);
        let (outcome, history, _) =
            run_to_end([reply, "done".into()], vec![echo_tool(&counter)]).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!((counter.started_count(), tool_calls(&history).len()), (1, 1));
        assert_eq!(result_summaries(&history), [("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned())]);
    }
}

mod different_calls_with_one_id {
    //! Different calls under one id are distinguished by a generated id.

    use super::*;

    #[tokio::test]
    async fn different_calls_with_one_id_are_both_kept_and_the_second_gets_a_new_id() {
        let counter = Counter::default();
        let reply =
            Reply::new().call_raw("c1", "echo", r#"{"n":1}"#).call_raw("c1", "echo", r#"{"n":2}"#);
        let (outcome, history, _) =
            run_to_end([reply, "done".into()], vec![echo_tool(&counter)]).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(counter.started_count(), 2);
        let expected = [
            ("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned()),
            ("c1_dup1", ResultKind::Ok, r#"{"n":2}"#.to_owned()),
        ];
        assert_eq!(result_summaries(&history), expected);
        assert!(history.is_settled());
    }

    #[tokio::test]
    async fn an_id_reused_in_a_later_turn_is_made_unique_before_it_is_yielded() {
        let reply =
            |n: u8| Reply::new().call_raw("terminal:0", "echo", &json!({ "n": n }).to_string());
        let replies = [reply(1), reply(2), reply(1), "done".into()];
        let (agent, model) = scripted_agent(replies, vec![echo_tool(&Counter::default())]);
        let mut run = agent.run("go");
        let events = collect_rest(&mut run).await;
        let ids = ["terminal:0", "terminal:0_dup1", "terminal:0_dup2"];
        let started = events.iter().filter_map(|event| match event {
            Event::Turn(turnstream::TurnEvent::ToolCallStart { call_id, .. }) => {
                Some(call_id.as_str())
            }
            _ => None,
        });
        assert_eq!(started.collect::<Vec<_>>(), ids);
        let history = run.history();
        assert_eq!(tool_results(&history).iter().map(|it| &*it.call_id).collect::<Vec<_>>(), ids);
        assert!(history.is_settled());
        // The prefix that was sent stays unchanged: the first call keeps its id.
        let requests = model.requests();
        for (before, after) in requests.iter().zip(&requests[1..]) {
            let kept = after.history.truncated(before.history.len());
            assert_eq!(kept, before.history);
        }
        for wire in Wire::ALL {
            encode_and_lint(wire, &history);
        }
    }
}

mod empty_call_ids {
    //! Calls with empty ids get distinct generated ids.

    use super::*;

    #[tokio::test]
    async fn parallel_calls_with_empty_ids_get_distinct_ids_and_all_run() {
        for id in [r#""id":"","#, r#""id":null,"#, ""] {
            let call = |index: u8, n: u8| {
                format!(
                    r#"{{"index":{index},{id}"function":{{"name":"echo","arguments":"{{\"n\":{n}}}"}}}}"#
                )
            };
            let calls_ = [call(0, 1), call(1, 2)].join(",");
            let delta = format!(
                r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{calls_}]}},"finish_reason":"tool_calls"}}]}}"#
            );
            let counter = Counter::default();
            let (_, history) = run_over_chat(&[&delta], vec![echo_tool(&counter)]).await;
            assert_eq!(counter.started_count(), 2);
            let ids: Vec<_> = tool_calls(&history).iter().map(|call| &*call.call_id).collect();
            assert_eq!(ids, ["call_1_1", "call_1_2"], "{id}");
            let texts: Vec<_> =
                result_summaries(&history).into_iter().map(|answer| answer.2).collect();
            assert_eq!(texts, [r#"{"n":1}"#, r#"{"n":2}"#]);
        }
    }

    #[tokio::test]
    async fn generated_ids_are_distinct_across_turns() {
        let reply = || Reply::new().call_raw("", "echo", "{}");
        let (_, history, _) =
            run_to_end([reply(), reply(), "done".into()], vec![echo_tool(&Counter::default())])
                .await;
        let ids: Vec<_> = tool_calls(&history).iter().map(|call| &*call.call_id).collect();
        assert_eq!(ids, ["call_1_1", "call_2_1"]);
    }
}
