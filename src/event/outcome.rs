//! The outcome of a run.

use std::borrow::Cow;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::event::{BudgetExceeded, EndReason, InterruptedPhase, StopAction};
use crate::item::{Evidence, History, Item, PendingCall, RawJson};
use crate::turn::ParseError;
use crate::usage::{CostGap, Usage};

/// The outcome of a run: how the run ended and what it produced.
///
/// Outcomes are equal if their serialized fields are equal; the history is not compared.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::event::EndReason;
/// use turnstream::provider::Scripted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), turnstream::Error> {
/// let run = Agent::new(Scripted::new(["Oslo."])).run("The capital of Norway?");
/// let outcome = run.outcome().await;
/// assert_eq!(outcome.reason, EndReason::Completed);
/// assert_eq!((outcome.turns, outcome.history.len()), (1, 2));
///
/// // A run that ended with any other reason becomes an error.
/// assert_eq!(outcome.into_result()?.text, "Oslo.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "OutcomeRepr", into = "OutcomeRepr")]
#[non_exhaustive]
pub struct Outcome {
    /// The reason why the run ended.
    pub reason: EndReason,
    /// The message from the stop hook or the evidence policy that ended the run, the message with
    /// which a [validation](crate::Agent::with_validation) rejected the last answer, the [reason
    /// for the interrupt](crate::RunHandle::interrupt_with_reason), or the number of
    /// [fixes that have failed](crate::agent::Limits::end_after_failed_fixes), if any. The message
    /// states why the run was stopped, what is missing, or what has not been proven.
    pub why: Option<String>,
    /// Whether the run ended before the model finished its work, or may have: the last turn of a
    /// `completed` run ended for an [unknown reason](Self::unknown_stop_reason).
    pub partial: bool,
    /// The provider's word for the reason why the last turn ended, if this crate does not know the
    /// word. The text of such a turn may be incomplete.
    pub unknown_stop_reason: Option<Box<str>>,
    /// The text of the last turn. If the last turn continues truncated turns, their text is
    /// included.
    pub text: String,
    /// The number of requests that the run started. The last request may not have been sent if the
    /// run was interrupted.
    pub turns: u32,
    /// The tokens used by all requests, including those used for discarded attempts.
    pub usage: Usage,
    /// The tokens used by this run's sub-agents, which are not included in `usage` and `cost`.
    pub nested_usage: Box<Usage>,
    /// The cost of this run's requests, in millionths of the currency unit used for the prices.
    /// `None` if neither the run's [`Budget`](crate::agent::Budget::with_prices) nor its
    /// [`Pool`](crate::agent::Pool::with_cost_limit) has prices, or if the price of any model that
    /// used tokens is unknown: a partial sum is never reported.
    pub cost: Option<u64>,
    /// The reasons why `cost` is unknown or not exact, each of them once. If the list is empty and
    /// `cost` is known, it is exact as far as the prices are right. Otherwise, each
    /// [kind](crate::usage::CostGapKind) states whether the cost is a lower bound. The list names
    /// every model whose price is unknown. It is empty if the run has no prices.
    pub cost_gaps: Box<[CostGap]>,
    /// The cost of the requests of this run's sub-agents, which is not included in `cost`. `None`
    /// if no sub-agent used tokens, or if the cost of any sub-agent is unknown, for example because
    /// its run was dropped or because a durable run was restored after the sub-agent's call.
    pub nested_cost: Option<u64>,
    /// The reasons why `nested_cost` is unknown or not exact, as far as the outcomes of the
    /// sub-agents report them, each of them once.
    pub nested_cost_gaps: Box<[CostGap]>,
    /// The complete history, from which another run can start. The history is not serialized. In a
    /// deserialized outcome, this field contains only the run's new items, and the history's id is
    /// empty.
    pub history: History,
    pub(crate) new_items: Arc<[Item]>,
    /// The run's error, if the run failed, and `None` otherwise. The run's stream yields the error
    /// as an `Err` after `Finished`.
    pub error: Option<Error>,
    /// The calls that are waiting for a verdict or an external result. A call from a sub-agent
    /// includes the path to the call.
    pub pending: Vec<PendingCall>,
    /// The input that arrived too late to be used by the run.
    pub undelivered: Vec<UndeliveredInput>,
    /// The evidence reported by the tools in this run.
    pub evidence: Box<[RawJson]>,
    /// The check that proves the success of a completed run, if any. The check passed after the
    /// run's last change, and no failed check remains. The field can be set even if the agent does
    /// not [require evidence](crate::Agent::with_evidence).
    pub proof: Option<Box<Evidence>>,
    /// The reason why the work of a run that did not complete is not proven: a failed check, a
    /// change that no check followed, or no check at all. Set only if the agent [requires
    /// evidence](crate::Agent::with_evidence), or if a hook ended the run with the reason
    /// [`Unproven`](EndReason::Unproven).
    pub unproven: Option<Box<str>>,
    /// The [action](crate::Tool::stop) by which the model ended the run, if any.
    pub stop_action: Option<Box<StopAction>>,
    /// The exhausted budget, if any. This field is always set if the end reason is
    /// [`EndReason::Budget`] or if a token target was abandoned.
    pub budget: Option<Box<BudgetExceeded>>,
}

