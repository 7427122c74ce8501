//! How calls are run, answered and refused.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::ready;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use turnstream::agent::State;
use turnstream::agent::hook::{self, Answer, BeforeTool, Hook, OnStop};
use turnstream::env::CountingIds;
use turnstream::event::Reason;
use turnstream::item::{Content, ItemKind, Part, ResultKind, ToolCall, ToolResult};
use turnstream::provider::{Reply, Scripted, anthropic};
use turnstream::testing::Wire;
use turnstream::tool::{Tool, ToolContext, ToolOutput, ToolSpec, Update, Verdict};
use turnstream::turn::Turn;
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Outcome, Request, Toolkit};

use crate::kit::{
    Bodies, Counter, answers, calls, chat, check, ending, endless, fine, frame, is_started, kinds,
    pull, rest, results, sendable, spec, tool, until,
};

fn agent(replies: impl IntoIterator<Item = Reply>, tools: Vec<Tool>) -> (Agent, Scripted) {
    let model = Scripted::new(replies);
    let agent = Agent::new(model.clone()).with_tools(tools).with_ids(CountingIds::new("id"));
    (agent, model)
}

async fn outcome(replies: impl IntoIterator<Item = Reply>, tools: Vec<Tool>) -> Outcome {
    agent(replies, tools).0.run("go").outcome().await
}

/// The outcome, the history, and what the model was asked.
async fn story(
    replies: impl IntoIterator<Item = Reply>,
    tools: Vec<Tool>,
) -> (Outcome, History, Vec<Request>) {
    let (agent, model) = agent(replies, tools);
    let run = agent.run("go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    (outcome, handle.history(), model.requests())
}

fn call(id: &str, name: &str) -> Reply {
    Reply::new().call_raw(id, name, "{}")
}

/// Gives back what it was called with.
fn echo(counter: &Counter) -> Tool {
    tool("echo", counter, |args| ready(args.to_string()))
}

/// A tool with a number that it needs.
fn strict(counter: &Counter) -> Tool {
    let counter = counter.clone();
    let parameters = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "deep": {
            "type": "object", "properties": { "list": { "type": "array", "items": { "type": "string" } } },
        } },
        "required": ["n"],
    });
    Tool::raw(ToolSpec { parameters, ..spec("strict") }, move |args, _| {
        let _alive = counter.count();
        ready(args.to_string())
    })
    .unwrap()
}

fn panics(name: &str) -> Tool {
    tool(name, &Counter::default(), |_| async { std::panic::resume_unwind(Box::new("boom")) })
}

fn fails(name: &str) -> Tool {
    Tool::raw(spec(name), |_, _| ready(Err::<(), _>("the disk is full"))).unwrap()
}

/// Never answers, and is given up after 50 ms.
fn late(name: &str, counter: &Counter) -> Tool {
    endless(name, counter).with_timeout(Duration::from_millis(50))
}

// H14: a tool that fails.

#[tokio::test]
async fn h14_a_failure_is_a_result_and_its_siblings_and_the_run_go_on() {
    let counter = Counter::default();
    let reply = call("c1", "bad").call_raw("c2", "t", "{}");
    let (outcome, history, _) =
        story([reply, "done".into()], vec![fails("bad"), fine("t", &counter)]).await;
    check(&outcome, Reason::Completed, 2);
    let expected = [
        ("c1", ResultKind::Error, "Error: the disk is full".to_owned()),
        ("c2", ResultKind::Ok, "fine".to_owned()),
    ];
    assert_eq!(answers(&outcome.new_items), expected);
    for wire in Wire::ALL {
        assert!(sendable(wire, &history).to_string().contains("the disk is full"), "{wire:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn h14_no_failure_of_a_tool_ends_a_run() {
    use ResultKind::{Error, Panic, Timeout};

    let silent = Tool::typed_streaming(spec("silent"), |_: Value, _| stream::empty()).unwrap();
    let says_so =
        Tool::raw(spec("says_so"), |_, _| ready(ToolOutput::error("try elsewhere"))).unwrap();
    let counter = Counter::default();
    let tools = vec![fails("bad"), panics("wild"), late("late", &counter), silent, says_so];
    let reply = call("c1", "bad")
        .call_raw("c2", "wild", "{}")
        .call_raw("c3", "late", "{}")
        .call_raw("c4", "silent", "{}")
        .call_raw("c5", "says_so", "{}");
    let outcome = outcome([reply, "done".into()], tools).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(kinds(&outcome.new_items), [Error, Panic, Timeout, Error, Error]);
    assert!(results(&outcome.new_items).iter().all(|result| result.is_error()));
}

// H15: a tool that panics.

#[tokio::test]
async fn h15_a_panic_is_a_result_wherever_it_happens_and_nothing_else_is_touched() {
    use ResultKind::{Ok, Panic};

    fn boom() -> ! {
        std::panic::resume_unwind(Box::new("boom"))
    }
    let at_once = Tool::raw(spec("at_once"), |_, _| {
        boom();
        #[allow(unreachable_code, reason = "it says the type")]
        ready(())
    });
    let between = Tool::typed_streaming(spec("between"), |_: Value, _| {
        let updates = stream::iter([Update::progress(&1), Update::output("never")]);
        updates.map(|update| match update {
            Update::Output(_) => boom(),
            update => update,
        })
    });
    let counter = Counter::default();
    let tools = vec![at_once.unwrap(), between.unwrap(), panics("within"), fine("t", &counter)];
    let reply = call("c1", "at_once")
        .call_raw("c2", "between", "{}")
        .call_raw("c3", "within", "{}")
        .call_raw("c4", "t", "{}");
    let again = call("c5", "t");
    let outcome = outcome([reply, again, "done".into()], tools).await;
    check(&outcome, Reason::Completed, 3);
    assert_eq!(kinds(&outcome.new_items), [Panic, Panic, Panic, Ok, Ok]);
    for result in &results(&outcome.new_items)[..3] {
        assert!(result.content.text().contains("boom"), "{result:?}");
    }
    assert_eq!((counter.began(), counter.now()), (2, 0));
}

// H16: a tool that takes too long.

#[tokio::test(start_paused = true)]
async fn h16_a_timeout_is_a_result_and_its_future_is_dropped_before_it_is_seen() {
    let (counter, slow) = (Counter::default(), Counter::default());
    let nap = tool("nap", &slow, |_| async {
        sleep(Duration::from_millis(100)).await;
        "rested".to_owned()
    });
    let reply = call("c1", "late").call_raw("c2", "nap", "{}");
    let (agent, _) = agent([reply, "done".into()], vec![late("late", &counter), nap]);
    let mut run = agent.run("go");
    until(&mut run, is_started).await;
    let began = Instant::now();
    let event = until(&mut run, |event| event.tool_output().is_some()).await;
    let result = event.tool_output().unwrap();
    assert_eq!((&*result.call_id, result.kind), ("c1", ResultKind::Timeout));
    assert!(result.content.text().starts_with("Timed out after 50ms"), "{result:?}");
    assert_eq!(began.elapsed(), Duration::from_millis(50));
    assert_eq!((counter.began(), counter.now(), slow.now()), (1, 0, 1));
    let outcome = run.outcome().await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::Timeout, ResultKind::Ok]);
}

