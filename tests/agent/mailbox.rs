//! Messages between the agents of one run.

use futures::StreamExt;
use serde_json::json;
use turnstream::env::CountingIds;
use turnstream::event::AppendReason;
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::tool::Tool;
use turnstream::{Agent, Event, History, Item, Outcome};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::runs::limits_with_max_turns;
use turnstream_test_support::tools::{spec, uncounted_tool};

fn send(to: &str, text: &str) -> Reply {
    Reply::new().call("send_message", json!({ "to": to, "text": text }))
}

fn work() -> Reply {
    Reply::new().call("t", json!({}))
}

fn agent(replies: impl IntoIterator<Item = Reply>) -> Agent {
    Agent::new(Scripted::new(replies)).with_tools([uncounted_tool("t"), Tool::send_message()])
}

/// Runs an agent that starts all sub-agents in its first turn. Returns its outcome, and the
/// histories of the sub-agents.
async fn run_tree(
    sub_agents: Vec<(&str, Agent)>,
    later: impl IntoIterator<Item = Reply>,
) -> (Outcome, Vec<History>) {
    let mut first = Reply::new();
    let mut tools = vec![uncounted_tool("t"), Tool::send_message()];
    for (name, agent) in sub_agents {
        first = first.call_raw(&format!("call-{name}"), name, r#"{"prompt":"Begin"}"#);
        tools.push(agent.as_tool(name, "").unwrap());
    }
    let model = Scripted::new([first].into_iter().chain(later));
    let mut run = Agent::new(model).with_tools(tools).run("go");
    let handle = run.handle();
    let mut outcome = None;
    while let Some(event) = run.next().await {
        if let Event::Finished(finished) = event.unwrap() {
            outcome = Some(*finished);
        }
    }
    let journal = handle.journal();
    let ids = journal.nested_call_ids();
    let histories = ids.iter().map(|id| journal.nested_journal(id).unwrap().history());
    (outcome.unwrap(), histories.collect())
}

fn user_texts(history: &History) -> Vec<String> {
    history.iter().filter_map(Item::as_user).map(turnstream::item::Content::text).collect()
}

fn sent(history: &History) -> Vec<(ResultKind, String)> {
    let results = history.iter().filter_map(Item::as_tool_result);
    let results = results.filter(|result| result.name == "send_message");
    results.map(|result| (result.kind, result.content.text())).collect()
}

#[tokio::test]
async fn a_sub_agent_writes_to_the_agent_that_started_it() {
    let reader = agent([send("main", "It is broken."), "I read it.".into()]);
    let (outcome, histories) = run_tree(vec![("reader", reader)], ["Thanks.".into()]).await;
    assert_eq!(
        user_texts(&outcome.history),
        ["go", "Message from the agent `reader`: It is broken."]
    );
    let (kind, text) = &sent(&histories[0])[0];
    assert_eq!(*kind, ResultKind::Ok);
    assert!(text.starts_with("Queued for `main`"), "{text}");
}

#[tokio::test]
async fn concurrent_sub_agents_write_to_each_other() {
    let asker = agent([send("helper", "Where is the key?"), work(), work(), "Done.".into()]);
    let helper = agent([work(), send("asker", "Under the mat."), work(), "Done.".into()]);
    let (outcome, histories) =
        run_tree(vec![("asker", asker), ("helper", helper)], ["Done.".into()]).await;
    assert_eq!(
        user_texts(&histories[1]),
        ["Begin", "Message from the agent `asker`: Where is the key?"]
    );
    assert_eq!(
        user_texts(&histories[0]),
        ["Begin", "Message from the agent `helper`: Under the mat."]
    );
    assert_eq!(user_texts(&outcome.history), ["go"]);
}

#[tokio::test]
async fn a_message_that_is_not_delivered_goes_back_to_its_sender() {
    // The receiver may make no request after its first one.
    let asker = agent([send("helper", "Where is the key?"), work(), work(), "Done.".into()]);
    let slow_answer = Reply::new().delay(std::time::Duration::from_millis(1)).say("Done.");
    let helper = agent([slow_answer]).with_limits(limits_with_max_turns(1));
    tokio::time::pause();
    let slow = Tool::raw(spec("t"), |_, _| async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    });
    let asker = asker.with_toolkit(turnstream::Toolkit::new([slow.unwrap(), Tool::send_message()]));
    let (_, histories) =
        run_tree(vec![("asker", asker), ("helper", helper)], ["Done.".into()]).await;
    assert_eq!(user_texts(&histories[1]), ["Begin"]);
    let expected = "Your message to the agent `helper` was not delivered, because the agent has \
                    ended or was suspended: Message from the agent `asker`: Where is the key?";
    assert_eq!(user_texts(&histories[0]), ["Begin", expected]);
}

