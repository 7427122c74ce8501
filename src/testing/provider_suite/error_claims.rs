//! Claims about errors of the server.

use std::error::Error as StdError;
use std::time::Duration;

use futures::StreamExt;

use crate::error::{Error, ErrorKind};
use crate::provider::Provider;
use crate::request::Retries;
use crate::testing::provider_suite::report::{Unmet, ensure};
use crate::testing::provider_suite::sample_requests::{
    about, ask, history, plain_answer, read, said, text,
};
use crate::testing::provider_suite::server::{KEY, Server, bytes, refusal, stream, within};
use crate::testing::provider_suite::subject::Subject;
use crate::turn::{PartialTurn, TurnEvent};

/// An answer with the status of an error is an error with that status. 401 is of kind
/// [`Auth`](ErrorKind::Auth) and 429 of kind [`RateLimited`](ErrorKind::RateLimited); 429, 500 and 503
/// may be sent again, 400, 401 and 404 may not.
pub(super) async fn an_error_status_is_an_error_of_that_status<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    for status in [400, 401, 404, 429, 500, 503] {
        let response = refusal(subject, status, "not now");
        let error = ask(subject, response).await?;
        let error = error.error(&format!("an answer with status {status}"))?;
        ensure(error.status() == Some(status), || format!("{status} came as {error:?}"))?;
        let kind = match status {
            401 => Some(ErrorKind::Auth),
            429 => Some(ErrorKind::RateLimited),
            _ => None,
        };
        ensure(kind.is_none_or(|kind| error.kind() == kind), || {
            format!("{status} is of kind `{}`", error.kind())
        })?;
        let may_pass = matches!(status, 429 | 500 | 503);
        ensure(error.is_retryable() == may_pass, || {
            let not = if may_pass { "not " } else { "" };
            format!("{status} is {not}to be sent again: {error:?}")
        })?;
    }
    Ok(())
}

/// The seconds of a `retry-after` are in the error, and a provider that retries waits as long.
pub(super) async fn the_time_to_wait_is_the_servers<S: Subject>(subject: &S) -> Result<(), Unmet> {
    let wait = Duration::from_secs(7);
    let mut response = refusal(subject, 429, "not now");
    response.headers.push(("retry-after".to_owned(), "7".to_owned()));
    let server = Server::always(response).await?;
    let provider = server.provider(subject);
    let error = read(provider.stream_turn(about(history()))).await?.error("a 429")?;
    ensure(error.retry_after() == Some(wait), || {
        format!("the server wants 7 seconds, the error has {:?}", error.retry_after())
    })?;
    let request = about(history()).with_retries(Retries::default());
    let mut turn = provider.stream_turn(request);
    // The report of a wait comes before the wait, which is never begun here.
    match within("the report of a 429", turn.next()).await? {
        Some(Ok(TurnEvent::Retrying { delay_ms, .. })) => {
            ensure(u128::from(delay_ms) >= wait.as_millis(), || {
                format!("the server wants 7 seconds, the provider waits {delay_ms} ms")
            })
        }
        Some(Err(_)) => Ok(()),
        other => Err(Unmet::Failed(format!("a 429 came as {other:?}"))),
    }
}

/// A request whose [`retries`](crate::Request::retries) forbid it is not sent a second time.
pub(super) async fn a_request_that_forbids_retries_is_sent_once<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let answers = vec![refusal(subject, 503, "not now"), plain_answer(subject)?];
    let server = Server::in_turn(answers).await?;
    let read = read(server.provider(subject).stream_turn(about(history()))).await?;
    let sent = server.requests().len();
    ensure(sent == 1, || format!("{sent} requests were sent"))?;
    read.error("an answer with status 503").map(drop)
}

/// An error that the server reports in the middle of its answer is an error, not the end of a turn,
/// and has what was said before as its [`PartialTurn`].
pub(super) async fn an_error_within_the_stream_is_an_error<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let mut body = said(subject, "text", &[text("Hello "), text("there.")])?;
    let error = subject.error_in_stream("something broke here");
    body.extend(error.ok_or_else(|| Unmet::Skipped("the wire reports none".to_owned()))?);
    let read = ask(subject, stream(subject, vec![bytes(&body)])).await?;
    let error = read.error("an answer with an error in it")?;
    ensure(error.kind() != ErrorKind::IncompleteTurn, || {
        format!("the error is taken for an answer that broke off: {error:#}")
    })?;
    ensure(error.to_string().contains("something broke here"), || {
        format!("the server's words are not in the error: {error:#}")
    })?;
    let kept = PartialTurn::of(&error).map(PartialTurn::text).unwrap_or_default();
    ensure(kept == "Hello there.", || format!("the error has kept {kept:?}"))
}

/// The key is neither in the provider's debug output nor in an error, also if the server repeats it.
pub(super) async fn no_error_and_no_debug_output_shows_the_key<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let words = format!("the key {KEY} is wrong");
    let mut answers: Vec<_> =
        [400, 401, 500].into_iter().map(|status| refusal(subject, status, &words)).collect();
    if let Some(error) = subject.error_in_stream(&words) {
        let begun = said(subject, "text", &[text("Hello.")])?;
        answers.push(stream(subject, vec![bytes(&begun), bytes(&error)]));
    }
    for response in answers {
        let server = Server::always(response).await?;
        let provider = server.provider(subject);
        for shown in [format!("{provider:?}"), format!("{provider:#?}")] {
            ensure(!shown.contains(KEY), || "the debug output has the key".to_owned())?;
        }
        let error = read(provider.stream_turn(about(history()))).await?.error("an error")?;
        let is_sent = server.requests().iter().any(|request| {
            request.path.contains(KEY)
                || request.headers.iter().any(|(_, value)| value.contains(KEY))
        });
        if !is_sent {
            return Err(Unmet::Skipped("the provider sends the key in no header".to_owned()));
        }
        ensure(!shown(&error).contains(KEY), || {
            format!("the error has the key: {}", shown(&error).replace(KEY, "[KEY]"))
        })?;
    }
    Ok(())
}

/// All that an error shows, with its sources.
fn shown(error: &Error) -> String {
    let sources = std::iter::successors(error.source(), |&error| error.source());
    let sources: Vec<String> = sources.map(|error| format!(" {error} {error:?}")).collect();
    format!("{error} {error:?} {error:#} {error:#?}{}", sources.concat())
}
