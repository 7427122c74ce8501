//! Tool sources: when tools are listed, which list applies, the notices to the model about changes,
//! and failures of a source. Every run with `test_agent` is replayed when it has ended.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_stream::try_stream;
use futures::future::{self, BoxFuture};
use futures::{FutureExt, Stream, StreamExt};
use serde_json::json;
use turnstream::agent::{
    Budget, Limits, NextAction, RunContext, State, after_tools, decide, forward_turns, hook,
    loop_body,
};
use turnstream::event::{AppendReason, EndReason, ToolEvent};
use turnstream::item::{RawJson, ResultKind, ToolResult};
use turnstream::provider::{Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::stream::{Step, TurnStream};
use turnstream::tool::{
    Tool, ToolList, ToolOutput, ToolRun, ToolSource, ToolSpec, Toolkit, Verdict,
};
use turnstream::world::{
    Effect, EffectKey, EffectKind, EffectValue, LiveWorld, SendRequest, World,
};
use turnstream::{Agent, Error, ErrorKind, Event, History, Item, Journal, Outcome, Request, Run};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::cases;
use turnstream_test_support::runs::{
    collect_rest, final_outcome, pull_until, reply_calling, result_kinds, test_agent, tool_results,
};
use turnstream_test_support::seeded_random::Dice;
use turnstream_test_support::tools::{Counter, constant_tool, counted_tool, spec};

type Listing = Result<ToolList, Error>;

/// A source whose `n`th listing, from 0, is computed by a closure.
#[derive(Clone)]
struct TestSource {
    name: &'static str,
    list: Arc<dyn Fn(usize) -> BoxFuture<'static, Listing> + Send + Sync>,
    listing_count: Arc<AtomicUsize>,
}

impl TestSource {
    fn new(name: &'static str, list: impl Fn(usize) -> Listing + Send + Sync + 'static) -> Self {
        Self::from_future(name, move |n| future::ready(list(n)).boxed())
    }

    fn from_future(
        name: &'static str,
        list: impl Fn(usize) -> BoxFuture<'static, Listing> + Send + Sync + 'static,
    ) -> Self {
        Self { name, list: Arc::new(list), listing_count: Arc::default() }
    }

    /// Returns these lists, repeating the last one for ever.
    fn of_names(name: &'static str, lists: &'static [&'static [&'static str]]) -> Self {
        Self::new(name, move |n| {
            let names = lists[n.min(lists.len() - 1)];
            Ok(ToolList::new(names.iter().map(|name| constant_tool(name, "fine"))))
        })
    }

    fn listing_count(&self) -> usize {
        self.listing_count.load(Ordering::Relaxed)
    }
}

impl ToolSource for TestSource {
    fn name(&self) -> &str {
        self.name
    }

    fn list_tools(&self) -> BoxFuture<'static, Listing> {
        let (list, count) = (Arc::clone(&self.list), Arc::clone(&self.listing_count));
        async move { list(count.fetch_add(1, Ordering::Relaxed)).await }.boxed()
    }
}

fn down() -> Error {
    Error::new(ErrorKind::Connect, "the server is down")
}

/// A model that makes one call in each of these turns, and then ends.
fn model_calling(names: &'static [&'static str]) -> Scripted {
    let replies = names.iter().enumerate().map(|(n, name)| reply_calling(&format!("c{n}"), name));
    Scripted::new(replies.chain([Reply::text("done")]))
}

fn offered(request: &Request) -> Vec<&str> {
    request.tools.iter().map(|tool| &*tool.name).collect()
}

/// The tools that each request has offered to the model.
fn all_offered(model: &Scripted) -> Vec<Vec<String>> {
    let names = |request: &Request| offered(request).into_iter().map(str::to_owned).collect();
    model.requests().iter().map(names).collect()
}

/// The texts that were appended like a hook's.
fn notices<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<String> {
    let items = events.into_iter().filter_map(|event| match event {
        Event::Appended { why: AppendReason::Hook, items, .. } => Some(items),
        _ => None,
    });
    items.flatten().map(|item| item.as_user().expect("the role is the user's").text()).collect()
}

/// The results in a history: id, kind, text.
fn result_lines(history: &History) -> Vec<String> {
    let line = |result: &ToolResult| {
        let kind = serde_json::to_value(result.kind).unwrap();
        format!("{} {} {}", result.call_id, kind.as_str().unwrap(), result.content.text())
    };
    tool_results(history.iter()).into_iter().map(line).collect()
}

async fn collect(mut run: Run) -> Vec<Event> {
    collect_rest(&mut run).await
}

/// Runs the agent to its end, and checks that the fold of the events is the history.
async fn run_events(agent: &Agent) -> Vec<Event> {
    let start = History::empty("h");
    let run = agent.run_from(start.clone(), "go");
    let handle = run.handle();
    let events = collect(run).await;
    let journal = Journal::new(start);
    for event in &events {
        journal.observe(event);
    }
    assert_eq!(journal.history(), handle.history(), "the folded history");
    assert!(handle.history().is_settled());
    events
}