#[tokio::test]
async fn unknown_and_ambiguous_names_and_long_messages_are_refused() {
    let long = "x".repeat(64 * 1024 + 1);
    let writer = agent([
        send("nobody", "Hello?"),
        send("writer", "Myself?"),
        send("main", &long),
        "Done.".into(),
    ]);
    let (_, histories) = run_tree(vec![("writer", writer)], ["Done.".into()]).await;
    let expected = [
        "Error: no running agent is named `nobody`. These are running: `main`.",
        "Error: no running agent is named `writer`. These are running: `main`.",
        "Error: a message may have at most 65536 bytes",
    ];
    assert_eq!(sent(&histories[0]), expected.map(|text| (ResultKind::Error, text.to_owned())));

    let twin = agent([work(), work(), "Done.".into()]).with_label("twin");
    let writer = agent([send("twin", "Which?"), "Done.".into()]);
    let sub_agents = vec![("one", twin.clone()), ("two", twin), ("writer", writer)];
    let (_, histories) = run_tree(sub_agents, ["Done.".into()]).await;
    let expected = "Error: several running agents are named `twin`".to_owned();
    assert_eq!(sent(&histories[2]), [(ResultKind::Error, expected)]);

    let alone = agent([send("main", "Me?"), "Done.".into()]);
    let outcome = alone.run("go").outcome().await;
    let expected = "Error: no running agent is named `main`. No other agent is running.".to_owned();
    assert_eq!(sent(&outcome.history), [(ResultKind::Error, expected)]);
}

#[tokio::test]
async fn a_nested_agent_is_addressed_by_its_path_or_its_last_part() {
    for name in ["outer/inner", "inner"] {
        let inner = agent([work(), work(), work(), "Done.".into()]);
        let task = json!({ "prompt": "Begin" });
        let outer = Agent::new(Scripted::new([Reply::new().call("inner", task), "Done.".into()]))
            .with_tool(inner.as_tool("inner", "").unwrap());
        let writer = agent([work(), send(name, "Hello."), "Done.".into()]);
        let (_, histories) =
            run_tree(vec![("outer", outer), ("writer", writer)], ["Done.".into()]).await;
        let (kind, text) = &sent(&histories[1])[0];
        assert_eq!(*kind, ResultKind::Ok, "{text}");
        assert!(text.starts_with("Queued for `outer/inner`"), "{text}");
    }
}

#[tokio::test]
async fn a_full_mailbox_refuses_a_message_with_an_error() {
    // The receiver makes no request before the sender has ended.
    let notes = (0..1_001).fold(Reply::new(), |reply, n| {
        let arguments = json!({ "to": "main", "text": format!("Note {n}") });
        reply.call("send_message", arguments)
    });
    let writer = agent([notes, "Done.".into()]);
    let (outcome, histories) = run_tree(vec![("writer", writer)], ["Thanks.".into()]).await;
    let sent = sent(&histories[0]);
    let refused: Vec<_> = sent.iter().filter(|(kind, _)| *kind != ResultKind::Ok).collect();
    let expected = (ResultKind::Error, "Error: the mailbox of `main` is full".to_owned());
    assert_eq!((sent.len(), refused), (1_001, vec![&expected]));
    // The input, and the messages that were accepted.
    assert_eq!(user_texts(&outcome.history).len(), 1 + 1_000);
}

#[tokio::test]
async fn a_recorded_run_is_replayed_with_its_messages() {
    let page = SharedBuffer::new();
    let tree = || {
        let reader = agent([send("main", "It is broken."), "I read it.".into()]);
        let task = json!({ "prompt": "Begin" });
        let first = Reply::new().call("reader", task);
        let reader = reader.as_tool("reader", "").unwrap();
        Agent::new(Scripted::new([first, "Thanks.".into()]))
            .with_tool(reader)
            .with_ids(CountingIds::new("id"))
    };
    let recorded = tree().with_recorder(&Recorder::to_writer(page.clone())).run("go");
    let recorded = recorded.outcome().await;
    let texts = ["go", "Message from the agent `reader`: It is broken."];
    assert_eq!(user_texts(&recorded.history), texts);

    let recording = Recording::from_text(&page.text()).unwrap();
    let events: Vec<Event> = recording.replay(&tree()).map(Result::unwrap).collect().await;
    assert!(events.iter().eq(recording.events()));
    let replayed = events.last().and_then(Event::outcome).unwrap();
    assert_eq!(replayed.new_items(), recorded.new_items());
    let is_message =
        |event: &&Event| matches!(event, Event::Appended { why: AppendReason::Message, .. });
    assert_eq!(events.iter().filter(is_message).count(), 1);
}
