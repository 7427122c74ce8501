//! Claims about an answer that breaks off.

use crate::error::ErrorKind;
use crate::provider::Provider;
use crate::testing::http::Part;
use crate::testing::provider_suite::report::{Unmet, ensure};
use crate::testing::provider_suite::sample_requests::{
    ARGUMENT, CALL_ID, Read, about, call, history, places, read, run, said, stop, text,
};
use crate::testing::provider_suite::server::{Server, bytes, stream};
use crate::testing::provider_suite::subject::Subject;
use crate::turn::PartialTurn;

/// An answer that breaks off before its end, at any of many places and whether or not the connection
/// is closed as it should be, is an [`IncompleteTurn`](ErrorKind::IncompleteTurn) with a [`PartialTurn`]
/// of what was said. One that was cut off after its end is complete.
pub(super) async fn an_answer_that_breaks_off_is_an_error_with_what_was_said<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let words = [text("Hello "), text("there.")];
    let open = said(subject, "text", &words)?;
    let whole = said(subject, "text", &[&words[..], &[stop()]].concat())?;
    let mut answers = vec![(open.as_slice(), true)];
    answers.extend(places(&whole).into_iter().map(|at| (&whole[..at], false)));
    for ends in [vec![], vec![Part::Cut]] {
        let broken =
            |(body, _): &(&[u8], bool)| stream(subject, [vec![bytes(body)], ends.clone()].concat());
        let server = Server::in_turn(answers.iter().map(broken).collect()).await?;
        let provider = server.provider(subject);
        for (body, is_open) in &answers {
            let read = read(provider.stream_turn(about(history()))).await?;
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
fn check(read: Read, is_open: bool) -> Result<(), Unmet> {
    let said = read.text();
    let error = match read.end {
        Ok(turn) => {
            let is_whole = !is_open && turn.text() == "Hello there.";
            return ensure(is_whole, || format!("a complete turn says {:?}", turn.text()));
        }
        Err(error) => error,
    };
    ensure(error.kind() == ErrorKind::IncompleteTurn, || {
        format!("the error is of kind `{}`: {error:#}", error.kind())
    })?;
    let kept = PartialTurn::of(&error).map(PartialTurn::text).unwrap_or_default();
    ensure(kept == said, || format!("of {said:?} the error has kept {kept:?}"))?;
    ensure(!is_open || said == "Hello there.", || format!("of all that was sent came {said:?}"))
}

/// No call of an answer that broke off after it runs.
pub(super) async fn a_call_of_an_answer_that_breaks_off_does_not_run<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let body = said(subject, "calls", &[call(CALL_ID, ARGUMENT)])?;
    for ends in [vec![], vec![Part::Cut]] {
        let server = Server::always(stream(subject, [vec![bytes(&body)], ends].concat())).await?;
        let (outcome, ran) = run(subject, &server).await?;
        ensure(ran.is_empty(), || "the call ran".to_owned())?;
        ensure(outcome.error.is_some(), || format!("the run ended as `{}`", outcome.reason))?;
    }
    Ok(())
}
