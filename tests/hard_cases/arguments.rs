//! Arguments that cannot be used, and ids that are used twice or empty.

use futures::future::ready;
use serde_json::json;
use turnstream::agent::hook::{self, Hook};
use turnstream::event::EndReason;
use turnstream::item::ResultKind;
use turnstream::provider::Reply;
use turnstream::testing::Wire;
use turnstream::tool::{Tool, Verdict};
use turnstream::{Agent, Event, History, Outcome};

use crate::support::models::Bodies;
use crate::support::replays;
use crate::support::runs::{
    answers, calls, check, ending, is_started, kinds, outcome, rest, results, scripted, story,
};
use crate::support::tools::{Counter, echo, spec, strict};
use crate::support::wires::{frame, sendable};

mod invalid_json_arguments {
    //! Arguments that are not valid JSON are kept verbatim, answered, and may be repaired by a hook.

    use super::*;

    #[tokio::test]
    async fn invalid_json_arguments_are_kept_verbatim_and_answered_with_an_error() {
        let counter = Counter::default();
        let reply =
            Reply::new().call_raw("c1", "echo", r#"{"path": nope"#).call_raw("c2", "echo", "{}");
        let (outcome, history, requests) =
            story([reply, "done".into()], vec![echo(&counter)]).await;
        check(&outcome, EndReason::Completed, 2);
        assert_eq!(kinds(outcome.new_items()), [ResultKind::InvalidArguments, ResultKind::Ok]);
        assert_eq!(calls(&history)[0].arguments, r#"{"path": nope"#);
        assert_eq!(calls(&requests[1].history)[0].arguments, r#"{"path": nope"#);
        assert!(results(&history)[0].content.text().contains("not JSON"));
        assert_eq!(counter.began(), 1);
        for wire in Wire::ALL {
            sendable(wire, &history);
        }
    }

    #[tokio::test]
    async fn the_third_consecutive_turn_with_invalid_arguments_ends_the_run() {
        let wrong = || Reply::new().call_raw("", "echo", "{");
        let fine = || Reply::new().call_raw("", "echo", "{}");
        let ends =
            outcome([wrong(), wrong(), wrong(), "never".into()], vec![echo(&Counter::default())]);
        check(&ends.await, EndReason::Malformed, 3);
        let replies = [wrong(), wrong(), fine(), wrong(), wrong(), "done".into()];
        check(&outcome(replies, vec![echo(&Counter::default())]).await, EndReason::Completed, 6);
    }

    #[tokio::test]
    async fn a_hook_may_repair_arguments_and_the_history_keeps_the_original() {
        let counter = Counter::default();
        let raw = r#"{"path":"/a""#;
        let replies = [Reply::new().call_raw("c1", "echo", raw), "done".into()];
        let (agent, model) = scripted(replies, vec![echo(&counter)]);
        let mut run = agent.with_hook(closing()).run("go");
        check(ending(&rest(&mut run).await), EndReason::Completed, 2);
        let history = run.history();
        assert_eq!(answers(&history), [("c1", ResultKind::Ok, r#"{"path":"/a"}"#.to_owned())]);
        assert_eq!(calls(&history)[0].arguments, raw);
        assert_eq!(calls(&model.requests()[1].history)[0].arguments, raw);
        assert_eq!(counter.began(), 1);
        for wire in Wire::ALL {
            sendable(wire, &history);
        }
    }

    #[tokio::test]
    async fn only_unrepairable_calls_count_as_malformed() {
        let wrong = || Reply::new().call_raw("", "echo", "{");
        let replies = || [wrong(), wrong(), wrong(), wrong(), "done".into()];
        let (agent, _) = scripted(replies(), vec![echo(&Counter::default())]);
        check(&agent.with_hook(closing()).run("go").outcome().await, EndReason::Completed, 5);

        let useless = hook::repair_arguments(|_, _, _| Some("[]".to_owned()));
        let (agent, _) = scripted(replies(), vec![echo(&Counter::default())]);
        let outcome = agent.with_hook(useless).run("go").outcome().await;
        check(&outcome, EndReason::Malformed, 3);
        let told = results(outcome.new_items())[0].content.text();
        assert!(told.contains("not JSON"), "of what the model wrote: {told}");
    }

    #[tokio::test]
    async fn approval_shows_repaired_arguments_and_a_resume_repairs_again() {
        let counter = Counter::default();
        let reply = Reply::new().call_raw("c1", "echo", r#"{"n":1"#);
        let (first, _) = scripted([reply], vec![echo(&counter).requires_approval()]);
        let mut run = first.with_hook(closing()).run("go");
        let events = rest(&mut run).await;
        let asked = events.iter().find_map(Event::as_approval_request).unwrap();
        assert_eq!(asked.arguments, r#"{"n":1}"#);
        let pending = &ending(&events).pending;
        assert_eq!(pending[..], [asked.into()]);

        let otherwise = || hook::repair_arguments(|_, _, _| Some("{}".to_owned()));
        let hooks: [(Box<dyn Hook>, ResultKind); 2] =
            [(Box::new(closing()), ResultKind::Ok), (Box::new(otherwise()), ResultKind::Denied)];
        for (hook, kind) in hooks {
            let tools = vec![echo(&counter).requires_approval()];
            let next = scripted(["done".into()], tools).0.with_hook(hook);
            let verdicts = [(pending[0].clone(), Verdict::Approve)];
            let outcome = next.resume(run.history(), verdicts).unwrap().outcome().await;
            check(&outcome, EndReason::Completed, 1);
            assert_eq!(kinds(outcome.new_items()), [kind], "a verdict holds for what was shown");
        }
        assert_eq!(counter.began(), 1);
    }
}

/// Closes what was left open.
fn closing() -> impl Hook + 'static {
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
            let (agent, _) = scripted(
                [Reply::new().call_raw("c1", "strict", arguments), "done".into()],
                vec![strict(&counter)],
            );
            let events = rest(&mut agent.run("go")).await;
            let [result] = &results(ending(&events).new_items())[..] else { panic!("one result") };
            assert_eq!(result.kind, ResultKind::InvalidArguments);
            assert!(result.content.text().contains(path), "{path}: {result:?}");
            assert!(!events.iter().any(is_started), "nothing says that it ran");
            assert_eq!(counter.began(), 0);
        }
    }

    #[tokio::test]
    async fn a_repair_hook_receives_the_mismatch_and_may_fix_it() {
        let counter = Counter::default();
        let number = hook::repair_arguments(|_, call, why| {
            why.contains('n').then(|| call.arguments.replace(r#""1""#, "1"))
        });
        let reply = Reply::new().call_raw("c1", "strict", r#"{"n":"1"}"#);
        let (agent, _) = scripted([reply, "done".into()], vec![strict(&counter)]);
        let outcome = agent.with_hook(number).run("go").outcome().await;
        let expected = ("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned());
        assert_eq!(answers(outcome.new_items()), [expected]);
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
                story([reply, "done".into()], vec![echo(&Counter::default())]).await;
            let expected = ("c1", ResultKind::Ok, "{}".to_owned());
            assert_eq!(answers(outcome.new_items()), [expected], "{arguments:?}");
            for wire in Wire::ALL {
                let body = sendable(wire, &history);
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
            let outcome = outcome([reply, "done".into()], vec![strict(&counter)]).await;
            assert_eq!(kinds(outcome.new_items()), [ResultKind::InvalidArguments]);
            assert_eq!(counter.began(), 0);
        }
    }

    #[tokio::test]
    async fn omitted_arguments_are_an_empty_object() {
        let delta = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"echo"}}]},"finish_reason":"tool_calls"}]}"#;
        let (outcome, _) = over_chat(&[delta], vec![echo(&Counter::default())]).await;
        assert_eq!(answers(outcome.new_items()), [("c1", ResultKind::Ok, "{}".to_owned())]);
    }
}

/// A run over the chat wire: one turn of these frames, then words.
async fn over_chat(frames: &[&str], tools: Vec<Tool>) -> (Outcome, History) {
    let done = r#"{"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}"#;
    let body = |frames: &[&str]| {
        frames.iter().chain(&["[DONE]"]).map(|data| frame(data)).collect::<Vec<_>>()
    };
    let model = Bodies::new(vec![body(frames), body(&[done])], Wire::OpenAiChat);
    let run = Agent::new(model)
        .with_recorder(replays::recorder())
        .with_tools(tools)
        .run_from(History::from_id("h"), "go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    check(&outcome, EndReason::Completed, 2);
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
            let (outcome, history, _) = story([reply, "done".into()], vec![strict(&counter)]).await;
            assert_eq!(kinds(outcome.new_items()), [ResultKind::InvalidArguments], "{arguments}");
            assert_eq!(calls(&history)[0].arguments, arguments, "kept as it was written");
            assert_eq!(counter.began(), 0);
            for wire in Wire::ALL {
                sendable(wire, &history);
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
            let (agent, _) = scripted([reply, "done".into()], vec![strict(&counter)]);
            let mut run = agent.with_hook(hook::unwrap_json_string()).run("go");
            let events = rest(&mut run).await;
            assert_eq!(kinds(ending(&events).new_items()), [kind], "{arguments}");
            assert_eq!(counter.began(), usize::from(kind == ResultKind::Ok));
            let history = run.history();
            assert_eq!(calls(&history)[0].arguments, arguments, "kept as it was written");
            for wire in Wire::ALL {
                sendable(wire, &history);
            }
        }
    }

    #[tokio::test]
    async fn typed_arguments_are_not_deserialized_from_an_array() {
        #[derive(serde::Deserialize)]
        struct Args {
            n: u8,
        }
        let counter = Counter::default();
        let ran = counter.clone();
        let typed = Tool::typed(spec("t"), move |args: Args, _| {
            let _alive = ran.count();
            ready(args.n)
        });
        let typed = typed.unwrap();
        for (arguments, kind) in
            [("[1]", ResultKind::InvalidArguments), (r#"{"n":1}"#, ResultKind::Ok)]
        {
            let reply = Reply::new().call_raw("c1", "t", arguments);
            let outcome = outcome([reply, "done".into()], vec![typed.clone()]).await;
            assert_eq!(kinds(outcome.new_items()), [kind], "{arguments}");
        }
        assert_eq!(counter.began(), 1);
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
        let (outcome, history, _) = story([reply, "done".into()], vec![echo(&counter)]).await;
        check(&outcome, EndReason::Completed, 2);
        assert_eq!((counter.began(), calls(&history).len()), (1, 1));
        assert_eq!(answers(&history), [("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned())]);
    }
}

mod different_calls_with_one_id {
    //! Different calls under one id are told apart by a generated id.

    use super::*;

    #[tokio::test]
    async fn different_calls_with_one_id_are_both_kept_and_the_second_gets_a_new_id() {
        let counter = Counter::default();
        let reply =
            Reply::new().call_raw("c1", "echo", r#"{"n":1}"#).call_raw("c1", "echo", r#"{"n":2}"#);
        let (outcome, history, _) = story([reply, "done".into()], vec![echo(&counter)]).await;
        check(&outcome, EndReason::Completed, 2);
        assert_eq!(counter.began(), 2);
        let expected = [
            ("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned()),
            ("c1_dup1", ResultKind::Ok, r#"{"n":2}"#.to_owned()),
        ];
        assert_eq!(answers(&history), expected);
        assert!(history.is_settled());
    }

    #[tokio::test]
    async fn an_id_reused_in_a_later_turn_is_made_unique_before_it_is_yielded() {
        let reply =
            |n: u8| Reply::new().call_raw("terminal:0", "echo", &json!({ "n": n }).to_string());
        let replies = [reply(1), reply(2), reply(1), "done".into()];
        let (agent, model) = scripted(replies, vec![echo(&Counter::default())]);
        let mut run = agent.run("go");
        let events = rest(&mut run).await;
        let ids = ["terminal:0", "terminal:0_dup1", "terminal:0_dup2"];
        let started = events.iter().filter_map(|event| match event {
            Event::Turn(turnstream::TurnEvent::ToolCallStart { call_id, .. }) => {
                Some(call_id.as_str())
            }
            _ => None,
        });
        assert_eq!(started.collect::<Vec<_>>(), ids);
        let history = run.history();
        assert_eq!(results(&history).iter().map(|it| &*it.call_id).collect::<Vec<_>>(), ids);
        assert!(history.is_settled());
        // What was sent stays as it was: the first use keeps its id.
        let requests = model.requests();
        for (before, after) in requests.iter().zip(&requests[1..]) {
            let kept = after.history.truncated(before.history.len());
            assert_eq!(kept, before.history);
        }
        for wire in Wire::ALL {
            sendable(wire, &history);
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
            let (_, history) = over_chat(&[&delta], vec![echo(&counter)]).await;
            assert_eq!(counter.began(), 2);
            let ids: Vec<_> = calls(&history).iter().map(|call| &*call.call_id).collect();
            assert_eq!(ids, ["call_1_1", "call_1_2"], "{id}");
            let texts: Vec<_> = answers(&history).into_iter().map(|answer| answer.2).collect();
            assert_eq!(texts, [r#"{"n":1}"#, r#"{"n":2}"#]);
        }
    }

    #[tokio::test]
    async fn generated_ids_are_distinct_across_turns() {
        let reply = || Reply::new().call_raw("", "echo", "{}");
        let (_, history, _) =
            story([reply(), reply(), "done".into()], vec![echo(&Counter::default())]).await;
        let ids: Vec<_> = calls(&history).iter().map(|call| &*call.call_id).collect();
        assert_eq!(ids, ["call_1_1", "call_2_1"]);
    }
}
