//! Going on with calls that were left pending.

use futures::Stream;

use crate::agent::run::Begin;
use crate::agent::{Agent, Input, Run, RunContext, State, Verdicts, body};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, PendingCall};
use crate::stream::Step;
use crate::tool::Verdict;

impl Agent {
    /// Goes on with a run that ended as `pending`: runs exactly the calls that were left open, each
    /// with its verdict, and then asks the model.
    ///
    /// `verdicts` has one verdict for each call that no result answers, together with the call
    /// itself: [`Outcome::pending`](crate::Outcome::pending) has these calls. A verdict holds for exactly
    /// this call, its arguments included; if a hook rewrites or repairs them to something else, the
    /// call is denied. Hooks are asked again, since they may have reasons of their own; a call that one
    /// denies stays denied. An external tool takes [`Verdict::Output`], its result, or a denial; a
    /// result that is given here counts also if the agent has no such tool any more.
    ///
    /// A call whose sub-agent was suspended takes no verdict itself. The verdicts are those on the calls
    /// that the sub-agent waits for, in any order, each with the path to it. The sub-agent continues with
    /// the history that `history` [keeps](History::nested) beside the call, and no hook or limit is asked
    /// about the call again. The sub-agent's counters and budgets begin anew, as the run's own do.
    ///
    /// Whoever keeps histories resumes each of them once: doing it twice runs the calls twice, under
    /// the same [idempotency keys](crate::tool::ToolContext::idempotency_key). The history of a
    /// resumed run that was dropped has the results that came, and only the others are open.
    ///
    /// In a history that was built by hand, the last item of the turn needs its
    /// [`TurnInfo`](crate::item::TurnInfo), which says that the turn is complete
    /// ([`Item::with_turn_info`](crate::Item::with_turn_info)).
    ///
    /// [`run_from`](Self::run_from) on the same history answers the open calls as interrupted
    /// instead.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::event::Reason;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::tool::{Tool, ToolSpec, Verdict};
    /// use turnstream::{Agent, History};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let model = Scripted::new([
    ///     Reply::new().call("delete", json!({ "file": "notes" })),
    ///     Reply::text("It is gone."),
    /// ]);
    /// let spec = ToolSpec {
    ///     name: "delete".into(),
    ///     description: "Deletes a file".into(),
    ///     parameters: json!({ "type": "object" }),
    /// };
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.needs_approval();
    /// let agent = Agent::new(model).with_tools([delete]);
    ///
    /// let outcome = agent.run("Delete my notes").outcome().await;
    /// assert_eq!(outcome.reason, Reason::Pending);
    ///
    /// // The history can be stored, and somebody asked, for as long as it takes.
    /// let verdicts = outcome.pending.into_iter().map(|call| (call, Verdict::Approve));
    /// let outcome = agent.resume(outcome.history, verdicts)?.outcome().await;
    /// assert_eq!(outcome.text, "It is gone.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), before anything runs, if no call is open, if a
    /// verdict is missing, doubled or for a call that is not open, if an external call would have
    /// to run here, or if the tool of an approved call, or the sub-agent of a suspended one, is
    /// missing.
    pub fn resume(
        &self,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error> {
        self.resume_by(body, history, verdicts)
    }

    /// As [`resume`](Self::resume), with a body of your own; see [`run_by`](Self::run_by).
    ///
    /// # Errors
    ///
    /// As [`resume`](Self::resume).
    pub fn resume_by<B, St>(
        &self,
        body: B,
        history: impl Into<History>,
        verdicts: impl IntoIterator<Item = (PendingCall, Verdict)>,
    ) -> Result<Run, Error>
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let history = history.into();
        // Finds what cannot be resumed at all.
        drop(self.kit.resume(&history)?);
        let resuming = Some(self.judged(&history, verdicts)?);
        let begin = Begin { history, input: Input::default(), resuming };
        Ok(Run::new(self.clone(), begin, body))
    }

    /// Runs the calls that are open in the history, and then asks the model. A call without a
    /// verdict passes hooks and approvals as at first.
    pub(crate) fn rerun(&self, history: History, verdicts: Verdicts) -> Run {
        let begin = Begin { history, input: Input::default(), resuming: Some(verdicts) };
        Run::new(self.clone(), begin, body)
    }
}