/// Input that was sent to a run too late to be used. To deliver it, start another run with its
/// items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UndeliveredInput {
    /// The id of the receipt that the sender received for the items.
    pub id: String,
    /// The items that were not used.
    pub items: Vec<Item>,
}

impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        let Self { reason, partial, text, turns, usage, nested_usage, cost, new_items, .. } = self;
        let Self { error, pending, undelivered, evidence, budget, why, .. } = self;
        let Self {
            proof, unproven, stop_action, unknown_stop_reason, nested_cost, history: _, ..
        } = self;
        let Self { cost_gaps, nested_cost_gaps, .. } = self;
        (*reason, *partial, text, *turns) == (other.reason, other.partial, &other.text, other.turns)
            && (*usage, nested_usage, *cost) == (other.usage, &other.nested_usage, other.cost)
            && (new_items, error, pending) == (&other.new_items, &other.error, &other.pending)
            && (undelivered, evidence) == (&other.undelivered, &other.evidence)
            && (budget, why, proof) == (&other.budget, &other.why, &other.proof)
            && (unproven, stop_action) == (&other.unproven, &other.stop_action)
            && (unknown_stop_reason, nested_cost)
                == (&other.unknown_stop_reason, &other.nested_cost)
            && (cost_gaps, nested_cost_gaps) == (&other.cost_gaps, &other.nested_cost_gaps)
    }
}

impl Outcome {
    /// Returns the items that this run appended to the history, in order, starting with the run's
    /// input. To update a copy of the history that is stored elsewhere, append exactly these items.
    ///
    /// The items are returned in the form in which they were appended, even if a compaction later
    /// replaced them or they were marked as tombstones. Summaries that replace compacted items are
    /// not included, and neither are retracted attempts. The next request will contain the items in
    /// [`history`](Self::history), not the items returned by this method.
    ///
    /// The returned items do not include the [histories of suspended
    /// sub-agents](History::nested_history). If a run ended with the reason `pending` while calls
    /// from sub-agents were pending, resume the run with [`history`](Self::history) rather than
    /// with these items.
    ///
    /// If the run's initial history contained calls without a result, the results that
    /// [settling](History::settled) added to it are not included either, and no event reports them.
    /// Settle your copy of such a history before you append the items.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::provider::Scripted;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!", "See you."]));
    /// let first = agent.run("Hi").outcome().await;
    /// let mut kept = first.new_items().to_vec();
    /// let second = agent.run_from(first.history, "Bye").outcome().await;
    /// kept.extend_from_slice(second.new_items());
    /// assert_eq!(kept.len(), 4);
    /// # }
    /// ```
    pub fn new_items(&self) -> &[Item] {
        &self.new_items
    }

