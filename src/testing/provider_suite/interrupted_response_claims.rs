//! Claims about an answer that breaks off.

use crate::error::ErrorKind;
use crate::provider::Provider;
use crate::testing::http::BodyPart;
use crate::testing::provider_suite::report::{Unmet, ensure_that};
use crate::testing::provider_suite::sample_requests::{
    ARGUMENT_NAME, CALL_ID, ReadTurn, assistant_item, cut_positions, read_to_end, read_turn,
    request_about, sample_call, sample_history, stop_reason, text,
};
use crate::testing::provider_suite::server::{SuiteServer, stream_response, to_bytes};
use crate::testing::provider_suite::subject::Subject;
use crate::turn::PartialTurn;

/// An answer that breaks off before its end, at any of many places and whether or not the connection
/// is closed as it should be, is an [`IncompleteTurn`](ErrorKind::IncompleteTurn) with a [`PartialTurn`]
/// of what was said. One that was cut off after its end is complete.
pub(super) async fn an_answer_that_breaks_off_is_an_error_with_what_was_said<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let words = [text("Hello "), text("there.")];
    let open = assistant_item(subject, "text", &words)?;
    let whole = assistant_item(subject, "text", &[&words[..], &[stop_reason()]].concat())?;
    let mut answers = vec![(open.as_slice(), true)];
    answers.extend(cut_positions(&whole).into_iter().map(|at| (&whole[..at], false)));
    for ends in [vec![], vec![BodyPart::Cut]] {
        let broken = |(body, _): &(&[u8], bool)| {
            stream_response(subject, [vec![to_bytes(body)], ends.clone()].concat())
        };
        let server = SuiteServer::with_replies(answers.iter().map(broken).collect()).await?;
        let provider = server.provider(subject);
        for (body, is_open) in &answers {
            let read = read_turn(provider.stream_turn(request_about(sample_history()))).await?;
            check(read, *is_open).map_err(|unmet| match unmet {
                Unmet::Failed(why) => {
                    Unmet::Failed(format!("{why}, after {:?}", String::from_utf8_lossy(body)))
                }
                skipped @ Unmet::Skipped(_) => skipped,
            })?;
        }
    }
    Ok(())
}

/// `is_open` tells that all was said and the end is missing; otherwise the end may have come.
fn check(read: ReadTurn, is_open: bool) -> Result<(), Unmet> {
    let said = read.text();
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
    let kept = PartialTurn::from_error(&error).map(PartialTurn::text).unwrap_or_default();
    ensure_that(kept == said, || format!("of {said:?} the error has kept {kept:?}"))?;
    ensure_that(!is_open || said == "Hello there.", || {
        format!("of all that was sent came {said:?}")
    })
}

/// No call of an answer that broke off after it runs.
pub(super) async fn a_call_of_an_answer_that_breaks_off_does_not_run<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let body = assistant_item(subject, "calls", &[sample_call(CALL_ID, ARGUMENT_NAME)])?;
    for ends in [vec![], vec![BodyPart::Cut]] {
        let server = SuiteServer::with_reply(stream_response(
            subject,
            [vec![to_bytes(&body)], ends].concat(),
        ))
        .await?;
        let (outcome, ran) = read_to_end(subject, &server).await?;
        ensure_that(ran.is_empty(), || "the call ran".to_owned())?;
        ensure_that(outcome.error.is_some(), || format!("the run ended as `{}`", outcome.reason))?;
    }
    Ok(())
}