fn source_agent(model: &Scripted, source: &TestSource) -> Agent {
    test_agent(model.clone()).with_tool_source(source.clone())
}

#[tokio::test]
async fn tools_of_sources_follow_the_agents_own_in_order_and_run() {
    let model = model_calling(&["own", "b", "c"]);
    let agent = test_agent(model.clone())
        .with_tool_source(TestSource::of_names("first", &[&["b", "a"]]))
        .with_tool_source(Arc::new(TestSource::of_names("second", &[&["c"]])))
        .with_tools([constant_tool("own", "mine")]);
    let outcome = final_outcome(&run_events(&agent).await).clone();
    assert_eq!(all_offered(&model), vec![["own", "b", "a", "c"]; 4]);
    let kinds = result_kinds(outcome.new_items().iter());
    assert_eq!((kinds, &*outcome.text), (vec![ResultKind::Ok; 3], "done"));
}

#[tokio::test]
async fn a_source_is_listed_once_before_each_request() {
    let (model, source) = (model_calling(&["a", "a"]), TestSource::of_names("s", &[&["a"]]));
    let events = run_events(&source_agent(&model, &source)).await;
    assert_eq!((model.requests().len(), source.listing_count()), (3, 3));
    assert_eq!(notices(&events), [""; 0]);
}

#[tokio::test]
async fn requests_share_their_tools_until_a_list_changes() {
    let model = model_calling(&["a", "a", "a"]);
    let tools: Vec<Tool> = ["a", "b"].map(|name| constant_tool(name, "fine")).into();
    let source = TestSource::new("s", move |n| {
        Ok(ToolList::new(tools[..if n < 2 { 1 } else { 2 }].iter().cloned()))
    });
    run_events(&source_agent(&model, &source)).await;
    let requests = model.requests();
    let shares = |n: usize| {
        let [first, second] = [n, n + 1].map(|n| requests[n].tools.as_ptr());
        first == second
    };
    assert_eq!([0, 1, 2].map(shares), [true, false, true]);
}

#[tokio::test]
async fn a_changed_list_applies_to_the_next_request_after_a_notice() {
    let model = model_calling(&["a", "b"]);
    let source = TestSource::new("files", |n| {
        let described =
            ToolSpec::new("c", format!("version {}", n.min(1)), json!({"type": "object"}));
        let c = Tool::raw(described, |_, _| async { "fine" }).unwrap();
        let other = constant_tool(if n == 0 { "a" } else { "b" }, "fine");
        Ok(ToolList::new([other, c]))
    });
    let events = run_events(&source_agent(&model, &source)).await;
    assert_eq!(all_offered(&model), [["a", "c"], ["b", "c"], ["b", "c"]]);
    let notice = "The tools of `files` have changed. New: `b`. Not available any more: `a`. \
                  Described differently: `c`.";
    assert_eq!(notices(&events), [notice]);
    let requests = model.requests();
    assert_eq!(requests[1].history.last().unwrap().as_user().unwrap().text(), notice);
    let kinds = result_kinds(final_outcome(&events).new_items().iter());
    assert_eq!(kinds, [ResultKind::Ok, ResultKind::Ok]);
    // Law 9: the prefix that the model has received stays unchanged.
    assert!(
        requests[1].history.iter().take(requests[0].history.len()).eq(requests[0].history.iter())
    );
}

#[tokio::test]
async fn a_call_of_a_removed_tool_is_answered_as_unknown() {
    let (model, source) = (model_calling(&["a", "a"]), TestSource::of_names("s", &[&["a"], &[]]));
    let events = run_events(&source_agent(&model, &source)).await;
    let kinds = result_kinds(final_outcome(&events).new_items().iter());
    assert_eq!(kinds, [ResultKind::Ok, ResultKind::UnknownTool]);
    let empty = "The tools of `s` have changed. Not available any more: `a`.";
    assert_eq!(notices(&events), [empty], "an empty list is not silent");
}

#[tokio::test]
async fn tools_omitted_from_the_first_list_are_reported_once() {
    let note = "`x.y`: the name has a dot";
    let list = move |_| {
        let tools = vec![constant_tool("a", "fine")];
        Ok(ToolList { notes: vec![note.to_owned()], ..ToolList::new(tools) })
    };
    let model = Scripted::from_fn(|_, _| Reply::text("done"));
    let agent = source_agent(&model, &TestSource::new("s", list));
    let events = run_events(&agent).await;
    assert_eq!(notices(&events), [format!("Some tools of `s` are left out: {note}.")]);
    let again = collect(agent.run_from(final_outcome(&events).history.clone(), "again")).await;
    assert_eq!(notices(&again), [""; 0]);
}

#[tokio::test]
async fn a_note_of_a_later_list_is_reported_once() {
    let model = model_calling(&["a", "a", "a"]);
    let source = TestSource::new("s", |n| {
        let notes = if n == 0 { Vec::new() } else { vec!["`b`: it is broken".to_owned()] };
        Ok(ToolList { notes, ..ToolList::new([constant_tool("a", "fine")]) })
    });
    let events = run_events(&source_agent(&model, &source)).await;
    assert_eq!(notices(&events), ["The tools of `s` have changed. Left out: `b`: it is broken."]);
}

