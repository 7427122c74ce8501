//! "Graceful cancellation": an abort leaves a history in which every call has a result.

use std::pin::pin;

use futures::stream::{AbortHandle, Abortable};
use futures::{StreamExt, future};
use serde_json::json;
use turnstream::event::{EndReason, InterruptedPhase};
use turnstream::item::{INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, ResultKind};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::tool::{Tool, Toolkit};
use turnstream::{
    Event, EventStreamExt, Item, Journal, Outcome, Request, Steps, TurnStreamExt, loop_stream,
};

use turnstream_test_support::items::history_of;
use turnstream_test_support::tools::{constant_tool, spec};

/// Runs a loop whose abort signal fires after the first event for which `aborts` is true. Returns
/// its outcome, and the phase in which it was aborted.
async fn run_aborted(reply: Reply, aborts: impl Fn(&Event) -> bool) -> (Outcome, InterruptedPhase) {
    let model = Scripted::new([reply, "Unused.".into()]);
    let never = Tool::raw(spec("never"), |_, _| future::pending::<&str>()).unwrap();
    let toolkit = Toolkit::new([constant_tool("quick", "done"), never]);
    let journal = Journal::new(history_of([Item::user("go")]));
    let events = loop_stream(journal.history(), |history| {
        let toolkit = toolkit.clone();
        let request = Request::new(history.clone()).with_tools(toolkit.specs());
        model.stream_turn(request).on_turn_complete(move |turn| async move {
            Ok(match turn.calls().is_empty() {
                true => Steps::stop(),
                false => toolkit.run(&history, &turn).then_next(|history| history),
            })
        })
    });
    // Dropping the loop aborts the request and all running tools, so the signal reaches them all.
    let (signal, registration) = AbortHandle::new_pair();
    let events = Abortable::new(events.journal_to(&journal), registration);
    let mut events = pin!(events.finish_with(&journal));
    let mut outcome = None;
    while let Some(event) = events.next().await {
        match event.unwrap() {
            Event::Finished(finished) => outcome = Some(*finished),
            event if aborts(&event) => signal.abort(),
            _ => {}
        }
    }
    let outcome = outcome.unwrap();
    assert_eq!(outcome.reason, EndReason::Stopped);
    assert!(outcome.history.is_settled(), "{:?}", outcome.history);
    assert_eq!(model.requests().len(), 1);
    (outcome, journal.phase())
}

fn calls() -> Reply {
    Reply::text("Look.").call("quick", json!({})).call("never", json!({}))
}

fn results(outcome: &Outcome) -> Vec<(ResultKind, String)> {
    let results = outcome.history.iter().filter_map(Item::as_tool_result);
    results.map(|result| (result.kind, result.content.text())).collect()
}

#[tokio::test]
async fn path_a_before_any_call_nothing_is_outstanding() {
    let reply = Reply::text("Half").hang();
    let (outcome, phase) = run_aborted(reply, |event| event.text_delta().is_some()).await;
    assert_eq!((phase, results(&outcome)), (InterruptedPhase::Streaming, vec![]));
    assert_eq!(outcome.history.last().unwrap().as_text(), Some("Half"));
}

#[tokio::test]
async fn path_b_before_the_tools_start_every_call_gets_an_error_result() {
    let (outcome, phase) = run_aborted(calls(), |event| event.turn_complete().is_some()).await;
    assert_eq!(phase, InterruptedPhase::Streaming);
    let expected = (ResultKind::Interrupted, INTERRUPTED_BEFORE_START.to_owned());
    assert_eq!(results(&outcome), [expected.clone(), expected]);
}

#[tokio::test]
async fn path_c_while_tools_run_only_the_missing_results_are_added() {
    let (outcome, phase) = run_aborted(calls(), |event| event.tool_output().is_some()).await;
    assert_eq!(phase, InterruptedPhase::Tools);
    let expected = [
        (ResultKind::Ok, "done".to_owned()),
        (ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION.to_owned()),
    ];
    assert_eq!(results(&outcome), expected);
}
