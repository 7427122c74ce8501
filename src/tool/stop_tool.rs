//! The tool with which a model ends its run.

use futures::StreamExt;
use futures::stream;
use serde_json::json;

use crate::event::StopAction;
use crate::tool::settings::ToolFlag;
use crate::tool::{PreparedCall, Tool, ToolSpec, ToolUpdate};

impl Tool {
    /// Creates the tool `stop`, with which a model ends its run by a typed [`StopAction`]: the
    /// reason, a summary, the check that proves success, the condition that was met, and what is
    /// missing if the model is blocked.
    ///
    /// - The calls beside it run as in any other turn, and each receives its result. Then the run
    ///   ends as if the model had stopped on its own, so steering input, validations, stop hooks
    ///   and the [evidence policy](crate::Agent::with_evidence) still apply. If one of them makes
    ///   the run continue, the model is asked again.
    /// - If a call beside it waits for an approval or an external result, the run ends with the
    ///   reason `pending`, and the action has no effect: the resumed run asks the model again.
    /// - A call with invalid arguments receives an error result and does not end the run.
    /// - The result of the call contains the action. A hook that changes the arguments or the
    ///   result changes the action.
    /// - Validations check the text that the outcome will have: the text of the turn or, if it has
    ///   none, the summary.
    /// - The call does not count towards a limit on tool calls. If the turn exceeds another limit
    ///   of the budget, none of its calls run, and the action has no effect.
    /// - If the call itself waits for an approval, the action has no effect, and the resumed run
    ///   asks the model again. So do not require one for this tool.
    /// - If a turn contains several valid calls to the tool, the first one counts.
    ///
    /// A model may still stop without the tool. The action is returned in
    /// [`Outcome::stop_action`](crate::Outcome::stop_action), and the [trace](crate::Trace)
    /// contains it. A hand-written loop finds it in
    /// [`ToolRunOutcome::stop_action`](crate::tool::ToolRunOutcome::stop_action).
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::{Agent, Tool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Scripted::new([Reply::new().call(
    ///     "stop",
    ///     json!({ "reason": "success", "summary": "All 12 links work.", "stop_condition": "no dead link" }),
    /// )]);
    /// let outcome = Agent::new(model).with_tool(Tool::stop()).run("Check the links").outcome().await;
    /// let action = outcome.stop_action.unwrap();
    /// assert_eq!(action.stop_condition.as_deref(), Some("no dead link"));
    /// assert_eq!(outcome.text, "All 12 links work.");
    /// # }
    /// ```
    pub fn stop() -> Self {
        let tool = Self::from_prepare_fn(stop_spec(), |_, arguments| {
            // The result contains the action, as repairs and hooks have left it.
            let action = StopAction::from_arguments(arguments)?;
            let json = serde_json::to_string(&action).map_err(|error| error.to_string())?;
            Ok(PreparedCall::new(|_cx| stream::iter([ToolUpdate::output(json)]).boxed()))
        });
        // A repeated call has no other effect than the first one.
        tool.idempotent().with_dry_run_support().with_flag(ToolFlag::EndsRun)
    }

    /// Returns whether a valid call to the tool ends the run.
    pub(crate) fn ends_run(&self) -> bool {
        self.settings.has_flag(ToolFlag::EndsRun)
    }
}

fn stop_spec() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "reason": {
                "type": "string",
                "enum": ["success", "blocked"],
                "description": "`success` if the work is done, `blocked` if you cannot continue",
            },
            "summary": {
                "type": "string",
                "description": "The answer to the user, or what was done",
            },
            "evidence": {
                "type": "string",
                "description": "The command of the passing check that shows success",
            },
            "stop_condition": {
                "type": "string",
                "description": "The measurable condition that is now met, such as: tests pass",
            },
            "missing": {
                "type": "string",
                "description": "If blocked: the smallest thing that is missing",
            },
        },
        "required": ["reason", "summary"],
    });
    let description = "Ends the work. Call it once everything is done and checked, or if you \
                       cannot continue.";
    ToolSpec::new("stop", description, schema)
}
