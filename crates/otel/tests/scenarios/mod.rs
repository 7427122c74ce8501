//! Scripted runs. Every text of a conversation contains [`SECRET`].

mod failures;
pub(crate) mod hosted;

use std::time::{Duration, SystemTime};

use futures::stream::{BoxStream, StreamExt, unfold};
use serde_json::json;
use tokio::time::{Instant, sleep};
use turnstream::agent::evidence::RequireEvidence;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::agent::{Budget, Limits, Run};
use turnstream::context::{Summarizer, Window};
use turnstream::env::Clock;
use turnstream::error::{Error, ErrorKind};
use turnstream::event::Event;
use turnstream::item::{Evidence, GrantDuration, GrantScope, History};
use turnstream::provider::{Fallback, Provider, Reply, Retry, Scripted};
use turnstream::request::Request;
use turnstream::stream::{Step, loop_stream};
use turnstream::tool::{Tool, ToolSpec, Verdict};
use turnstream::usage::{Billing, Price, Prices, Usage};
use turnstream::{Agent, Item};
use turnstream_otel::{RunTelemetry, Telemetry, TelemetryExt};

/// A word that is part of every text, and must not be exported.
pub(crate) const SECRET: &str = "xyzzy";

pub(crate) type Events = BoxStream<'static, Result<Event, Error>>;

/// A run that is the same each time, and its spans.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) start: fn(&Telemetry) -> Events,
    pub(crate) trees: &'static str,
}

const PRICE: Price = Price { input: 1.0, output: 2.0, cache_read: 0.5, cache_write: 1.5 };

/// The paused clock of tokio as a clock with dates.
#[derive(Clone, Copy)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(500_000) + self.0.elapsed()
    }
}

pub(crate) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage {
        input_tokens,
        output_tokens,
        cache_read_input_tokens: input_tokens / 2,
        cache_write_input_tokens: input_tokens / 4,
        reasoning_tokens: output_tokens / 2,
        ..Usage::default()
    }
}

fn secret(text: &str) -> String {
    format!("{text} {SECRET}")
}

pub(crate) fn answer(text: &str) -> Reply {
    Reply::new().think(secret("Hm.")).usage(usage(100, 10)).say(secret(text))
}

pub(crate) fn call(tool: &str) -> Reply {
    answer("I look.").call(tool, arguments())
}

fn arguments() -> serde_json::Value {
    json!({ "text": SECRET })
}

pub(crate) fn error(kind: ErrorKind) -> Error {
    Error::new(kind, secret("the prompt was"))
}

fn spec(name: &str) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": { "text": { "type": "string" }, "prompt": { "type": "string" } },
    });
    ToolSpec::new(name, secret("A tool."), schema)
}

/// A tool that takes a second.
pub(crate) fn look() -> Tool {
    let run = |_, cx: turnstream::tool::ToolContext| async move {
        sleep(Duration::from_secs(1)).await;
        cx.record_change(SECRET);
        cx.record_evidence(SECRET);
        secret("seen")
    };
    Tool::raw(spec("look"), run).unwrap()
}

fn failing(name: &str) -> Tool {
    let run = |_, _| async { Err::<String, _>(secret("broken")) };
    Tool::raw(spec(name), run).unwrap()
}

fn stuck() -> Tool {
    let run = |_, _| async { std::future::pending::<String>().await };
    Tool::raw(spec("stuck"), run).unwrap().with_timeout(Duration::from_secs(5))
}

fn panicking() -> Tool {
    let run = |args: serde_json::Value, _| async move {
        assert!(args.is_null(), "{}", secret("panicked"));
        String::new()
    };
    Tool::raw(spec("explode"), run).unwrap()
}

pub(crate) fn model(replies: impl IntoIterator<Item = Reply>) -> Scripted {
    Scripted::new(replies).with_model("m")
}

