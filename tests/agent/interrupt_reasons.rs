//! The reason for an interrupt: it is in the outcome, and the model reads it in the next request.

use std::future::pending;

use futures::StreamExt;
use serde_json::json;
use turnstream::agent::{RunContext, State};
use turnstream::event::{AppendReason, EndReason};
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::session::SessionState;
use turnstream::session::{MemoryStore, Session};
use turnstream::stream::Step;
use turnstream::tool::Tool;
use turnstream::{Agent, Event, History, Item, Outcome, Request, Run};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::runs::{is_tool_started, pull_until};
use turnstream_test_support::tools::spec;

/// An agent whose first turn is this reply, and whose tool `t` never ends.
fn agent_with_first_reply(first: Reply) -> (Agent, Scripted) {
    let model = Scripted::new([first, "fine".into()]);
    let tool = Tool::raw(spec("t"), |_, _| pending::<&str>()).unwrap();
    (Agent::new(model.clone()).with_tools([tool]), model)
}

fn has_text(event: &Event) -> bool {
    event.text_delta().is_some()
}

/// The texts of the items from the last prompt on, without the model's items.
fn texts_for_model(items: impl IntoIterator<Item = Item>) -> Vec<String> {
    let text = |item: Item| match (item.as_user(), item.as_tool_result()) {
        (Some(content), _) => Some(content.text()),
        (None, Some(result)) => Some(result.content.text()),
        (None, None) => None,
    };
    items.into_iter().filter_map(text).collect()
}

fn sent_texts(request: &Request) -> Vec<String> {
    texts_for_model(request.history.iter().cloned())
}

/// Interrupts a run during the first turn's text, for each of the reasons in order.
async fn interrupt_while_streaming(agent: &Agent, reasons: &[&str]) -> Outcome {
    let mut run = agent.run("go");
    pull_until(&mut run, has_text).await;
    for reason in reasons {
        run.interrupt_with_reason(*reason);
    }
    let outcome = run.outcome().await;
    assert!(matches!(outcome.reason, EndReason::Interrupted(_)));
    outcome
}

#[tokio::test]
async fn the_model_reads_the_reason_after_a_turn_that_was_cut_off() {
    let (agent, model) = agent_with_first_reply(Reply::text("Once").hang());
    let outcome = interrupt_while_streaming(&agent, &["tea is ready"]).await;
    assert_eq!(outcome.why.as_deref(), Some("tea is ready"));
    assert!(outcome.labeled_text().contains("it was interrupted (tea is ready)"));
    assert_eq!(
        texts_for_model(outcome.new_items().to_vec()),
        ["go", "The run was interrupted: tea is ready"]
    );
    agent.run_from(outcome.history, "and now?").outcome().await;
    let sent = sent_texts(&model.requests()[1]);
    assert_eq!(sent, ["go", "The run was interrupted: tea is ready", "and now?"]);
}

#[tokio::test]
async fn the_results_of_calls_that_were_cut_off_contain_the_reason() {
    for (started, text) in [
        (true, "Interrupted mid-execution: tea is ready"),
        (false, "Interrupted by user: tea is ready"),
    ] {
        let (agent, _) = agent_with_first_reply(Reply::new().call("t", json!({})));
        let mut run = agent.run("go");
        pull_until(&mut run, |event| match started {
            true => is_tool_started(event),
            false => event.turn_complete().is_some(),
        })
        .await;
        run.interrupt_with_reason("tea is ready");
        let outcome = run.outcome().await;
        assert_eq!(texts_for_model(outcome.new_items().to_vec()), ["go", text], "told once");
    }
}

#[tokio::test]
async fn an_interrupt_between_turns_appends_the_reason() {
    let (agent, _) = agent_with_first_reply("fine".into());
    let mut run = agent.run("go");
    run.interrupt_with_reason("tea is ready");
    let first = run.next().await.unwrap().unwrap();
    assert!(matches!(first, Event::Appended { why: AppendReason::Input, .. }));
    let second = run.next().await.unwrap().unwrap();
    assert!(matches!(second, Event::Appended { why: AppendReason::Interrupt, .. }));
    assert_eq!(run.outcome().await.new_items().len(), 2);
}

