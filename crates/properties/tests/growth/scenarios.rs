//! Tasks whose size is a parameter. The test `growth` counts their allocations, and the bench
//! `instructions` counts their instructions.

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use turnstream::agent::{Limits, hook};
use turnstream::event::EndReason;
use turnstream::hub::{Hub, HubEvent, RunSource};
use turnstream::partial::{EventOrPartial, PartialState, PartialValues};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{
    Reply, Scripted, anthropic, gemini, ollama, openai_chat, openai_responses,
};
use turnstream::tool::{Tool, ToolSpec, Toolkit, Verdict};
use turnstream::{Agent, Event, EventStreamExt, History, Request};

/// A task that depends on its size. The work is done by the returned future.
pub(crate) type Scenario = fn(usize) -> BoxFuture<'static, ()>;

pub(crate) const SCENARIOS: [(&str, Scenario); 10] = [
    ("calls in one turn", |n| complete(caller("look", n).with_tools([plain_tool("look")])).boxed()),
    ("sub-agents called in one turn", |n| {
        complete(caller("sub", n).with_tools([sub_agent()])).boxed()
    }),
    ("sub-agents called one after another", |n| {
        let model = Scripted::from_fn(move |request, _| match request.history.completed_turns() {
            turn if turn < n => Reply::new().call("sub", prompt(turn)),
            _ => Reply::text("done"),
        });
        complete(
            Agent::new(model)
                .with_limits(Limits { max_turns: Some(u32::MAX), ..Limits::default() })
                .with_tools([sub_agent()]),
        )
        .boxed()
    }),
    ("suspended sub-agents called in one turn", |n| suspend_and_resume(n).boxed()),
    ("sub-agents in a hub", |n| {
        let run = caller("sub", n).with_tools([sub_agent()]).run("go");
        read_from_hub(Hub::builder().with_capacity(256).build(), run.into()).boxed()
    }),
    ("events of concurrent sub-agents in a hub", |n| {
        let source = RunSource::new(History::empty("h"), stream::iter(nested_events(n)).map(Ok));
        read_from_hub(Hub::builder().with_capacity(16).build(), source).boxed()
    }),
    ("tools offered in every request", |n| complete(agent_with_tools(n)).boxed()),
    ("tools restricted by a hook", |n| {
        let agent = agent_with_tools(n).with_hook(hook::prepare_request(|_, mut request| {
            request.tools = request.tools.iter().skip(1).cloned().collect();
            async move { request }
        }));
        complete(agent).boxed()
    }),
    ("calls in one turn, read while they arrive", |n| {
        let values = PartialValues::untyped_calls("look", &true.into());
        read_partials(caller("look", n).with_tools([plain_tool("look")]), values, n).boxed()
    }),
    ("fields of an answer, read while they arrive", |n| {
        let fields = (0..n).map(|n| (format!("field_{n}"), prompt(n)));
        let answer = Value::Object(fields.collect()).to_string().replace(',', ", ");
        let values = PartialValues::untyped_answer(&true.into());
        read_partials(Agent::new(Scripted::new([answer])), values, 1).boxed()
    }),
];

/// The number of requests in which the tools are offered.
const REQUESTS: usize = 10;

/// An agent that calls a tool `calls` times in its first turn.
fn caller(tool: &'static str, calls: usize) -> Agent {
    Agent::new(Scripted::from_fn(move |request, _| match request.history.completed_turns() {
        0 => {
            let call = |reply: Reply, n| reply.call(tool, prompt(n));
            (0..calls).fold(Reply::new(), call)
        }
        _ => Reply::text("done"),
    }))
}

/// The arguments of a call, which differ from those of other calls.
fn prompt(n: usize) -> Value {
    json!({ "prompt": format!("look up number {n}") })
}

fn spec(name: &str) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": { "prompt": { "type": "string", "description": "What to look for" } },
    });
    ToolSpec::new(name, "Looks something up in the directory of names", parameters)
}

