//! Runs that fail, at each stage of a run.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use turnstream::agent::Limits;
use turnstream::agent::hook::{self, CallDecision, StopDecision};
use turnstream::context::{Compaction, CompactionFailure, Window, compactor_fn};
use turnstream::error::{Error, ErrorKind};
use turnstream::item::{History, Media, MediaSource, Part};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::request::Request;
use turnstream::stream::{Step, TurnStream};
use turnstream::tool::{ToolList, ToolSource};
use turnstream::turn::StopReason;
use turnstream::{Event, Item};
use turnstream_otel::TelemetryExt;

use super::{Scenario, agent, answer, call, error, model, run_of, secret, telemetry_of, usage};

/// A model that accepts no images.
struct TextOnly(Scripted);

impl Provider for TextOnly {
    fn stream_turn(&self, request: Request) -> TurnStream {
        self.0.stream_turn(request)
    }

    fn model(&self) -> &str {
        self.0.model()
    }

    fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
        match parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
            true => Err(error(ErrorKind::Unsupported)),
            false => Ok(()),
        }
    }
}

/// A source whose tools cannot be listed.
struct Unreachable;

impl ToolSource for Unreachable {
    fn name(&self) -> &'static str {
        "unreachable"
    }

    fn list_tools(&self) -> BoxFuture<'static, Result<ToolList, Error>> {
        async { Err(error(ErrorKind::Connect)) }.boxed()
    }
}

/// A model that panics.
struct Panicking;

impl Provider for Panicking {
    fn stream_turn(&self, _: Request) -> TurnStream {
        panic!("{}", secret("panicked"))
    }

    fn model(&self) -> &'static str {
        "m"
    }
}

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a refused input",
        start: |telemetry| {
            let telemetry = telemetry_of(telemetry);
            let image =
                Part::Image(Media::new("image/png", MediaSource::Data(secret("aGk=").into())));
            let agent = agent(TextOnly(model([answer("Hello.")])));
            let run = agent.run(Item::user(vec![image])).with_data(telemetry.contexts());
            super::record(run, telemetry)
        },
        trees: "invoke_agent main !unsupported\n",
    },
    Scenario {
        name: "a source of tools that fails",
        start: |telemetry| {
            run_of(&agent(model([answer("Hello.")])).with_tool_source(Unreachable), telemetry)
        },
        trees: "invoke_agent main !connect\n",
    },
    Scenario {
        name: "a panic of the provider",
        start: |telemetry| run_of(&agent(Panicking), telemetry),
        trees: "invoke_agent main !panic\n  chat m !panic\n",
    },
    Scenario {
        name: "a connection that is lost",
        start: |telemetry| {
            let cut = || answer("Half").disconnect();
            run_of(&agent(model([cut(), cut()])), telemetry)
        },
        trees: "invoke_agent main !incomplete_turn
  chat m !incomplete_turn
  chat m !incomplete_turn
",
    },
    Scenario {
        name: "a hook that panics",
        start: |telemetry| {
            let hook = hook::before_tool(|_, call| async move {
                assert!(call.name.is_empty(), "{}", secret("panicked"));
                CallDecision::Allow
            });
            run_of(&agent(model([call("look"), answer("Done.")])).with_hook(hook), telemetry)
        },
        trees: "invoke_agent main !hook\n  chat m\n",
    },
    Scenario {
        name: "a review of the answer that takes too long",
        start: |telemetry| {
            let limit = Some(Duration::from_secs(5));
            let review = hook::before_stop(|_, _| async {
                std::future::pending::<()>().await;
                StopDecision::Allow
            });
            let limits = Limits { hook_timeout: limit, ..Limits::default() };
            let agent = agent(model([answer("Done.")])).with_limits(limits).with_hook(review);
            run_of(&agent, telemetry)
        },
        trees: "invoke_agent main !hook\n  chat m\n",
    },
    Scenario {
        name: "a check of the answer that panics",
        start: |telemetry| {
            let agent = agent(model([answer("Done.")])).with_validation(|turn| {
                assert!(turn.text().is_empty(), "{}", secret("panicked"));
                Ok::<(), String>(())
            });
            run_of(&agent, telemetry)
        },
        trees: "invoke_agent main !hook\n  chat m\n",
    },
    Scenario {
        name: "answers that are rejected",
        start: |telemetry| {
            let agent = agent(Scripted::from_fn(|_, _| answer("Done.")).with_model("m"));
            run_of(&agent.with_validation(|_| Err(secret("too short"))), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n  chat m\n  chat m\n",
    },
    Scenario {
        name: "a compaction that fails",
        start: |telemetry| {
            let compactor = compactor_fn(|_: &History| Err(error(ErrorKind::Server)));
            let window = Window::new(100).with_threshold_percent(1);
            let agent = agent(model([call("look"), answer("Done.")]));
            run_of(&agent.with_window(window).with_compactor(compactor), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n  execute_tool look\n  chat m\n",
    },
    Scenario {
        name: "a compaction that fails after it has used tokens",
        start: |telemetry| {
            let failure = CompactionFailure::attach_usage(error(ErrorKind::Filtered), usage(50, 5));
            let compactor = compactor_fn(move |_: &History| Err(failure.clone()));
            let window = Window::new(100).with_threshold_percent(1);
            let agent = agent(model([answer("Done.")]));
            run_of(&agent.with_window(window).with_compactor(compactor), telemetry)
        },
        trees: "invoke_agent main\n  chat !compaction_failed\n  chat m\n",
    },
    Scenario {
        name: "a request that does not fit, and a compaction",
        start: |telemetry| {
            let too_long = || Reply::error(error(ErrorKind::ContextWindow));
            let first = compactor_fn(|_: &History| {
                Ok(Some(Compaction::new(0, 1, vec![Item::user(secret("Go."))])))
            });
            let model = model([call("look"), too_long(), answer("Done.")]);
            run_of(&agent(model).with_compactor(first), telemetry)
        },
        trees: "invoke_agent main
  chat m
  execute_tool look
  chat m !context_window
  chat m
",
    },
    Scenario {
        name: "a limit on turns",
        start: |telemetry| {
            let limits = Limits { max_turns: Some(2), ..Limits::default() };
            let model = Scripted::from_fn(|_, _| call("look")).with_model("m");
            run_of(&agent(model).with_limits(limits), telemetry)
        },
        trees: "invoke_agent main
  chat m
  execute_tool look
  chat m
  execute_tool look
",
    },
    Scenario {
        name: "a refusal",
        start: |telemetry| {
            let refusal = Reply::new().refuse(secret("No.")).usage(usage(100, 10));
            run_of(&agent(model([refusal.stop(StopReason::Refusal)])), telemetry)
        },
        trees: "invoke_agent main\n  chat m\n",
    },
    Scenario {
        name: "a body that fails",
        start: |telemetry| {
            let telemetry = telemetry_of(telemetry);
            let body =
                |_, _| futures::stream::iter([Err::<Step<Event, _>, _>(error(ErrorKind::Other))]);
            let agent = agent(model([answer("Done.")]));
            let run = agent.run_with_body(body, History::empty("h"), secret("Go."));
            futures::StreamExt::boxed(run.with_data(telemetry.contexts()).with_telemetry(telemetry))
        },
        trees: "invoke_agent main !other\n",
    },
];
