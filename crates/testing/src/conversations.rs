//! Runs of every kind, as the events that they emitted.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use turnstream::agent::hook::{Hook, HookFuture};
use turnstream::agent::{Limits, State};
use turnstream::context::Truncator;
use turnstream::event::{AppendReason, ToolEvent};
use turnstream::item::{PendingCall, StopReason};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::session::{MemoryStore, Session, SessionState};
use turnstream::tool::{Tool, ToolOutput, ToolSpec, ToolUpdate, Verdict};
use turnstream::turn::TurnEvent;
use turnstream::{
    Agent, Error, ErrorKind, Event, History, Item, Request, Steps, Toolkit, TurnStreamExt,
    loop_stream,
};

/// The items of a run's stream.
pub type Events = Vec<Result<Event, Error>>;

/// The events of a run, or of several consecutive runs of a session, between which calls were
/// approved or answered.
pub struct Conversation {
    /// The name in messages of tests.
    pub name: &'static str,
    /// The events of each run.
    pub runs: Vec<Events>,
    /// The history that the first run starts with.
    pub start: History,
}

impl Conversation {
    fn of_run(name: &'static str, run: Events) -> Self {
        Self { name, runs: vec![run], start: History::empty("c") }
    }
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "A tool", json!({ "type": "object" }))
}

fn tool(name: &str, answer: impl Fn() -> ToolOutput + Send + Sync + 'static) -> Tool {
    Tool::raw(spec(name), move |_, _| {
        let answer = answer();
        async move { answer }
    })
    .unwrap()
}

