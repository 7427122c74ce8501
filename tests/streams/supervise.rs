//! Many runs as one stream: their events and ends, restarts, silence, and what a drop leaves.

use std::collections::HashMap;
use std::fmt::Display;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use turnstream::event::AppendReason;
use turnstream::provider::{Reply, Scripted};
use turnstream::supervise::{
    OnSilence, Restart, Supervised, SupervisedEnd, SupervisedStream, Supervisor,
};
use turnstream::tool::Tool;
use turnstream::{Agent, Error, ErrorKind, Event};

use turnstream_test_support::tools::{spec, uncounted_tool};

use super::loop_stream::GuardCounter;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[expect(clippy::unnecessary_wraps, reason = "an item of a stream of events")]
fn event(id: impl Display) -> Result<Event, Error> {
    Ok(Event::Appended { why: AppendReason::Input, id: format!("{id}"), items: vec![] })
}

fn failure(message: &str) -> Result<Event, Error> {
    Err(Error::new(ErrorKind::Server, message))
}

fn plain(events: impl Stream<Item = Result<Event, Error>> + Send + 'static) -> SupervisedStream {
    SupervisedStream::new(events)
}

/// A report as one word.
fn word(report: &Supervised) -> String {
    match report {
        Supervised::Event(Event::Appended { id, items, .. }) if items.is_empty() => id.clone(),
        Supervised::Event(Event::Finished(outcome)) => format!("finished {}", outcome.reason),
        Supervised::Event(_) => "event".to_owned(),
        Supervised::Silent { waited } => format!("silent {}s", waited.as_secs()),
        Supervised::Restarting { restarts, delay, error } => {
            format!("restart {restarts} in {}s: {}", delay.as_secs(), error.message())
        }
        Supervised::Ended(SupervisedEnd::Finished) => "ended".to_owned(),
        Supervised::Ended(SupervisedEnd::Failed(error)) => format!("failed: {}", error.message()),
        Supervised::Ended(SupervisedEnd::GaveUp { restarts, error }) => {
            format!("gave up after {restarts}: {}", error.message())
        }
        other => panic!("{other:?}"),
    }
}

/// The next report, or `None` at the end or if no report arrives within the time.
async fn next_within(supervisor: &mut Supervisor<&'static str>, time: Duration) -> Option<String> {
    let (key, report) = timeout(time, supervisor.next()).await.ok()??;
    Some(format!("{key}: {}", word(&report)))
}

/// All further reports, without the events of agents.
async fn rest(supervisor: &mut Supervisor<&'static str>) -> Vec<String> {
    let mut reports = Vec::new();
    while let Some((key, report)) = supervisor.next().await {
        let word = word(&report);
        reports.extend((word != "event").then(|| format!("{key}: {word}")));
    }
    reports
}

fn on_failure(max_restarts: u32) -> Restart {
    Restart::OnFailure {
        min_delay: seconds(1),
        max_delay: seconds(4),
        max_restarts,
        healthy_after: seconds(60),
    }
}

#[tokio::test]
async fn each_run_keeps_its_order_and_ends_with_one_report() {
    let mut supervisor = Supervisor::new();
    for key in 0..1_000_u32 {
        let events = move |_| plain(stream::iter((0..5).map(event)));
        supervisor.insert(key, events).unwrap();
    }
    assert_eq!(supervisor.len(), 1_000);
    let mut reports: HashMap<u32, Vec<String>> = HashMap::new();
    while let Some((key, report)) = supervisor.next().await {
        reports.entry(key).or_default().push(word(&report));
    }
    assert_eq!(reports.len(), 1_000);
    assert!(reports.values().all(|of_run| *of_run == ["0", "1", "2", "3", "4", "ended"]));
    assert!(supervisor.is_empty());
}

#[tokio::test]
async fn a_key_is_refused_while_its_run_is_supervised() {
    let mut supervisor = Supervisor::new();
    let run = |_| plain(stream::iter([event("a")]));
    supervisor.insert("one", run).unwrap();
    let handle = supervisor.handle();
    for refused in [supervisor.insert("one", run), handle.insert("one", run)] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    }
    handle.insert("two", run).unwrap();
    assert_eq!(supervisor.insert("two", run).unwrap_err().kind(), ErrorKind::Conflict);
    drop(handle);
    assert_eq!(rest(&mut supervisor).await.len(), 4);
    supervisor.insert("one", run).unwrap();
    assert_eq!(rest(&mut supervisor).await, ["one: a", "one: ended"]);
}

