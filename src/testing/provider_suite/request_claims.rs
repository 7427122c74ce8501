//! Claims about what is sent, and when.

use std::task::Poll;

use futures::{StreamExt, pending, poll};
use serde_json::Value;

use crate::item::{
    History, INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, Item, ResultKind, ToolResult,
};
use crate::provider::Provider;
use crate::request::Request;
use crate::stream::TurnStream;
use crate::testing::http::Part;
use crate::testing::provider_suite::report::{Unmet, ensure};
use crate::testing::provider_suite::sample_requests::{
    ARGUMENT, RESULT, USER, about, calling_answer, history, plain_answer, read, said, text,
    text_delta, tool,
};
use crate::testing::provider_suite::server::{Server, bytes, stream, within};
use crate::testing::provider_suite::subject::Subject;

/// A turn that is made and not polled sends nothing.
pub(super) async fn nothing_is_sent_before_the_first_poll<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let server = Server::always(plain_answer(subject)?).await?;
    let provider = server.provider(subject);
    let turn = provider.stream_turn(about(history()));
    for _ in 0..3 {
        server.catch_up().await?;
    }
    let sent = server.requests().len();
    ensure(sent == 0, || format!("{sent} requests were sent"))?;
    read(turn).await?.turn().map(drop)
}

/// The same request, sent twice, has the same body.
pub(super) async fn the_same_request_is_sent_as_the_same_bytes<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let server = Server::always(plain_answer(subject)?).await?;
    let provider = server.provider(subject);
    for _ in 0..2 {
        read(provider.stream_turn(about(history()))).await?.turn()?;
    }
    let [first, second] = [server.body(0)?, server.body(1)?];
    ensure(first == second, || format!("{first} was sent as {second}"))
}

/// A history whose model has called a tool once.
async fn called<S: Subject>(subject: &S) -> Result<(Server, S::Provider, History), Unmet> {
    let server = Server::always(calling_answer(subject)?).await?;
    let provider = server.provider(subject);
    let mut history = history();
    let turn = read(provider.stream_turn(about(history.clone()))).await?.turn()?;
    history.extend(turn.to_history_items());
    Ok((server, provider, history))
}

/// The request after a tool call has all of the request before, then the call and its result.
///
/// Bodies that are JSON are compared value by value: arrays may only have grown at their end.
pub(super) async fn the_next_request_begins_with_the_one_before<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let (server, provider, mut history) = called(subject).await?;
    let calls: Vec<_> = history.iter().filter_map(Item::as_tool_call).cloned().collect();
    for call in &calls {
        let result = ToolResult::for_call(call, ResultKind::Ok, RESULT);
        history.push(Item::tool_result(result));
    }
    read(provider.stream_turn(about(history))).await?.turn()?;
    let [before, after] = [server.body(0)?, server.body(1)?];
    let places: Vec<_> =
        [USER, ARGUMENT, RESULT].into_iter().map(|words| (words, after.find(words))).collect();
    ensure(before.contains(USER), || format!("{USER:?} is not in {before}"))?;
    ensure(places.iter().all(|(_, at)| at.is_some()), || {
        format!("not all of {places:?} is in {after}")
    })?;
    ensure(places.is_sorted_by_key(|(_, at)| *at), || format!("{places:?} is not in this order"))?;
    ensure(after.contains(&tool().name), || "the name of the tool is missing".to_owned())?;
    match (serde_json::from_str(&before), serde_json::from_str(&after)) {
        (Ok(before), Ok(after)) => grown(&before, &after, "").map_err(Unmet::Failed),
        _ => Ok(()),
    }
}

/// Tells where a value is not the other one with more at the ends of its arrays.
fn grown(before: &Value, after: &Value, place: &str) -> Result<(), String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let place = format!("{place}/{name}");
                let now = after.get(name).ok_or_else(|| format!("`{place}` is gone"))?;
                grown(value, now, &place)?;
            }
            Ok(())
        }
        (Value::Array(before), Value::Array(after)) if after.starts_with(before) => Ok(()),
        (before, after) if before == after => Ok(()),
        (before, after) => Err(format!("`{place}` was {before} and became {after}")),
    }
}

/// A call without a result is answered as interrupted when the history is sent.
pub(super) async fn an_open_call_is_answered_before_it_is_sent<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let (server, provider, mut history) = called(subject).await?;
    history.push(Item::user("Go on."));
    read(provider.stream_turn(about(history))).await?.turn()?;
    let body = server.body(1)?;
    let answers = [INTERRUPTED_MID_EXECUTION, INTERRUPTED_BEFORE_START];
    ensure(answers.iter().any(|answer| body.contains(answer)), || {
        format!("no result of the call is in {body}; see `History::settled`")
    })
}

/// A request that names a model asks that one, and not the provider's own.
pub(super) async fn the_model_that_a_request_names_is_asked<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    const MODEL: &str = "suite-model-7";
    let server = Server::always(plain_answer(subject)?).await?;
    let request = Request { model: Some(MODEL.to_owned()), ..about(history()) };
    read(server.provider(subject).stream_turn(request)).await?.turn()?;
    let body = server.body(0)?;
    let path = server.requests().first().map(|request| request.path.clone()).unwrap_or_default();
    ensure(body.contains(MODEL) || path.contains(MODEL), || {
        format!("{MODEL} is neither in the path {path} nor in {body}")
    })
}

/// A turn that is dropped, after any number of polls, closes its connection, and nothing is sent
/// afterwards.
pub(super) async fn a_dropped_turn_closes_its_connection<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    /// More polls than any turn of two words takes.
    const MAX_POLLS: usize = 1_000;
    let begun = said(subject, "text", &[text("Hello "), text("there.")])?;
    let response = stream(subject, vec![bytes(&begun), Part::Hang]);
    for polls in 0..MAX_POLLS {
        let server = Server::always(response.clone()).await?;
        let mut turn = server.provider(subject).stream_turn(about(history()));
        let is_read = within("the text of an answer", polled(&mut turn, polls)).await??;
        drop(turn);
        server.catch_up().await?;
        if !server.requests().is_empty() {
            server.closed().await?;
        }
        server.catch_up().await?;
        let sent = server.requests().len();
        ensure(sent <= 1, || format!("{sent} requests were sent, one turn was dropped"))?;
        if is_read {
            return Ok(());
        }
    }
    Err(Unmet::Failed(format!("the text did not come within {MAX_POLLS} polls")))
}

/// Polls a turn this many times, or until all of its text came, which it tells.
async fn polled(turn: &mut TurnStream, polls: usize) -> Result<bool, Unmet> {
    let mut said = String::new();
    for left in (0..polls).rev() {
        match poll!(turn.next()) {
            Poll::Ready(Some(Ok(event))) => said.extend(text_delta(&event)),
            Poll::Ready(Some(Err(error))) => {
                return Err(Unmet::Failed(format!("an error: {error:#}")));
            }
            Poll::Ready(None) => return Err(Unmet::Failed("the turn has no end".to_owned())),
            // The last poll is not waited for.
            Poll::Pending if left == 0 => {}
            Poll::Pending => pending!(),
        }
        if said == "Hello there." {
            return Ok(true);
        }
    }
    Ok(false)
}