#[tokio::test(start_paused = true)]
async fn h16_a_late_value_is_nobodys_and_blocking_work_is_told_to_end() {
    // What a thread would hold that was started by the tool.
    type Thread = (oneshot::Sender<String>, ToolContext);
    let thread: Arc<Mutex<Option<Thread>>> = Arc::default();
    let held = Arc::clone(&thread);
    let blocking = Tool::raw(spec("t"), move |_, cx| {
        let (late, value) = oneshot::channel();
        *held.lock().unwrap() = Some((late, cx));
        value.map(|value| value.unwrap())
    });
    let limit = Duration::from_millis(50);
    let (agent, _) =
        agent([call("c1", "t"), "done".into()], vec![blocking.unwrap().with_timeout(limit)]);
    let mut run = agent.run("go");
    pull(&mut run);
    assert!(!thread.lock().unwrap().as_ref().unwrap().1.is_cancelled());
    until(&mut run, |event| event.tool_output().is_some()).await;
    let (late, cx) = thread.lock().unwrap().take().unwrap();
    assert!(cx.is_cancelled());
    late.send("late".to_owned()).unwrap_err();
    let outcome = run.outcome().await;
    assert_eq!(kinds(&outcome.new_items), [ResultKind::Timeout]);
}

// H17: a tool that is not there.

#[tokio::test]
async fn h17_an_unknown_tool_is_told_which_there_are_and_its_siblings_run() {
    use ResultKind::{Ok, UnknownTool};

    let counter = Counter::default();
    let reply = call("c1", "t").call_raw("c2", "nope", "{}").call_raw("c3", "t", "{}");
    let tools = vec![fine("t", &counter), fine("u", &counter)];
    let outcome = outcome([reply, "done".into()], tools).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(kinds(&outcome.new_items), [Ok, UnknownTool, Ok]);
    let told = results(&outcome.new_items)[1].content.text();
    assert!(told.contains("`nope`") && told.contains("`t`") && told.contains("`u`"), "{told}");
    assert_eq!(counter.began(), 2);
}

#[tokio::test]
async fn h17_a_tool_that_this_request_did_not_offer_is_unknown_in_its_turn() {
    let counter = Counter::default();
    let only_first = hook::prepare(|state, mut request| async move {
        if state.model_calls == 1 {
            request.tools = request.tools.iter().filter(|it| it.name == "t").cloned().collect();
        }
        request
    });
    let reply = |id: &str| call(id, "u");
    let tools = vec![fine("t", &Counter::default()), fine("u", &counter)];
    let (agent, _) = agent([reply("c1"), reply("c2"), "done".into()], tools);
    let outcome = agent.with_hook(only_first).run("go").outcome().await;
    check(&outcome, Reason::Completed, 3);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::UnknownTool, ResultKind::Ok]);
    let told = results(&outcome.new_items)[0].content.text();
    assert!(told.contains("The tools are: `t`."), "{told}");
    assert_eq!(counter.began(), 1);
}

#[tokio::test]
async fn h17_the_third_turn_in_a_row_without_a_known_tool_ends_the_run() {
    let wrong = || Reply::new().call("nope", json!({}));
    let outcome = outcome([wrong(), wrong(), wrong(), "never".into()], vec![]).await;
    check(&outcome, Reason::Malformed, 3);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::UnknownTool; 3]);
    assert!(results(&outcome.new_items)[0].content.text().contains("There are no tools."));
}

// H18: arguments that are no JSON.

