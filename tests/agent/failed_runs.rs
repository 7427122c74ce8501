//! A run that failed ends with its error: after `Finished` the stream yields it once as `Err`.

use std::num::NonZeroUsize;
use std::time::Duration;

use futures::stream::FusedStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use serde_json::json;
use turnstream::agent::Budget;
use turnstream::agent::hook::{self, StopDecision};
use turnstream::event::EndReason;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::replay::{Recorder, Recording};
use turnstream::stream::{Step, Steps, TurnStreamExt, loop_stream};
use turnstream::task::InTaskExt;
use turnstream::turn::StopReason;
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Journal, Request, Run, RunHandle,
};

use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::providers::error_of_kind;
use turnstream_test_support::runs::{limits_with_max_turns, reply_calling_t};
use turnstream_test_support::tools::uncounted_tool;

/// An agent whose second request is refused.
fn agent_with_failing_request() -> Agent {
    let replies = [reply_calling_t("a"), Reply::error(error_of_kind(ErrorKind::Auth))];
    Agent::new(Scripted::new(replies)).with_tools([uncounted_tool("t")])
}

/// Pulls a stream to its end. Returns its events, and the error after them.
async fn drain_events(
    mut run: impl Stream<Item = Result<Event, Error>> + Unpin,
) -> (Vec<Event>, Option<Error>) {
    let (mut events, mut failure) = (Vec::new(), None);
    while let Some(event) = run.next().await {
        match event {
            Ok(event) => {
                assert_eq!(failure, None, "an event after the error: {event:?}");
                events.push(event);
            }
            Err(error) => assert_eq!(failure.replace(error), None, "a second error"),
        }
    }
    assert!(run.next().await.is_none(), "`None` for ever");
    (events, failure)
}

/// The last event is `Finished`, its outcome has this kind of error, and the stream ended with it.
#[track_caller]
fn assert_failed_with((events, failure): &(Vec<Event>, Option<Error>), kind: ErrorKind) {
    let finished = events.iter().filter(|event| event.outcome().is_some());
    assert_eq!(finished.count(), 1, "one ending");
    let outcome = events.last().unwrap().outcome().unwrap();
    assert_eq!(outcome.error.as_ref().map(Error::kind), Some(kind));
    assert_eq!(outcome.error, *failure);
}

#[tokio::test]
async fn a_failed_run_yields_its_error_once_after_finished_and_then_none() {
    assert_failed_with(
        &drain_events(agent_with_failing_request().run("go")).await,
        ErrorKind::Auth,
    );
    let cut = Scripted::from_fn(|_, _| Reply::text("It is ").disconnect());
    assert_failed_with(&drain_events(Agent::new(cut).run("go")).await, ErrorKind::IncompleteTurn);
    let objects =
        hook::prepare_request(|_, _| async { Err::<Request, _>(error_of_kind(ErrorKind::Other)) });
    let agent = Agent::new(Scripted::new(["never"])).with_hook(objects);
    assert_failed_with(&drain_events(agent.run("go")).await, ErrorKind::Hook);
    let panics = Scripted::from_fn(|_, _| -> Reply { panic!("the model panics") });
    let (events, failure) = drain_events(Agent::new(panics).run("go")).await;
    assert!(failure.is_some() && events.last().unwrap().outcome().is_some());
}

#[tokio::test]
async fn a_loop_over_the_events_with_the_question_mark_operator_returns_the_runs_error() {
    async fn print_run(mut run: Run) -> Result<usize, Error> {
        let mut events = 0;
        while let Some(_event) = run.try_next().await? {
            events += 1;
        }
        Ok(events)
    }
    assert_eq!(
        print_run(agent_with_failing_request().run("go")).await.unwrap_err().kind(),
        ErrorKind::Auth
    );
    assert!(print_run(Agent::new(Scripted::new(["fine"])).run("go")).await.is_ok());
}

