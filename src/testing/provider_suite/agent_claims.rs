//! The claim about a whole run.

use crate::event::EndReason;
use crate::testing::provider_suite::report::{Unmet, ensure_that};
use crate::testing::provider_suite::sample_requests::{
    ARGUMENT_NAME, RESULT_TEXT, USER_TEXT, calling_reply, read_to_end, scripted_reply, stop_reason,
    text,
};
use crate::testing::provider_suite::server::SuiteServer;
use crate::testing::provider_suite::subject::Subject;

/// An agent runs the tool that the model calls once, with its arguments, and the next request has the
/// result; the answer to it ends the run.
pub(super) async fn a_tool_loop_runs_through_an_agent<S: Subject>(
    subject: &S,
) -> Result<(), Unmet> {
    let calling = calling_reply(subject)?;
    let end = scripted_reply(subject, "text", &[text("It is "), text("done."), stop_reason()])?;
    let server = SuiteServer::with_replies(vec![calling, end]).await?;
    let (outcome, ran) = read_to_end(subject, &server).await?;
    ensure_that(outcome.reason == EndReason::Completed && outcome.text == "It is done.", || {
        format!(
            "the run ended as `{}` with {:?}: {:?}",
            outcome.reason, outcome.text, outcome.error
        )
    })?;
    ensure_that(ran == [serde_json::json!({ "word": ARGUMENT_NAME })], || {
        format!("the tool ran with {ran:?}")
    })?;
    let sent = server.requests().len();
    ensure_that(sent == 2, || format!("{sent} requests were sent"))?;
    let body = server.request_body(1)?;
    ensure_that(body.contains(USER_TEXT) && body.contains(RESULT_TEXT), || {
        format!("the user's words or the result are not in {body}")
    })
}
