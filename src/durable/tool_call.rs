//! Performs a tool call outside its run.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::durable::call_link::CallLink;
use crate::durable::engine::{StepRunner, ToolCallRequest};
use crate::durable::step_record::{MAX_STEP_BYTES, from_json, to_json};
use crate::env::Ids;
use crate::error::{Error, ErrorKind};
use crate::event::ToolEvent;
use crate::hub::Hub;
use crate::item::{
    History, INTERRUPTED_MID_EXECUTION, PendingCall, RawJson, ResultKind, ToolCall, ToolResult,
};
#[cfg(doc)]
use crate::tool::Tool;
use crate::tool::{RunData, ToolPolicy, Toolkit, Verdict};
use crate::turn::{StopReason, Turn, TurnBuilder, TurnEvent};

/// The value that is recorded before a call starts.
#[derive(Serialize, Deserialize)]
struct Begin {
    /// The name of the attempt that may start the call.
    attempt: String,
    /// Whether the tool was idempotent in this attempt. A later version of the tool may differ.
    is_idempotent: bool,
}

impl ToolCallRequest {
    /// Performs the call with the agent's tool, in two steps. The first step records the start of
    /// the call. If an attempt at the call is lost after the first step and the tool is not
    /// [idempotent](Tool::idempotent), or was not idempotent in the first step, the call is not
    /// started again and gets an interrupted result.
    ///
    /// The tool's own time limit applies. The tool receives the given `data`, and sees a turn that
    /// contains only this call. The run that requested the call has already checked the call's
    /// arguments, consulted the hooks and obtained approval. The run shortens the returned result
    /// to the limit of its toolkit.
    ///
    /// `hub` is the hub that executes the run, or another hub, usually in another process, that
    /// shares its log and inboxes. The tool's progress is sent to the run through `hub`. If the run
    /// ends first, for example because of an interrupt, the tool is dropped and the call gets an
    /// interrupted result. Without a hub, progress is lost and the tool runs to completion.
    ///
    /// # Errors
    ///
    /// Returns an [`Unsupported`](ErrorKind::Unsupported) error if the agent does not have the
    /// tool. Returns the engine's error if a step cannot be performed. If the tool itself fails,
    /// this method does not return an error: the returned result reports the failure.
    pub async fn perform(
        self,
        agent: &Agent,
        data: RunData,
        hub: Option<&Hub>,
        ids: &dyn Ids,
        steps: &mut dyn StepRunner,
    ) -> Result<ToolResult, Error> {
        let Some(tool) = agent.toolkit().get(&self.call.name) else {
            let name = &self.call.name;
            let message = format!("the tool `{name}` is not registered with this worker");
            return Err(Error::new(ErrorKind::Unsupported, message).with_parameter(name.clone()));
        };
        let attempt = ids.next_id();
        let begin = Begin { attempt: attempt.clone(), is_idempotent: tool.is_idempotent() };
        let begin = to_json(&begin)?;
        let begin = steps.step("begin", Box::pin(async move { begin })).await?;
        let begin: Begin = from_json(&begin, "a call start")?;
        let may_begin = begin.attempt == attempt || (begin.is_idempotent && tool.is_idempotent());
        let toolkit = Toolkit::new([tool.clone()]).with_dry_run(agent.toolkit().is_dry_run());
        let interrupted = to_json(&self.interrupted_result())?;
        let hub = hub.cloned();
        let step = async move {
            match may_begin {
                true => self.run_tool(&toolkit, data, hub.as_ref()).await,
                false => interrupted,
            }
        };
        from_json(&steps.step("tool", Box::pin(step)).await?, "a result")
    }

    /// Returns the result for a call that may have started, but whose outcome is unknown.
    pub fn interrupted_result(&self) -> ToolResult {
        ToolResult::for_call(&self.call, ResultKind::Interrupted, INTERRUPTED_MID_EXECUTION)
    }

    async fn run_tool(self, toolkit: &Toolkit, data: RunData, hub: Option<&Hub>) -> RawJson {
        let history = History::empty(self.session.clone());
        let mut result = self.interrupted_result();
        let Some(turn) = turn_of_call(&self.call) else {
            return to_json(&result).unwrap_or_else(|_| serde_json::Value::Null.into());
        };
        let mut run = toolkit.run(&history, &turn).with_policy(AllowedByRun).with_data(data);
        let mut link = CallLink::new(&self, hub);
        poll_fn(|cx| {
            while let Poll::Ready(event) = run.poll_next_unpin(cx) {
                match event {
                    Some(ToolEvent::Progress { data, .. }) => link.push(data),
                    Some(ToolEvent::Output(output)) => result = output,
                    Some(_) => {}
                    None => return Poll::Ready(()),
                }
            }
            link.poll_over(cx)
        })
        .await;
        drop(run);
        link.flush().await;
        let written = to_json(&result);
        let problem = match written {
            Ok(json) if json.as_str().len() <= MAX_STEP_BYTES => return json,
            Ok(json) => {
                let bytes = json.as_str().len();
                format!("Error: the result has {bytes} bytes, at most {MAX_STEP_BYTES} are stored.")
            }
            Err(error) => format!("Error: {}", error.message()),
        };
        let result = ToolResult::for_call(&self.call, ResultKind::Error, problem);
        to_json(&result).unwrap_or_else(|_| serde_json::Value::Null.into())
    }
}

/// Approves each call, because the run has already consulted its policies, hooks and approvers.
struct AllowedByRun;

impl ToolPolicy for AllowedByRun {
    fn verdict(&mut self, _call: &PendingCall) -> Option<Verdict> {
        Some(Verdict::Approve)
    }
}

/// Creates a turn that contains only this call.
fn turn_of_call(call: &ToolCall) -> Option<Arc<Turn>> {
    let ToolCall { call_id, name, arguments } = call.clone();
    let mut turn = TurnBuilder::new();
    turn.absorb(TurnEvent::ToolCallStart { call_id: call_id.clone(), name });
    turn.absorb(TurnEvent::ToolCallArgsDelta { call_id: call_id.clone(), delta: arguments.into() });
    turn.absorb(TurnEvent::ToolCallEnd { call_id });
    turn.stop(StopReason::ToolCalls, "");
    turn.complete().ok()?;
    std::iter::from_fn(|| turn.next_event()).find_map(|event| match event {
        TurnEvent::TurnComplete { turn } => Some(turn),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item::{Content, Part};
    use crate::request::ToolSpec;
    use crate::tool::Tool;

    async fn result_with_image(bytes: usize) -> ToolResult {
        let spec = ToolSpec::new("t", "", json!({ "type": "object" }));
        let tool = Tool::raw(spec, move |_, _| async move {
            Content::from(vec![Part::image("image/png", vec![0; bytes])])
        });
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
        let request = ToolCallRequest { session: "s".to_owned(), run: None, call };
        let toolkit = Toolkit::new([tool.unwrap()]);
        request.run_tool(&toolkit, RunData::default(), None).await.deserialize_as().unwrap()
    }

    #[tokio::test]
    async fn a_result_larger_than_eight_mebibytes_is_replaced_with_an_error() {
        // In JSON, four characters represent three bytes.
        assert_eq!(result_with_image(5 << 20).await.kind, ResultKind::Ok);
        let result = result_with_image(7 << 20).await;
        assert_eq!(result.kind, ResultKind::Error);
        let text = result.content.text();
        assert!(text.ends_with("at most 8388608 are stored."), "{}", &text[..100.min(text.len())]);
    }
}
