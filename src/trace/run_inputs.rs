//! The inputs of an audited run.

use serde::{Deserialize, Serialize};

use crate::trace::RemainingBudget;

/// The goal, the place, the tools and the limits of a run, for an auditor who reads its trace
/// later.
///
/// [`Agent::run_inputs`](crate::Agent::run_inputs) fills in what the agent knows. Set the other
/// fields, and pass the value to [`Trace::add_input`](crate::Trace::add_input): it is then an input
/// of the run's first step.
///
/// ```
/// use futures::StreamExt;
/// use turnstream::provider::Scripted;
/// use turnstream::{Agent, EventStreamExt, Tool};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let agent = Agent::new(Scripted::new(["Nothing to do."])).with_tool(Tool::stop());
/// let mut inputs = agent.run_inputs("Update the glossary");
/// inputs.repository = Some("/srv/handbook".to_owned());
/// inputs.snapshot = Some("3f1c9a2".to_owned());
///
/// let trace = agent.new_trace();
/// trace.add_input(&inputs);
/// agent.run(&*inputs.goal).trace_to(&trace).for_each(|_| async {}).await;
/// let first = trace.events()[0].inputs[0].to_value();
/// assert_eq!((&first["tools"][0], &first["snapshot"]), (&"stop".into(), &"3f1c9a2".into()));
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunInputs {
    /// The task of the run.
    pub goal: String,
    /// The names of the agent's tools, without those of its sources.
    pub tools: Vec<String>,
    /// The limits of the run, as in its [steps](crate::trace::TraceEvent::budgets).
    pub budgets: RemainingBudget,
    /// The root of the files that the run works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The state of the files at the start of the run, such as the id of a commit or a checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The [memory](crate::context::Memory) that the run uses, such as its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}
