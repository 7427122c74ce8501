//! The claim about a whole run.

use crate::event::EndReason;
use crate::testing::provider_suite::report::{Unmet, ensure};
use crate::testing::provider_suite::sample_requests::{
    ARGUMENT, RESULT, USER, answer, calling_answer, run, stop, text,
};
use crate::testing::provider_suite::server::Server;
use crate::testing::provider_suite::subject::Subject;

/// An agent runs the tool that the model calls once, with its arguments, and the next request has the
/// result; the answer to it ends the run.
pub(super) async fn a_tool_loop_runs_through_an_agent<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let calling = calling_answer(subject)?;
    let end = answer(subject, "text", &[text("It is "), text("done."), stop()])?;
    let server = Server::in_turn(vec![calling, end]).await?;
    let (outcome, ran) = run(subject, &server).await?;
    ensure(outcome.reason == EndReason::Completed && outcome.text == "It is done.", || {
        format!(
            "the run ended as `{}` with {:?}: {:?}",
            outcome.reason, outcome.text, outcome.error
        )
    })?;
    ensure(ran == [serde_json::json!({ "word": ARGUMENT })], || {
        format!("the tool ran with {ran:?}")
    })?;
    let sent = server.requests().len();
    ensure(sent == 2, || format!("{sent} requests were sent"))?;
    let body = server.body(1)?;
    ensure(body.contains(USER) && body.contains(RESULT), || {
        format!("the user's words or the result are not in {body}")
    })
}