#[tokio::test]
async fn a_run_whose_first_listing_fails_ends_with_its_error_before_a_request() {
    let model = model_calling(&[]);
    let good = TestSource::of_names("good", &[&["a"]]);
    let agent =
        source_agent(&model, &good).with_tool_source(TestSource::new("bad", |_| Err(down())));
    let outcome = agent.run("go").outcome().await;
    let error = outcome.error.unwrap();
    assert_eq!((outcome.reason, error.kind()), (EndReason::ProviderError, ErrorKind::Connect));
    assert_eq!(error.message(), "the tool source `bad`: the server is down");
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn duplicate_tool_names_in_first_lists_are_an_invalid_request() {
    let check = async |own: &[&str], first, second, message: &str| {
        let own = own.iter().map(|name| constant_tool(name, "mine"));
        let agent = test_agent(model_calling(&[]))
            .with_tools(own)
            .with_tool_source(TestSource::of_names("first", first))
            .with_tool_source(TestSource::of_names("second", second));
        let error = agent.run("go").outcome().await.error.unwrap();
        assert_eq!((error.kind(), error.message()), (ErrorKind::InvalidRequest, message));
    };
    let (a, b): (&[&[&str]], &[&[&str]]) = (&[&["a"]], &[&["b"]]);
    let of = |one, other| {
        format!(
            "two tools have the name `a`: one of {one}, the other one of the tool source `{other}`"
        )
    };
    check(&["a"], b, a, &of("the agent", "second")).await;
    check(&[], a, a, &of("the tool source `first`", "second")).await;
    check(&[], &[&["a", "a"]], b, &of("the tool source `first`", "first")).await;
}

#[tokio::test]
async fn a_later_failure_keeps_the_last_list_and_is_reported_once() {
    let model = model_calling(&["a", "a", "a", "a", "a", "a"]);
    let source = TestSource::new("s", |n| match n {
        0 | 3 => Ok(ToolList::new([constant_tool("a", "fine")])),
        5 => Ok(ToolList::new(["a", "b"].map(|name| constant_tool(name, "fine")))),
        _ => Err(down()),
    });
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    let agent = source_agent(&model, &source).with_hook(hook::on_failure(move |_, error| {
        seen.lock().unwrap().push(error.to_string());
    }));
    let events = run_events(&agent).await;
    let mut names = vec![vec!["a"]; 5];
    names.extend([vec!["a", "b"], vec!["a", "b"]]);
    assert_eq!(all_offered(&model), names);
    assert_eq!(result_kinds(final_outcome(&events).new_items().iter()), [ResultKind::Ok; 6]);
    let failed = "The tools of `s` could not be listed, and are unchanged: \
                  the server is down.";
    let changed = "The tools of `s` have changed. New: `b`.";
    assert_eq!(notices(&events), [failed, failed, changed, failed]);
    assert_eq!(failures.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_later_tool_with_a_taken_name_is_omitted_and_reported_once() {
    let model = model_calling(&["a", "a", "own", "b"]);
    let first = TestSource::new("first", |n| {
        let names: &[&str] = if n == 0 { &[] } else { &["a", "own"] };
        Ok(ToolList::new(names.iter().map(|name| constant_tool(name, "taken"))))
    });
    let agent = source_agent(&model, &first)
        .with_tool_source(TestSource::of_names("second", &[&["a"], &["a", "b", "b"]]))
        .with_tools([constant_tool("own", "mine")]);
    let events = run_events(&agent).await;
    let mut names = vec![vec!["own", "a"]];
    names.extend(vec![vec!["own", "a", "b"]; 4]);
    assert_eq!(all_offered(&model), names);
    let first = "The tools of `first` have changed. Left out: \
                 `a`: another tool of the tool source `second` has this name; \
                 `own`: another tool of the agent has this name.";
    let second = "The tools of `second` have changed. New: `b`. Left out: \
                  `b`: another tool of the tool source `second` has this name.";
    assert_eq!(notices(&events), [format!("{first}\n{second}")]);
    let texts: Vec<String> = tool_results(final_outcome(&events).new_items())
        .iter()
        .map(|result| result.content.text())
        .collect();
    assert_eq!(texts, ["fine", "fine", "mine", "fine"]);
}

#[tokio::test]
async fn a_source_that_fails_keeps_the_names_of_its_tools() {
    let second = TestSource::new("second", |n| match n {
        0 => Ok(ToolList::new([constant_tool("a", "of the second")])),
        _ => Err(down()),
    });
    let model = model_calling(&["a", "a"]);
    let first = TestSource::of_names("first", &[&[], &["a"]]);
    let agent = source_agent(&model, &first).with_tool_source(second);
    let events = run_events(&agent).await;
    assert_eq!(all_offered(&model), vec![["a"]; 3]);
    let results = result_lines(&final_outcome(&events).history);
    assert_eq!(results, ["c0 ok of the second", "c1 ok of the second"]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_hangs_or_panics_is_a_failure() {
    let first_error = async |source: TestSource, limit: Option<u64>| {
        let tool_source_timeout = limit.map(Duration::from_secs);
        let limits = Limits { tool_source_timeout, ..Limits::default() };
        let agent = source_agent(&model_calling(&[]), &source).with_limits(limits);
        let error = agent.run("go").outcome().await.error.unwrap();
        (error.kind(), error.message().to_owned())
    };
    let hangs = || TestSource::from_future("s", |_| pending().boxed());
    let message =
        |limit: &str| format!("the tool source `s`: the listing took longer than {limit}");
    assert_eq!(first_error(hangs(), None).await, (ErrorKind::Timeout, message("30s")));
    assert_eq!(first_error(hangs(), Some(2)).await, (ErrorKind::Timeout, message("2s")));
    let panics = TestSource::from_future("s", |_| async { panic!("lost") }.boxed());
    let message = "the tool source `s`: the listing panicked: lost".to_owned();
    assert_eq!(first_error(panics, None).await, (ErrorKind::Panic, message));

    let model = model_calling(&["a"]);
    let later = TestSource::from_future("s", |n| match n {
        0 => future::ready(Ok(ToolList::new([constant_tool("a", "fine")]))).boxed(),
        _ => pending().boxed(),
    });
    let events = run_events(&source_agent(&model, &later)).await;
    assert_eq!(all_offered(&model), [["a"], ["a"]]);
    assert!(notices(&events)[0].ends_with("are unchanged: the listing took longer than 30s."));
}

#[tokio::test(start_paused = true)]
async fn several_sources_are_listed_at_the_same_time() {
    let slow = |name, tool| {
        TestSource::from_future(name, move |_| {
            async move {
                tokio::time::sleep(Duration::from_secs(20)).await;
                Ok(ToolList::new([constant_tool(tool, "fine")]))
            }
            .boxed()
        })
    };
    let model = model_calling(&[]);
    let agent = source_agent(&model, &slow("first", "a")).with_tool_source(slow("second", "b"));
    let began = tokio::time::Instant::now();
    run_events(&agent).await;
    assert_eq!(began.elapsed(), Duration::from_secs(20));
    assert_eq!(all_offered(&model), [["a", "b"]]);
}

#[tokio::test]
async fn dropping_or_interrupting_a_run_drops_the_listing() {
    let counter = Counter::default();
    let listings = counter.clone();
    let source = TestSource::from_future("s", move |_| {
        let guard = listings.enter();
        async move {
            let _guard = guard;
            pending().await
        }
        .boxed()
    });
    let agent = source_agent(&model_calling(&[]), &source);
    for interrupts in [false, true] {
        let mut run = agent.run("go");
        pull_until(&mut run, |event| matches!(event, Event::Appended { .. })).await;
        assert!(run.next().now_or_never().is_none(), "the listing hangs");
        assert_eq!(counter.alive_count(), 1);
        if interrupts {
            run.interrupt();
            let events = collect_rest(&mut run).await;
            assert!(matches!(final_outcome(&events).reason, EndReason::Interrupted(_)));
        } else {
            drop(run);
        }
        assert_eq!(counter.alive_count(), 0);
    }
    assert_eq!(counter.started_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_ends_a_listing_and_the_wrap_up_turn_lists_nothing() {
    let source = TestSource::from_future("s", |n| match n {
        0 => future::ready(Ok(ToolList::new([constant_tool("a", "fine")]))).boxed(),
        _ => pending().boxed(),
    });
    let model = model_calling(&["a"]);
    let budget = Budget::new()
        .with_time_limit(Duration::from_secs(10))
        .with_wrap_up_time(Duration::from_secs(4));
    let agent = source_agent(&model, &source).with_budget(budget);
    let events = run_events(&agent).await;
    let outcome = final_outcome(&events);
    assert_eq!((outcome.reason, &*outcome.text), (EndReason::Budget, "done"));
    assert_eq!(source.listing_count(), 2, "one that hung, and none in the last turn");
    assert_eq!(all_offered(&model), [["a"], ["a"]]);
}

#[tokio::test]
async fn the_agents_policies_apply_to_tools_of_sources() {
    // Results are truncated, calls need approval, and only the first one runs.
    let source = TestSource::new("s", |_| {
        let long = Tool::raw(spec("long"), |_, _| async { "x".repeat(1000) }).unwrap();
        Ok(ToolList::new([long, constant_tool("asks", "fine").requires_approval()]))
    });
    let two = Reply::new().call_raw("c0", "long", "{}").call_raw("c1", "long", "{}");
    let model = Scripted::new([two, reply_calling("c2", "asks"), Reply::text("done")]);
    let kit = Toolkit::default().with_max_result_bytes(100).first_call_only().with_rationale();
    let agent = source_agent(&model, &source).with_toolkit(kit);
    let outcome = agent.run("go").outcome().await;
    let results = tool_results(outcome.new_items());
    assert!(results[0].content.text().len() <= 100);
    assert_eq!(results[1].kind, ResultKind::Skipped);
    assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 1));
    let request = &model.requests()[0];
    assert_eq!(request.options.parallel_tool_calls, Some(false));
    let schema = request.tools[0].parameters.to_value();
    assert!(schema["properties"]["_why"].is_object(), "{schema}");

    // A dry run, and a hook that leaves tools out.
    let model = model_calling(&["long", "asks"]);
    let kit = Toolkit::default().with_dry_run(true);
    let agent = source_agent(&model, &source).with_toolkit(kit).with_hook(hook::prepare_request(
        |_, mut request| {
            request.tools = request.tools[..1].to_vec().into();
            async move { request }
        },
    ));
    let outcome = agent.run("go").outcome().await;
    let kinds = result_kinds(outcome.new_items().iter());
    assert_eq!(kinds, [ResultKind::Skipped, ResultKind::UnknownTool]);
}

/// The history as another process reads it.
fn round_trip(history: &History) -> History {
    serde_json::from_str(&serde_json::to_string(history).unwrap()).unwrap()
}

/// An outcome with a pending call of a source's tool, and the verdict on it.
async fn pending_run(agent: &Agent) -> Outcome {
    let outcome = agent.run_from(History::empty("h"), "go").outcome().await;
    assert_eq!((outcome.reason, outcome.pending.len()), (EndReason::Pending, 1));
    outcome
}

fn approved(outcome: &Outcome) -> Vec<(turnstream::item::PendingCall, Verdict)> {
    outcome.pending.iter().map(|call| (call.clone(), Verdict::Approve)).collect()
}

#[tokio::test]
async fn a_pending_call_of_a_source_tool_can_be_resumed_by_another_process() {
    let ran = Counter::default();
    let counted = ran.clone();
    let source = move || {
        let ran = counted.clone();
        TestSource::new("s", move |_| {
            let pay = counted_tool("pay", &ran, |_| async { "paid".to_owned() });
            Ok(ToolList::new([pay.requires_approval()]))
        })
    };
    let outcome = pending_run(&source_agent(&model_calling(&["pay"]), &source())).await;
    assert_eq!(ran.started_count(), 0);

    let (model, source) = (model_calling(&[]), source());
    let agent = source_agent(&model, &source);
    let resumed = agent.resume(round_trip(&outcome.history), approved(&outcome)).unwrap();
    let resumed = resumed.outcome().await;
    assert_eq!(result_lines(&resumed.history), ["c0 ok paid"]);
    assert_eq!((ran.started_count(), source.listing_count()), (1, 2));
    assert_eq!(all_offered(&model), [["pay"]]);
    // An agent without the source reports that the tool is unknown.
    let error = test_agent(model_calling(&[])).resume(outcome.history.clone(), approved(&outcome));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn a_resumed_call_whose_tool_is_missing_is_answered_and_other_verdicts_apply() {
    let asks = || Ok(ToolList::new([constant_tool("pay", "paid").requires_approval()]));
    let source =
        TestSource::new("s", move |n| if n == 0 { asks() } else { Ok(ToolList::default()) });
    let agent = source_agent(&model_calling(&["pay"]), &source);
    let outcome = pending_run(&agent).await;
    let verdicts: [(Verdict, &str); 2] = [
        (Verdict::Approve, "c0 unknown_tool"),
        (Verdict::Output(ToolOutput::ok("by hand")), "c0 ok by hand"),
    ];
    for (verdict, result) in verdicts {
        let call = outcome.pending[0].clone();
        let resumed = source_agent(&model_calling(&[]), &source)
            .resume(round_trip(&outcome.history), [(call, verdict)])
            .unwrap();
        let resumed = resumed.outcome().await;
        assert!(result_lines(&resumed.history)[0].starts_with(result), "{result}");
        assert_eq!(resumed.reason, EndReason::Completed);
    }
}

#[tokio::test]
async fn a_resumed_run_whose_source_fails_runs_no_call_and_can_be_resumed_again() {
    let source = TestSource::new("s", |n| match n {
        1 => Err(down()),
        _ => Ok(ToolList::new([constant_tool("pay", "paid").requires_approval()])),
    });
    let outcome = pending_run(&source_agent(&model_calling(&["pay"]), &source)).await;
    let agent = source_agent(&model_calling(&[]), &source);
    let failed = agent.resume(outcome.history.clone(), approved(&outcome)).unwrap().outcome().await;
    assert_eq!(failed.error.unwrap().kind(), ErrorKind::Connect);
    let kinds = result_kinds(failed.history.iter());
    assert!(!kinds.contains(&ResultKind::Ok), "{kinds:?}");
    let again = agent.resume(outcome.history.clone(), approved(&outcome)).unwrap().outcome().await;
    assert_eq!(result_lines(&again.history), ["c0 ok paid"]);
}

#[tokio::test]
async fn a_sub_agent_lists_its_own_sources_and_a_source_may_offer_a_sub_agent() {
    let ran = Counter::default();
    let counted = ran.clone();
    let inner = TestSource::new("inner", move |_| {
        let pay = counted_tool("pay", &counted, |_| async { "paid".to_owned() });
        Ok(ToolList::new([pay.requires_approval()]))
    });
    let child_model = Scripted::from_fn(|request, _| match tool_results(request.history.iter()) {
        results if results.is_empty() => reply_calling("p", "pay"),
        _ => Reply::text("child done"),
    });
    let child = Agent::new(child_model).with_tool_source(inner.clone());
    let outer = TestSource::new("outer", move |_| {
        Ok(ToolList::new([child.as_tool("clerk", "Pays").unwrap()]))
    });
    let calls = Reply::new().call_raw("c0", "clerk", r#"{"prompt":"pay"}"#);
    let model = Scripted::new([calls, Reply::text("done")]);
    let agent = source_agent(&model, &outer);
    let outcome = pending_run(&agent).await;
    assert_eq!(outcome.pending[0].path, ["c0"]);

    let resumed = agent.resume(round_trip(&outcome.history), approved(&outcome)).unwrap();
    let resumed = resumed.outcome().await;
    assert_eq!(result_lines(&resumed.history), ["c0 ok child done"]);
    assert_eq!(ran.started_count(), 1);
    assert_eq!(inner.listing_count(), 3, "before its first request, its call, its second request");
    // With a stored listing, the sub-agent that continues is found when its call runs.
    let kept = KeptListings::default();
    for attempt in 1..=2 {
        let (world, listed) = (kept.clone(), outer.listing_count());
        let agent =
            source_agent(&Scripted::new(["done"]), &outer).with_world(move |_, _| world.clone());
        let resumed = agent.resume(outcome.history.clone(), approved(&outcome)).unwrap();
        let resumed = resumed.outcome().await;
        assert_eq!(result_lines(&resumed.history), ["c0 ok child done"], "attempt {attempt}");
        assert_eq!(ran.started_count(), 1 + attempt);
        assert_eq!(outer.listing_count() - listed, [0, 2, 1][attempt]);
    }
    // A missing verdict is detected before anything runs.
    let error = agent.resume(outcome.history.clone(), []).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
}

/// A custom body that does not list tools itself.
fn body_without_refresh(
    cx: RunContext,
    mut state: State,
) -> impl Stream<Item = Result<Step<Event, State>, Error>> + Send {
    forward_turns(|mut turns| {
        try_stream! {
            let mut turn = None;
            if state.approvals.resume_verdicts.is_none() {
                loop {
                    let event;
                    (state, event) = cx.deliver_next_input(state);
                    let Some(event) = event else { break };
                    yield Step::Value(event);
                }
                let request;
                (state, request) = cx.next_request(state).await?;
                yield Step::Value(cx.turn_started_event(&state));
                turn = Some(turns.forward(cx.send_request(&state, request.unwrap())).await?);
            }
            let facts;
            (state, facts) = cx.gather_facts(state);
            let decision = match &turn {
                Some(turn) => decide(&state, turn, &facts),
                None => turnstream::agent::Decision::RunTools,
            };
            let mut answers = cx.run_tools(&state, turn.as_ref(), &decision)?;
            while let Some(event) = answers.next().await {
                yield Step::Value(event.into());
            }
            state = state.with_tool_results(turn.as_deref(), answers.finish()?);
            let next = match decision {
                turnstream::agent::Decision::RunTools => after_tools(&state, false, &facts),
                _ => NextAction::Finish(EndReason::Completed),
            };
            let (events, step) = cx.apply_next_action(state, next);
            for event in events {
                yield Step::Value(event);
            }
            yield step;
        }
    })
}

#[tokio::test]
async fn a_body_that_does_not_refresh_tools_announces_changes_one_request_later() {
    let model = model_calling(&["a", "b", "b"]);
    let source = TestSource::of_names("s", &[&["a"], &["a", "b"]]);
    let page = SharedBuffer::new();
    let agent = Agent::new(model.clone()).with_tool_source(source.clone());
    let recorded = agent.clone().with_recorder(&Recorder::to_writer(page.clone()));
    let run = recorded.run_with_body(body_without_refresh, History::empty("h"), "go");
    let events = collect(run).await;
    let replay = Recording::from_text(&page.text()).unwrap();
    let replay = replay.replay_with_body(&agent, body_without_refresh);
    assert_eq!(replay.map(Result::unwrap).collect::<Vec<_>>().await, events);
    assert_eq!(final_outcome(&events).text, "done");
    assert_eq!(all_offered(&model), [vec!["a"], vec!["a", "b"], vec!["a", "b"], vec!["a", "b"]]);
    assert_eq!(source.listing_count(), 4);
    assert_eq!(notices(&events), ["The tools of `s` have changed. New: `b`."]);
    let notice_at =
        |n: usize| model.requests()[n].history.iter().filter(|item| is_notice(item)).count();
    assert_eq!([0, 1, 2, 3].map(notice_at), [0, 0, 1, 1]);
}

fn is_notice(item: &Item) -> bool {
    item.as_user().is_some_and(|content| content.text().starts_with("The tools of"))
}

#[tokio::test]
async fn a_body_that_resumes_calls_before_listing_tools_fails() {
    let source = TestSource::new("s", |_| {
        Ok(ToolList::new([constant_tool("pay", "paid").requires_approval()]))
    });
    let agent = source_agent(&model_calling(&["pay"]), &source);
    let outcome = pending_run(&agent).await;
    let resume =
        agent.resume_with_body(body_without_refresh, outcome.history.clone(), approved(&outcome));
    let error = resume.unwrap().outcome().await.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("`refresh_tools`"), "{error}");
}

#[tokio::test]
async fn a_body_can_read_the_tools_of_the_current_turn() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let body = move |cx: RunContext, state: State| {
        let notes = Arc::clone(&notes);
        let count = cx.toolkit().specs().len();
        notes.lock().unwrap().push(count);
        loop_body(cx, state)
    };
    let source = TestSource::of_names("s", &[&["a"], &["a", "b", "c"]]);
    let agent = source_agent(&model_calling(&["a", "b"]), &source)
        .with_tools([constant_tool("own", "mine")]);
    agent.run_with_body(body, History::empty("h"), "go").outcome().await;
    assert_eq!(*seen.lock().unwrap(), [1, 2, 4], "as they were listed last");
}

/// The lines of a recording.
async fn record(agent: Agent) -> String {
    let page = SharedBuffer::new();
    agent.with_recorder(&Recorder::to_writer(page.clone())).run("go").outcome().await;
    page.text()
}

#[tokio::test]
async fn a_recording_stores_changed_lists_and_a_replay_lists_nothing() {
    let lists = TestSource::of_names("s", &[&["a"], &["a"], &["a", "b"]]);
    let agent = Agent::new(model_calling(&["a", "a", "b"])).with_tool_source(lists.clone());
    let text = record(agent.clone()).await;
    assert_eq!(text.matches(r#""kind":"tool_listing""#).count(), 2, "{text}");
    let value = r#""value":{"changed":[{"source":0,"tools":[{"spec":{"name":"a","description":"","parameters":{"type":"object"}}}]}]}"#;
    assert!(text.contains(value), "{text}");
    let (recording, listed) = (Recording::from_text(&text).unwrap(), lists.listing_count());
    let events: Vec<_> = recording.replay(&agent).map(Result::unwrap).collect().await;
    assert!(events.iter().eq(recording.events()));
    assert_eq!(lists.listing_count(), listed);

    // A run without sources has no listings in its recording.
    let own = Agent::new(model_calling(&["a"])).with_tools([constant_tool("a", "fine")]);
    assert!(!record(own).await.contains("tool_listing"));
}

#[tokio::test]
async fn a_replay_with_different_lists_is_detected() {
    let agent = |lists| {
        Agent::new(model_calling(&["a"])).with_tool_source(TestSource::of_names("s", lists))
    };
    let text =
        record(agent(&[&["a"], &["a", "b"]])).await.replace(r#""name":"b""#, r#""name":"x""#);
    let replay = Recording::from_text(&text).unwrap().replay(&agent(&[&["a"]]));
    let errors: Vec<Error> = replay.filter_map(|event| async { event.err() }).collect().await;
    assert_eq!(errors[0].kind(), ErrorKind::ReplayMismatch);
}

/// Answers listings with stored values, as a durable engine does, and performs all other effects.
#[derive(Clone, Debug, Default)]
struct KeptListings(Arc<Mutex<HashMap<EffectKey, RawJson>>>);

impl World for KeptListings {
    fn draw(&self, key: &EffectKey, live: &mut dyn FnMut() -> EffectValue) -> EffectValue {
        LiveWorld.draw(key, live)
    }

    fn step(&self, key: &EffectKey, effect: Effect) -> Effect {
        if key.kind != EffectKind::ToolListing {
            return effect;
        }
        if let Some(kept) = self.0.lock().unwrap().get(key) {
            return future::ready(Ok(EffectValue::from_json(kept.clone()))).boxed();
        }
        let (kept, key) = (Arc::clone(&self.0), key.clone());
        async move {
            let made = effect.await?;
            kept.lock().unwrap().insert(key, made.to_json()?);
            Ok(made)
        }
        .boxed()
    }

    fn turn(&self, key: &EffectKey, request: Request, ask: SendRequest) -> TurnStream {
        LiveWorld.turn(key, request, ask)
    }

    fn fan_out(&self, key: &EffectKey, calls: ToolRun) -> ToolRun {
        LiveWorld.fan_out(key, calls)
    }
}

#[tokio::test]
async fn a_run_on_stored_lists_looks_up_a_tool_when_its_call_runs() {
    let run = async |kept: &KeptListings, source: &TestSource| {
        let kept = kept.clone();
        let model = model_calling(&["a", "slow"]);
        let agent = Agent::new(model.clone())
            .with_ids(turnstream::env::CountingIds::new("id"))
            .with_tool_source(source.clone())
            .with_toolkit(Toolkit::default().with_rationale())
            .with_world(move |_, _| kept.clone());
        let events = run_events(&agent).await;
        (events, model.requests())
    };
    let list = || {
        let slow = constant_tool("slow", "late").exclusive().with_timeout(Duration::from_secs(9));
        Ok(ToolList::new([constant_tool("a", "fine"), slow]))
    };
    let kept = KeptListings::default();
    let (live, requests) = run(&kept, &TestSource::new("s", move |_| list())).await;

    let again = TestSource::new("s", move |_| list());
    let (events, requests_again) = run(&kept, &again).await;
    assert_eq!(events, live);
    assert_eq!(again.listing_count(), 2, "once for each call");
    let tools =
        |requests: &[Request]| requests.iter().map(|it| it.tools.clone()).collect::<Vec<_>>();
    assert_eq!(tools(&requests_again), tools(&requests));

    let gone = TestSource::of_names("s", &[&["a"], &["a"]]);
    let (events, _) = run(&kept, &gone).await;
    let results = result_lines(&final_outcome(&events).history);
    let message = "c1 error Not run: there is no tool `slow` any more.";
    assert_eq!(results, ["c0 ok fine", message]);
    let (events, _) = run(&kept, &TestSource::new("s", |_| Err(down()))).await;
    let results = result_lines(&final_outcome(&events).history);
    assert_eq!(results[0], "c0 error Not run: the tool source `s`: the server is down.");
}

#[tokio::test]
async fn the_newest_handler_of_a_listed_tool_runs() {
    let source = TestSource::new("s", |n| {
        let run = move |_, _| async move { format!("connection {n}") };
        Ok(ToolList::new([Tool::raw(spec("a"), run).unwrap()]))
    });
    let events = run_events(&source_agent(&model_calling(&["a", "a"]), &source)).await;
    let results = result_lines(&final_outcome(&events).history);
    assert_eq!(results, ["c0 ok connection 0", "c1 ok connection 1"]);
    assert_eq!(notices(&events), [""; 0]);
}

/// A source that is different in each listing: tools are added, removed and changed, and it fails
/// sometimes.
fn random_source(name: &'static str, prefix: char, dice: &Arc<Dice>) -> TestSource {
    let dice = Arc::clone(dice);
    TestSource::new(name, move |n| {
        if n > 0 && dice.one_in(4) {
            return Err(down());
        }
        let mut tools = Vec::new();
        for at in 0..dice.roll(4) {
            // Some names equal those of other tools, which is an error only in the first listings.
            let shared = n > 0 && dice.one_in(5);
            let tool_name = if shared { format!("t{at}") } else { format!("{prefix}{at}") };
            let description = format!("version {}", dice.roll(2));
            let spec = ToolSpec::new(tool_name, description, json!({ "type": "object" }));
            let tool = Tool::raw(spec, |_, _| async { "fine" }).unwrap();
            tools.push(if dice.one_in(3) { tool.exclusive() } else { tool });
        }
        let notes = (0..dice.roll(2)).map(|n| format!("note {n}")).collect();
        Ok(ToolList { notes, ..ToolList::new(tools) })
    })
}

#[tokio::test]
async fn runs_with_randomly_changing_lists_can_be_replayed_and_uphold_the_invariants() {
    let step = cases::sample_step(4);
    let mut noticed = 0;
    for seed in (0..100).step_by(step) {
        let dice = Dice::new(seed);
        let calls = Arc::clone(&dice);
        let model = Scripted::from_fn(move |request, n| {
            assert!(request.tools.iter().any(|tool| tool.name == "t0"), "its own tool");
            match (n, calls.roll(3)) {
                (0..6, at) => {
                    let names = offered(request);
                    let of = |k: u64| names[usize::try_from(k).unwrap() % names.len()];
                    reply_calling(&format!("c{n}"), of(at)).call_raw(&format!("d{n}"), "b1", "{}")
                }
                _ => Reply::text("done"),
            }
        });
        let agent = test_agent(model.clone())
            .with_tools([constant_tool("t0", "mine")])
            .with_tool_source(random_source("first", 'a', &dice))
            .with_tool_source(random_source("second", 'b', &dice));
        // The run is replayed when it is dropped.
        let events = run_events(&agent).await;
        let outcome = final_outcome(&events);
        assert_eq!(
            (outcome.reason, model.requests().len()),
            (EndReason::Completed, 7),
            "seed {seed}"
        );
        noticed += notices(&events).len();
        // The call of each turn runs if and only if its tool was offered.
        for (request, started) in model.requests().iter().zip(started_names(&events)) {
            for name in started {
                assert!(offered(request).contains(&&*name), "seed {seed}: {name}");
            }
        }
    }
    assert!(noticed > 300 / step, "{noticed}");
}

/// The names of the tools that have started, turn by turn.
fn started_names(events: &[Event]) -> Vec<Vec<String>> {
    let mut turns: Vec<Vec<String>> = Vec::new();
    for event in events {
        match event {
            Event::TurnStarted { .. } => turns.push(Vec::new()),
            Event::Tool(ToolEvent::Started { name, .. }) => {
                turns.last_mut().unwrap().push(name.clone());
            }
            _ => {}
        }
    }
    turns
}

impl fmt::Debug for TestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
