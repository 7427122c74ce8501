//! The claim about a whole run.

use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::Agent;
use crate::event::Reason;
use crate::testing::provider_suite::report::{Unmet, ensure};
use crate::testing::provider_suite::request::{
    ARGUMENT, USER, calling_answer, said, stop, text, tool,
};
use crate::testing::provider_suite::server::{Server, bytes, stream, within};
use crate::testing::provider_suite::subject::Subject;
use crate::tool::Tool;

const RESULT: &str = "suite-result-5678";

/// An agent runs the tool that the model calls once, with its arguments, and the next request has the
/// result; the answer to it ends the run.
pub async fn a_tool_loop_runs_through_an_agent<S: Subject>(subject: &S) -> Result<(), Unmet> {
    let calling = calling_answer(subject)?;
    let end = said(subject, "text", &[text("It is "), text("done."), stop()])?;
    let answered = stream(subject, vec![bytes(&end)]);
    let server =
        Server::start(move |n| if n == 0 { calling.clone() } else { answered.clone() }).await?;
    let ran = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&ran);
    let tool = Tool::raw(tool(), move |args, _cx| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(args);
        async { RESULT }
    });
    let tool = tool.map_err(|error| Unmet::Failed(error.to_string()))?;
    let agent = Agent::new(server.provider(subject)).with_tools([tool]).with_max_turns(4);
    let outcome = within("the end of a run", agent.run(USER).outcome()).await?;
    ensure(outcome.reason == Reason::Completed && outcome.text == "It is done.", || {
        format!(
            "the run ended as `{}` with {:?}: {:?}",
            outcome.reason, outcome.text, outcome.error
        )
    })?;
    let ran = ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
