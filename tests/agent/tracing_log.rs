//! A run in the logs of the crate `tracing`.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as LogEvent, Level, Metadata, Subscriber};
use turnstream::agent::Limits;
use turnstream::item::{GrantDuration, GrantScope};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::tool::Verdict;
use turnstream::{Agent, ErrorKind};

use turnstream_test_support::providers::error_of_kind;
use turnstream_test_support::runs::test_agent;
use turnstream_test_support::tools::{constant_tool, spec};

const SECRET: &str = "xyzzy";

/// Writes down the events up to a level, with the names of their spans.
#[derive(Clone)]
struct Log {
    level: Level,
    state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    /// The path of each span, and the number of references to it.
    spans: Vec<(String, usize)>,
    lines: Vec<String>,
}

#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => write!(self.others, " {name}={value:?}").unwrap(),
        }
    }
}

impl Log {
    fn new(level: Level) -> Self {
        Self { level, state: Arc::default() }
    }

    fn lines(&self) -> Vec<String> {
        self.state.lock().unwrap().lines.clone()
    }

    fn open_spans(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.spans.iter().filter(|(_, references)| *references > 0).count()
    }

    fn path(&self, parent: Option<&Id>) -> String {
        let state = self.state.lock().unwrap();
        parent.map_or_else(String::new, |id| state.spans[index(id)].0.clone())
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64()).unwrap() - 1
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("turnstream")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        let path = format!("{}/{}", self.path(span.parent()), span.metadata().name());
        let mut state = self.state.lock().unwrap();
        state.lines.push(format!("SPAN {path} |{}", fields.others));
        state.spans.push((path, 1));
        Id::from_u64(state.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &LogEvent<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, others } = fields;
        let (level, path) = (event.metadata().level(), self.path(event.parent()));
        let line = format!("{level} {path}: {message} |{others}");
        self.state.lock().unwrap().lines.push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn clone_span(&self, id: &Id) -> Id {
        self.state.lock().unwrap().spans[index(id)].1 += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut state = self.state.lock().unwrap();
        state.spans[index(&id)].1 -= 1;
        state.spans[index(&id)].1 == 0
    }
}

/// An agent whose run has a retry, a sub-agent, a retraction and a tool that fails. Every text of
/// the run is a secret.
fn eventful_agent() -> Agent {
    let secret = || Reply::text(SECRET);
    let arguments = || json!({ "prompt": SECRET });
    let error = |kind| error_of_kind(kind);
    let inner = Scripted::new([secret().call("look", arguments()), secret()]);
    let inner = test_agent(inner).with_tools([constant_tool("look", SECRET)]);
    let failing = turnstream::Tool::raw(spec("fail"), |_, _| async { Err::<String, _>(SECRET) });
    let model = Scripted::new([
        Reply::error(error(ErrorKind::Overloaded)),
        secret().call("inner", arguments()).call("fail", arguments()),
        secret().fail(error(ErrorKind::Server)),
        secret(),
    ]);
    test_agent(Retry::new(model))
        .with_system(SECRET)
        .with_limits(Limits { max_turn_retries: 1, ..Limits::default() })
        .with_tools([failing.unwrap(), inner.as_tool("inner", "Looks.").unwrap()])
}

/// Runs the agent until this number of events were yielded, and then drops the run.
fn log_run(level: Level, events: usize) -> Log {
    let log = Log::new(level);
    let runtime = turnstream_test_support::clock::paused_runtime();
    tracing::subscriber::with_default(log.clone(), || {
        let run = eventful_agent().run(SECRET).with_tracing();
        runtime.block_on(run.take(events).for_each(|_| async {}));
    });
    log
}

#[test]
fn a_person_can_follow_a_run_in_the_log() {
    let log = log_run(Level::INFO, usize::MAX);
    let lines = log.lines();
    let events = lines.iter().filter(|line| !line.starts_with("SPAN"));
    let mut found: Vec<_> =
        events.map(|line| line.split(" |").next().unwrap().to_owned()).collect();
    let inner = "/invoke_agent/execute_tool/invoke_agent";
    let expected = [
        "WARN /invoke_agent/chat: the request is retried".to_owned(),
        "INFO /invoke_agent/chat: the turn is complete".to_owned(),
        "WARN /invoke_agent/execute_tool: the call failed".to_owned(),
        format!("INFO {inner}/chat: the turn is complete"),
        format!("INFO {inner}/execute_tool: the call has a result"),
        format!("INFO {inner}/chat: the turn is complete"),
        format!("INFO {inner}: the run has ended"),
        "INFO /invoke_agent/execute_tool: the call has a result".to_owned(),
        "WARN /invoke_agent/chat: the turn was retracted".to_owned(),
        "INFO /invoke_agent/chat: the turn is complete".to_owned(),
        "INFO /invoke_agent: the run has ended".to_owned(),
    ];
    let mut expected = expected.to_vec();
    assert_eq!(found.first(), expected.first());
    assert_eq!(found.last(), expected.last());
    // The two calls run at the same time.
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn the_log_has_no_text_of_a_run_above_the_level_trace() {
    for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG] {
        for line in log_run(level, usize::MAX).lines() {
            assert!(!line.contains(SECRET), "{line}");
        }
    }
    let lines = log_run(Level::TRACE, usize::MAX).lines();
    assert!(lines.iter().any(|line| line.contains(SECRET)));
}

#[test]
fn the_span_of_a_call_has_the_id_of_the_grant_that_let_it_start() {
    let guarded = constant_tool("drop", "dropped").requires_approval();
    let call = || Reply::new().call("drop", json!({}));
    let model = Scripted::new([call(), call(), Reply::text("Done.")]);
    let agent = test_agent(model).with_tools([guarded]).interactive();
    let log = Log::new(Level::INFO);
    let runtime = turnstream_test_support::clock::paused_runtime();
    let mut granted = None;
    tracing::subscriber::with_default(log.clone(), || {
        let run = agent.run("Go.");
        let handle = run.handle();
        let mut events = run.with_tracing();
        runtime.block_on(async {
            while let Some(event) = events.next().await {
                if let Some(call) = event.unwrap().approval_request() {
                    granted = Some(call.approval_id.clone());
                    let (scope, duration) = (GrantScope::AnyArguments, GrantDuration::Run);
                    let always = Verdict::approve_always(scope, duration);
                    handle.submit_verdict(&call, always).unwrap();
                }
            }
        });
    });
    let lines = log.lines();
    let spans = lines.iter().filter(|line| line.starts_with("SPAN /invoke_agent/execute_tool"));
    let ids: Vec<_> = spans
        .map(|line| line.split_once(" turnstream.grant.id=").map(|(_, id)| id.to_owned()))
        .collect();
    // The first call was approved by a verdict.
    assert_eq!(ids, [None, Some(format!("{:?}", granted.unwrap()))]);
}

#[test]
fn a_run_that_is_dropped_after_any_event_leaves_no_span_open() {
    for events in 0..60 {
        assert_eq!(log_run(Level::INFO, events).open_spans(), 0, "after {events} events");
    }
}