#[tokio::test]
async fn an_insert_from_another_task_wakes_the_supervisor() {
    let mut supervisor = Supervisor::new();
    let handle = supervisor.handle();
    let reports = tokio::spawn(async move { rest(&mut supervisor).await });
    tokio::task::yield_now().await;
    handle.insert("late", |_| plain(stream::iter([event("a")]))).unwrap();
    tokio::task::yield_now().await;
    assert!(!reports.is_finished(), "a handle is left");
    drop(handle);
    assert_eq!(reports.await.unwrap(), ["late: a", "late: ended"]);
}

#[tokio::test]
async fn a_removed_run_is_dropped_without_a_report() {
    let gauge = GuardCounter::default();
    let mut supervisor = Supervisor::new();
    let handle = supervisor.handle();
    for key in ["one", "two", "three"] {
        let gauge = gauge.clone();
        let events =
            move |_| plain(gauge.attach_guard(stream::iter([event(key)]).chain(stream::pending())));
        supervisor.insert(key, events).unwrap();
    }
    for _ in 0..3 {
        assert!(supervisor.next().await.is_some());
    }
    assert_eq!(gauge.alive_count(), 3);
    assert!(supervisor.remove(&"one"));
    assert!(!supervisor.remove(&"one"));
    assert_eq!((gauge.alive_count(), supervisor.len()), (2, 2));
    assert!(handle.remove(&"two"));
    assert!(!handle.remove(&"two"));
    assert_eq!(supervisor.len(), 1);
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(&mut supervisor).poll_next(&mut context).is_pending());
    assert_eq!(gauge.alive_count(), 1);
    // The key is free again, and an insert that was not performed can be removed.
    handle.insert("two", |_| plain(stream::iter([event("new")]))).unwrap();
    handle.insert("four", |_| plain(stream::iter([event("never")]))).unwrap();
    assert!(handle.remove(&"four") && handle.remove(&"three"));
    drop(handle);
    assert_eq!(rest(&mut supervisor).await, ["two: new", "two: ended"]);
    assert_eq!(gauge.alive_count(), 0);
}

