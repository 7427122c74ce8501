//! Determines whether a response is a stream or an error.

use crate::error::{AuthProblem, Error, ErrorKind, panic_to_error};
use crate::framing::Framing;
use crate::http::{Body, Response, TurnDeadlines};
use crate::provider::codec::failure;
use crate::provider::http::settings::is_retryable_by_default;
use crate::provider::http::wire::{ErrorResponse, Wire};

/// Returns the response's body if the response is a stream, and an error otherwise.
pub(super) async fn stream_body<W: Wire>(
    wire: &W,
    mut answer: Response,
    with_key: bool,
    deadlines: &mut TurnDeadlines,
) -> Result<(Body, Option<String>), Error> {
    let request_id = answer.request_id();
    if !answer.is_success() || answer.content_encoding().is_some() {
        return Err(response_error(wire, answer, with_key, deadlines).await);
    }
    // The declared content type is often wrong, so the first byte of the body determines the kind
    // of response.
    let first = answer.body.peek_first_byte(deadlines).await?;
    let Some(what) = first.and_then(W::Framing::detect_other_format) else {
        return Ok((answer.body, request_id));
    };
    let error_text = read_error_text(&mut answer, deadlines).await;
    let error = match failure::is_error_object(&error_text) {
        true => failure::embedded_error(&error_text, Some(answer.received_at)),
        false => not_a_stream_error(what),
    };
    Err(finish_error(error, &answer, with_key))
}

/// Returns the whole body of a response that is not a stream, or an error if the response reports
/// one.
pub(super) async fn json_body<W: Wire>(
    wire: &W,
    mut answer: Response,
    with_key: bool,
    deadlines: &mut TurnDeadlines,
) -> Result<Vec<u8>, Error> {
    if !answer.is_success() || answer.content_encoding().is_some() {
        return Err(response_error(wire, answer, with_key, deadlines).await);
    }
    Ok(read_error_text(&mut answer, deadlines).await.into_bytes())
}

/// Returns the error for a response that failed, or whose body is compressed.
async fn response_error<W: Wire>(
    wire: &W,
    mut answer: Response,
    with_key: bool,
    deadlines: &mut TurnDeadlines,
) -> Error {
    let status_error = |answer: &Response, text: &str| {
        status_error(wire, answer, text).unwrap_or_else(|panicked| panicked)
    };
    let error = match (answer.is_success(), answer.content_encoding().map(str::to_owned)) {
        (true, encoding) => not_a_stream_error(&format!(
            "a body compressed as `{}`, which was not requested,",
            encoding.unwrap_or_default()
        )),
        (false, None) => {
            let error_text = read_error_text(&mut answer, deadlines).await;
            let error = status_error(&answer, &error_text);
            match &answer.answering_proxy {
                Some(proxy) => error.map_text_and_sources(|text| {
                    text.replacen(
                        "the provider answered",
                        &format!("the proxy {proxy} answered"),
                        1,
                    )
                }),
                None => error,
            }
        }
        // The body is compressed and cannot be read.
        (false, Some(_)) => status_error(&answer, ""),
    };
    finish_error(error, &answer, with_key)
}

/// Adds the details in the response's headers to an error.
fn finish_error(error: Error, answer: &Response, with_key: bool) -> Error {
    let error = add_header_details(error, answer);
    match error.kind() {
        ErrorKind::Auth if !with_key && answer.status == 401 => {
            error.with_auth_problem(AuthProblem::MissingKey)
        }
        _ => error,
    }
}

/// Reads the part of a non-streaming response's body that arrives within the time limits. The error
/// for the response can be created even without the body.
async fn read_error_text(answer: &mut Response, deadlines: &mut TurnDeadlines) -> String {
    let mut body = Vec::new();
    let _ = deadlines.await_within_limits(answer.read_error_body(&mut body)).await;
    String::from_utf8_lossy(&body).into_owned()
}

/// Returns the error that the wire creates for an error response.
fn status_error<W: Wire>(wire: &W, answer: &Response, error_text: &str) -> Result<Error, Error> {
    let refusal =
        ErrorResponse { status: answer.status, body: error_text, received_at: answer.received_at };
    let error =
        panic_to_error(ErrorKind::Panic, "the wire", || wire.error_from_response(&refusal))?;
    Ok(match error.status() {
        Some(_) => error,
        None => error.with_status(answer.status),
    })
}

fn not_a_stream_error(what: &str) -> Error {
    let message = format!("the provider answered with {what} instead of a stream");
    Error::new(ErrorKind::Protocol, message)
}

/// Adds the details in the response's headers to an error. A retry delay is always added; other
/// details are added only if the body did not contain them.
fn add_header_details(mut error: Error, answer: &Response) -> Error {
    if let Some(retryable) = answer.should_retry_header().filter(|_| !answer.is_success()) {
        error = error.with_retryable(retryable);
    }
    let may_be_sent_again = error.kind().is_transient() || is_retryable_by_default(&error);
    let (scope, full_again) = match error.kind() {
        ErrorKind::RateLimited => answer.exhausted_rate_limit(),
        _ => (None, None),
    };
    // The retry delay is the longest delay in the headers. The delay in the body is used only if
    // the headers contain no delay.
    let wait = answer.retry_after().filter(|_| may_be_sent_again);
    if let Some(wait) = wait.max(full_again).or(error.retry_after()) {
        error = error.with_retry_after(wait);
    }
    if let (Some(scope), None) = (scope, error.rate_limit_scope()) {
        error = error.with_rate_limit_scope(scope);
    }
    match answer.request_id() {
        Some(id) => error.with_request_id(id),
        None => error,
    }
}
