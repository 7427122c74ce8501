//! Bodies that are not the agent's own: events that they forward, and polls ahead of the run.

use futures::{StreamExt, stream};
use turnstream::agent::{RunContext, State, loop_body};
use turnstream::event::EndReason;
use turnstream::provider::Scripted;
use turnstream::stream::Step;
use turnstream::{Agent, ErrorKind, History};

use turnstream_test_support::runs::run_with_action;

#[test]
fn a_finished_event_that_a_body_forwards_does_not_end_the_run() {
    let inner = Agent::new(Scripted::new(["inner"]));
    let agent = Agent::new(Scripted::new(["x"]));
    let own = move |_: RunContext, state: State| {
        let events = inner.run("go").map(|event| event.map(Step::Value));
        events
            .chain(stream::iter([Ok(Step::StopWith(state.with_end_reason(EndReason::Completed)))]))
    };
    let (events, outcome) =
        run_with_action(agent.run_with_body(own, History::empty("h"), "outer"), |_, _| {});
    assert!(events.last().unwrap().outcome().is_some());
    assert_eq!((outcome.reason, outcome.text.as_str()), (EndReason::Completed, "inner"));
}

#[test]
fn a_body_polled_ahead_of_its_run_ends_the_run_with_an_error_before_any_wrong_request() {
    let provider = Scripted::new(["never"]);
    let requests = provider.clone();
    let ahead = |cx: RunContext, state: State| {
        let chunks = loop_body(cx, state).ready_chunks(64);
        chunks.flat_map(stream::iter)
    };
    let run = Agent::new(provider).run_with_body(ahead, History::empty("h"), "go");
    run.handle().steer("and mind the gap").unwrap();
    let (_, outcome) = run_with_action(run, |_, _| {});
    let error = outcome.error.unwrap();
    assert_eq!(
        (outcome.reason, error.kind()),
        (EndReason::ProviderError, ErrorKind::InvalidRequest)
    );
    assert!(error.to_string().contains("polled ahead"), "{error}");
    assert!(requests.requests().is_empty());
    assert!(serde_json::to_string(&outcome.history).unwrap().contains("mind the gap"));

    let plain =
        Agent::new(Scripted::new(["heard"])).run_with_body(loop_body, History::empty("h"), "go");
    plain.handle().steer("and mind the gap").unwrap();
    assert_eq!(run_with_action(plain, |_, _| {}).1.text, "heard");
}
