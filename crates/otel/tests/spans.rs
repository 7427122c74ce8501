//! The attributes and events of spans.

use std::num::NonZeroUsize;
use std::time::Duration;

use futures::StreamExt;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{Array, StringValue, Value};
use turnstream::agent::{Budget, Pool};
use turnstream::error::ErrorKind;
use turnstream::event::{Event, GrantChange};
use turnstream::propagation::TraceContext;
use turnstream::provider::{Reply, Retry};
use turnstream::request::Options;
use turnstream_otel::{Conventions, TelemetryExt};

use crate::recorder::{RecordedSpan, Recorder};
use crate::scenarios::{agent, answer, error, model, scenario};
use crate::trees::{recorded_telemetry, start};

async fn run(name: &str) -> Recorder {
    let scenario = scenario(name);
    let (recorder, events) = start(scenario);
    events.collect::<Vec<_>>().await;
    recorder
}

fn finish_reason(span: &RecordedSpan) -> String {
    match span.get("gen_ai.response.finish_reasons") {
        Some(Value::Array(Array::String(reasons))) => {
            let reasons: Vec<_> = reasons.iter().map(StringValue::as_str).collect();
            reasons.join(" ")
        }
        other => panic!("{other:?}"),
    }
}

/// The value of an attribute of the only event with this name.
fn event_value(span: &RecordedSpan, event: &str, attribute: &str) -> Value {
    let found: Vec<_> = span.events.iter().filter(|(name, _)| name == event).collect();
    assert_eq!(found.len(), 1, "{:?}", span.events);
    let found = found[0].1.iter().find(|it| it.key.as_str() == attribute);
    found.unwrap_or_else(|| panic!("no {attribute}")).value.clone()
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_an_event_in_the_span_of_its_request() {
    let recorder = run("a retry by the provider").await;
    let chat = recorder.span("chat m");
    assert_eq!(event_value(&chat, "turnstream.retry", "error.type").as_str(), "overloaded");
    assert_eq!(event_value(&chat, "turnstream.retry", "turnstream.retry.attempt"), Value::I64(1));
    let Value::F64(delay) = event_value(&chat, "turnstream.retry", "turnstream.wait.duration")
    else {
        panic!("the delay is a number")
    };
    assert!(delay > 0.0 && chat.seconds() >= delay, "{delay}");
    assert_eq!((chat.status, chat.kind), (Status::Unset, SpanKind::Client));
}

#[tokio::test(start_paused = true)]
async fn a_retracted_turn_has_a_span_of_its_own_with_an_error_and_its_usage() {
    for name in ["a retraction by the provider", "a retraction by the agent"] {
        let recorder = run(name).await;
        let spans = recorder.spans();
        let chats: Vec<_> = spans.iter().filter(|it| it.name == "chat m").collect();
        assert_eq!(chats.len(), 2, "{name}");
        assert_eq!(finish_reason(chats[0]), "error");
        let retracted = [0, 1].map(|at: usize| chats[at].get("turnstream.retracted").is_some());
        assert_eq!(retracted, [true, false], "{name}");
        assert_eq!(chats[0].number("gen_ai.usage.input_tokens"), 100, "{name}");
        assert_eq!(chats[0].status, Status::error(""));
        assert_eq!(finish_reason(chats[1]), "stop");
        assert!(chats[0].ended_at.unwrap() <= chats[1].started_at);
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_an_approval_is_an_event_outside_of_the_tools_span() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let name = "an approval that is granted";
    let scenario = scenario(name);
    let mut events = (scenario.start)(&telemetry);
    while let Some(event) = events.next().await {
        if event.unwrap().approval_request().is_some() {
            tokio::time::advance(Duration::from_mins(1)).await;
        }
    }
    let agent = recorder.span("invoke_agent main");
    let wait = |attribute| event_value(&agent, "turnstream.approval_wait", attribute);
    assert_eq!(wait("turnstream.approval.decision").as_str(), "approved");
    assert_eq!(wait("turnstream.wait.duration"), Value::F64(60.0));
    assert!(recorder.span("execute_tool drop").seconds() < 1.0);
    assert!(agent.seconds() >= 60.0);
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_call_has_the_id_of_the_grant_that_let_it_start() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let scenario = scenario("a grant that is used");
    let events: Vec<_> = (scenario.start)(&telemetry).collect().await;
    let grant = events.iter().flatten().find_map(Event::grant_change).unwrap();
    let GrantChange::Added(grant) = grant else { panic!("{grant:?}") };
    let spans = recorder.spans();
    let calls = spans.iter().filter(|span| span.name == "execute_tool drop");
    let ids: Vec<_> = calls.map(|call| call.text("turnstream.grant.id")).collect();
    // The first call was approved by a verdict.
    assert_eq!(ids, [None, Some(grant.id)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_did_not_run_is_an_event_with_its_decision() {
    for (name, decision, kind) in [
        ("an approval that is denied", "denied", Some("denied")),
        ("an approval that is pending", "pending", None),
    ] {
        let recorder = run(name).await;
        let agent = recorder.span("invoke_agent main");
        let wait = event_value(&agent, "turnstream.approval_wait", "turnstream.approval.decision");
        assert_eq!(wait.as_str(), decision);
        let skipped = agent.events.iter().filter(|(name, _)| name == "turnstream.tool_not_run");
        assert_eq!(skipped.count(), usize::from(kind.is_some()), "{name}");
        if let Some(kind) = kind {
            let found = event_value(&agent, "turnstream.tool_not_run", "turnstream.tool.result");
            assert_eq!(found.as_str(), kind);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_is_described_by_the_attributes_of_its_span() {
    for (name, reason, phase, error_type) in [
        ("an answer", "completed", None, None),
        ("an approval that is pending", "pending", None, None),
        ("a run that is stopped after a turn", "stopped", None, None),
        ("an interrupt of a response", "interrupted", Some("streaming"), Some("interrupted")),
        ("an interrupt of a tool", "interrupted", Some("tools"), Some("interrupted")),
        ("a failure of the first request", "provider_error", None, Some("auth")),
        ("a budget", "budget", None, None),
    ] {
        let recorder = run(name).await;
        let agent = recorder.span("invoke_agent main");
        assert_eq!(agent.text("turnstream.reason").as_deref(), Some(reason), "{name}");
        assert_eq!(agent.text("turnstream.interrupted.phase").as_deref(), phase, "{name}");
        assert_eq!(agent.text("error.type").as_deref(), error_type, "{name}");
        let is_error = matches!(agent.status, Status::Error { .. });
        assert_eq!(is_error, error_type.is_some(), "{name}");
    }
    let budget = run("a budget").await.span("invoke_agent main");
    assert_eq!(budget.text("turnstream.budget.kind").as_deref(), Some("total_tokens"));
    assert_eq!(budget.number("turnstream.budget.limit"), 150);
    assert!(budget.number("turnstream.budget.used") > 150);
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_has_the_lane_in_which_it_came() {
    for (name, lane, phase) in [
        ("an interrupt of a response", "interrupt", "streaming"),
        ("an interrupt of a turn", "interrupt_turn", "streaming"),
        ("an interrupt of a tool", "interrupt", "tools"),
        ("an interrupt of the model while a tool runs", "interrupt_turn", "tools"),
    ] {
        let agent = run(name).await.span("invoke_agent main");
        let found = ["lane", "phase"].map(|it| agent.text(&format!("turnstream.interrupted.{it}")));
        assert_eq!(found, [lane, phase].map(|it| Some(it.to_owned())), "{name}");
    }
    let other = run("a turn that is interrupted by new input").await.span("invoke_agent main");
    assert_eq!(other.get("turnstream.interrupted.lane"), None);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_run_is_described_by_counts() {
    let of = |name: &'static str| async move { run(name).await.span("invoke_agent main") };
    let answer = of("an answer").await;
    assert_eq!(answer.number("turnstream.turns.count"), 1);
    for absent in ["pending.count", "undelivered.count", "evidence.proven", "cost_micros"] {
        assert_eq!(answer.get(&format!("turnstream.{absent}")), None, "{absent}");
    }
    assert_eq!(answer.get("turnstream.partial"), Some(&Value::Bool(false)));
    let cut = of("an interrupt of a response").await;
    assert_eq!(cut.get("turnstream.partial"), Some(&Value::Bool(true)));
    assert_eq!(of("an approval that is pending").await.number("turnstream.pending.count"), 1);
    let stopped = of("a run that is stopped after a turn").await;
    assert_eq!(stopped.number("turnstream.undelivered.count"), 1);
    let proven = of("a proof, and its cost").await;
    assert_eq!(proven.number("turnstream.turns.count"), 2);
    assert_eq!(proven.get("turnstream.evidence.proven"), Some(&Value::Bool(true)));
    assert_eq!(proven.number("turnstream.evidence.count"), 1);
    // Two requests with 100 tokens of input each, half of them read from the cache and a quarter
    // written to it, and with 10 of output: 107.5 each, rounded.
    assert_eq!(proven.number("turnstream.cost_micros"), 216);
}

#[tokio::test(start_paused = true)]
async fn a_request_has_the_number_of_its_turn_and_why_it_was_sent() {
    let recorder = run("reasoning that is refused").await;
    let spans = recorder.spans();
    let turns: Vec<_> = spans
        .iter()
        .filter(|it| it.name == "chat m")
        .map(|it| (it.number("turnstream.turn"), it.text("turnstream.transition")))
        .collect();
    let transition = |name: &str| Some(name.to_owned());
    let expected = [(1, None), (2, transition("next_turn")), (3, transition("reasoning_refused"))];
    assert_eq!(turns, expected);
}

#[tokio::test(start_paused = true)]
async fn rewritten_items_are_an_event_that_counts_them() {
    for (scenario, event) in [
        ("a tombstone", "turnstream.tombstoned"),
        ("reasoning that is refused", "turnstream.reasoning_dropped"),
    ] {
        let agent = run(scenario).await.span("invoke_agent main");
        for count in ["turnstream.items.count", "turnstream.items.replaced"] {
            assert_eq!(event_value(&agent, event, count), Value::I64(1), "{scenario}");
        }
        let other = agent.events.iter().any(|(name, _)| name == "turnstream.compacted");
        assert!(!other, "{scenario}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_for_an_approval_is_an_event_with_the_call() {
    let agent = run("an approval that is granted").await.span("invoke_agent main");
    let value = |attribute| event_value(&agent, "turnstream.approval_requested", attribute);
    assert_eq!(value("gen_ai.tool.name").as_str(), "drop");
    let call = run("an approval that is granted").await.span("execute_tool drop");
    assert_eq!(call.get("gen_ai.tool.call.id"), Some(&value("gen_ai.tool.call.id")));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_sub_agent_waits_is_suspended() {
    let recorder = run("a pending approval of a sub-agent").await;
    let call = recorder.span("execute_tool inner");
    assert_eq!(call.text("turnstream.tool.result").as_deref(), Some("suspended"));
    assert_eq!(call.get("error.type"), None);
    assert_eq!(call.status, Status::Unset);
}

#[tokio::test(start_paused = true)]
async fn the_model_of_a_run_is_recorded_unless_its_requests_have_several() {
    let model = |name: &'static str| async move {
        run(name).await.span("invoke_agent main").text("gen_ai.request.model")
    };
    assert_eq!(model("parallel tools").await.as_deref(), Some("m"));
    // The request of a summary does not count.
    assert_eq!(model("a compaction").await.as_deref(), Some("m"));
    assert_eq!(model("a fallback").await, None);
    assert_eq!(model("a refused input").await, None);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_of_a_wrapped_provider_has_its_model_and_its_service_tier() {
    let chat = run("an interrupt of a turn").await.span("chat m");
    assert_eq!(chat.text("gen_ai.response.model").as_deref(), Some("m"));
    assert_eq!(chat.text("turnstream.response.service_tier").as_deref(), Some("flex"));
    assert_eq!(finish_reason(&chat), "error");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_is_a_request_with_a_purpose_and_marks_later_requests() {
    let recorder = run("a compaction").await;
    let compaction = recorder.span("chat small");
    assert_eq!(compaction.text("gen_ai.request.model").as_deref(), Some("small"));
    assert_eq!(compaction.text("turnstream.request.purpose").as_deref(), Some("compaction"));
    assert_eq!(compaction.number("gen_ai.usage.input_tokens"), 50);
    let spans = recorder.spans();
    let compacted: Vec<_> = spans
        .iter()
        .filter(|it| it.name == "chat m")
        .map(|it| it.get("gen_ai.conversation.compacted").is_some())
        .collect();
    assert_eq!(compacted, [false, false, false, true]);
    let agent = recorder.span("invoke_agent main");
    event_value(&agent, "turnstream.compacted", "turnstream.items.replaced");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_that_fails_has_a_span_only_if_it_used_tokens() {
    let failed = run("a compaction that fails after it has used tokens").await.span("chat");
    assert_eq!(failed.text("turnstream.request.purpose").as_deref(), Some("compaction"));
    assert_eq!(failed.text("error.type").as_deref(), Some("compaction_failed"));
    assert_eq!(failed.number("gen_ai.usage.input_tokens"), 50);
    let agent = run("a compaction that fails").await.span("invoke_agent main");
    assert!(agent.events.is_empty(), "{:?}", agent.events);
}

#[tokio::test(start_paused = true)]
async fn the_request_of_a_hook_is_a_request_with_the_purpose_that_the_hook_gave() {
    let recorder = run("a hook that asks a model").await;
    let judge = recorder.span("chat small");
    assert_eq!(judge.text("turnstream.request.purpose").as_deref(), Some("judge"));
    assert_eq!(judge.number("gen_ai.usage.input_tokens"), 70);
}

#[tokio::test(start_paused = true)]
async fn a_tools_report_is_counted_in_its_span() {
    let recorder = run("a budget").await;
    let look = recorder.span("execute_tool look");
    assert_eq!(look.number("turnstream.side_effects.count"), 1);
    assert_eq!(look.number("turnstream.evidence.count"), 1);
    assert_eq!(look.text("turnstream.tool.result").as_deref(), Some("ok"));
    assert!((look.seconds() - 1.0).abs() < 0.01, "{}", look.seconds());
}

#[tokio::test(start_paused = true)]
async fn the_parent_and_the_links_of_a_run_are_the_given_contexts_only() {
    use opentelemetry::trace::{TraceContextExt, Tracer};

    let context = |number: u8| format!("00-{number:032x}-{number:016x}-01");
    let parent = TraceContext::parse(&context(7), None).unwrap();
    let recorder = Recorder::default();
    // The current context of the thread.
    let current = opentelemetry::Context::new().with_span(recorder.start("current"));
    let _guard = current.attach();
    let telemetry = recorded_telemetry(&recorder);
    let with_parent = telemetry.start_run().with_parent(&parent).with_link(&parent);
    for telemetry in [with_parent, telemetry.start_run()] {
        let run = agent(model([answer("Hello.")])).run("Hi");
        run.with_telemetry(telemetry).collect::<Vec<_>>().await;
    }
    let spans = recorder.spans();
    let runs: Vec<_> = spans.iter().filter(|it| it.name == "invoke_agent").collect();
    assert_eq!(runs[0].trace, 7_u128.into());
    let linked = 7_u64.into();
    assert_eq!((runs[0].parent, &*runs[0].links), (Some(linked), &[linked][..]));
    assert_eq!((runs[1].parent, &*runs[1].links), (None, &[][..]));
}

#[tokio::test(start_paused = true)]
async fn options_are_attributes_of_requests() {
    let recorder = Recorder::default();
    let options = Options {
        max_output_tokens: Some(500),
        temperature: Some(0.7),
        seed: Some(3),
        ..Options::default()
    };
    let telemetry = recorded_telemetry(&recorder).start_run().with_options(&options);
    let run = agent(model([answer("Hello.")])).with_options(options).run("Hi");
    run.with_telemetry(telemetry).collect::<Vec<_>>().await;
    let chat = recorder.span("chat m");
    assert_eq!(chat.number("gen_ai.request.max_tokens"), 500);
    assert_eq!(chat.get("gen_ai.request.temperature"), Some(&Value::F64(0.7)));
    assert_eq!(chat.number("gen_ai.request.seed"), 3);
    assert_eq!(chat.get("gen_ai.request.stream"), Some(&Value::Bool(true)));
}

#[tokio::test(start_paused = true)]
async fn older_names_are_used_if_they_are_selected() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder).with_conventions(Conventions::General1_41);
    let run = agent(model([answer("Hello.")])).run("Hi");
    run.with_telemetry(&telemetry).collect::<Vec<_>>().await;
    let chat = recorder.span("chat m");
    assert_eq!(chat.number("gen_ai.usage.cache_creation.input_tokens"), 25);
    assert_eq!(chat.get("gen_ai.usage.cache_write.input_tokens"), None);
}

#[tokio::test(start_paused = true)]
async fn two_runs_in_one_stream_have_a_span_each() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let agent = agent(model([answer("One."), Reply::error(error(ErrorKind::Auth))]));
    let both = agent.run("1").chain(agent.run("2"));
    both.with_telemetry(&telemetry).collect::<Vec<_>>().await;
    assert_eq!(recorder.trees(), "invoke_agent\n  chat m\ninvoke_agent !auth\n  chat m !auth\n");
}

#[tokio::test(start_paused = true)]
async fn an_error_without_an_outcome_ends_all_spans() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let broken = answer("Half").fail(error(ErrorKind::Server));
    let provider = Retry::new(model([broken]));
    let history = turnstream::History::from_items("h", [turnstream::Item::user("Go.")]);
    let request = turnstream::Request::new(history);
    let turn = turnstream::Provider::stream_turn(&provider, request);
    let events = turn.map(|event| event.map(turnstream::Event::from));
    events.with_telemetry(&telemetry).collect::<Vec<_>>().await;
    assert_eq!(recorder.trees(), "invoke_agent !server\n  chat !server\n");
    assert_eq!(finish_reason(&recorder.span("chat")), "error");
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_pool_is_an_event_outside_of_the_requests_span() {
    let recorder = Recorder::default();
    let telemetry = recorded_telemetry(&recorder);
    let pool = Pool::new(1_000_000).with_max_concurrency(NonZeroUsize::MIN);
    let slow = || answer("Slow.").delay(Duration::from_secs(30));
    let agent = || agent(model([slow()])).with_budget(Budget::new().with_pool(pool.clone()));
    let runs = ["first", "second"].map(|name| {
        let spans = telemetry.start_run().with_agent_name(name);
        let run = agent().run("Go.").with_data(spans.contexts());
        run.with_telemetry(spans).collect::<Vec<_>>()
    });
    futures::future::join_all(runs).await;
    let first = recorder.span("invoke_agent first");
    assert!(first.events.iter().all(|(name, _)| name != "turnstream.pool_wait"));
    let second = recorder.span("invoke_agent second");
    let wait = event_value(&second, "turnstream.pool_wait", "turnstream.wait.duration");
    let Value::F64(wait) = wait else { panic!("{wait:?}") };
    assert!((wait - 30.0).abs() < 0.1, "{wait}");
    let spans = recorder.spans();
    let chat = spans.iter().rfind(|it| it.parent == Some(second.id)).unwrap();
    assert!((chat.seconds() - 30.0).abs() < 0.1 && second.seconds() > 59.0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_pool_that_the_end_of_the_run_cuts_off_is_an_event_too() {
    type End = fn(&turnstream::RunHandle);
    let ends: [End; 2] = [|it| it.interrupt(), |it| it.interrupt_turn()];
    for end in ends {
        let recorder = Recorder::default();
        let telemetry = recorded_telemetry(&recorder);
        let pool = Pool::new(1_000_000).with_max_concurrency(NonZeroUsize::MIN);
        let slow = answer("Slow.").delay(Duration::from_secs(30));
        let agent = agent(model([slow])).with_budget(Budget::new().with_pool(pool));
        let [first, second] = ["first", "second"].map(|name| {
            let spans = telemetry.start_run().with_agent_name(name);
            let run = agent.run("Go.").with_data(spans.contexts());
            (run.handle(), run.with_telemetry(spans).collect::<Vec<_>>())
        });
        let handle = second.0;
        let stop = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            end(&handle);
        };
        futures::join!(first.1, second.1, stop);
        let second = recorder.span("invoke_agent second");
        assert!(second.seconds() < 11.0, "{}", second.seconds());
        let wait = event_value(&second, "turnstream.pool_wait", "turnstream.wait.duration");
        let Value::F64(wait) = wait else { panic!("{wait:?}") };
        assert!((wait - 10.0).abs() < 0.1, "{wait}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_retracted_turn_is_unknown_without_the_runs_contexts() {
    let recorder = Recorder::default();
    let broken = answer("Half").fail(error(ErrorKind::Overloaded));
    let run = agent(model([broken, answer("Done.")])).run("Go.");
    run.with_telemetry(&recorded_telemetry(&recorder)).collect::<Vec<_>>().await;
    assert_eq!(recorder.trees(), "invoke_agent\n  chat m !retracted\n  chat m\n");
}