#[tokio::test]
async fn a_failed_run_is_not_terminated_between_finished_and_its_error() {
    let mut run = agent_with_failing_request().run("go");
    pull_until_finished(&mut run).await;
    assert!(!run.is_terminated());
    assert!(matches!(run.next().now_or_never(), Some(Some(Err(_)))), "at once");
    assert!(run.is_terminated());
    assert!(matches!(run.next().now_or_never(), Some(None)));

    let mut fine = Agent::new(Scripted::new(["fine"])).run("go");
    pull_until_finished(&mut fine).await;
    assert!(fine.is_terminated());
}

async fn pull_until_finished(run: &mut Run) {
    while run.next().await.unwrap().unwrap().outcome().is_none() {}
}

#[tokio::test]
async fn outcome_returns_the_outcome_of_a_failed_run_before_and_after_finished() {
    let whole = agent_with_failing_request().run("go").outcome().await;
    assert_eq!(whole.error.as_ref().map(Error::kind), Some(ErrorKind::Auth));
    assert_eq!(whole.new_items().len(), 3, "what was done before the failure is in it");
    assert_eq!(whole.into_result().unwrap_err().kind(), ErrorKind::Auth);

    let mut run = agent_with_failing_request().run("go");
    pull_until_finished(&mut run).await;
    let outcome = run.outcome().now_or_never().expect("it is there");
    assert_eq!(outcome.error.map(|it| it.kind()), Some(ErrorKind::Auth));

    let mut run = agent_with_failing_request().run("go");
    assert!(drain_events(&mut run).await.1.is_some());
    let outcome = run.outcome().now_or_never().expect("it is there");
    assert_eq!(outcome.error.map(|it| it.kind()), Some(ErrorKind::Auth));
}

#[tokio::test(start_paused = true)]
async fn only_failed_runs_yield_an_error() {
    let agent = |reply: Reply| {
        let model = Scripted::from_fn(move |_, _| reply.clone());
        Agent::new(model)
            .with_tools([uncounted_tool("t"), uncounted_tool("ask").requires_approval()])
    };
    let calls = |name: &str| agent(Reply::new().call(name, json!({})));
    let stops = |stop| agent(Reply::text("no").stop(stop));
    let no_time = Budget::new().with_time_limit(Duration::ZERO);
    let prevents = hook::before_stop(|_, _| async { StopDecision::EndRun("no".into()) });
    for (agent, reason) in [
        (agent("fine".into()), EndReason::Completed),
        (calls("t").with_limits(limits_with_max_turns(2)), EndReason::MaxTurns),
        (calls("t").with_budget(Budget::new().with_tool_calls(1)), EndReason::Budget),
        (calls("t").with_budget(no_time), EndReason::Budget),
        (calls("t").with_hook(hook::should_stop(|_| async { true })), EndReason::Stopped),
        (calls("ask"), EndReason::Pending),
        (calls("nothing"), EndReason::Malformed),
        (agent("fine".into()).with_hook(prevents), EndReason::StopHookPrevented),
        (stops(StopReason::Refusal), EndReason::Refused),
        (stops(StopReason::ContentFilter), EndReason::Filtered),
        (stops(StopReason::ContextWindow), EndReason::ContextWindow),
    ] {
        let (events, failure) = drain_events(agent.run("go")).await;
        let outcome = events.last().unwrap().outcome().unwrap();
        assert_eq!((outcome.reason, &outcome.error, failure), (reason, &None, None));
    }
    for end in [RunHandle::interrupt, RunHandle::stop_after_turn] {
        let mut run = calls("t").run("go");
        run.next().await.unwrap().unwrap();
        end(&run.handle());
        assert_eq!(drain_events(run).await.1, None);
    }
}

#[tokio::test]
async fn a_run_moved_into_a_task_yields_the_same_error() {
    for ahead in [1, 64] {
        let run = agent_with_failing_request().run("go").in_task(NonZeroUsize::new(ahead).unwrap());
        assert_failed_with(&drain_events(run).await, ErrorKind::Auth);
    }
}

