//! Checks how a provider handles errors from its server.

use std::error::Error as _;
use std::time::Duration;

use futures::StreamExt;
use turnstream::error::{Error, ErrorKind};
use turnstream::provider::Provider;
use turnstream::request::{Request, Retries};
use turnstream::turn::{PartialTurn, TurnEvent};

use crate::provider_suite::report::{UnmetClaim, ensure_that};
use crate::provider_suite::sample_requests::{
    read_turn, request_about, response_body_or_skip, sample_history, send_and_read, text,
    text_response,
};
use crate::provider_suite::server::{
    API_KEY, SuiteServer, bytes_part, refusal_response, stream_response, with_timeout,
};
use crate::provider_suite::subject::Subject;

/// Checks that an answer with an error status results in an error with that status. Status 401 must
/// result in an [`Auth`](ErrorKind::Auth) error, and status 429 in a
/// [`RateLimited`](ErrorKind::RateLimited) error. Requests may be retried after 429, 500 and 503,
/// but not after 400, 401 and 404.
pub(super) async fn an_error_status_is_an_error_of_that_status<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    for status in [400, 401, 404, 429, 500, 503] {
        let response = refusal_response(subject, status, "not now");
        let error = send_and_read(subject, response).await?;
        let error = error.expect_error(&format!("an answer with status {status}"))?;
        ensure_that(error.status() == Some(status), || format!("{status} came as {error:?}"))?;
        let kind = match status {
            401 => Some(ErrorKind::Auth),
            429 => Some(ErrorKind::RateLimited),
            _ => None,
        };
        ensure_that(kind.is_none_or(|kind| error.kind() == kind), || {
            format!("{status} is of kind `{}`", error.kind())
        })?;
        let may_pass = matches!(status, 429 | 500 | 503);
        ensure_that(error.is_retryable() == may_pass, || {
            let not = if may_pass { "not " } else { "" };
            format!("{status} is {not}retryable: {error:?}")
        })?;
    }
    Ok(())
}

/// Checks that the error contains the number of seconds from the `retry-after` header. If the
/// provider retries, it must wait for at least this number of seconds.
pub(super) async fn the_time_to_wait_is_the_servers<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let wait = Duration::from_secs(7);
    let mut response = refusal_response(subject, 429, "not now");
    response.headers.push(("retry-after".to_owned(), "7".to_owned()));
    let server = SuiteServer::start_repeating(response).await?;
    let provider = server.provider(subject);
    let error = read_turn(provider.stream_turn(request_about(sample_history())))
        .await?
        .expect_error("a 429")?;
    ensure_that(error.retry_after() == Some(wait), || {
        format!("the server wants 7 seconds, the error has {:?}", error.retry_after())
    })?;
    let request = Request { retries: Retries::default(), ..request_about(sample_history()) };
    let mut turn = provider.stream_turn(request);
    // The wait is reported before it starts, so this test never actually waits.
    match with_timeout("the report of a 429", turn.next()).await? {
        Some(Ok(TurnEvent::Retrying { delay_ms, .. })) => {
            ensure_that(u128::from(delay_ms) >= wait.as_millis(), || {
                format!("the server wants 7 seconds, the provider waits {delay_ms} ms")
            })
        }
        Some(Err(_)) => Ok(()),
        other => Err(UnmetClaim::Failed(format!("a 429 came as {other:?}"))),
    }
}

/// Checks that a request is sent only once if its [`retries`](crate::Request::retries) setting
/// forbids retries.
pub(super) async fn a_request_that_forbids_retries_is_sent_once<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let answers = vec![refusal_response(subject, 503, "not now"), text_response(subject)?];
    let server = SuiteServer::start(answers).await?;
    let read =
        read_turn(server.provider(subject).stream_turn(request_about(sample_history()))).await?;
    let sent = server.requests().len();
    ensure_that(sent == 1, || format!("{sent} requests were sent"))?;
    read.expect_error("an answer with status 503").map(drop)
}

/// Checks that if the server reports an error within its answer, the turn fails with an error
/// instead of ending normally. The error must contain the content so far as a [`PartialTurn`].
pub(super) async fn an_error_within_the_stream_is_an_error<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let mut body = response_body_or_skip(subject, "text", &[text("Hello "), text("there.")])?;
    let error = subject.stream_error_frame("something broke here");
    body.extend(error.ok_or_else(|| UnmetClaim::Skipped("the wire reports none".to_owned()))?);
    let read = send_and_read(subject, stream_response(subject, vec![bytes_part(&body)])).await?;
    let error = read.expect_error("an answer with an error in it")?;
    ensure_that(error.kind() != ErrorKind::IncompleteTurn, || {
        format!("the error is treated as an incomplete answer: {error:#}")
    })?;
    ensure_that(error.to_string().contains("something broke here"), || {
        format!("the server's message is not in the error: {error:#}")
    })?;
    let partial_text =
        error.find_source::<PartialTurn>().map(PartialTurn::text).unwrap_or_default();
    ensure_that(partial_text == "Hello there.", || format!("the error carries {partial_text:?}"))
}

/// Checks that neither the provider's debug output nor any error contains the API key, even if the
/// server's answer contains the key.
pub(super) async fn no_error_and_no_debug_output_shows_the_key<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let message = format!("the key {API_KEY} is wrong");
    let mut answers: Vec<_> = [400, 401, 500]
        .into_iter()
        .map(|status| refusal_response(subject, status, &message))
        .collect();
    if let Some(error) = subject.stream_error_frame(&message) {
        let begun = response_body_or_skip(subject, "text", &[text("Hello.")])?;
        answers.push(stream_response(subject, vec![bytes_part(&begun), bytes_part(&error)]));
    }
    for response in answers {
        let server = SuiteServer::start_repeating(response).await?;
        let provider = server.provider(subject);
        for shown in [format!("{provider:?}"), format!("{provider:#?}")] {
            ensure_that(!shown.contains(API_KEY), || "the debug output has the key".to_owned())?;
        }
        let error = read_turn(provider.stream_turn(request_about(sample_history())))
            .await?
            .expect_error("an error")?;
        let is_sent = server.requests().iter().any(|request| {
            request.path.contains(API_KEY)
                || request.headers.iter().any(|(_, value)| value.contains(API_KEY))
        });
        if !is_sent {
            return Err(UnmetClaim::Skipped("the provider sends the key in no header".to_owned()));
        }
        ensure_that(!display_and_debug_text(&error).contains(API_KEY), || {
            format!(
                "the error has the key: {}",
                display_and_debug_text(&error).replace(API_KEY, "[KEY]")
            )
        })?;
    }
    Ok(())
}

/// Returns the `Display` and `Debug` output of an error and its sources.
fn display_and_debug_text(error: &Error) -> String {
    let sources = std::iter::successors(error.source(), |&error| error.source());
    let sources: Vec<String> = sources.map(|error| format!(" {error} {error:?}")).collect();
    format!("{error} {error:?} {error:#} {error:#?}{}", sources.concat())
}
