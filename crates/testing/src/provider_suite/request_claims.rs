//! Checks which requests a provider sends, and when it sends them.

use std::task::Poll;

use futures::{StreamExt, pending, poll};
use serde_json::Value;
use turnstream::item::{
    History, INTERRUPTED_BEFORE_START, INTERRUPTED_MID_EXECUTION, Item, ResultKind, ToolResult,
};
use turnstream::provider::Provider;
use turnstream::request::Request;
use turnstream::stream::TurnStream;

use crate::http::BodyPart;
use crate::provider_suite::report::{UnmetClaim, ensure_that};
use crate::provider_suite::sample_requests::{
    ARGUMENT_VALUE, RESULT_TEXT, USER_TEXT, read_turn, request_about, response_body_or_skip,
    sample_history, sample_tool, text, text_delta, text_response, tool_call_response,
};
use crate::provider_suite::server::{SuiteServer, bytes_part, stream_response, with_timeout};
use crate::provider_suite::subject::Subject;

/// Checks that no request is sent for a turn that has been created but not polled.
pub(super) async fn nothing_is_sent_before_the_first_poll<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let server = SuiteServer::start_repeating(text_response(subject)?).await?;
    let provider = server.provider(subject);
    let turn = provider.stream_turn(request_about(sample_history()));
    for _ in 0..3 {
        server.wait_for_requests().await?;
    }
    let sent = server.requests().len();
    ensure_that(sent == 0, || format!("{sent} requests were sent"))?;
    read_turn(turn).await?.turn().map(drop)
}

/// Checks that sending the same request twice produces the same body both times.
pub(super) async fn the_same_request_is_sent_as_the_same_bytes<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let server = SuiteServer::start_repeating(text_response(subject)?).await?;
    let provider = server.provider(subject);
    for _ in 0..2 {
        read_turn(provider.stream_turn(request_about(sample_history()))).await?.turn()?;
    }
    let [first, second] = [server.request_body(0)?, server.request_body(1)?];
    ensure_that(first == second, || format!("{first} was sent as {second}"))
}

/// Returns a history in which the model has made a single tool call, which has no result yet.
async fn history_with_open_call<S: Subject>(
    subject: &S,
) -> Result<(SuiteServer, S::Provider, History), UnmetClaim> {
    let server = SuiteServer::start_repeating(tool_call_response(subject)?).await?;
    let provider = server.provider(subject);
    let mut history = sample_history();
    let turn = read_turn(provider.stream_turn(request_about(history.clone()))).await?.turn()?;
    history.extend(turn.to_history_items());
    Ok((server, provider, history))
}

/// Checks that the request after a tool call starts with the complete previous request, followed by
/// the call and its result.
///
/// JSON bodies are compared value by value, and arrays may grow only at the end.
pub(super) async fn the_next_request_begins_with_the_one_before<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let (server, provider, mut history) = history_with_open_call(subject).await?;
    let calls: Vec<_> = history.iter().filter_map(Item::as_tool_call).cloned().collect();
    for call in &calls {
        let result = ToolResult::for_call(call, ResultKind::Ok, RESULT_TEXT);
        history.push(Item::tool_result(result));
    }
    read_turn(provider.stream_turn(request_about(history))).await?.turn()?;
    let [before, after] = [server.request_body(0)?, server.request_body(1)?];
    let positions: Vec<_> = [USER_TEXT, ARGUMENT_VALUE, RESULT_TEXT]
        .into_iter()
        .map(|text| (text, after.find(text)))
        .collect();
    ensure_that(before.contains(USER_TEXT), || format!("{USER_TEXT:?} is not in {before}"))?;
    ensure_that(positions.iter().all(|(_, at)| at.is_some()), || {
        format!("not all of {positions:?} is in {after}")
    })?;
    ensure_that(positions.is_sorted_by_key(|(_, at)| *at), || {
        format!("{positions:?} is not in this order")
    })?;
    ensure_that(after.contains(&sample_tool().name), || {
        "the name of the tool is missing".to_owned()
    })?;
    match (serde_json::from_str(&before), serde_json::from_str(&after)) {
        (Ok(before), Ok(after)) => check_extends(&before, &after, "").map_err(UnmetClaim::Failed),
        _ => Ok(()),
    }
}