fn tools() -> Vec<Tool> {
    vec![
        tool("read", || ToolOutput::ok("four\nlines, \"quoted\"")),
        tool("look_up", || ToolOutput::ok(r#"{"rows": [1, 2.50], "more": false}"#)),
        tool("fail", || ToolOutput::error("there is no /home/ada/notes.txt")),
        tool("delete", || ToolOutput::ok("deleted")).requires_approval(),
        Tool::external(spec("ask_the_user")).unwrap(),
        progress_tool(),
    ]
}

fn progress_tool() -> Tool {
    Tool::raw(spec("count"), |_, _| async {
        let progress = (1..=3).map(|n| ToolUpdate::progress(&json!({ "done": n })));
        stream::iter(progress.chain([ToolUpdate::output("counted")])).boxed()
    })
    .unwrap()
}

fn agent(model: Scripted) -> Agent {
    let limits = Limits { max_turns: Some(6), max_turn_retries: 0, ..Limits::default() };
    Agent::new(model).with_tools(tools()).with_limits(limits)
}

/// The agent of the conversations; only its tools are used.
pub fn agent_of_conversations() -> Agent {
    agent(Scripted::new([Reply::new()]))
}

async fn run(replies: impl IntoIterator<Item = Reply>) -> Events {
    agent(Scripted::new(replies)).run("Go").collect().await
}

fn call(name: &str) -> Reply {
    Reply::new().call(name, json!({ "path": "a b.txt" }))
}

fn delegate() -> Reply {
    Reply::new().call("research", json!({ "prompt": "Look it up" }))
}

fn failure(kind: ErrorKind) -> Error {
    Error::new(kind, "no such host db.internal")
}

/// Runs and returns one conversation for each kind of run: completed, failed, interrupted, with
/// tools, approvals and sub-agents, and so on. A test of an encoder or a fold applies it to all of
/// them.
pub async fn conversations() -> Vec<Conversation> {
    let mut all = Vec::new();
    for (name, replies) in single_runs() {
        all.push(Conversation::of_run(name, run(replies).await));
    }
    all.extend([
        Conversation::of_run("a tool call without an agent", by_hand().await),
        Conversation::of_run("a hook fails", hook_fails().await),
        Conversation::of_run("a compaction", compaction().await),
        Conversation::of_run("steered input", steered().await),
        Conversation::of_run("interrupted in its words", interrupted("Go", is_text).await),
        Conversation::of_run(
            "interrupted while a tool runs",
            interrupted("Slow", is_started).await,
        ),
        Conversation::of_run("an approval granted in the run", interactive(true).await),
        Conversation::of_run("an approval denied in the run", interactive(false).await),
        Conversation::of_run("a sub-agent", sub_agent().await),
        Conversation::of_run("a store that fails", store_fails().await),
    ]);
    all.push(resumed("an approval granted", call("delete"), || Verdict::Approve).await);
    all.push(resumed("an approval denied", call("delete"), || Verdict::deny("not now")).await);
    let two = || call("delete").call("delete", json!({ "path": "b" })).call("read", json!({}));
    all.push(resumed("two approvals beside a tool", two(), || Verdict::Approve).await);
    all.push(resumed("a client's tool", call("ask_the_user"), || Verdict::output("yes")).await);
    all.push(suspended_sub_agent().await);
    all
}

fn single_runs() -> Vec<(&'static str, Vec<Reply>)> {
    let text = Reply::text;
    vec![
        ("words", vec![text("Hello, \"ü\"\n\u{2028}world \u{1F600}.")]),
        ("nothing said", vec![Reply::new()]),
        ("reasoning and words", vec![Reply::new().think("Hm. ").think("So.").say("It is 4.")]),
        ("a summary of reasoning", vec![Reply::new().summarize("Short.").say("It is 4.")]),
        ("hidden reasoning", vec![Reply::new().think_hidden("blob").say("It is 4.")]),
        ("words in between", vec![Reply::new().say("One.").think("Hm.").say("Two.")]),
        ("a refusal", vec![Reply::new().say("Well. ").refuse("I will not.")]),
        ("a filter", vec![text("Once upon").stop(StopReason::ContentFilter)]),
        (
            "reasoning and one tool",
            vec![
                Reply::new().think("Hm.").say("Reading.").call("read", json!({})),
                text("4 lines."),
            ],
        ),
        ("one tool", vec![text("Reading.").call("read", json!({})), text("Four lines.")]),
        ("a result that is an object", vec![call("look_up"), text("Two rows.")]),
        (
            "tools side by side",
            vec![call("read").call("look_up", json!({})).call("count", json!({})), text("Done.")],
        ),
        ("progress", vec![call("count"), text("Counted.")]),
        ("a tool that fails", vec![call("fail"), text("It failed.")]),
        ("a tool that is not there", vec![call("nothing"), text("I have none.")]),
        (
            "arguments that are not JSON",
            vec![Reply::new().call_raw("c1", "read", "{\"path\": "), text("I see.")],
        ),
        (
            "arguments on several lines",
            vec![Reply::new().call_raw("c1", "read", "{\n  \"path\": \"x\"\r\n}"), text("I see.")],
        ),
        ("no arguments", vec![Reply::new().call_raw("c1", "read", ""), text("I see.")]),
        ("a turn taken back", vec![Reply::text("Wrong").retract("another model").say("Right.")]),
        (
            "a call taken back",
            vec![call("read").retract("again").say("Right.").call("read", json!({})), text("4.")],
        ),
        ("cut off by the output limit", vec![text("On and").stop(StopReason::MaxTokens)]),
        ("too many turns", (0..7).map(|_| call("read")).collect()),
        ("an approval that nobody gives", vec![call("delete")]),
        ("a request that fails", vec![Reply::error(failure(ErrorKind::Auth))]),
        ("a turn that fails", vec![text("Let me").fail(failure(ErrorKind::Connect))]),
        ("a call that fails", vec![call("read").fail(failure(ErrorKind::Connect))]),
        (
            "a later request that fails",
            vec![call("read"), Reply::error(failure(ErrorKind::Server))],
        ),
        ("a turn that breaks off", vec![text("Let me").disconnect()]),
        (
            "a request that is sent again",
            vec![
                Reply::new()
                    .event(TurnEvent::Retrying {
                        attempt: 1,
                        delay_ms: 10,
                        error: failure(ErrorKind::Server).into(),
                    })
                    .say("Hello."),
            ],
        ),
    ]
}

/// The events of a loop without an agent: no input, no starts of turns, no outcome.
async fn by_hand() -> Events {
    let model = Scripted::new([call("read"), Reply::text("Four lines.")]);
    let toolkit = Toolkit::new(tools());
    let history = History::from_items("c", [Item::user("Go")]);
    loop_stream(history, |history| {
        let toolkit = &toolkit;
        model.stream_turn(Request::new(history.clone())).on_turn_complete(async move |turn| {
            Ok(match turn.calls().is_empty() {
                true => Steps::stop(),
                false => toolkit.run(&history, &turn).then_next(|history| history),
            })
        })
    })
    .collect()
    .await
}

async fn hook_fails() -> Events {
    struct Fails;
    impl Hook for Fails {
        fn prepare_request<'a>(&'a self, _: &'a State, _: Request) -> HookFuture<'a, Request> {
            async { Err(failure(ErrorKind::Hook)) }.boxed()
        }
    }
    agent(Scripted::new([Reply::text("Never.")])).with_hook(Fails).run("Go").collect().await
}

async fn compaction() -> Events {
    let full = Error::new(ErrorKind::ContextWindow, "too long");
    let replies =
        [call("read"), call("read"), call("read"), Reply::error(full), Reply::text("Short.")];
    agent(Scripted::new(replies)).with_compactor(Truncator::new()).run("Go").collect().await
}

async fn steered() -> Events {
    let mut run = agent(Scripted::new([call("read"), Reply::text("As you say.")])).run("Go");
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if matches!(&event, Ok(Event::Tool(ToolEvent::Started { .. }))) {
            run.steer(vec![Item::user("Only the first line."), Item::user("Please.")]).unwrap();
        }
        events.push(event);
    }
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Ok(Event::Appended { why: AppendReason::Steer, .. })))
    );
    events
}