pub(crate) fn agent(provider: impl Provider + 'static) -> Agent {
    let limits = Limits { max_turn_retries: 1, ..Limits::default() };
    Agent::new(provider)
        .with_system(secret("You are an agent."))
        .with_tools([look(), failing("fail"), stuck(), panicking()])
        .with_limits(limits)
}

fn begin(agent: &Agent, telemetry: &RunTelemetry) -> Run {
    agent.run(secret("Go.")).with_data(telemetry.contexts())
}

fn record(run: Run, telemetry: RunTelemetry) -> Events {
    run.with_telemetry(telemetry).boxed()
}

fn run_of(agent: &Agent, telemetry: &Telemetry) -> Events {
    let telemetry = telemetry_of(telemetry);
    record(begin(agent, &telemetry), telemetry)
}

/// The run's events. `act` is called with each event before it is yielded.
pub(crate) fn acting(
    agent: &Agent,
    telemetry: &Telemetry,
    act: impl Fn(&Run, &Event) + Send + Sync + 'static,
) -> Events {
    let telemetry = telemetry_of(telemetry);
    let run = begin(agent, &telemetry);
    let events = unfold((run, act), |(mut run, act)| async move {
        let event = run.next().await?;
        if let Ok(event) = &event {
            act(&run, event);
        }
        Some((event, (run, act)))
    });
    events.boxed().with_telemetry(telemetry).boxed()
}

fn sub_agents() -> Agent {
    let inner = agent(model([call("look"), answer("Found.")]));
    let inner = inner.as_tool("inner", "Looks.").unwrap();
    let ask = |tool: &str| answer("I ask.").call(tool, json!({ "prompt": SECRET }));
    let outer = agent(model([ask("inner"), answer("It is there.")])).with_tool(inner);
    let outer = outer.as_tool("outer", "Asks.").unwrap();
    agent(model([ask("outer"), answer("Done.")])).with_tool(outer)
}

fn approval(telemetry: &Telemetry, act: fn(&Run, &Event)) -> Events {
    let tools = agent(model([call("drop"), answer("Done.")]));
    let guarded = Tool::raw(spec("drop"), |_, _| async { secret("dropped") }).unwrap();
    let agent = tools.with_tool(guarded.requires_approval()).interactive();
    acting(&agent, telemetry, act)
}

/// All scenarios.
pub(crate) fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    SCENARIOS.iter().chain(failures::SCENARIOS).chain(hosted::SCENARIOS)
}