#[tokio::test]
async fn h18_arguments_that_are_no_json_are_kept_raw_and_answered() {
    let counter = Counter::default();
    let reply =
        Reply::new().call_raw("c1", "echo", r#"{"path": nope"#).call_raw("c2", "echo", "{}");
    let (outcome, history, requests) = story([reply, "done".into()], vec![echo(&counter)]).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::InvalidArguments, ResultKind::Ok]);
    assert_eq!(calls(&history)[0].arguments, r#"{"path": nope"#);
    assert_eq!(calls(&requests[1].history)[0].arguments, r#"{"path": nope"#);
    assert!(results(&history)[0].content.text().contains("not JSON"));
    assert_eq!(counter.began(), 1);
    for wire in Wire::ALL {
        sendable(wire, &history);
    }
}

#[tokio::test]
async fn h18_the_third_turn_in_a_row_without_readable_arguments_ends_the_run() {
    let wrong = || Reply::new().call_raw("", "echo", "{");
    let fine = || Reply::new().call_raw("", "echo", "{}");
    let ends =
        outcome([wrong(), wrong(), wrong(), "never".into()], vec![echo(&Counter::default())]);
    check(&ends.await, Reason::Malformed, 3);
    let replies = [wrong(), wrong(), fine(), wrong(), wrong(), "done".into()];
    check(&outcome(replies, vec![echo(&Counter::default())]).await, Reason::Completed, 6);
}

// H19: arguments that do not fit.

#[tokio::test]
async fn h19_arguments_that_do_not_fit_are_told_with_their_path_and_run_nothing() {
    for (arguments, path) in
        [("{}", "n"), (r#"{"n":"1"}"#, "n"), (r#"{"n":1,"deep":{"list":["a",2]}}"#, "deep.list[1]")]
    {
        let counter = Counter::default();
        let (agent, _) = agent(
            [Reply::new().call_raw("c1", "strict", arguments), "done".into()],
            vec![strict(&counter)],
        );
        let events = rest(&mut agent.run("go")).await;
        let [result] = &results(&ending(&events).new_items)[..] else { panic!("one result") };
        assert_eq!(result.kind, ResultKind::InvalidArguments);
        assert!(result.content.text().contains(path), "{path}: {result:?}");
        assert!(!events.iter().any(is_started), "nothing says that it ran");
        assert_eq!(counter.began(), 0);
    }
}

// H20: arguments that are empty.

#[tokio::test]
async fn h20_empty_arguments_are_an_empty_object_for_the_tool_and_on_the_wire() {
    for arguments in ["", "null", "  \n", "{}"] {
        let reply = Reply::new().call_raw("c1", "echo", arguments);
        let (outcome, history, _) =
            story([reply, "done".into()], vec![echo(&Counter::default())]).await;
        let expected = ("c1", ResultKind::Ok, "{}".to_owned());
        assert_eq!(answers(&outcome.new_items), [expected], "{arguments:?}");
        for wire in Wire::ALL {
            let body = sendable(wire, &history);
            let sent = match wire {
                Wire::Anthropic => body["messages"][1]["content"][0]["input"].clone(),
                Wire::OpenAiChat => {
                    let call = &body["messages"][1]["tool_calls"][0];
                    serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap()
                }
                Wire::OpenAiResponses => {
                    serde_json::from_str(body["input"][1]["arguments"].as_str().unwrap()).unwrap()
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
async fn h20_a_tool_that_needs_a_field_does_not_run_with_empty_arguments() {
    for arguments in ["", "null", " "] {
        let counter = Counter::default();
        let reply = Reply::new().call_raw("c1", "strict", arguments);
        let outcome = outcome([reply, "done".into()], vec![strict(&counter)]).await;
        assert_eq!(kinds(&outcome.new_items), [ResultKind::InvalidArguments]);
        assert_eq!(counter.began(), 0);
    }
}

#[tokio::test]
async fn h20_a_wire_that_leaves_the_arguments_out_calls_with_an_empty_object() {
    let delta = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"echo"}}]},"finish_reason":"tool_calls"}]}"#;
    let (outcome, _) = over_chat(&[delta], vec![echo(&Counter::default())]).await;
    assert_eq!(answers(&outcome.new_items), [("c1", ResultKind::Ok, "{}".to_owned())]);
}

/// A run over the chat wire: one turn of these frames, then words.
async fn over_chat(frames: &[&str], tools: Vec<Tool>) -> (Outcome, History) {
    let done = r#"{"choices":[{"index":0,"delta":{"content":"done"},"finish_reason":"stop"}]}"#;
    let body = |frames: &[&str]| {
        frames.iter().chain(&["[DONE]"]).map(|data| frame(data)).collect::<Vec<_>>()
    };
    let model = Bodies::new(vec![body(frames), body(&[done])], chat);
    let run = Agent::new(model).with_tools(tools).run_from(History::with_id("h"), "go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    check(&outcome, Reason::Completed, 2);
    (outcome, handle.history())
}

// H21: arguments that are no object.

#[tokio::test]
async fn h21_arguments_that_are_json_and_no_object_are_invalid_and_not_made_one() {
    for arguments in ["[]", r#""x""#, r#""{\"n\":1}""#, "3", "true", r#"[{"n":1}]"#] {
        let counter = Counter::default();
        let reply = Reply::new().call_raw("c1", "strict", arguments);
        let (outcome, history, _) = story([reply, "done".into()], vec![strict(&counter)]).await;
        assert_eq!(kinds(&outcome.new_items), [ResultKind::InvalidArguments], "{arguments}");
        assert_eq!(calls(&history)[0].arguments, arguments, "kept as it was written");
        assert_eq!(counter.began(), 0);
        for wire in Wire::ALL {
            sendable(wire, &history);
        }
    }
}

// H22, H23: one id, twice.

#[tokio::test]
async fn h22_the_same_call_twice_under_one_id_is_one_call_and_runs_once() {
    let counter = Counter::default();
    let reply =
        Reply::new().call_raw("c1", "echo", r#"{"n":1}"#).call_raw("c1", "echo", r#"{"n":1}"#);
    let (outcome, history, _) = story([reply, "done".into()], vec![echo(&counter)]).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!((counter.began(), calls(&history).len()), (1, 1));
    assert_eq!(answers(&history), [("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned())]);
}

#[tokio::test]
async fn h23_two_calls_under_one_id_are_both_kept_and_the_second_gets_an_id_of_its_own() {
    let counter = Counter::default();
    let reply =
        Reply::new().call_raw("c1", "echo", r#"{"n":1}"#).call_raw("c1", "echo", r#"{"n":2}"#);
    let (outcome, history, _) = story([reply, "done".into()], vec![echo(&counter)]).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(counter.began(), 2);
    let expected = [
        ("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned()),
        ("c1_dup1", ResultKind::Ok, r#"{"n":2}"#.to_owned()),
    ];
    assert_eq!(answers(&history), expected);
    assert!(history.is_lawful());
}

#[tokio::test]
async fn h23_an_id_that_comes_again_in_a_later_turn_is_made_unique_before_anybody_sees_it() {
    let reply = |n: u8| Reply::new().call_raw("terminal:0", "echo", &json!({ "n": n }).to_string());
    let replies = [reply(1), reply(2), reply(1), "done".into()];
    let (agent, model) = agent(replies, vec![echo(&Counter::default())]);
    let mut run = agent.run("go");
    let events = rest(&mut run).await;
    let ids = ["terminal:0", "terminal:0_dup1", "terminal:0_dup2"];
    let started = events.iter().filter_map(|event| match event {
        Event::Turn(turnstream::TurnEvent::ToolCallStart { call_id, .. }) => Some(call_id.as_str()),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), ids);
    let history = run.history();
    assert_eq!(results(&history).iter().map(|it| &*it.call_id).collect::<Vec<_>>(), ids);
    assert!(history.is_lawful());
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

// H24: an id that is empty.

#[tokio::test]
async fn h24_parallel_calls_with_empty_ids_get_distinct_ones_and_all_run() {
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
async fn h24_empty_ids_of_several_turns_are_distinct_too() {
    let reply = || Reply::new().call_raw("", "echo", "{}");
    let (_, history, _) =
        story([reply(), reply(), "done".into()], vec![echo(&Counter::default())]).await;
    let ids: Vec<_> = calls(&history).iter().map(|call| &*call.call_id).collect();
    assert_eq!(ids, ["call_1_1", "call_2_1"]);
}

// H25: an approval that is denied.

#[tokio::test]
async fn h25_a_denial_is_told_with_its_reason_and_the_siblings_and_the_run_go_on() {
    let (counter, other) = (Counter::default(), Counter::default());
    let tools = vec![fine("t", &counter).needs_approval(), fine("u", &other)];
    let reply = call("c1", "t").call_raw("c2", "u", "{}");
    let (agent, model) = agent([reply, "done".into()], tools);
    let mut run = agent.interactive().run("go");
    let asked = until(&mut run, |event| event.approval().is_some()).await;
    run.deny(asked.approval().unwrap(), "not on a Sunday").unwrap();
    let outcome = run.outcome().await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::Denied, ResultKind::Ok]);
    assert_eq!((counter.began(), other.began()), (0, 1));
    let told = results(&model.requests()[1].history)[0].content.text();
    assert!(told.contains("not on a Sunday"), "{told}");
}

#[tokio::test]
async fn h25_denials_in_a_row_are_not_taken_for_malformed_replies() {
    let counter = Counter::default();
    let reply = || Reply::new().call("t", json!({}));
    let replies = [reply(), reply(), reply(), reply(), reply(), "I see".into()];
    let never = hook::before_tool(|_, _| ready(BeforeTool::Deny("no".to_owned())));
    let (agent, _) = agent(replies, vec![fine("t", &counter)]);
    let outcome = agent.with_hook(never).run("go").outcome().await;
    check(&outcome, Reason::Completed, 6);
    assert_eq!(kinds(&outcome.new_items), [ResultKind::Denied; 5]);
    assert_eq!(counter.began(), 0);
}

// H26: approvals that are forged or stale.

#[track_caller]
fn refused<T: std::fmt::Debug>(given: Result<T, Error>) {
    assert_eq!(given.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn h26_an_approval_holds_for_exactly_the_call_that_was_shown_and_once() {
    let counter = Counter::default();
    let tools = vec![tool("echo", &counter, |args| ready(args.to_string())).needs_approval()];
    let reply = Reply::new().call_raw("c1", "echo", r#"{"n":1}"#);
    let (agent, _) = agent([reply, "done".into()], tools);
    let mut run = agent.interactive().run("go");
    let real =
        ToolCall { call_id: "c1".into(), name: "echo".into(), arguments: r#"{"n":1}"#.into() };
    refused(run.approve(&real));
    let events = pull(&mut run);
    assert_eq!(events.iter().find_map(Event::approval), Some(&real));
    refused(run.approve(&ToolCall { arguments: r#"{"n":2}"#.into(), ..real.clone() }));
    refused(run.approve(&ToolCall { arguments: r#"{"n": 1}"#.into(), ..real.clone() }));
    refused(run.approve(&ToolCall { name: "rm".into(), ..real.clone() }));
    refused(run.approve(&ToolCall { call_id: "c2".into(), ..real.clone() }));
    assert!(pull(&mut run).is_empty() && counter.began() == 0);
    run.approve(&real).unwrap();
    refused(run.approve(&real));
    refused(run.deny(&real, "changed my mind"));
    let outcome = run.outcome().await;
    assert_eq!(answers(&outcome.new_items), [("c1", ResultKind::Ok, r#"{"n":1}"#.to_owned())]);
}

#[tokio::test]
async fn h26_an_approval_does_not_stick_to_the_tool() {
    let counter = Counter::default();
    let tools = vec![fine("t", &counter).needs_approval()];
    let (agent, _) = agent([call("c1", "t"), call("c1", "t"), "never".into()], tools);
    let mut run = agent.interactive().run("go");
    let asked = until(&mut run, |event| event.approval().is_some()).await;
    run.approve(asked.approval().unwrap()).unwrap();
    let again = until(&mut run, |event| event.approval().is_some()).await;
    assert_eq!(again.approval().unwrap().call_id, "c1_dup1");
    refused(run.approve(asked.approval().unwrap()));
    assert!(pull(&mut run).is_empty());
    assert_eq!(counter.began(), 1);
}

#[tokio::test]
async fn h26_a_resumed_call_is_judged_again_by_schema_and_rules() {
    let counter = Counter::default();
    let reply = Reply::new().call_raw("c1", "strict", r#"{"n":1}"#);
    let (first, _) = agent([reply], vec![strict(&counter).needs_approval()]);
    let run = first.run("go");
    let (handle, outcome) = (run.handle(), run.outcome().await);
    let history = handle.history();
    let approved = |arguments: &str| {
        let call = ToolCall { arguments: arguments.into(), ..outcome.pending[0].clone() };
        [(call, Verdict::Approve)]
    };
    // Other arguments than those that were shown.
    refused(first.resume(history.clone(), approved(r#"{"n":2}"#)));
    // A schema that has changed since.
    let parameters = json!({ "type": "object", "required": ["m"] });
    let changed =
        Tool::raw(ToolSpec { parameters, ..spec("strict") }, |_, _| ready("ran")).unwrap();
    let kit = Toolkit::new([changed.needs_approval()]);
    let (next, _) = agent(["done".into()], vec![]);
    let resumed = next.clone().with_kit(kit).resume(history.clone(), approved(r#"{"n":1}"#));
    let kinds_ = kinds(&resumed.unwrap().outcome().await.new_items);
    assert_eq!(kinds_, [ResultKind::InvalidArguments]);
    // A rule that says no.
    let (next, _) = agent(["done".into()], vec![strict(&counter).needs_approval()]);
    let no = hook::before_tool(|_, _| ready(BeforeTool::Deny("not any more".to_owned())));
    let resumed = next.with_hook(no).resume(history.clone(), approved(r#"{"n":1}"#));
    assert_eq!(kinds(&resumed.unwrap().outcome().await.new_items), [ResultKind::Denied]);
    // A rule that makes other arguments of those that were approved.
    let (next, _) = agent(["done".into()], vec![strict(&counter).needs_approval()]);
    let other = hook::before_tool(|_, _| ready(BeforeTool::Rewrite(r#"{"n":9}"#.to_owned())));
    let resumed = next.with_hook(other).resume(history, approved(r#"{"n":1}"#));
    assert_eq!(kinds(&resumed.unwrap().outcome().await.new_items), [ResultKind::Denied]);
    assert_eq!(counter.began(), 0);
}

#[tokio::test]
async fn h26_an_approval_of_the_parents_call_does_not_count_for_the_childs() {
    let (own, childs) = (Counter::default(), Counter::default());
    let child = Agent::new(Scripted::new([call("c1", "danger"), "done".into()]))
        .with_tools([fine("danger", &childs).needs_approval()])
        .interactive();
    let tools =
        vec![child.as_tool("child", "Works").unwrap(), fine("danger", &own).needs_approval()];
    let reply =
        Reply::new().call_raw("c0", "child", r#"{"prompt":"work"}"#).call_raw("c1", "danger", "{}");
    let (agent, _) = agent([reply, "done".into()], tools);
    let mut run = agent.interactive().run("go");
    let events = pull(&mut run);
    let asked = events.iter().find_map(Event::approval).unwrap().clone();
    let nested = run.handle().nested("c0").unwrap();
    let childs_ask = events.iter().find_map(|event| match event {
        Event::Nested { event, .. } => event.approval(),
        _ => None,
    });
    assert_eq!(childs_ask, Some(&asked), "the same call to look at");
    run.approve(&asked).unwrap();
    pull(&mut run);
    assert_eq!((own.began(), childs.began()), (1, 0));
    refused(run.approve(&asked));
    nested.approve(&asked).unwrap();
    check(&run.outcome().await, Reason::Completed, 2);
    assert_eq!((own.began(), childs.began()), (1, 1));
}

// H27: tools that run elsewhere.

/// A run that ended with one call answered and one that waits for somebody outside.
async fn with_external() -> (Agent, Scripted, Outcome, History, Counter) {
    let counter = Counter::default();
    let tools = vec![fine("t", &counter), Tool::external(spec("ask_user")).unwrap()];
    let reply = call("c1", "ask_user").call_raw("c2", "t", "{}");
    let (agent, model) = agent([reply, "done".into()], tools);
    let run = agent.run("go");
    let (handle, outcome) = (run.handle(), run.outcome().await);
    (agent, model, outcome, handle.history(), counter)
}

#[tokio::test]
async fn h27_an_external_call_ends_the_run_as_pending_behind_its_siblings() {
    let (_, model, outcome, history, counter) = with_external().await;
    check(&outcome, Reason::Pending, 1);
    assert!(outcome.partial);
    let pending: Vec<_> = outcome.pending.iter().map(|call| &*call.call_id).collect();
    assert_eq!(pending, ["c1"]);
    assert_eq!(answers(&outcome.new_items), [("c2", ResultKind::Ok, "fine".to_owned())]);
    assert_eq!(history.unanswered_calls(), outcome.pending);
    assert_eq!((model.requests().len(), counter.began()), (1, 1));
}

#[tokio::test]
async fn h27_an_interactive_run_does_not_wait_for_somebody_outside() {
    let tools = vec![Tool::external(spec("ask_user")).unwrap()];
    let (agent, _) = agent([call("c1", "ask_user")], tools);
    let events = pull(&mut agent.interactive().run("go"));
    check(ending(&events), Reason::Pending, 1);
    assert!(!events.iter().any(|event| event.approval().is_some()));
}

#[tokio::test]
async fn h27_a_resume_takes_exactly_the_calls_that_wait() {
    let (agent, model, outcome, history, _) = with_external().await;
    let waits = outcome.pending[0].clone();
    let answered = |call: &ToolCall| (call.clone(), Verdict::Output(ToolOutput::ok("Oslo")));
    let extra = ToolCall { call_id: "c9".into(), ..waits.clone() };
    let done = calls(&history)[1].clone();
    for verdicts in [
        vec![],
        vec![answered(&extra)],
        vec![answered(&waits), answered(&extra)],
        vec![answered(&waits), answered(&done)],
        vec![answered(&waits), answered(&waits)],
        vec![(waits.clone(), Verdict::Approve)],
    ] {
        refused(agent.resume(history.clone(), verdicts));
    }
    assert_eq!(model.requests().len(), 1, "nothing was sent");
    let resumed = agent.resume(history.clone(), [answered(&waits)]).unwrap().outcome().await;
    check(&resumed, Reason::Completed, 1);
    let sent = &model.requests()[1].history;
    assert!(sent.is_lawful());
    let texts: Vec<_> = answers(sent).into_iter().map(|answer| answer.2).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts.contains(&"Oslo".to_owned()) && texts.contains(&"fine".to_owned()));
    // Once answered, nothing is open any more.
    refused(agent.resume(sent.clone(), [answered(&waits)]));
}

#[tokio::test]
async fn h27_a_run_that_does_not_resume_answers_the_calls_as_interrupted() {
    let (agent, model, _, history, _) = with_external().await;
    check(&agent.run_from(history, "never mind").outcome().await, Reason::Completed, 1);
    let sent = &model.requests()[1].history;
    assert!(sent.is_lawful());
    assert!(kinds(sent).contains(&ResultKind::Interrupted));
}

// H28: tools that the provider runs.

/// A run over the Anthropic wire, where the server may search by itself.
async fn over_anthropic(turns: Vec<Vec<&str>>, counter: &Counter) -> (Outcome, History, usize) {
    let start = r#"{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}"#;
    let body = |events: &Vec<&str>| {
        let all = [&[start], &events[..], &[r#"{"type":"message_stop"}"#]].concat();
        all.into_iter().map(frame).collect::<Vec<_>>()
    };
    let bodies = turns.iter().map(body).collect();
    let model = Bodies::new(bodies, || anthropic::Decoder::new("m"));
    let asked = Arc::clone(&model.asked);
    let run = Agent::new(model)
        .with_tools([fine("web_search", counter)])
        .run_from(History::with_id("h"), "go");
    let handle = run.handle();
    let outcome = run.outcome().await;
    let asked = asked.lock().unwrap().len();
    (outcome, handle.history(), asked)
}

const SEARCH: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srv1","name":"web_search","input":{"query":"q"}}}"#;
const STOP_0: &str = r#"{"type":"content_block_stop","index":0}"#;
const FOUND: &str = r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"srv1","content":[]}}"#;
const STOP_1: &str = r#"{"type":"content_block_stop","index":1}"#;
const END_TURN: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
const PAUSE: &str = r#"{"type":"message_delta","delta":{"stop_reason":"pause_turn"}}"#;

#[tokio::test]
async fn h28_what_the_provider_runs_is_never_run_here_and_gets_no_result_of_ours() {
    let counter = Counter::default();
    let turn = vec![SEARCH, STOP_0, FOUND, STOP_1, END_TURN];
    let (outcome, history, asked) = over_anthropic(vec![turn], &counter).await;
    check(&outcome, Reason::Completed, 1);
    assert_eq!((counter.began(), asked), (0, 1));
    assert_eq!((calls(&history).len(), results(&history).len()), (0, 0));
    let own = history.iter().filter(|item| matches!(item.kind, ItemKind::Other)).count();
    assert_eq!(own, 2);
    assert_eq!(history.settled(), history, "settling leaves them alone");
    let sent = sendable(Wire::Anthropic, &history).to_string();
    assert!(sent.contains("srv1"), "{sent}");
}

#[tokio::test]
async fn h28_a_result_of_the_provider_may_come_in_a_later_turn() {
    let counter = Counter::default();
    let later = FOUND.replace(r#""index":1"#, r#""index":0"#);
    let turns = vec![vec![SEARCH, STOP_0, PAUSE], vec![&later, STOP_0, END_TURN]];
    let (outcome, history, asked) = over_anthropic(turns, &counter).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!((counter.began(), asked, results(&history).len()), (0, 2, 0));
    let sent = sendable(Wire::Anthropic, &history);
    assert_eq!(sent.to_string().matches("srv1").count(), 2);
}

#[tokio::test]
async fn h28_a_call_of_ours_beside_one_of_the_provider_runs_alone() {
    let counter = Counter::default();
    let ours = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c1","name":"web_search","input":{}}}"#;
    let tool_use = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#;
    let words =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"done"}}"#;
    let turns = vec![vec![SEARCH, STOP_0, ours, STOP_1, tool_use], vec![words, STOP_0, END_TURN]];
    let (outcome, history, _) = over_anthropic(turns, &counter).await;
    check(&outcome, Reason::Completed, 2);
    assert_eq!(counter.began(), 1);
    assert_eq!(answers(&history), [("c1", ResultKind::Ok, "fine".to_owned())]);
}

// H29: results that are huge.

async fn clipped(text: &str, max: usize) -> (String, String) {
    let owned = text.to_owned();
    let big = tool("t", &Counter::default(), move |_| ready(owned.clone()));
    let (agent, model) = agent([call("c1", "t"), "done".into()], vec![]);
    let kit = Toolkit::new([big]).clip_results(max);
    let outcome = agent.with_kit(kit).run("go").outcome().await;
    let kept = results(&outcome.new_items)[0].content.text();
    (kept, results(&model.requests()[1].history)[0].content.text())
}

#[tokio::test]
async fn h29_a_huge_result_is_clipped_on_entry_between_two_characters() {
    for unit in ["a", "é", "…", "👩‍🚀", "a👍é"] {
        let text = unit.repeat(400);
        for max in 60..100 {
            let (kept, sent) = clipped(&text, max).await;
            assert!(kept.len() <= max, "{} of {max}", kept.len());
            let (head, rest) = kept.split_once("\n[").unwrap();
            let (_, tail) = rest.split_once("here]\n").unwrap();
            assert!(text.starts_with(head) && text.ends_with(tail), "{kept}");
            assert!(!kept.contains('\u{fffd}'));
            assert_eq!(kept, sent, "what is kept is what is sent");
        }
    }
}

#[tokio::test]
async fn h29_a_result_that_fits_is_not_touched() {
    let text = "é".repeat(50);
    assert_eq!(clipped(&text, 100).await.0, text);
}

#[tokio::test]
async fn h29_the_default_limit_holds_for_any_result() {
    let long = || "👍".repeat(100_000);
    let fails = Tool::raw(spec("bad"), move |_, _| ready(Err::<(), _>(long()))).unwrap();
    let big = tool("t", &Counter::default(), move |_| ready(long()));
    let reply = call("c1", "bad").call_raw("c2", "t", "{}");
    let outcome = outcome([reply, "done".into()], vec![fails, big]).await;
    for result in results(&outcome.new_items) {
        let len = result.content.text().len();
        assert!((60_000..=64 * 1024).contains(&len), "{len}");
    }
}

#[tokio::test]
async fn h29_media_in_a_result_stay_and_its_texts_are_clipped_together() {
    let parts = || {
        vec![
            Part::Text { text: "é".repeat(300) },
            Part::image("image/png", "AAAA"),
            Part::Text { text: "👍".repeat(300) },
        ]
    };
    let shows = Tool::raw(spec("t"), move |_, _| ready(parts())).unwrap();
    let (agent, _) = agent([call("c1", "t"), "done".into()], vec![]);
    let kit = Toolkit::new([shows]).clip_results(101);
    let outcome = agent.with_kit(kit).run("go").outcome().await;
    let result = results(&outcome.new_items)[0];
    assert!(result.content.text_len() <= 101);
    let Content::Parts(parts) = &result.content else { panic!("{result:?}") };
    assert!(parts.iter().any(|part| matches!(part, Part::Image(_))), "{parts:?}");
}

// H30: hooks that fail.

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Fails,
    Panics,
    Hangs,
}

/// A hook of which one method goes wrong, the `nth` time that it is asked.
struct Bad {
    method: &'static str,
    how: How,
    nth: usize,
    asked: Mutex<usize>,
}

impl Bad {
    fn new(method: &'static str, how: How, nth: usize) -> Self {
        Self { method, how, nth, asked: Mutex::default() }
    }

    fn is_due(&self, method: &str) -> bool {
        if method != self.method {
            return false;
        }
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        *asked == self.nth
    }

    fn at_once(&self, method: &str) {
        if self.is_due(method) {
            std::panic::resume_unwind(Box::new("boom"));
        }
    }

    fn answer<'a, T: Send + 'a>(&self, method: &str, otherwise: T) -> Answer<'a, T> {
        if !self.is_due(method) {
            return ready(Ok(otherwise)).boxed();
        }
        match self.how {
            How::Fails => ready(Err(Error::new(ErrorKind::Other, "no"))).boxed(),
            How::Panics => async { std::panic::resume_unwind(Box::new("boom")) }.boxed(),
            How::Hangs => futures::future::pending().boxed(),
        }
    }
}

impl Hook for Bad {
    fn name(&self) -> std::borrow::Cow<'_, str> {
        "bad".into()
    }
    fn transform_context<'a>(&'a self, _: &'a State, context: History) -> Answer<'a, History> {
        self.answer("transform_context", context)
    }
    fn prepare<'a>(&'a self, _: &'a State, _: &'a mut Request) -> Answer<'a, ()> {
        self.answer("prepare", ())
    }
    fn turn_started<'a>(&'a self, _: &'a State) -> Answer<'a, ()> {
        self.answer("turn_started", ())
    }
    fn assistant_message<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, ()> {
        self.answer("assistant_message", ())
    }
    fn after_sampling<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, Vec<Item>> {
        self.answer("after_sampling", Vec::new())
    }
    fn before_tool<'a>(&'a self, _: &'a State, _: &'a ToolCall) -> Answer<'a, BeforeTool> {
        self.answer("before_tool", BeforeTool::Run)
    }
    fn after_tool(&self, _: &ToolCall, _: &mut ToolResult) {
        self.at_once("after_tool");
    }
    fn should_stop<'a>(&'a self, _: &'a State) -> Answer<'a, bool> {
        self.answer("should_stop", false)
    }
    fn stop<'a>(&'a self, _: &'a State, _: &'a Turn) -> Answer<'a, OnStop> {
        self.answer("stop", OnStop::LetGo)
    }
    fn failure(&self, _: &State, _: &Error) {
        self.at_once("failure");
    }
    fn finished(&self, _: &Outcome) {
        self.at_once("finished");
    }
}

/// A run of one turn with two calls and one with words, and a hook that goes wrong.
async fn run_with(bad: Bad) -> (Vec<Event>, History) {
    let reply = call("c1", "t").call_raw("c2", "t", "{}");
    let kit = Toolkit::new([fine("t", &Counter::default())]).at_once(NonZeroUsize::MIN);
    let (agent, _) = agent([reply, "done".into()], vec![]);
    let mut run = agent.with_kit(kit).with_hook(bad).run("go");
    let events = rest(&mut run).await;
    assert!(run.next().await.is_none());
    (events, run.history())
}

#[tokio::test(start_paused = true)]
async fn h30_a_hook_that_fails_in_any_way_ends_the_run_once_with_its_error() {
    let methods = [
        "transform_context",
        "prepare",
        "turn_started",
        "assistant_message",
        "after_sampling",
        "before_tool",
        "should_stop",
        "stop",
    ];
    for method in methods {
        for how in [How::Fails, How::Panics, How::Hangs] {
            let began = Instant::now();
            let (events, history) = run_with(Bad::new(method, how, 1)).await;
            let outcome = ending(&events);
            assert_eq!(outcome.reason, Reason::HookError, "{method} {how:?}");
            let error = outcome.error.as_ref().unwrap();
            assert_eq!(error.kind(), ErrorKind::Hook);
            let message = error.to_string();
            assert!(message.contains("bad") && message.contains(method), "{message}");
            let waited = if how == How::Hangs { 30 } else { 0 };
            assert_eq!(began.elapsed().as_secs(), waited, "{method} {how:?}");
            assert!(history.is_lawful(), "{method} {how:?}: {history:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn h30_results_that_are_there_are_kept_when_a_hook_fails() {
    use ResultKind::{Interrupted, Ok};
    for (method, nth, expected) in [
        ("before_tool", 1, [Interrupted, Interrupted]),
        ("before_tool", 2, [Ok, Interrupted]),
        ("should_stop", 1, [Ok, Ok]),
        ("prepare", 2, [Ok, Ok]),
        ("stop", 1, [Ok, Ok]),
    ] {
        for how in [How::Fails, How::Panics, How::Hangs] {
            let (events, history) = run_with(Bad::new(method, how, nth)).await;
            assert_eq!(ending(&events).reason, Reason::HookError);
            assert_eq!(kinds(&history), expected, "{method} {nth} {how:?}");
            assert_eq!(kinds(&ending(&events).new_items), expected);
        }
    }
}

#[tokio::test]
async fn h30_a_panic_in_after_tool_keeps_the_result_as_it_was() {
    for (nth, second) in [(1, ResultKind::Interrupted), (2, ResultKind::Ok)] {
        let (events, history) = run_with(Bad::new("after_tool", How::Panics, nth)).await;
        assert_eq!(ending(&events).reason, Reason::HookError);
        assert_eq!(ending(&events).error.as_ref().unwrap().kind(), ErrorKind::Hook);
        assert_eq!(kinds(&history), [ResultKind::Ok, second]);
        assert_eq!(results(&history)[0].content.text(), "fine");
    }
}

#[tokio::test]
async fn h30_a_panic_in_a_notification_changes_nothing() {
    let (events, _) = run_with(Bad::new("finished", How::Panics, 1)).await;
    check(ending(&events), Reason::Completed, 2);
    let error = Error::new(ErrorKind::Server, "broken");
    let (agent, _) = agent([Reply::error(error.clone())], vec![]);
    let hooked = agent.with_hook(Bad::new("failure", How::Panics, 1));
    let outcome = hooked.run("go").outcome().await;
    check(&outcome, Reason::ProviderError, 1);
    assert_eq!(outcome.error, Some(error));
}

// H31: names that mean something elsewhere.

#[tokio::test]
async fn h31_names_that_other_languages_know_are_just_unknown_tools() {
    let counter = Counter::default();
    for name in ["constructor", "__proto__", "toString", "hasOwnProperty", "prototype", ""] {
        let reply = call("c1", name).call_raw("c2", "t", "{}");
        let outcome = outcome([reply, "done".into()], vec![fine("t", &counter)]).await;
        check(&outcome, Reason::Completed, 2);
        let expected = [ResultKind::UnknownTool, ResultKind::Ok];
        assert_eq!(kinds(&outcome.new_items), expected, "{name}");
    }
}

#[tokio::test]
async fn h31_a_tool_may_have_such_a_name_and_such_arguments() {
    let ctor = tool("constructor", &Counter::default(), |args| ready(args.to_string()));
    let arguments = r#"{"__proto__":{"admin":true}}"#;
    let reply = Reply::new().call_raw("c1", "constructor", arguments);
    let outcome = outcome([reply, "done".into()], vec![ctor]).await;
    assert_eq!(answers(&outcome.new_items), [("c1", ResultKind::Ok, arguments.to_owned())]);
}