    /// Deserializes the answer of a completed run from JSON into the type `T`, in the same way as
    /// [`Turn::parse`].
    ///
    /// # Errors
    ///
    /// - the parse error for the last answer, if the run ended with the reason `malformed` and the
    ///   answer does not parse. If it parses, a validation has rejected it, and the error is
    ///   `RunEndedEarly`; [`why`](Self::why) is the message of the validation;
    /// - [`Refused`](ParseError::Refused), [`Filtered`](ParseError::Filtered) or
    ///   [`Truncated`](ParseError::Truncated) if the run ended for that reason;
    /// - [`RunEndedEarly`](ParseError::RunEndedEarly) with the reason, for any other run that did
    ///   not complete.
    ///
    /// [`Turn::parse`]: crate::turn::Turn::parse
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ParseError> {
        let text = || self.text.clone();
        let unfinished = || ParseError::RunEndedEarly { reason: self.reason.to_string() };
        match self.reason {
            EndReason::Completed => ParseError::read_text(&self.text),
            EndReason::Malformed => {
                Err(ParseError::read_text::<T>(&self.text).err().unwrap_or_else(unfinished))
            }
            EndReason::Refused => Err(ParseError::Refused { text: text() }),
            EndReason::Filtered => Err(ParseError::Filtered { text: text() }),
            EndReason::Truncated | EndReason::ContextWindow if self.error.is_none() => {
                Err(ParseError::Truncated { text: text() })
            }
            EndReason::Truncated
            | EndReason::ContextWindow
            | EndReason::MaxTurns
            | EndReason::Interrupted(_)
            | EndReason::Stopped
            | EndReason::StopHookPrevented
            | EndReason::Repeating
            | EndReason::Budget
            | EndReason::Incomplete
            | EndReason::Pending
            | EndReason::Blocked
            | EndReason::Unproven
            | EndReason::ProviderError
            | EndReason::HookError
            | EndReason::Other => Err(unfinished()),
        }
    }

    /// Returns the run's text for a reader that sees nothing else from the run, for example a
    /// parent agent. If the run did not complete, or its last turn ended for an unknown reason, a
    /// label after the text states the reason.
    ///
    /// ```
    /// use turnstream::Agent;
    /// use turnstream::agent::Limits;
    /// use turnstream::provider::{Reply, Scripted};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = Scripted::new([Reply::text("Two of ten.").call("next", serde_json::json!({}))]);
    /// let limits = Limits { max_turns: Some(1), ..Limits::default() };
    /// let outcome = Agent::new(model).with_limits(limits).run("Read all ten").outcome().await;
    /// assert_eq!(
    ///     outcome.labeled_text(),
    ///     "Two of ten.\n\n[stopped early: the step limit was reached — this result is partial]"
    /// );
    /// # }
    /// ```
    pub fn labeled_text(&self) -> String {
        let why = match self.reason {
            EndReason::Completed => match &self.unknown_stop_reason {
                Some(word) => {
                    return self.text_with_label(&format!(
                        "[the answer ended for an unknown reason, `{word}` — this result may be \
                         partial]"
                    ));
                }
                None => return self.text.clone(),
            },
            EndReason::MaxTurns => "the step limit was reached",
            EndReason::Interrupted(_) => "it was interrupted",
            EndReason::Stopped => "it was stopped",
            EndReason::StopHookPrevented => "a rule stopped it",
            EndReason::ContextWindow => "its context window is full",
            EndReason::Truncated => "the output limit was reached",
            EndReason::Refused => "the model refused",
            EndReason::Filtered => "a content filter cut it off",
            EndReason::Malformed => "the model's replies could not be used",
            EndReason::Repeating if self.why.is_some() => "it made no progress",
            EndReason::Repeating => "it kept repeating the same calls",
            EndReason::Budget => "its budget was spent",
            EndReason::Incomplete => "a reply broke off",
            EndReason::Pending => "a call is waiting for an approval or an external result",
            EndReason::Blocked => "something is missing",
            EndReason::Unproven => "there is no evidence",
            EndReason::ProviderError => "the model could not be reached",
            EndReason::HookError => "a hook failed",
            EndReason::Other => "for a reason that this version does not know",
        };
        let partial = if self.partial { " — this result is partial" } else { "" };
        let label = match &self.error {
            Some(error) => format!("[stopped early: {why} ({error}){partial}]"),
            None => match &self.why {
                Some(message) => format!("[stopped early: {why} ({message}){partial}]"),
                None => format!("[stopped early: {why}{partial}]"),
            },
        };
        self.text_with_label(&label)
    }

    /// Returns the cost of the run and of its sub-agents, if both are known.
    pub(crate) fn total_cost(&self) -> Option<u64> {
        match (self.nested_usage.total(), self.nested_cost) {
            (0, _) => self.cost,
            (_, nested) => Some(self.cost?.saturating_add(nested?)),
        }
    }

    fn text_with_label(&self, label: &str) -> String {
        match self.text.trim() {
            "" => label.to_owned(),
            _ => format!("{}\n\n{label}", self.text),
        }
    }

