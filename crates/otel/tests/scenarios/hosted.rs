//! Runs that are recorded by a setting of their agent or of their hub, and durable runs.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures::stream::{StreamExt, iter, poll_fn, select_all};
use futures::{FutureExt, TryStreamExt};
use serde_json::json;
use turnstream::durable::Attempt;
use turnstream::event::Event;
use turnstream::hub::{Hub, HubEvent, RunSource};
use turnstream::item::{History, Item};
use turnstream::provider::Provider;
use turnstream::request::Request;
use turnstream::tool::{Tool, ToolContext};
use turnstream::{Agent, Run};
use turnstream_otel::Telemetry;
use turnstream_testing::durable_suite::MemoryEngine;

use super::{Events, Scenario, agent, answer, call, model, secret, spec, sub_agents};

/// The runs of a hub, read by three readers, of which the first one's events are returned.
fn read_by_three(hub: Hub, source: impl Into<RunSource>) -> Events {
    let source = source.into();
    let reading = async move {
        let owner = hub.start("conversation-1", source).await.unwrap();
        let others = [(); 2].map(|()| owner.read().map(|_| None).boxed());
        let first = owner.read().map(Some).boxed();
        // The hub and the run exist as long as the stream.
        select_all([first].into_iter().chain(others)).map(move |event| {
            let _ = (&hub, &owner);
            event
        })
    };
    let events = reading.flatten_stream().filter_map(ready);
    let events = events.try_filter_map(|event| {
        ready(Ok(match event {
            HubEvent::Event { event, .. } => Some(Event::clone(&event)),
            _ => None,
        }))
    });
    events.boxed()
}

fn observed_hub(telemetry: &Telemetry) -> Hub {
    Hub::builder().with_run_observer(telemetry.clone()).build()
}

fn labeled(agent: Agent) -> Agent {
    agent.with_label("main")
}

/// A single attempt at a durable run.
pub(crate) fn attempt(agent: &Agent, mut engine: MemoryEngine) -> Events {
    let events = Arc::new(Mutex::new(VecDeque::new()));
    let published = Arc::clone(&events);
    let attempt = Attempt::run(agent, "conversation-1", Vec::new(), secret("Go."))
        .inspect(move |event| published.lock().unwrap().push_back(event.clone()));
    let mut driving = Some(async move { attempt.drive(&mut engine).await.map(drop) }.boxed());
    poll_fn(move |cx| {
        if let Some(attempt) = &mut driving
            && let Poll::Ready(driven) = attempt.poll_unpin(cx)
        {
            driving = None;
            driven.unwrap();
        }
        match (events.lock().unwrap().pop_front(), &driving) {
            (Some(event), _) => Poll::Ready(Some(Ok(event))),
            (None, Some(_)) => Poll::Pending,
            (None, None) => Poll::Ready(None),
        }
    })
    .boxed()
}

/// A run whose process dies during the second turn, and which continues elsewhere.
fn killed_in_a_turn(agent: &Agent) -> Events {
    let engine = MemoryEngine::new();
    let mut turns = 0;
    let first = attempt(agent, engine.next_attempt()).take_while(move |event| {
        let event = event.as_ref().unwrap();
        turns += u32::from(matches!(event, Event::TurnStarted { .. }));
        ready(turns < 2 || event.text_delta().is_none())
    });
    first.chain(attempt(agent, engine.next_attempt())).boxed()
}

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a run of an agent that is recorded",
        start: |telemetry| {
            let agent = labeled(agent(model([call("look"), answer("Done.")])));
            agent.with_run_observer(telemetry.clone()).run(secret("Go.")).boxed()
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "a sub-agent that is recorded as well",
        start: |telemetry| {
            let inner = agent(model([call("look"), answer("Found.")]));
            let inner = inner.with_run_observer(telemetry.clone());
            let ask = answer("I ask.").call("inner", json!({ "prompt": super::SECRET }));
            let outer = labeled(agent(model([ask, answer("Done.")])));
            let outer = outer.with_tool(inner.as_tool("inner", "Looks.").unwrap());
            outer.with_run_observer(telemetry.clone()).run(secret("Go.")).boxed()
        },
        trees: "invoke_agent main
  chat m
  execute_tool inner
    invoke_agent inner
      chat m
      execute_tool look
      chat m
  chat m
",
    },
    Scenario {
        name: "a recorded sub-agent of an agent that is not",
        start: |telemetry| {
            let inner = agent(model([call("look"), answer("Found.")]));
            let inner = inner.with_run_observer(telemetry.clone());
            let ask = answer("I ask.").call("inner", json!({ "prompt": super::SECRET }));
            let outer = agent(model([ask, answer("Done.")]));
            outer.with_tool(inner.as_tool("inner", "Looks.").unwrap()).run(secret("Go.")).boxed()
        },
        trees: "invoke_agent inner\n  chat m\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "a tool that runs an agent",
        start: |telemetry| {
            let inner = agent(model([answer("Found.")])).with_label("inner");
            let inner = inner.with_run_observer(telemetry.clone());
            let run = move |_, cx: ToolContext| {
                let run: Run = inner.run(secret("Look.")).with_data(cx.run_data().clone());
                async move { run.outcome().await.text }
            };
            let ask = Tool::raw(spec("ask"), run).unwrap().running_sub_agents();
            let outer = labeled(agent(model([call("ask"), answer("Done.")]))).with_tool(ask);
            outer.with_run_observer(telemetry.clone()).run(secret("Go.")).boxed()
        },
        trees: "invoke_agent main
  chat m
  execute_tool ask
    invoke_agent inner
      chat m
  chat m
",
    },
    Scenario {
        name: "a hub with three readers",
        start: |telemetry| {
            let run = labeled(sub_agents()).run(secret("Go."));
            read_by_three(observed_hub(telemetry), run)
        },
        trees: "invoke_agent main
  chat m
  execute_tool outer
    invoke_agent outer
      chat m
      execute_tool inner
        invoke_agent inner
          chat m
          execute_tool look
          chat m
      chat m
  chat m
",
    },
    Scenario {
        name: "a hub and an agent that are both recorded",
        start: |telemetry| {
            let agent = labeled(agent(model([call("look"), answer("Done.")])));
            let run = agent.with_run_observer(telemetry.clone()).run(secret("Go."));
            read_by_three(observed_hub(telemetry), run)
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "a hand-written loop in a hub",
        start: |telemetry| {
            let history = History::from_items("h", [Item::user(secret("Go."))]);
            let turn = model([answer("One.")]).stream_turn(Request::new(history.clone()));
            let events = turn.map_ok(Event::from);
            read_by_three(observed_hub(telemetry), RunSource::new(history, events))
        },
        trees: "invoke_agent\n  chat\n",
    },
    Scenario {
        name: "a hub with a loop that fails",
        start: |telemetry| {
            let failed = iter([Err(super::error(turnstream::ErrorKind::Server))]);
            read_by_three(observed_hub(telemetry), RunSource::new(History::empty("h"), failed))
        },
        trees: "invoke_agent !server\n",
    },
    Scenario {
        name: "a durable run that is killed in a turn",
        start: |telemetry| {
            let model = model([call("look"), answer("Half").hang(), answer("Done.")]);
            killed_in_a_turn(&labeled(agent(model)).with_run_observer(telemetry.clone()))
        },
        trees: "invoke_agent main !cancelled
  chat m
  execute_tool look
  chat m !cancelled
invoke_agent main
  chat m
",
    },
];
