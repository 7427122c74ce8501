//! Approvals, and tools that run elsewhere.

use std::sync::Arc;

use futures::future::ready;
use serde_json::json;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::EndReason;
use turnstream::item::{ItemKind, PendingCall, ResultKind, ToolCall};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolOutput, ToolSpec, Verdict};
use turnstream::{Agent, Error, ErrorKind, Event, History, Outcome, Toolkit};
use turnstream_testing::Wire;

use turnstream_test_support::models::ChunkedProvider;
use turnstream_test_support::replays;
use turnstream_test_support::runs::{
    check_outcome, final_outcome, pull_ready, pull_until, reply_calling, result_kinds,
    result_summaries, scripted_agent, tool_calls, tool_results,
};
use turnstream_test_support::tools::{Counter, counted_tool, ok_tool, spec, strict_tool};
use turnstream_test_support::wires::{encode_and_lint, sse_frame};

mod denied_call {
    //! A denied call is answered with the reason and the run continues.

    use super::*;

    #[tokio::test]
    async fn a_denial_reports_its_reason_and_siblings_and_run_continue() {
        let (counter, other) = (Counter::default(), Counter::default());
        let tools = vec![ok_tool("t", &counter).requires_approval(), ok_tool("u", &other)];
        let reply = reply_calling("c1", "t").call_raw("c2", "u", "{}");
        let (agent, model) = scripted_agent([reply, "done".into()], tools);
        let mut run = agent.interactive().run("go");
        let asked = pull_until(&mut run, |event| event.approval_request().is_some()).await;
        run.deny(asked.approval_request().unwrap(), "not on a Sunday").unwrap();
        let outcome = run.outcome().await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Denied, ResultKind::Ok]);
        assert_eq!((counter.started_count(), other.started_count()), (0, 1));
        let told = tool_results(&model.requests()[1].history)[0].content.text();
        assert!(told.contains("not on a Sunday"), "{told}");
    }

    #[tokio::test]
    async fn consecutive_denials_are_not_counted_as_malformed_replies() {
        let counter = Counter::default();
        let reply = || Reply::new().call("t", json!({}));
        let replies = [reply(), reply(), reply(), reply(), reply(), "I see".into()];
        let never = hook::before_tool(|_, _| ready(CallDecision::Deny("no".to_owned())));
        let (agent, _) = scripted_agent(replies, vec![ok_tool("t", &counter)]);
        let outcome = agent.with_hook(never).run("go").outcome().await;
        check_outcome(&outcome, EndReason::Completed, 6);
        assert_eq!(result_kinds(outcome.new_items()), [ResultKind::Denied; 5]);
        assert_eq!(counter.started_count(), 0);
    }
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(given: Result<T, Error>) {
    assert_eq!(given.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

/// Checks that a verdict was rejected because it does not answer an open request.
fn assert_conflict<T: std::fmt::Debug>(given: Result<T, Error>) {
    assert_eq!(given.unwrap_err().kind(), ErrorKind::Conflict);
}

mod scope_of_an_approval {
    //! An approval applies once, to exactly the call that was shown.

    use super::*;

    #[tokio::test]
    async fn an_approval_applies_once_and_only_to_the_call_that_was_shown() {
        let counter = Counter::default();
        let tools = vec![
            counted_tool("echo", &counter, |args| ready(args.to_string())).requires_approval(),
        ];
        let reply = Reply::new().call_raw("c1", "echo", r#"{"n":1}"#);
        let (agent, _) = scripted_agent([reply, "done".into()], tools);
        let mut run = agent.interactive().run("go");
        let call =
            ToolCall { call_id: "c1".into(), name: "echo".into(), arguments: r#"{"n":1}"#.into() };
        assert_conflict(run.approve(call.clone()));
        let events = pull_ready(&mut run);
        let real = events.iter().find_map(Event::approval_request).unwrap().clone();
        assert_eq!(real.to_tool_call(), call);
        assert_conflict(run.approve(call));
        let changes: [fn(&mut PendingCall); 6] = [
            |call| call.approval_id.push('x'),
            |call| call.arguments = r#"{"n":2}"#.into(),
            |call| call.arguments = r#"{"n": 1}"#.into(),
            |call| call.name = "rm".into(),
            |call| call.call_id = "c2".into(),
            |call| call.definition.clear(),
        ];
        for change in changes {
            let mut other = real.clone();
            change(&mut other);
            assert_conflict(run.approve(other));
        }
        assert!(pull_ready(&mut run).is_empty() && counter.started_count() == 0);
        run.approve(&real).unwrap();
        assert_conflict(run.approve(&real));
        assert_conflict(run.deny(&real, "changed my mind"));
        let outcome = run.outcome().await;
        assert_eq!(
            result_summaries(outcome.new_items()),
            [("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned())]
        );
    }

    #[tokio::test]
    async fn an_approval_does_not_apply_to_later_calls_of_the_tool() {
        let counter = Counter::default();
        let tools = vec![ok_tool("t", &counter).requires_approval()];
        let (agent, _) = scripted_agent(
            [reply_calling("c1", "t"), reply_calling("c1", "t"), "never".into()],
            tools,
        );
        let mut run = agent.interactive().run("go");
        let asked = pull_until(&mut run, |event| event.approval_request().is_some()).await;
        run.approve(asked.approval_request().unwrap()).unwrap();
        let again = pull_until(&mut run, |event| event.approval_request().is_some()).await;
        assert_eq!(again.approval_request().unwrap().call_id, "c1_dup1");
        assert_conflict(run.approve(asked.approval_request().unwrap()));
        assert!(pull_ready(&mut run).is_empty());
        assert_eq!(counter.started_count(), 1);
    }

    #[tokio::test]
    async fn a_resumed_call_is_checked_again_by_definition_and_policy() {
        let counter = Counter::default();
        let reply = Reply::new().call_raw("c1", "strict", r#"{"n":1}"#);
        let (first, _) = scripted_agent([reply], vec![strict_tool(&counter).requires_approval()]);
        let run = first.run("go");
        let (handle, outcome) = (run.handle(), run.outcome().await);
        let history = handle.history();
        let approved = |arguments: &str| {
            let call = PendingCall { arguments: arguments.into(), ..outcome.pending[0].clone() };
            [(call, Verdict::Approve)]
        };
        // Other arguments than those that were shown.
        assert_conflict(first.resume(history.clone(), approved(r#"{"n":2}"#)));
        // The tool's schema has changed since.
        let parameters = json!({ "type": "object", "required": ["m"] });
        let changed =
            Tool::raw(ToolSpec { parameters: parameters.into(), ..spec("strict") }, |_, _| {
                ready("ran")
            })
            .unwrap();
        let kit = Toolkit::new([changed.requires_approval()]);
        let (next, _) = scripted_agent(["done".into()], vec![]);
        assert_conflict(next.with_toolkit(kit).resume(history.clone(), approved(r#"{"n":1}"#)));
        // A policy that denies the call.
        let (next, _) =
            scripted_agent(["done".into()], vec![strict_tool(&counter).requires_approval()]);
        let no = hook::before_tool(|_, _| ready(CallDecision::Deny("not any more".to_owned())));
        let resumed = next.with_hook(no).resume(history.clone(), approved(r#"{"n":1}"#));
        assert_eq!(
            result_kinds(resumed.unwrap().outcome().await.new_items()),
            [ResultKind::Denied]
        );
        // A policy that replaces the approved arguments.
        let (next, _) =
            scripted_agent(["done".into()], vec![strict_tool(&counter).requires_approval()]);
        let other = hook::before_tool(|_, _| {
            ready(CallDecision::RewriteArguments(r#"{"n":9}"#.to_owned()))
        });
        let resumed = next.with_hook(other).resume(history, approved(r#"{"n":1}"#));
        let resumed = resumed.unwrap().outcome().await;
        assert_eq!(resumed.reason, EndReason::Pending, "approval is requested again");
        let [again] = &resumed.pending[..] else { panic!("{resumed:?}") };
        assert_eq!(again.arguments, r#"{"n":9}"#);
        assert_ne!(again.approval_id, outcome.pending[0].approval_id);
        assert_eq!(counter.started_count(), 0);
    }

    #[tokio::test]
    async fn an_approval_of_a_parents_call_does_not_apply_to_its_sub_agent() {
        let (own, childs) = (Counter::default(), Counter::default());
        let child = Agent::new(Scripted::new([reply_calling("c1", "danger"), "done".into()]))
            .with_tools([ok_tool("danger", &childs).requires_approval()])
            .interactive();
        let tools = vec![
            child.as_tool("child", "Works").unwrap(),
            ok_tool("danger", &own).requires_approval(),
        ];
        let reply = Reply::new()
            .call_raw("c0", "child", r#"{"prompt":"work"}"#)
            .call_raw("c1", "danger", "{}");
        let (agent, _) = scripted_agent([reply, "done".into()], tools);
        let mut run = agent.interactive().run("go");
        let events = pull_ready(&mut run);
        let asked = events.iter().find_map(Event::approval_request).unwrap();
        let nested = run.handle().sub_agent_handle("c0").unwrap();
        let childs_ask = events.iter().find_map(|event| match event {
            Event::Nested { event, .. } => event.approval_request(),
            _ => None,
        });
        let childs_ask = childs_ask.unwrap();
        assert_eq!(childs_ask.to_tool_call(), asked.to_tool_call(), "the same call to look at");
        run.approve(&asked).unwrap();
        pull_ready(&mut run);
        assert_eq!((own.started_count(), childs.started_count()), (1, 0));
        assert_conflict(run.approve(&asked));
        assert_conflict(nested.approve(&asked));
        assert_conflict(run.approve(&childs_ask));
        nested.approve(&childs_ask).unwrap();
        check_outcome(&run.outcome().await, EndReason::Completed, 2);
        assert_eq!((own.started_count(), childs.started_count()), (1, 1));
    }
}

/// A run that ended with one completed call and one call that waits for an external result.
async fn run_with_external_call() -> (Agent, Scripted, Outcome, History, Counter) {
    let counter = Counter::default();
    let tools = vec![ok_tool("t", &counter), Tool::external(spec("ask_user")).unwrap()];
    let reply = reply_calling("c1", "ask_user").call_raw("c2", "t", "{}");
    let (agent, model) = scripted_agent([reply, "done".into()], tools);
    let run = agent.run("go");
    let (handle, outcome) = (run.handle(), run.outcome().await);
    (agent, model, outcome, handle.history(), counter)
}

mod external_calls {
    //! Calls that an external party answers, and resuming a run with their results.

    use super::*;

    #[tokio::test]
    async fn an_external_call_ends_the_run_as_pending_after_its_siblings() {
        let (_, model, outcome, history, counter) = run_with_external_call().await;
        check_outcome(&outcome, EndReason::Pending, 1);
        assert!(outcome.partial);
        let pending: Vec<_> = outcome.pending.iter().map(|call| &*call.call_id).collect();
        assert_eq!(pending, ["c1"]);
        assert_eq!(
            result_summaries(outcome.new_items()),
            [("c2", ResultKind::Ok, "fine".to_owned())]
        );
        assert_eq!(history.pending_calls(), outcome.pending);
        assert_eq!((model.requests().len(), counter.started_count()), (1, 1));
    }

    #[tokio::test]
    async fn an_interactive_run_does_not_wait_for_an_external_result() {
        let tools = vec![Tool::external(spec("ask_user")).unwrap()];
        let (agent, _) = scripted_agent([reply_calling("c1", "ask_user")], tools);
        let events = pull_ready(&mut agent.interactive().run("go"));
        check_outcome(final_outcome(&events), EndReason::Pending, 1);
        assert!(!events.iter().any(|event| event.approval_request().is_some()));
    }

    #[tokio::test]
    async fn a_resume_accepts_exactly_the_pending_calls() {
        let (agent, model, outcome, history, _) = run_with_external_call().await;
        let waits = outcome.pending[0].clone();
        let answered = |call: &PendingCall| (call.clone(), Verdict::Output(ToolOutput::ok("Oslo")));
        let extra = PendingCall { call_id: "c9".into(), ..waits.clone() };
        let done = PendingCall::from(tool_calls(&history)[1].clone());
        for verdicts in [
            vec![],
            vec![answered(&waits), answered(&waits)],
            vec![(waits.clone(), Verdict::Approve)],
        ] {
            assert_invalid(agent.resume(history.clone(), verdicts));
        }
        for verdicts in [
            vec![answered(&extra)],
            vec![answered(&waits), answered(&extra)],
            vec![answered(&waits), answered(&done)],
            vec![answered(&PendingCall { approval_id: "x".into(), ..waits.clone() })],
        ] {
            assert_conflict(agent.resume(history.clone(), verdicts));
        }
        assert_eq!(model.requests().len(), 1, "nothing was sent");
        let resumed = agent.resume(history.clone(), [answered(&waits)]).unwrap().outcome().await;
        check_outcome(&resumed, EndReason::Completed, 1);
        let sent = &model.requests()[1].history;
        assert!(sent.is_settled());
        let texts: Vec<_> = result_summaries(sent).into_iter().map(|answer| answer.2).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts.contains(&"Oslo".to_owned()) && texts.contains(&"fine".to_owned()));
        // After its result, the call is not open any more.
        assert_conflict(agent.resume(sent.clone(), [answered(&waits)]));
    }

    #[tokio::test]
    async fn a_new_run_answers_pending_calls_as_interrupted() {
        let (agent, model, _, history, _) = run_with_external_call().await;
        check_outcome(
            &agent.run_from(history, "never mind").outcome().await,
            EndReason::Completed,
            1,
        );
        let sent = &model.requests()[1].history;
        assert!(sent.is_settled());
        assert!(result_kinds(sent).contains(&ResultKind::Interrupted));
    }
}

/// A run over the Anthropic wire, in which the server may search on its own.
async fn run_over_anthropic(turns: Vec<Vec<&str>>, counter: &Counter) -> (Outcome, History, usize) {
    let start = r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}"#;
    let body = |events: &Vec<&str>| {
        let all = [&[start], &events[..], &[r#"{"type":"message_stop"}"#]].concat();
        all.into_iter().map(sse_frame).collect::<Vec<_>>()
    };
    let bodies = turns.iter().map(body).collect();
    let model = ChunkedProvider::new(bodies, Wire::Anthropic);
    let asked = Arc::clone(&model.requests);
    let run = Agent::new(model)
        .with_recorder(replays::replaying_recorder())
        .with_tools([ok_tool("web_search", counter)])
        .run_from(History::empty("h"), "go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    let asked = asked.lock().unwrap().len();
    (outcome, handle.history(), asked)
}

const SEARCH_BLOCK_START: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srv1","name":"web_search","input":{"query":"q"}}}"#;
const BLOCK_0_STOP: &str = r#"{"type":"content_block_stop","index":0}"#;
const SEARCH_RESULT_START: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"srv1","content":[]}}"#;
const BLOCK_1_STOP: &str = r#"{"type":"content_block_stop","index":1}"#;
const MESSAGE_DELTA_END_TURN: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const MESSAGE_DELTA_PAUSE: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}"#;

mod provider_executed_calls {
    //! Calls that the provider executes are never run or answered locally.

    use super::*;

    #[tokio::test]
    async fn a_provider_executed_call_is_never_run_or_answered_locally() {
        let counter = Counter::default();
        let turn = vec![
            SEARCH_BLOCK_START,
            BLOCK_0_STOP,
            SEARCH_RESULT_START,
            BLOCK_1_STOP,
            MESSAGE_DELTA_END_TURN,
        ];
        let (outcome, history, asked) = run_over_anthropic(vec![turn], &counter).await;
        check_outcome(&outcome, EndReason::Completed, 1);
        assert_eq!((counter.started_count(), asked), (0, 1));
        assert_eq!((tool_calls(&history).len(), tool_results(&history).len()), (0, 0));
        let own = history.iter().filter(|item| matches!(item.kind, ItemKind::Other)).count();
        assert_eq!(own, 2);
        assert_eq!(history.settled(), history, "settling leaves them alone");
        let sent = encode_and_lint(Wire::Anthropic, &history).to_string();
        assert!(sent.contains("srv1"), "{sent}");
    }

    #[tokio::test]
    async fn a_provider_result_may_arrive_in_a_later_turn() {
        let counter = Counter::default();
        let later = SEARCH_RESULT_START.replace(r#""index":1"#, r#""index":0"#);
        let turns = vec![
            vec![SEARCH_BLOCK_START, BLOCK_0_STOP, MESSAGE_DELTA_PAUSE],
            vec![&later, BLOCK_0_STOP, MESSAGE_DELTA_END_TURN],
        ];
        let (outcome, history, asked) = run_over_anthropic(turns, &counter).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!((counter.started_count(), asked, tool_results(&history).len()), (0, 2, 0));
        let sent = encode_and_lint(Wire::Anthropic, &history);
        assert_eq!(sent.to_string().matches("srv1").count(), 2);
    }

    #[tokio::test]
    async fn next_to_a_provider_executed_call_only_the_local_one_runs() {
        let counter = Counter::default();
        let ours = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"web_search","input":{}}}"#;
        let tool_use = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
        let words = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"done"}}"#;
        let turns = vec![
            vec![SEARCH_BLOCK_START, BLOCK_0_STOP, ours, BLOCK_1_STOP, tool_use],
            vec![words, BLOCK_0_STOP, MESSAGE_DELTA_END_TURN],
        ];
        let (outcome, history, _) = run_over_anthropic(turns, &counter).await;
        check_outcome(&outcome, EndReason::Completed, 2);
        assert_eq!(counter.started_count(), 1);
        assert_eq!(result_summaries(&history), [("c1", ResultKind::Ok, "fine".to_owned())]);
        // The run never offered a provider's tool, so the tool's result will not come.
        let sent = encode_and_lint(Wire::Anthropic, &history).to_string();
        assert!(!sent.contains("srv1"), "{sent}");
    }

    #[tokio::test]
    async fn a_paused_provider_call_is_not_sent_after_new_user_input() {
        let counter = Counter::default();
        let turns = vec![vec![SEARCH_BLOCK_START, BLOCK_0_STOP, MESSAGE_DELTA_PAUSE]; 30];
        let (outcome, mut history, asked) = run_over_anthropic(turns, &counter).await;
        assert_ne!(outcome.reason, EndReason::Completed);
        assert!((2..30).contains(&asked), "{asked}");
        history.push(turnstream::item::Item::user("never mind"));
        let sent = encode_and_lint(Wire::Anthropic, &history).to_string();
        assert!(!sent.contains("srv1"), "{sent}");
    }
}