    /// Returns the outcome of a completed run, and an error for any other run.
    ///
    /// # Errors
    ///
    /// Returns the run's error, if any, or else an [`ErrorKind::Unfinished`] error whose source is
    /// an [`UnfinishedRun`] with the outcome.
    pub fn into_result(self) -> Result<Self, Error> {
        match (self.reason, &self.error) {
            (EndReason::Completed, _) => Ok(self),
            (_, Some(error)) => Err(error.clone()),
            (reason, None) => {
                let message = format!("the run ended early: {reason}");
                Err(Error::new(ErrorKind::Unfinished, message)
                    .with_source(UnfinishedRun { outcome: self }))
            }
        }
    }
}

/// The source of the [`Unfinished`](ErrorKind::Unfinished) error that [`Outcome::into_result`]
/// returns for a run that neither completed nor failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .outcome.reason)]
pub struct UnfinishedRun {
    /// The run's outcome.
    pub outcome: Outcome,
}

#[derive(Clone, Serialize, Deserialize)]
struct OutcomeRepr {
    reason: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phase: Option<InterruptedPhase>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(default)]
    partial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unknown_stop_reason: Option<Box<str>>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    turns: u32,
    #[serde(default)]
    usage: Usage,
    #[serde(default, skip_serializing_if = "is_zero_usage")]
    nested_usage: Box<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    #[serde(default, skip_serializing_if = "is_empty")]
    cost_gaps: Box<[CostGap]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nested_cost: Option<u64>,
    #[serde(default, skip_serializing_if = "is_empty")]
    nested_cost_gaps: Box<[CostGap]>,
    #[serde(default)]
    new_items: Arc<[Item]>,
    #[serde(default)]
    error: Option<Error>,
    #[serde(default)]
    pending: Vec<PendingCall>,
    #[serde(default)]
    undelivered: Vec<UndeliveredInput>,
    #[serde(default)]
    evidence: Box<[RawJson]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proof: Option<Box<Evidence>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unproven: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_action: Option<Box<StopAction>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    budget: Option<Box<BudgetExceeded>>,
}

fn is_empty(gaps: &[CostGap]) -> bool {
    gaps.is_empty()
}

fn is_zero_usage(usage: &Usage) -> bool {
    *usage == Usage::default()
}

impl From<OutcomeRepr> for Outcome {
    fn from(wire: OutcomeRepr) -> Self {
        Self {
            reason: EndReason::named(&wire.reason, wire.phase),
            why: wire.why,
            partial: wire.partial,
            unknown_stop_reason: wire.unknown_stop_reason,
            text: wire.text,
            turns: wire.turns,
            usage: wire.usage,
            nested_usage: wire.nested_usage,
            cost: wire.cost,
            cost_gaps: wire.cost_gaps,
            nested_cost: wire.nested_cost,
            nested_cost_gaps: wire.nested_cost_gaps,
            history: History::from_items("", wire.new_items.iter().cloned()),
            new_items: wire.new_items,
            error: wire.error,
            pending: wire.pending,
            undelivered: wire.undelivered,
            evidence: wire.evidence,
            proof: wire.proof,
            unproven: wire.unproven,
            stop_action: wire.stop_action,
            budget: wire.budget,
        }
    }
}

impl From<Outcome> for OutcomeRepr {
    fn from(outcome: Outcome) -> Self {
        let phase = match outcome.reason {
            EndReason::Interrupted(phase) => Some(phase),
            _ => None,
        };
        Self {
            reason: outcome.reason.as_str().into(),
            phase,
            why: outcome.why,
            partial: outcome.partial,
            unknown_stop_reason: outcome.unknown_stop_reason,
            text: outcome.text,
            turns: outcome.turns,
            usage: outcome.usage,
            nested_usage: outcome.nested_usage,
            cost: outcome.cost,
            cost_gaps: outcome.cost_gaps,
            nested_cost: outcome.nested_cost,
            nested_cost_gaps: outcome.nested_cost_gaps,
            new_items: outcome.new_items,
            error: outcome.error,
            pending: outcome.pending,
            undelivered: outcome.undelivered,
            evidence: outcome.evidence,
            proof: outcome.proof,
            unproven: outcome.unproven,
            stop_action: outcome.stop_action,
            budget: outcome.budget,
        }
    }
}
