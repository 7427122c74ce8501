//! Checks how a provider handles an interrupted answer.

use turnstream::error::ErrorKind;
use turnstream::provider::Provider;
use turnstream::turn::PartialTurn;

use crate::http::BodyPart;
use crate::provider_suite::report::{UnmetClaim, ensure_that};
use crate::provider_suite::sample_requests::{
    ARGUMENT_VALUE, CALL_ID, ReadTurn, call_piece, cut_positions, read_turn, request_about,
    response_body_or_skip, run_agent, sample_history, stop_piece, text,
};
use crate::provider_suite::server::{SuiteServer, bytes_part, stream_response};
use crate::provider_suite::subject::Subject;

/// Checks that if an answer is cut off before its end, the turn fails with an
/// [`IncompleteTurn`](ErrorKind::IncompleteTurn) error whose [`PartialTurn`] contains the content
/// so far. The answer is cut off at many positions, both with and without closing the connection
/// properly. If the answer is cut off only after its end, the turn must be complete.
pub(super) async fn an_answer_that_breaks_off_is_an_error_with_what_was_said<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let texts = [text("Hello "), text("there.")];
    let open = response_body_or_skip(subject, "text", &texts)?;
    let whole = response_body_or_skip(subject, "text", &[&texts[..], &[stop_piece()]].concat())?;
    let mut answers = vec![(open.as_slice(), true)];
    answers.extend(cut_positions(&whole).into_iter().map(|at| (&whole[..at], false)));
    for ends in [vec![], vec![BodyPart::Cut]] {
        let broken = |(body, _): &(&[u8], bool)| {
            stream_response(subject, [vec![bytes_part(body)], ends.clone()].concat())
        };
        let server = SuiteServer::start(answers.iter().map(broken).collect()).await?;
        let provider = server.provider(subject);
        for (body, is_open) in &answers {
            let read = read_turn(provider.stream_turn(request_about(sample_history()))).await?;
            check(read, *is_open).map_err(|unmet| match unmet {
                UnmetClaim::Failed(why) => {
                    UnmetClaim::Failed(format!("{why}, after {:?}", String::from_utf8_lossy(body)))
                }
                skipped @ UnmetClaim::Skipped(_) => skipped,
            })?;
        }
    }
    Ok(())
}

/// Checks the result of reading an answer that was cut off. If `is_open` is true, the server sent
/// all of the content but not the end of the answer. If `is_open` is false, the server may have
/// sent the end as well.
fn check(read: ReadTurn, is_open: bool) -> Result<(), UnmetClaim> {
    let received = read.text();
    let error = match read.end {
        Ok(turn) => {
            let is_whole = !is_open && turn.text() == "Hello there.";
            return ensure_that(is_whole, || format!("a complete turn says {:?}", turn.text()));
        }
        Err(error) => error,
    };
    ensure_that(error.kind() == ErrorKind::IncompleteTurn, || {
        format!("the error is of kind `{}`: {error:#}", error.kind())
    })?;
    let partial_text =
        error.find_source::<PartialTurn>().map(PartialTurn::text).unwrap_or_default();
    ensure_that(partial_text == received, || {
        format!("the error carries {partial_text:?} of {received:?}")
    })?;
    ensure_that(!is_open || received == "Hello there.", || {
        format!("of everything sent, {received:?} was received")
    })
}

/// Checks that no tool call from an interrupted answer runs, even if the interruption comes after
/// the call.
pub(super) async fn a_call_of_an_answer_that_breaks_off_does_not_run<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let body = response_body_or_skip(subject, "calls", &[call_piece(CALL_ID, ARGUMENT_VALUE)])?;
    for ends in [vec![], vec![BodyPart::Cut]] {
        let server = SuiteServer::start_repeating(stream_response(
            subject,
            [vec![bytes_part(&body)], ends].concat(),
        ))
        .await?;
        let (outcome, ran) = run_agent(subject, &server).await?;
        ensure_that(ran.is_empty(), || "the call ran".to_owned())?;
        ensure_that(outcome.error.is_some(), || format!("the run ended as `{}`", outcome.reason))?;
    }
    Ok(())
}
