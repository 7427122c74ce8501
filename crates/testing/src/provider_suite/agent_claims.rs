//! Checks a complete run.

use turnstream::event::EndReason;

use crate::provider_suite::report::{UnmetClaim, ensure_that};
use crate::provider_suite::sample_requests::{
    ARGUMENT_VALUE, RESULT_TEXT, USER_TEXT, response_of_pieces, run_agent, stop_piece, text,
    tool_call_response,
};
use crate::provider_suite::server::SuiteServer;
use crate::provider_suite::subject::Subject;

/// Checks that when the model calls a tool, the agent runs the tool exactly once, with the call's
/// arguments. The request after the call must contain the result, and the answer to this request
/// must end the run.
pub(super) async fn a_tool_loop_runs_through_an_agent<S: Subject>(
    subject: &S,
) -> Result<(), UnmetClaim> {
    let calling = tool_call_response(subject)?;
    let end = response_of_pieces(subject, "text", &[text("It is "), text("done."), stop_piece()])?;
    let server = SuiteServer::start(vec![calling, end]).await?;
    let (outcome, ran) = run_agent(subject, &server).await?;
    ensure_that(outcome.reason == EndReason::Completed && outcome.text == "It is done.", || {
        format!(
            "the run ended as `{}` with {:?}: {:?}",
            outcome.reason, outcome.text, outcome.error
        )
    })?;
    ensure_that(ran == [serde_json::json!({ "word": ARGUMENT_VALUE })], || {
        format!("the tool ran with {ran:?}")
    })?;
    let sent = server.requests().len();
    ensure_that(sent == 2, || format!("{sent} requests were sent"))?;
    let body = server.request_body(1)?;
    ensure_that(body.contains(USER_TEXT) && body.contains(RESULT_TEXT), || {
        format!("the user's text or the result is not in {body}")
    })
}