pub(crate) fn scenario(name: &str) -> &'static Scenario {
    scenarios().find(|it| it.name == name).unwrap_or_else(|| panic!("no scenario `{name}`"))
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "an answer",
        start: |telemetry| run_of(&agent(model([answer("Hello.")])), telemetry),
        trees: "invoke_agent main\n  chat m\n",
    },
    Scenario {
        name: "parallel tools",
        start: |telemetry| {
            let both = call("look").call("look", arguments());
            run_of(&agent(model([both, answer("Done.")])), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "tools that fail",
        start: |telemetry| {
            let all = call("fail").call("stuck", arguments()).call("explode", arguments());
            let all = all.call(&format!("missing_{SECRET}"), arguments()).call_raw(
                "bad",
                "look",
                "{\"text\": 1}",
            );
            run_of(&agent(model([all, answer("Done.")])), telemetry)
        },
        trees: "invoke_agent main
  chat m
  execute_tool fail !error
  execute_tool stuck !timeout
  execute_tool explode !panic
  chat m
",
    },
    Scenario {
        name: "sub-agents, two deep",
        start: |telemetry| run_of(&sub_agents(), telemetry),
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
        name: "an approval that is granted",
        start: |telemetry| {
            approval(telemetry, |run, event| {
                if let Some(call) = event.approval_request() {
                    run.approve(call).unwrap();
                }
            })
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool drop\n  chat m\n",
    },
    Scenario {
        name: "a grant that is used",
        start: |telemetry| {
            let guarded = Tool::raw(spec("drop"), |_, _| async { secret("dropped") }).unwrap();
            let agent = agent(model([call("drop"), call("drop"), answer("Done.")]));
            let agent = agent.with_tool(guarded.requires_approval()).interactive();
            acting(&agent, telemetry, |run, event| {
                if let Some(call) = event.approval_request() {
                    let (scope, duration) = (GrantScope::AnyArguments, GrantDuration::Run);
                    let always = Verdict::approve_always(scope, duration);
                    run.handle().submit_verdict(call, always).unwrap();
                }
            })
        },
        trees: "invoke_agent main
  chat m
  execute_tool drop
  chat m
  execute_tool drop
  chat m
",
    },
    Scenario {
        name: "an approval that is denied",
        start: |telemetry| {
            approval(telemetry, |run, event| {
                if let Some(call) = event.approval_request() {
                    run.deny(call, secret("no")).unwrap();
                }
            })
        },
        trees: "invoke_agent main\n  chat m\n  chat m\n",
    },
    Scenario {
        name: "an approval that is pending",
        start: |telemetry| {
            let guarded = Tool::raw(spec("drop"), |_, _| async { secret("dropped") }).unwrap();
            let agent = agent(model([call("drop"), answer("Done.")]));
            run_of(&agent.with_tool(guarded.requires_approval()), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n",
    },
    Scenario {
        name: "a pending approval of a sub-agent",
        start: |telemetry| {
            let guarded = Tool::raw(spec("drop"), |_, _| async { secret("dropped") }).unwrap();
            let inner = agent(model([call("drop")])).with_tool(guarded.requires_approval());
            let ask = answer("I ask.").call("inner", json!({ "prompt": SECRET }));
            let outer = agent(model([ask])).with_tool(inner.as_tool("inner", "Drops.").unwrap());
            run_of(&outer, telemetry)
        },
        trees: "invoke_agent main
  chat m
  execute_tool inner
    invoke_agent inner
      chat m
",
    },
    Scenario {
        name: "a retry by the provider",
        start: |telemetry| {
            let busy = Reply::error(error(ErrorKind::Overloaded));
            run_of(&agent(Retry::new(model([busy, answer("Done.")]))), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n",
    },
    Scenario {
        name: "a retraction by the provider",
        start: |telemetry| {
            let broken = answer("Half").fail(error(ErrorKind::Overloaded));
            let retry = Retry::new(model([broken, answer("Done.")])).with_retraction();
            run_of(&agent(retry), telemetry)
        },
        trees: "invoke_agent main\n  chat m !overloaded\n  chat m\n",
    },
    Scenario {
        name: "a retraction by the agent",
        start: |telemetry| {
            let broken = answer("Half").fail(error(ErrorKind::Overloaded));
            run_of(&agent(model([broken, answer("Done.")])), telemetry)
        },
        trees: "invoke_agent main\n  chat m !overloaded\n  chat m\n",
    },
    Scenario {
        name: "a fallback",
        start: |telemetry| {
            let busy = Reply::error(error(ErrorKind::Overloaded));
            let other = Scripted::new([answer("Done.")]).with_model("other");
            run_of(&agent(model([busy])).with_fallback(other), telemetry)
        },
        trees: "invoke_agent main\n  chat m !overloaded\n  chat other\n",
    },
    Scenario {
        name: "a fallback inside of a provider",
        start: |telemetry| {
            let broken = answer("Half").fail(error(ErrorKind::Overloaded));
            let other = Scripted::new([answer("Done.")]).with_model("other");
            run_of(&agent(Fallback::new(model([broken])).or(other)), telemetry)
        },
        trees: "invoke_agent main\n  chat m !retracted\n  chat m\n",
    },
    Scenario {
        name: "a compaction",
        start: |telemetry| {
            let long = |tokens| Reply::text(secret("I look.")).usage(usage(tokens, 10));
            let looks = [300, 700, 800].map(|tokens| long(tokens).call("look", arguments()));
            let last = Reply::text(secret("Done.")).usage(usage(200, 10));
            let summary = Reply::text(secret("A summary.")).usage(usage(50, 5));
            let summary = Scripted::new([summary]).with_model("small");
            let summarizer = Summarizer::new(summary).with_keep_turns(1);
            let window = Window::new(1_000);
            let options =
                turnstream::request::Options { max_output_tokens: Some(100), ..Default::default() };
            let agent = agent(model(looks.into_iter().chain([last])))
                .with_window(window)
                .with_options(options)
                .with_compactor(summarizer);
            run_of(&agent, telemetry)
        },
        trees: "invoke_agent main
  chat m
  execute_tool look
  chat m
  execute_tool look
  chat m
  execute_tool look
  chat small
  chat m
",
    },
    Scenario {
        name: "a hook that asks a model",
        start: |telemetry| {
            let judged = hook::before_stop(|state, _| async move {
                state.report_helper("judge", Some("small"), usage(70, 1));
                StopDecision::Allow
            });
            run_of(&agent(model([answer("Done.")])).with_hook(judged), telemetry)
        },
        trees: "invoke_agent main
  chat m
  chat small
",
    },
    Scenario {
        name: "an interrupt of a response",
        start: |telemetry| {
            acting(&agent(model([answer("A long answer.")])), telemetry, |run, event| {
                if event.text_delta().is_some() {
                    run.interrupt();
                }
            })
        },
        trees: "invoke_agent main !interrupted\n  chat m !interrupted\n",
    },
    Scenario {
        name: "an interrupt of a turn",
        start: |telemetry| {
            let mut billing = Billing::default();
            billing.set_service_tier("flex");
            let reply = Reply::new().billing(billing).usage(usage(100, 10));
            let provider = Retry::new(model([reply.say(secret("A long answer.")).hang()]));
            acting(&agent(provider), telemetry, |run, event| {
                if event.text_delta().is_some() {
                    run.interrupt_turn();
                }
            })
        },
        trees: "invoke_agent main !interrupted\n  chat m !interrupted\n",
    },
    Scenario {
        name: "a turn that is interrupted by new input",
        start: |telemetry| {
            let model = model([answer("A long answer.").hang(), answer("Done.")]);
            acting(&agent(model), telemetry, |run, event| {
                if event.text_delta().is_some_and(|text| text.as_str().contains("long")) {
                    run.steer(secret("Wait.")).unwrap();
                    run.interrupt_turn();
                }
            })
        },
        trees: "invoke_agent main\n  chat m !interrupted\n  chat m\n",
    },
    Scenario {
        name: "a run that is stopped after a turn",
        start: |telemetry| {
            acting(&agent(model([call("look"), answer("Done.")])), telemetry, |run, event| {
                if event.turn_complete().is_some() {
                    run.steer(secret("Wait.")).unwrap();
                    run.stop_after_turn();
                }
            })
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n",
    },
    Scenario {
        name: "an interrupt of a tool",
        start: |telemetry| {
            let both = call("look").call("look", arguments());
            acting(&agent(model([both])), telemetry, |run, event| {
                if matches!(event, Event::Tool(turnstream::event::ToolEvent::Started { .. })) {
                    run.interrupt();
                }
            })
        },
        trees: "invoke_agent main !interrupted\n  chat m\n  execute_tool look !interrupted\n",
    },
    Scenario {
        name: "an interrupt of the model while a tool runs",
        start: |telemetry| {
            acting(&agent(model([call("look")])), telemetry, |run, event| {
                if matches!(event, Event::Tool(turnstream::event::ToolEvent::Started { .. })) {
                    run.interrupt_turn();
                }
            })
        },
        trees: "invoke_agent main !interrupted\n  chat m\n  execute_tool look\n",
    },
    Scenario {
        name: "a tombstone",
        start: |telemetry| {
            acting(&agent(model([call("look"), answer("Done.")])), telemetry, |run, event| {
                if event.turn_complete().is_some_and(|turn| turn.tool_calls().next().is_some()) {
                    run.tombstone([0]).unwrap();
                }
            })
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "reasoning that is refused",
        start: |telemetry| {
            let hidden = Reply::new().think_hidden(SECRET).usage(usage(100, 10));
            let refused = Reply::error(error(ErrorKind::ReasoningRefused));
            let model = model([hidden.call("look", arguments()), refused, answer("Done.")]);
            run_of(&agent(model), telemetry)
        },
        trees: "invoke_agent main
  chat m
  execute_tool look
  chat m !reasoning_refused
  chat m
",
    },
    Scenario {
        name: "a proof, and its cost",
        start: |telemetry| {
            let check = |_, cx: turnstream::tool::ToolContext| async move {
                cx.record_evidence(Evidence::from_command("test", 0));
                secret("checked")
            };
            let prices = Prices::new().with_price("m", PRICE);
            let agent = agent(model([call("check"), answer("Done.")]))
                .with_tool(Tool::raw(spec("check"), check).unwrap())
                .with_evidence(RequireEvidence::new())
                .with_budget(Budget::new().with_cost_limit(1.0, prices));
            run_of(&agent, telemetry)
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool check\n  chat m\n",
    },
    Scenario {
        name: "an interrupt of a sub-agent",
        start: |telemetry| {
            acting(&sub_agents(), telemetry, |run, event| {
                if matches!(event, Event::Nested { event, .. } if event.text_delta().is_some()) {
                    run.interrupt();
                }
            })
        },
        trees: "invoke_agent main !interrupted
  chat m
  execute_tool outer !interrupted
    invoke_agent outer !interrupted
      chat m !interrupted
",
    },
    Scenario {
        name: "a failure of the first request",
        start: |telemetry| run_of(&agent(model([Reply::error(error(ErrorKind::Auth))])), telemetry),
        trees: "invoke_agent main !auth\n  chat m !auth\n",
    },
    Scenario {
        name: "a failure in a response",
        start: |telemetry| {
            let broken = || answer("Half").fail(error(ErrorKind::Server));
            run_of(&agent(model([call("look"), broken(), broken()])), telemetry)
        },
        trees: "invoke_agent main !server
  chat m
  execute_tool look
  chat m !server
  chat m !server
",
    },
    Scenario {
        name: "a budget",
        start: |telemetry| {
            let budget = Budget::new().with_total_tokens(150);
            let agent = agent(model([call("look"), call("look"), answer("Done.")]));
            run_of(&agent.with_budget(budget), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "a wrap-up turn after the time limit",
        start: |telemetry| {
            let budget = Budget::new()
                .with_time_limit(Duration::from_secs(3))
                .with_wrap_up()
                .with_wrap_up_time(Duration::from_secs(1));
            let agent = agent(model([call("stuck"), answer("A summary.")]));
            run_of(&agent.with_budget(budget), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool stuck !timeout\n  chat m\n",
    },
    Scenario {
        name: "a hand-written loop",
        start: |telemetry| {
            let model = model([answer("One."), answer("Two.")]);
            let history = History::from_items("h", [Item::user(secret("Go."))]);
            let events = loop_stream(0, move |turns| {
                let turn = model.stream_turn(Request::new(history.clone()));
                let step = move |event: Result<turnstream::TurnEvent, Error>| {
                    let is_end = matches!(&event, Ok(event) if event.turn_complete().is_some());
                    let value = event.map(|event| Step::Value(Event::from(event)));
                    let next = match (is_end, turns) {
                        (false, _) => None,
                        (true, 0) => Some(Ok(Step::Next(1))),
                        (true, _) => Some(Ok(Step::Stop)),
                    };
                    futures::stream::iter(std::iter::once(value).chain(next))
                };
                turn.flat_map(step)
            });
            events.boxed().with_telemetry(telemetry_of(telemetry)).boxed()
        },
        trees: "invoke_agent main\n  chat\n  chat\n",
    },
];

fn telemetry_of(telemetry: &Telemetry) -> RunTelemetry {
    telemetry.start_run().with_agent_name("main").with_conversation_id("conversation-1")
}