fn plain_tool(name: &str) -> Tool {
    Tool::raw(spec(name), |_, _| async { "found" }).expect("a tool")
}

/// A sub-agent that calls a tool in its first turn.
fn sub_agent() -> Tool {
    let agent = caller("look", 1).with_tools([plain_tool("look")]);
    agent.as_tool("sub", "Looks something up").expect("a tool")
}

async fn complete(agent: Agent) {
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
}

/// Reads the values of a run whose events are always ready, so that each value is built once.
async fn read_partials(agent: Agent, values: PartialValues<Value>, count: usize) {
    let mut steps = std::pin::pin!(agent.run("go").with_partials(values));
    let mut complete = 0;
    while let Some(step) = steps.next().await {
        if let EventOrPartial::Partial(partial) = step.expect("an event") {
            complete += usize::from(matches!(partial.state, PartialState::Complete(_)));
        }
    }
    assert_eq!(complete, count);
}

/// Runs sub-agents that wait for approvals, and resumes them.
async fn suspend_and_resume(sub_agents: usize) {
    let agent = caller("look", 1).with_tools([plain_tool("look").requires_approval()]);
    let agent = caller("sub", sub_agents)
        .with_tools([agent.as_tool("sub", "Looks something up").expect("a tool")]);
    let suspended = agent.run("go").outcome().await;
    assert_eq!((suspended.reason, suspended.pending.len()), (EndReason::Pending, sub_agents));
    let verdicts = suspended.pending.into_iter().map(|call| (call, Verdict::Approve));
    let outcome =
        agent.resume(suspended.history, verdicts).expect("valid verdicts").outcome().await;
    assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
}

/// Reads a run in a hub, from its start and once more after its end.
async fn read_from_hub(hub: Hub, source: RunSource) {
    let owner = hub.start("chat", source).await.expect("a free key");
    let mut reader = owner.read();
    while let Some(event) = reader.next().await {
        std::hint::black_box(event.expect("an event"));
    }
    let mut late = owner.read();
    let Some(Ok(HubEvent::Snapshot { snapshot, .. })) = late.next().await else {
        panic!("a reader starts with a snapshot");
    };
    assert!(!snapshot.events().is_empty());
}

/// The events of sub-agents that run concurrently. A snapshot keeps all of them.
fn nested_events(sub_agents: usize) -> Vec<Event> {
    let nested = |(turn, n): (usize, usize)| {
        json!({ "type": "nested", "call_id": format!("call_{n}"), "name": "sub", "event": {
            "type": "turn_started", "turn": turn, "model": "m", "transition": null } })
    };
    let ended = |n: usize| {
        json!({ "type": "tool_output", "call_id": format!("call_{n}"), "name": "sub",
            "is_error": false, "kind": "ok", "content": "found" })
    };
    let turns = (1..4).flat_map(|turn| (0..sub_agents).map(move |n| (turn, n)));
    let events = turns.map(nested).chain((0..sub_agents).map(ended));
    events.map(|event| serde_json::from_value(event).expect("an event")).collect()
}

/// An agent that offers tools in [`REQUESTS`] requests, each of which is encoded for all wires.
fn agent_with_tools(tools: usize) -> Agent {
    let model = Scripted::from_fn(move |request, _| {
        encode_for_all_wires(request);
        match request.history.completed_turns() {
            turn if turn + 1 < REQUESTS => Reply::new().call("tool_7", prompt(turn)),
            _ => Reply::text("done"),
        }
    });
    let tools = (0..tools).map(|n| plain_tool(&format!("tool_{n}")));
    Agent::new(model).with_toolkit(Toolkit::new(tools))
}

fn encode_for_all_wires(request: &Request) {
    let bodies = [
        openai_chat::encode(request, "m", &Dialect::OPENAI),
        openai_responses::encode(request, "m"),
        anthropic::encode(request, "m"),
        gemini::encode(request, "m"),
        ollama::encode(request, "m", &ollama::Chat::default()),
    ];
    for body in bodies {
        std::hint::black_box(body.expect("a valid request"));
    }
}