fn is_text(event: &Event) -> bool {
    event.text_delta().is_some()
}

fn is_started(event: &Event) -> bool {
    matches!(event, Event::Tool(ToolEvent::Started { .. }))
}

async fn interrupted(input: &str, is_moment: fn(&Event) -> bool) -> Events {
    let slow = Tool::raw(spec("slow"), |_, _| async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        "slept"
    });
    let first = if input == "Slow" { call("slow") } else { Reply::text("One two three") };
    let model = Scripted::new([first, Reply::text("Never.")]);
    let mut run = agent(model).with_tool(slow.unwrap()).run(input);
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if event.as_ref().is_ok_and(is_moment) {
            run.interrupt();
        }
        events.push(event);
    }
    events
}

async fn interactive(is_granted: bool) -> Events {
    let agent = agent(Scripted::new([call("delete"), Reply::text("Done.")])).interactive();
    let mut run = agent.run("Go");
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        if let Some(call) = event.as_ref().ok().and_then(Event::approval_request) {
            match is_granted {
                true => run.approve(call).unwrap(),
                false => run.deny(call, "not now").unwrap(),
            }
        }
        events.push(event);
    }
    events
}

fn agent_with_helper(child: Scripted, parent: Scripted) -> Agent {
    let helper = agent(child).as_tool("research", "Looks things up").unwrap();
    agent(parent).with_tool(helper)
}

async fn sub_agent() -> Events {
    let child = Scripted::new([call("read").think("Hm."), Reply::text("Four lines.")]);
    let parent = Scripted::new([delegate(), Reply::text("It has four lines.")]);
    agent_with_helper(child, parent).run("Go").collect().await
}

async fn store_fails() -> Events {
    let whole = run([call("read"), Reply::text("Four lines.")]).await;
    let is_output = |event: &Result<Event, Error>| {
        event.as_ref().is_ok_and(|event| event.tool_output().is_some())
    };
    let at = whole.iter().position(is_output).unwrap();
    let failed = Err(Error::new(ErrorKind::Store, "/var/lib/app is full"));
    whole.into_iter().take(at).chain([failed]).collect()
}

/// A run of a session that ends with a pending call, and the run that continues it.
async fn resumed(name: &'static str, first: Reply, verdict: impl Fn() -> Verdict) -> Conversation {
    let agent = agent(Scripted::new([first, Reply::text("Done.")]));
    resumed_with(name, agent, verdict).await
}

async fn resumed_with(
    name: &'static str,
    agent: Agent,
    verdict: impl Fn() -> Verdict,
) -> Conversation {
    let session = Session::open(MemoryStore::new(), "c").await.unwrap();
    let first = session.run(&agent, "Go").await.unwrap().collect().await;
    let verdicts = pending(&session).into_iter().map(|call| (call, verdict()));
    let second = session.resume(&agent, verdicts).await.unwrap().collect().await;
    Conversation { name, runs: vec![first, second], start: History::empty("c") }
}

/// A conversation in which two calls of a sub-agent are pending.
async fn suspended_sub_agent() -> Conversation {
    let child = Scripted::new([
        call("delete").call("delete", json!({ "path": "b" })),
        Reply::text("Both are gone."),
    ]);
    let parent = Scripted::new([delegate().call("read", json!({})), Reply::text("It is done.")]);
    let agent = agent_with_helper(child, parent);
    resumed_with("approvals of a sub-agent's calls", agent, || Verdict::Approve).await
}

fn pending(session: &Session) -> Vec<PendingCall> {
    match session.state() {
        SessionState::Pending { calls } => calls,
        _ => Vec::new(),
    }
}
