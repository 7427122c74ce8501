//! Recovery from one kind of error in a loop written by hand.

use futures::StreamExt;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::turn::TurnEvent;
use turnstream::{
    Error, ErrorKind, Event, EventStreamExt, History, Item, Journal, Request, Steps, TurnStreamExt,
    Usage, loop_stream,
};

fn used() -> Usage {
    Usage { input_tokens: 7, output_tokens: 2, ..Usage::default() }
}

/// Runs a loop that requests an incomplete turn again, and returns its events and its journal.
async fn run_loop(replies: Vec<Reply>) -> (Vec<Result<Event, Error>>, Journal) {
    let model = Scripted::new(replies);
    let journal = Journal::new(History::from_items("h", [Item::user("go")]));
    let events = loop_stream(journal.history(), move |history| {
        let turn = model.stream_turn(Request::new(history.clone()));
        let steps = turn.on_turn_complete(|_turn| async { Ok(Steps::stop()) });
        Steps::new(steps).recover(ErrorKind::IncompleteTurn, |_| Steps::next(history))
    });
    (events.journal_to(&journal).collect().await, journal)
}

fn retraction(events: &[Result<Event, Error>]) -> Option<(usize, Usage)> {
    events.iter().enumerate().find_map(|(at, event)| match event {
        Ok(Event::Turn(TurnEvent::Retracted { usage, .. })) => Some((at, **usage)),
        _ => None,
    })
}

#[tokio::test]
async fn a_turn_that_breaks_off_is_retracted_and_requested_again() {
    let broken = Reply::text("Forty-").usage(used()).disconnect();
    let (events, journal) = run_loop(vec![broken, "Forty-two.".into()]).await;
    let (at, usage) = retraction(&events).unwrap();
    assert_eq!(usage, used());
    assert!(events[..at].iter().any(|it| it.as_ref().unwrap().text_delta().is_some()));
    assert!(events.iter().all(Result::is_ok));
    let history = journal.history();
    assert_eq!(history.last().unwrap().as_text(), Some("Forty-two."));
    assert_eq!((history.len(), journal.usage().output_tokens >= 2), (2, true));
}

#[tokio::test]
async fn a_turn_that_breaks_off_before_its_first_event_is_not_retracted() {
    let (events, _) = run_loop(vec![Reply::new().disconnect(), "Two.".into()]).await;
    assert_eq!(retraction(&events), None);
    assert!(events.iter().all(Result::is_ok));
}

#[tokio::test]
async fn errors_of_another_kind_pass_through() {
    let busy = Reply::error(Error::new(ErrorKind::Overloaded, "busy"));
    let (events, _) = run_loop(vec![busy, "Unused.".into()]).await;
    let error = events.last().unwrap().as_ref().unwrap_err();
    assert_eq!((events.len(), error.kind()), (1, ErrorKind::Overloaded));
}