#[tokio::test]
async fn dropping_the_supervisor_drops_all_runs_and_refuses_further_ones() {
    let gauge = GuardCounter::default();
    let mut supervisor = Supervisor::new();
    let handle = supervisor.handle();
    let run = |gauge: &GuardCounter| {
        let gauge = gauge.clone();
        move |_| plain(gauge.attach_guard(stream::iter([event("a")]).chain(stream::pending())))
    };
    supervisor.insert("one", run(&gauge)).unwrap();
    assert!(supervisor.next().await.is_some());
    handle.insert("two", run(&gauge)).unwrap();
    drop(supervisor);
    assert_eq!(gauge.alive_count(), 0);
    assert_eq!(handle.insert("three", run(&gauge)).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(!handle.remove(&"one"));
}

#[tokio::test]
async fn runs_that_are_always_ready_get_equal_shares() {
    let mut supervisor = Supervisor::new();
    for key in ["one", "two"] {
        supervisor.insert(key, |_| plain(stream::repeat_with(|| event("x")))).unwrap();
    }
    // Runs that wait must not change the shares.
    for key in ["three", "four", "five"] {
        supervisor.insert(key, |_| plain(stream::pending())).unwrap();
    }
    let mut shares: HashMap<&str, u32> = HashMap::new();
    for _ in 0..1_000 {
        *shares.entry(supervisor.next().await.unwrap().0).or_default() += 1;
    }
    assert_eq!(shares, HashMap::from([("one", 500), ("two", 500)]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_started_again_after_growing_delays_until_the_supervisor_gives_up() {
    let start = Instant::now();
    let mut supervisor = Supervisor::new().with_restart(on_failure(3));
    let attempts = |attempt: u32| {
        plain(stream::iter([event(attempt), failure(&format!("no {attempt}")), event("never")]))
    };
    supervisor.insert("a", attempts).unwrap();
    let expected = [
        "a: 1",
        "a: restart 1 in 1s: no 1",
        "a: 2",
        "a: restart 2 in 2s: no 2",
        "a: 3",
        "a: restart 3 in 4s: no 3",
        "a: 4",
        "a: gave up after 3: no 4",
    ];
    assert_eq!(rest(&mut supervisor).await, expected);
    assert_eq!(start.elapsed().as_secs(), 7);
    assert!(supervisor.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_healthy_starts_counting_again() {
    let mut supervisor = Supervisor::new().with_restart(on_failure(1));
    let lasting = |attempt: u32| {
        let lasts = seconds(if attempt == 2 { 60 } else { 1 });
        plain(stream::once(async move {
            sleep(lasts).await;
            failure("no")
        }))
    };
    supervisor.insert("a", lasting).unwrap();
    let expected = ["a: restart 1 in 1s: no", "a: restart 1 in 1s: no", "a: gave up after 1: no"];
    assert_eq!(rest(&mut supervisor).await, expected);
}

#[tokio::test]
async fn without_a_policy_a_failure_ends_the_run_and_a_limit_is_not_a_failure() {
    let mut supervisor = Supervisor::new();
    let busy = Error::new(ErrorKind::Auth, "no key");
    let failing = Agent::new(Scripted::new([Reply::error(busy)]));
    supervisor.insert("failing", move |_| failing.run("go")).unwrap();
    let expected = ["failing: finished provider_error", "failing: failed: no key"];
    assert_eq!(rest(&mut supervisor).await, expected);

    let mut supervisor = Supervisor::new().with_restart(on_failure(5));
    let limits = turnstream_test_support::runs::limits_with_max_turns(1);
    let looping = Agent::new(Scripted::new([Reply::new().call("t", json!({}))]))
        .with_tool(uncounted_tool("t"))
        .with_limits(limits);
    supervisor.insert("limited", move |_| looping.run("go")).unwrap();
    assert_eq!(rest(&mut supervisor).await, ["limited: finished max_turns", "limited: ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_run_only() {
    let mut supervisor = Supervisor::new().with_restart(on_failure(1));
    let poll_panics = |_| plain(stream::poll_fn(|_| -> Poll<Option<_>> { panic!("boom") }));
    supervisor.insert("polled", poll_panics).unwrap();
    let start_panics = |_| -> SupervisedStream { panic!("boom") };
    supervisor.insert("started", start_panics).unwrap();
    supervisor.insert("well", |_| plain(stream::iter([event("a")]))).unwrap();
    let mut reports = rest(&mut supervisor).await;
    reports.sort();
    let kinds: Vec<&str> = reports.iter().map(|it| it.split(" in ").next().unwrap()).collect();
    assert_eq!(kinds.len(), 6, "{reports:?}");
    assert!(kinds[0].starts_with("polled: gave up after 1: ") && kinds[0].contains("boom"));
    assert_eq!((kinds[1], kinds[3]), ("polled: restart 1", "started: restart 1"));
    assert_eq!(kinds[4..], ["well: a", "well: ended"]);
}

fn watching(action: OnSilence) -> Supervisor<&'static str> {
    Supervisor::new().with_silence_limit(seconds(10), action)
}

#[tokio::test(start_paused = true)]
async fn silence_is_reported_once_until_the_next_event() {
    let mut supervisor = watching(OnSilence::Report);
    let slow = |_| {
        plain(stream::unfold(0, |n| async move {
            sleep(seconds([3, 25, 12, 2][n])).await;
            (n < 3).then(|| (event(n), n + 1))
        }))
    };
    supervisor.insert("slow", slow).unwrap();
    let quick = |_| {
        plain(stream::unfold(0, |n| async move {
            sleep(seconds(7)).await;
            (n < 6).then(|| (event(n), n + 1))
        }))
    };
    supervisor.insert("quick", quick).unwrap();
    let reports = rest(&mut supervisor).await;
    let of_slow: Vec<_> = reports.iter().filter(|it| it.starts_with("slow")).collect();
    let expected =
        ["slow: 0", "slow: silent 10s", "slow: 1", "slow: silent 10s", "slow: 2", "slow: ended"];
    assert_eq!(of_slow, expected);
    assert!(!reports.iter().any(|it| it.starts_with("quick: silent")), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn tools_verdicts_and_retry_delays_are_not_silence() {
    let slow_tool = Tool::raw(spec("slow"), |_, _| async {
        sleep(seconds(100)).await;
        "done"
    });
    let model = Scripted::new([Reply::new().call("slow", json!({})), "Done.".into()]);
    let agent = Agent::new(model).with_tool(slow_tool.unwrap());
    let mut supervisor = watching(OnSilence::Interrupt);
    supervisor.insert("tool", move |_| agent.run("go")).unwrap();
    assert_eq!(rest(&mut supervisor).await, ["tool: finished completed", "tool: ended"]);

    let model = Scripted::new([Reply::new().call("ask", json!({})), "Done.".into()]);
    let asking = Agent::new(model).with_tool(uncounted_tool("ask").requires_approval());
    let run = asking.interactive().run("go");
    let handle = run.handle();
    let mut run = Some(run);
    let mut supervisor = watching(OnSilence::Interrupt);
    supervisor.insert("verdict", move |_| run.take().unwrap()).unwrap();
    let approval = async {
        let mut asked = None;
        while let Some((_, report)) = supervisor.next().await {
            if let Supervised::Event(event) = &report
                && let Some(call) = event.approval_request()
            {
                asked = Some(call);
                break;
            }
        }
        asked.unwrap()
    };
    let call = approval.await;
    assert_eq!(next_within(&mut supervisor, seconds(100)).await, None);
    handle.approve(call).unwrap();
    assert_eq!(rest(&mut supervisor).await, ["verdict: finished completed", "verdict: ended"]);

    let retrying = |_| {
        let error = Arc::new(Error::new(ErrorKind::RateLimited, "later"));
        let retry = turnstream::TurnEvent::Retrying { attempt: 1, delay_ms: 50_000, error };
        plain(stream::iter([Ok(Event::Turn(retry))]).chain(stream::pending()))
    };
    let mut supervisor = watching(OnSilence::Report);
    supervisor.insert("retry", retrying).unwrap();
    assert!(supervisor.next().await.is_some());
    assert_eq!(next_within(&mut supervisor, seconds(59)).await, None);
    assert_eq!(next_within(&mut supervisor, seconds(2)).await.unwrap(), "retry: silent 10s");
}

#[tokio::test(start_paused = true)]
async fn time_in_which_nobody_polls_is_not_silence() {
    let mut supervisor = watching(OnSilence::Report);
    supervisor
        .insert("a", |_| plain(stream::iter([event("first")]).chain(stream::pending())))
        .unwrap();
    assert!(supervisor.next().await.is_some());
    // The consumer is busy with the event.
    sleep(seconds(100)).await;
    assert_eq!(next_within(&mut supervisor, seconds(9)).await, None);
    // The wait above has ended, and the task was woken by its own timer, not by the supervisor's.
    sleep(seconds(100)).await;
    let report = next_within(&mut supervisor, seconds(100)).await.unwrap();
    assert!(report.starts_with("a: silent 1"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_is_interrupted_and_another_stream_is_dropped() {
    let model = Scripted::new([Reply::text("Half").hang(), Reply::text("Whole.")]);
    let agent = Agent::new(model);
    let mut supervisor = watching(OnSilence::Interrupt).with_restart(on_failure(1));
    supervisor.insert("agent", move |_| agent.run("go")).unwrap();
    let expected = [
        "agent: silent 10s",
        "agent: finished interrupted",
        "agent: restart 1 in 1s: the run was silent for 10s",
        "agent: finished completed",
        "agent: ended",
    ];
    assert_eq!(rest(&mut supervisor).await, expected);

    let gauge = GuardCounter::default();
    let guarded = gauge.clone();
    let hanging = move |_| plain(guarded.attach_guard(stream::once(pending())));
    let mut supervisor = watching(OnSilence::Interrupt);
    supervisor.insert("stream", hanging).unwrap();
    let expected = ["stream: silent 10s", "stream: failed: the run was silent for 10s"];
    assert_eq!(rest(&mut supervisor).await, expected);
    assert_eq!(gauge.alive_count(), 0);
}

#[tokio::test]
async fn a_refused_start_function_may_own_a_handle() {
    let mut supervisor = Supervisor::new();
    supervisor.insert("one", |_| plain(stream::pending())).unwrap();
    let handle = supervisor.handle();
    let inner = supervisor.handle();
    let start = move |_| {
        drop(inner.clone());
        plain(stream::pending())
    };
    assert_eq!(handle.insert("one", start).unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_run_that_replaces_itself_reports_nothing_more() {
    let mut supervisor = Supervisor::new();
    let handle = supervisor.handle();
    let start = move |_| {
        let handle = handle.clone();
        plain(stream::poll_fn(move |_| {
            if handle.remove(&"one") {
                handle.insert("one", |_| plain(stream::iter([event("new")]))).unwrap();
            }
            Poll::Ready(None)
        }))
    };
    supervisor.insert("one", start).unwrap();
    assert_eq!(next_within(&mut supervisor, seconds(1)).await.unwrap(), "one: new");
    assert_eq!(supervisor.len(), 1);
    assert!(supervisor.remove(&"one"));
}

#[tokio::test(start_paused = true)]
async fn a_silence_limit_of_zero_does_not_block_the_poll() {
    let mut supervisor = Supervisor::new().with_silence_limit(Duration::ZERO, OnSilence::Report);
    supervisor.insert("a", |_| plain(stream::pending())).unwrap();
    assert!(next_within(&mut supervisor, seconds(1)).await.unwrap().starts_with("a: silent"));
    assert_eq!(next_within(&mut supervisor, seconds(1)).await, None);
}