#[tokio::test]
async fn the_first_reason_counts_and_a_blank_one_is_ignored() {
    for (reasons, expected) in
        [(&["one", "two"][..], Some("one")), (&["", " \n", " two "], Some("two")), (&[" "], None)]
    {
        let (agent, _) = agent_with_first_reply(Reply::text("Once").hang());
        let outcome = interrupt_while_streaming(&agent, reasons).await;
        assert_eq!(outcome.why.as_deref(), expected);
        let texts = texts_for_model(outcome.new_items().to_vec());
        assert_eq!(texts.len(), 1 + usize::from(expected.is_some()), "{texts:?}");
    }
    let (agent, _) = agent_with_first_reply(Reply::text("Once").hang());
    let long = "x".repeat(10_000);
    let why = interrupt_while_streaming(&agent, &[&long]).await.why.unwrap();
    assert!(why.len() <= 2_000 && why.contains("bytes were left out"), "{}", why.len());
}

#[tokio::test]
async fn a_run_that_ends_otherwise_reports_no_reason() {
    let (agent, _) = agent_with_first_reply("fine".into());
    let mut run = agent.run("go");
    pull_until(&mut run, |event| event.outcome().is_some()).await;
    run.interrupt_with_reason("too late");
    let outcome = run.outcome().await;
    assert_eq!((outcome.reason, outcome.why), (EndReason::Completed, None));
}

#[tokio::test]
async fn the_call_of_a_sub_agent_gets_the_reason_of_its_parents_interrupt() {
    let child = Agent::new(Scripted::new([Reply::text("Once").hang()]));
    let model = Scripted::new([Reply::new().call("child", json!({ "prompt": "go" }))]);
    let agent = Agent::new(model).with_tools([child.as_tool("child", "Helps").unwrap()]);
    let is_nested_text = |event: &Event| event.without_nesting().text_delta().is_some();
    let mut run = agent.run("go");
    pull_until(&mut run, is_nested_text).await;
    run.interrupt_with_reason("tea is ready");
    let texts = texts_for_model(run.outcome().await.new_items().to_vec());
    assert_eq!(texts, ["go", "Interrupted mid-execution: tea is ready"]);

    // An interrupt of the sub-agent alone reaches the parent's model as well.
    let mut run = agent_with_nested_interrupt();
    pull_until(&mut run, is_nested_text).await;
    let id = run.journal().nested_call_ids().remove(0);
    run.handle().sub_agent_handle(&id).unwrap().interrupt_with_reason("tea is ready");
    let outcome = run.outcome().await;
    let texts = texts_for_model(outcome.new_items().to_vec());
    assert!(texts[1].contains("it was interrupted (tea is ready)"), "{texts:?}");
    assert_eq!((outcome.reason, outcome.why), (EndReason::Completed, None));
}

fn agent_with_nested_interrupt() -> Run {
    let child = Agent::new(Scripted::new([Reply::text("Once").hang()]));
    let call = Reply::new().call("child", json!({ "prompt": "go" }));
    let model = Scripted::new([call, "done".into()]);
    Agent::new(model).with_tools([child.as_tool("child", "Helps").unwrap()]).run("go")
}

#[tokio::test]
async fn a_session_stores_what_the_model_reads() {
    for first in [Reply::text("Once").hang(), Reply::new().call("t", json!({}))] {
        let (agent, model) = agent_with_first_reply(first);
        let store = MemoryStore::new();
        let session = Session::open(store.clone(), "s").await.unwrap();
        let mut run = session.run(&agent, "go").await.unwrap();
        while let Some(Ok(event)) = run.next().await {
            if has_text(&event) || is_tool_started(&event) {
                run.interrupt_with_reason("tea is ready");
            }
        }
        drop(run);
        drop(session);
        let session = Session::open(store, "s").await.unwrap();
        session.run(&agent, "and now?").await.unwrap().outcome().await.unwrap();
        let sent = sent_texts(&model.requests()[1]);
        assert_eq!((sent.len(), sent[0].as_str(), sent[2].as_str()), (3, "go", "and now?"));
        assert!(sent[1].ends_with(": tea is ready"), "{sent:?}");
    }
}