#[tokio::test]
async fn a_hand_written_loop_with_finish_with_fails_as_an_agent_does() {
    let journal = Journal::new(History::empty("h"));
    let model = Scripted::new([Reply::error(error_of_kind(ErrorKind::Auth))]);
    let events = loop_stream(History::empty("h"), move |history| {
        model
            .stream_turn(Request::new(history))
            .on_turn_complete(async |_turn| Ok(Steps::<History>::stop()))
    });
    let mut events = Box::pin(events.journal_to(&journal).finish_with(&journal));
    while events.next().await.unwrap().unwrap().outcome().is_none() {}
    assert!(!events.is_terminated());
    let failure = events.next().await.unwrap().unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::Auth);
    assert!(events.is_terminated() && events.next().await.is_none());
}

#[tokio::test]
async fn a_nested_runs_finished_event_is_forwarded_and_its_error_follows() {
    // `finish_with` leaves an existing ending unchanged.
    let journal = Journal::new(History::empty("h"));
    let events = agent_with_failing_request().run("go").journal_to(&journal).finish_with(&journal);
    assert_failed_with(&drain_events(Box::pin(events)).await, ErrorKind::Auth);
}

#[tokio::test]
async fn a_run_nested_in_a_body_forwards_only_its_error() {
    let outer = |inner: Agent| {
        Agent::new(Scripted::new(Vec::<Reply>::new())).run_with_body(
            move |_parts, _state| inner.run("go").map_ok(Step::Value),
            History::empty("outer"),
            "go",
        )
    };
    let (events, failure) = drain_events(outer(agent_with_failing_request())).await;
    assert_failed_with(&(events, failure), ErrorKind::Auth);
    let (events, failure) = drain_events(outer(Agent::new(Scripted::new(["fine"])))).await;
    assert_eq!(events.iter().filter(|event| event.outcome().is_some()).count(), 1);
    assert_eq!(failure, None);
}

#[tokio::test]
async fn no_recorder_stores_the_error_after_the_finished_event() {
    let page = SharedBuffer::new();
    let agent = agent_with_failing_request().with_recorder(&Recorder::to_writer(page.clone()));
    let trace = agent.new_trace();
    let journal = Journal::new(History::empty("h"));
    let mut run = agent.run("go").trace_to(&trace).journal_to(&journal);
    let mut events = 0;
    while run.next().await.unwrap().unwrap().outcome().is_none() {
        events += 1;
    }
    let written = || (page.text(), trace.events(), journal.history(), journal.usage());
    let before = written();
    assert!(run.next().await.unwrap().is_err());
    assert!(run.next().await.is_none());
    drop(run);
    let recording = Recording::from_text(&page.text()).unwrap();
    assert_eq!(recording.events().count(), events + 1);
    let after = written();
    assert_eq!((before.1, before.2, before.3), (after.1, after.2, after.3));
}

#[tokio::test]
async fn the_replay_of_a_failed_run_ends_with_the_same_error() {
    let page = SharedBuffer::new();
    let agent = agent_with_failing_request().with_recorder(&Recorder::to_writer(page.clone()));
    let recorded = drain_events(agent.run("go")).await;
    let replayed = drain_events(Recording::from_text(&page.text()).unwrap().replay(&agent)).await;
    assert_failed_with(&replayed, ErrorKind::Auth);
    assert_eq!(recorded, replayed);
}

#[tokio::test]
async fn a_failed_sub_agent_is_a_tool_result_and_not_an_error_of_its_parent() {
    let child = agent_with_failing_request().as_tool("child", "Fails").unwrap();
    let model =
        Scripted::new([Reply::new().call("child", json!({ "prompt": "go" })), "fine".into()]);
    let (events, failure) = drain_events(Agent::new(model).with_tools([child]).run("go")).await;
    assert_eq!(failure, None);
    let output = events.iter().find_map(Event::tool_output).unwrap();
    assert!(output.is_error() && output.content.text().contains("auth"), "{output:?}");
}
