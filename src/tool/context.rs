//! The context of a tool call, which gives the tool information about the call and records the
//! tool's effects.

use std::any::Any;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::item::{EffectReport, RawJson, SideEffect, ToolCall, join_call_id};
use crate::lock::lock_ignoring_poison;
use crate::propagation::{TraceContext, TraceContexts};
use crate::tool::{PollTimer, RunData};
use crate::turn::Turn;

/// Gives a tool information about the current call and records the tool's effects. A `ToolContext`
/// is an owned value, so it can be moved into a task or thread.
///
/// The recorded effects become the [`report`](crate::item::ToolResult::report) in the call's
/// result, even if the tool fails, panics or times out.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The call, with the arguments that the tool receives.
    call: Arc<ToolCall>,
    turn: Arc<Turn>,
    idempotency_key: String,
    pub(super) is_dry_run: bool,
    pub(super) policy_extension: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) data: RunData,
    call_record: Arc<CallRecord>,
    pub(super) poll_timer: Option<Arc<PollTimer>>,
}

impl ToolContext {
    pub(super) fn new(call: &ToolCall, history_id: &str, turn: Arc<Turn>) -> Self {
        Self {
            call: Arc::new(call.clone()),
            turn,
            idempotency_key: join_call_id(history_id, &call.call_id),
            is_dry_run: false,
            policy_extension: None,
            data: RunData::new(),
            call_record: Arc::default(),
            poll_timer: None,
        }
    }

    pub(super) fn call_record(&self) -> Arc<CallRecord> {
        Arc::clone(&self.call_record)
    }

    /// Returns the id of the call, which is unique within the history. In another history, another
    /// call may have the same id; see [`idempotency_key`](Self::idempotency_key).
    pub fn call_id(&self) -> &str {
        &self.call.call_id
    }

    /// Returns the call, with the arguments that the tool receives. If the model called the tool
    /// through another tool, this is the inner call.
    pub(crate) fn call(&self) -> &ToolCall {
        &self.call
    }

    /// Returns the turn that contains the call, for example to read the text that the model wrote
    /// before the call.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Returns the key `{history id}/{call id}`, which is the same for every attempt at this call,
    /// including attempts after the run was resumed. In a session, the history's id is the
    /// session's id. A `~` or `/` in the call id is written as `~0` or `~1`.
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Returns whether this call is a dry run. In a dry run, the tool describes its intended
    /// changes without making them. Only tools that [support dry
    /// runs](crate::Tool::with_dry_run_support) are called in a dry run.
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Returns whether the call has ended, which means that nothing is waiting for its result any
    /// more.
    ///
    /// When a call ends, the tool's future is dropped. Use `is_cancelled` to stop work that cannot
    /// be dropped. For example, a blocking thread should call this method between steps:
    ///
    /// ```
    /// use turnstream::Tool;
    /// use turnstream::tool::ToolContext;
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Below {
    ///     n: u64,
    /// }
    ///
    /// let tool = Tool::new(
    ///     "sum",
    ///     "Adds all numbers below `n`",
    ///     |Below { n }, cx: ToolContext| async move {
    ///         let is_needed = move |_: &u64| !cx.is_cancelled();
    ///         let work = move || (0..n).take_while(is_needed).fold(0, u64::wrapping_add);
    ///         tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
    ///     },
    /// );
    /// assert_eq!(tool.name(), "sum");
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.call_record.cancelled.load(Ordering::Relaxed)
    }

    /// Returns the value of type `T` from the run's data, if any; see
    /// [`Run::with_data`](crate::Run::with_data).
    pub fn data<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.data.get()
    }

    /// Returns all of the run's data. A tool that itself starts an agent can pass this data to the
    /// agent's run by calling [`Run::with_data`](crate::Run::with_data). Such a tool must be marked
    /// as [`running_sub_agents`](crate::Tool::running_sub_agents). Otherwise, if the agent's
    /// [pool](crate::agent::Pool) limits concurrency, the agent may wait forever for the slot that
    /// the tool itself occupies.
    pub fn run_data(&self) -> &RunData {
        &self.data
    }

    /// Returns the trace context of the call, if the run's data contains
    /// [`TraceContexts`]. The tool's own spans are children of this context, and the tool sends
    /// the context with its own requests. Call this method while the tool runs.
    pub fn trace_context(&self) -> Option<TraceContext> {
        self.data::<TraceContexts>()?.current()
    }

    /// Records that the call changed an existing `target`, such as a path, an id or an address.
    pub fn record_change(&self, target: impl Into<String>) {
        self.record_side_effect(SideEffect::of_change(target));
    }

    /// Records that the call created `target`, such as a path, an id or an address.
    pub fn record_creation(&self, target: impl Into<String>) {
        self.record_side_effect(SideEffect::of_creation(target));
    }

    /// Records a side effect of any [kind](SideEffect::kind), for example that a message was sent.
    pub fn record_side_effect(&self, effect: SideEffect) {
        self.call_record.with_report(|report| report.side_effects.push(effect));
    }

    /// Records evidence of what the call did. A value that cannot be serialized to JSON is stored
    /// as `null`. Parts nested more than 64 levels deep are stored as strings.
    pub fn record_evidence(&self, evidence: impl Serialize) {
        let json = RawJson::new(&evidence).unwrap_or_else(|_| serde_json::Value::Null.into());
        self.call_record.with_report(|report| report.evidence.push(json.limit_depth()));
    }

    /// Returns the effects that have been recorded so far and are not yet part of a result.
    pub fn effect_report(&self) -> EffectReport {
        self.call_record.with_report(|report| report.clone())
    }

    /// Returns the internal value that the policy passes to this crate's own tools, if the value is
    /// of type `T`.
    pub(crate) fn policy_extension<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.policy_extension.clone()?.downcast().ok()
    }
}

/// The state that a running call shares with its `ToolContext`s.
#[derive(Debug, Default)]
pub(super) struct CallRecord {
    /// Whether the call's future was dropped.
    cancelled: AtomicBool,
    effect_report: Mutex<EffectReport>,
}

impl CallRecord {
    pub(super) fn mark_cancelled(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Removes and returns all of the effects recorded so far.
    pub(super) fn take_report(&self) -> EffectReport {
        self.with_report(mem::take)
    }

    fn with_report<R>(&self, f: impl FnOnce(&mut EffectReport) -> R) -> R {
        f(&mut lock_ignoring_poison(&self.effect_report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::turn::{StopReason, TurnBuilder, TurnEvent};

    #[test]
    fn an_extension_is_found_by_its_type() {
        let mut builder = TurnBuilder::new();
        builder.stop(StopReason::Stop, "");
        builder.complete().unwrap();
        let Some(TurnEvent::TurnComplete { turn }) = builder.next_event() else {
            panic!("no turn")
        };
        let extension: Option<Arc<dyn Any + Send + Sync>> = Some(Arc::new(7_u8));
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: String::new() };
        let context =
            ToolContext { policy_extension: extension, ..ToolContext::new(&call, "h", turn) };
        assert_eq!(context.policy_extension::<u8>().as_deref(), Some(&7));
        assert_eq!(context.policy_extension::<u16>(), None);
    }
}