#[tokio::test]
async fn a_replay_of_an_interrupted_run_has_the_same_reason() {
    for first in [Reply::text("Once").hang(), Reply::new().call("t", json!({}))] {
        let (agent, _) = agent_with_first_reply(first);
        let page = SharedBuffer::new();
        let recorder = Recorder::to_writer(page.clone());
        let mut run = agent.clone().with_recorder(&recorder).run("go");
        let mut events = Vec::new();
        while let Some(Ok(event)) = run.next().await {
            if has_text(&event) || is_tool_started(&event) {
                run.interrupt_with_reason("tea is ready");
            }
            events.push(event);
        }
        drop(run);
        let replay = Recording::from_text(&page.text()).unwrap().replay(&agent);
        let replayed: Vec<Event> = replay.map(Result::unwrap).collect().await;
        assert_eq!(replayed, events);
        let outcome = replayed.last().unwrap().outcome().unwrap();
        assert_eq!(outcome.why.as_deref(), Some("tea is ready"));
    }
}

#[tokio::test]
async fn a_reason_given_after_the_run_was_interrupted_has_no_effect() {
    let (agent, _) = agent_with_first_reply(Reply::new().call("t", json!({})).call("t", json!({})));
    let buffer = SharedBuffer::new();
    let recorder = Recorder::to_writer(buffer.clone());
    let mut run = agent.clone().with_recorder(&recorder).run("go");
    let mut events = Vec::new();
    while let Some(Ok(event)) = run.next().await {
        if is_tool_started(&event) {
            run.interrupt();
        }
        if event.tool_output().is_some() {
            run.interrupt_with_reason("too late");
        }
        events.push(event);
    }
    let outcome = events.last().unwrap().outcome().unwrap();
    assert_eq!(outcome.why, None);
    let texts = texts_for_model(outcome.new_items().to_vec());
    assert_eq!((texts.len(), texts.iter().any(|text| text.contains("late"))), (3, false));
    drop(run);
    let replay = Recording::from_text(&buffer.text()).unwrap().replay(&agent);
    assert_eq!(replay.map(Result::unwrap).collect::<Vec<_>>().await, events);
}

#[tokio::test]
async fn the_notice_of_an_interrupt_is_neither_a_prompt_nor_unfinished_work() {
    let (agent, _) = agent_with_first_reply(Reply::text("Once").hang());
    let session = Session::open(MemoryStore::new(), "s").await.unwrap();
    let mut run = session.run(&agent, "go").await.unwrap();
    while let Some(Ok(event)) = run.next().await {
        if has_text(&event) {
            run.interrupt_with_reason("tea is ready");
        }
    }
    drop(run);
    assert_eq!(texts_for_model(session.history().iter().cloned()).len(), 2);
    assert_eq!(session.state(), SessionState::Idle);
    assert_eq!(session.history().before_last_prompt().len(), 0);
    let fork = session.fork_before_last_prompt("fork").await.unwrap();
    assert_eq!(fork.history().len(), 0);

    // If the model has not answered yet, the session is unfinished, with or without a notice.
    let mut run = fork.run(&agent, "go").await.unwrap();
    run.interrupt_with_reason("tea is ready");
    while run.next().await.is_some() {}
    assert_eq!(fork.state(), SessionState::Unfinished { open_calls: Vec::new() });
}

#[tokio::test]
async fn a_reason_does_not_change_the_number_of_turns() {
    for reason in [None, Some("tea is ready")] {
        let (agent, _) = agent_with_first_reply(Reply::text("Once").hang());
        // This body does not report that a turn has started.
        let body = |cx: RunContext, state: State| {
            let turn = cx.provider(&state).stream_turn(Request::new(cx.history()));
            turn.map(|event| Ok(Step::Value(Event::Turn(event?))))
        };
        let mut run = agent.run_with_body(body, History::empty("h"), "go");
        pull_until(&mut run, has_text).await;
        match reason {
            None => run.interrupt(),
            Some(reason) => run.interrupt_with_reason(reason),
        }
        let outcome = run.outcome().await;
        assert_eq!((outcome.why.as_deref(), outcome.turns), (reason, 1));
    }
}