/// Checks that `after` equals `before`, except that arrays in `after` may contain additional
/// elements at the end. An `Err` contains the location of the first difference of any other kind.
fn check_extends(before: &Value, after: &Value, place: &str) -> Result<(), String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let place = format!("{place}/{name}");
                let now = after.get(name).ok_or_else(|| format!("`{place}` is gone"))?;
                check_extends(value, now, &place)?;
            }
            Ok(())
        }
        (Value::Array(before), Value::Array(after)) if after.starts_with(before) => Ok(()),
        (before, after) if before == after => Ok(()),
        (before, after) => Err(format!("`{place}` was {before} and became {after}")),
    }
}

/// Checks that when a history contains a call without a result, the request contains an interrupted
/// result for the call.
pub(super) async fn an_open_call_is_answered_before_it_is_sent<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let (server, provider, mut history) = history_with_open_call(subject).await?;
    history.push(Item::user("Go on."));
    read_turn(provider.stream_turn(request_about(history))).await?.turn()?;
    let body = server.request_body(1)?;
    let answers = [INTERRUPTED_MID_EXECUTION, INTERRUPTED_BEFORE_START];
    ensure_that(answers.iter().any(|answer| body.contains(answer)), || {
        format!("no result of the call is in {body}; see `History::settled`")
    })
}

/// Checks that if a request names a model, the provider uses that model instead of its default
/// model.
pub(super) async fn the_model_that_a_request_names_is_asked<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    const MODEL: &str = "suite-model-7";
    let server = SuiteServer::start_repeating(text_response(subject)?).await?;
    let request = Request { model: Some(MODEL.to_owned()), ..request_about(sample_history()) };
    read_turn(server.provider(subject).stream_turn(request)).await?.turn()?;
    let body = server.request_body(0)?;
    let path = server.requests().first().map(|request| request.path.clone()).unwrap_or_default();
    ensure_that(body.contains(MODEL) || path.contains(MODEL), || {
        format!("{MODEL} is neither in the path {path} nor in {body}")
    })
}

/// Checks that dropping a turn, after any number of polls, closes the turn's connection, and that
/// nothing is sent afterwards.
pub(super) async fn a_dropped_turn_closes_its_connection<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    /// The maximum number of polls, which is more than a turn with two words of text ever needs.
    const MAX_POLLS: usize = 1_000;
    let begun = response_body_or_skip(subject, "text", &[text("Hello "), text("there.")])?;
    let response = stream_response(subject, vec![bytes_part(&begun), BodyPart::Hang]);
    for polls in 0..MAX_POLLS {
        let server = SuiteServer::start_repeating(response.clone()).await?;
        let mut turn = server.provider(subject).stream_turn(request_about(sample_history()));
        let is_read = with_timeout("the text of an answer", poll_up_to(&mut turn, polls)).await??;
        drop(turn);
        server.wait_for_requests().await?;
        if !server.requests().is_empty() {
            server.wait_for_early_close().await?;
        }
        server.wait_for_requests().await?;
        let sent = server.requests().len();
        ensure_that(sent <= 1, || format!("{sent} requests were sent, one turn was dropped"))?;
        if is_read {
            return Ok(());
        }
    }
    Err(UnmetClaim::Failed(format!("the text did not arrive within {MAX_POLLS} polls")))
}

/// Polls a turn until all of its text has arrived, but at most `polls` times. Returns whether all
/// of the text has arrived.
async fn poll_up_to(turn: &mut TurnStream, polls: usize) -> Result<bool, UnmetClaim> {
    let mut received = String::new();
    for left in (0..polls).rev() {
        match poll!(turn.next()) {
            Poll::Ready(Some(Ok(event))) => received.extend(text_delta(&event)),
            Poll::Ready(Some(Err(error))) => {
                return Err(UnmetClaim::Failed(format!("an error: {error:#}")));
            }
            Poll::Ready(None) => return Err(UnmetClaim::Failed("the turn has no end".to_owned())),
            // There is no need to wait after the last poll.
            Poll::Pending if left == 0 => {}
            Poll::Pending => pending!(),
        }
        if received == "Hello there." {
            return Ok(true);
        }
    }
    Ok(false)
}
