//! Defines the state that a run shares with its handles.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use futures::task::AtomicWaker;
use tokio::time::Instant;

use crate::agent::ResumeVerdicts;
use crate::agent::budget::BudgetUsage;
use crate::agent::listed_tools::ListedTools;
use crate::agent::observers::Observers;
use crate::agent::pool_claim::PoolClaim;
use crate::agent::tombstone_queue::TombstoneQueue;
use crate::env::Ids;
use crate::error::Error;
use crate::event::{Event, UndeliveredInput};
use crate::item::{Content, Item, ItemKind, Part, PendingCall};
use crate::journal::Journal;
use crate::lock::lock_ignoring_poison;
use crate::tool::{RunData, ToolContext, Verdict};
use crate::usage::{Price, Usage};

/// Stores the commands from a run's owner and handles, along with the run's usage. No lock is ever
/// held across an `.await`, and no events pass through this type.
#[derive(Default)]
pub(super) struct Control {
    pub(super) interrupted: Flag,
    /// The reason that the first interrupt with a reason gave.
    interrupt_reason: OnceLock<Arc<str>>,
    pub(super) stop_requested: Flag,
    waker: AtomicWaker,
    /// The time of the run's first poll; set only if it is needed.
    started_at: OnceLock<Instant>,
    inbox: Mutex<Inbox>,
    /// The items that will become tombstones.
    pub(super) tombstone_queue: TombstoneQueue,
    /// The calls that are waiting for a verdict, by call id.
    awaited_verdicts: Mutex<HashMap<String, AwaitedVerdict>>,
    /// The contexts of the calls that have started in this turn, in the order in which they
    /// started.
    started_calls: Mutex<Vec<ToolContext>>,
    charged_usage: Mutex<ChargedUsage>,
    sub_agents: Mutex<HashMap<String, SubAgentRun>>,
    /// The agent's label, including the labels of the agent's ancestors in the tree of agents.
    label: OnceLock<Arc<str>>,
    /// The `Control` of the parent's run, if this is a sub-agent's run.
    parent: OnceLock<Weak<Self>>,
    /// The number of handles that exist outside the run.
    handle_count: AtomicUsize,
    /// Whether only handles, not the owner, can control the run between two polls.
    pub(super) requires_external_handle: Flag,
    /// The verdicts on the calls of suspended sub-agents; kept until the sub-agents continue.
    sub_agent_verdicts: Mutex<ResumeVerdicts>,
    /// The observing hooks that are currently running.
    pub(super) observers: Observers,
    /// The most recent request error that was reported to hooks.
    last_failure: Mutex<Option<Error>>,
    /// Whether a provider is processing a request whose usage has not been charged yet.
    pub(super) request_in_flight: Flag,
    /// Whether the last failed turn was [incomplete](crate::agent::Facts::has_incomplete_turn).
    pub(super) has_incomplete_turn: Flag,
    /// Whether the running work may use the time that was reserved for a wrap-up turn, since no
    /// wrap-up turn can follow it or the wrap-up turn has started.
    pub(super) wrap_up_time_released: Flag,
    /// The tokens and the slot that the run has claimed from its pool.
    pub(super) pool_claim: PoolClaim,
    run_data: Mutex<RunData>,
    /// The tools that the agent's sources returned when they were last listed.
    pub(super) listed_tools: ListedTools,
    /// Whether this run, or its parent's run, waits for verdicts in
    /// [`World::suspend`](crate::world::World::suspend), rather than through its handle while its
    /// other calls run.
    pub(super) suspends: Flag,
    /// The number of changes to the history that the body has received but the run has not observed
    /// yet.
    unobserved_changes: AtomicUsize,
}

/// A flag that a run shares with its handles.
#[derive(Default)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Release);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The maximum number of inputs that wait for a run.
const MAX_QUEUED_INPUTS: usize = 1_000;

/// The maximum size of all inputs that wait for a run, unless only one input waits.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// The number of bytes that an item counts in addition to its text and data.
const ITEM_BYTES: usize = size_of::<Item>();

/// Input that was not queued, with the reason.
#[derive(Debug)]
pub(crate) enum RefusedInput {
    RunIsOver(UndeliveredInput),
    QueueIsFull(UndeliveredInput),
}

impl From<RefusedInput> for UndeliveredInput {
    fn from(refused: RefusedInput) -> Self {
        match refused {
            RefusedInput::RunIsOver(input) | RefusedInput::QueueIsFull(input) => input,
        }
    }
}

#[derive(Default)]
struct Inbox {
    steering: VecDeque<UndeliveredInput>,
    follow_ups: VecDeque<UndeliveredInput>,
    /// The total size of the queued input.
    queued_bytes: usize,
    delivery_turns: HashMap<String, u32>,
    is_closed: bool,
}

/// A call that is waiting for a verdict.
struct AwaitedVerdict {
    request: PendingCall,
    /// Whether the call's tool is external, in which case the call cannot be approved.
    is_external: bool,
    verdict: Option<Verdict>,
}

/// The reason why a verdict was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VerdictRejection {
    /// No call waits for this verdict: the request is unknown, belongs to another call, or has a
    /// verdict already.
    NotAwaited,
    /// The call's tool is external, so the call cannot be approved.
    ExternalTool,
}

/// The usage charged to budgets so far.
#[derive(Clone, Copy, Default)]
pub(super) struct ChargedUsage {
    pub(super) usage: Usage,
    /// The cost of the tokens whose price is known, in millionths of the unit used for prices.
    pub(super) cost: u64,
    /// The number of tokens whose price is unknown.
    pub(super) unpriced_tokens: u64,
    /// The price of the model used for the last request, if it is known. The price is stored here
    /// rather than in the run's state, because a run may end before its state is updated.
    price: Option<Price>,
}

/// The point in a run at which queued input is delivered.
#[derive(Clone, Copy)]
pub(super) enum DeliveryPoint {
    BeforeNextRequest,
    AfterModelStops,
}

impl DeliveryPoint {
    /// Returns the point at which steering input, or a follow-up, is delivered.
    pub(super) fn of_input(is_follow_up: bool) -> Self {
        match is_follow_up {
            true => Self::AfterModelStops,
            false => Self::BeforeNextRequest,
        }
    }
}

/// The parts of a sub-agent's run that the parent's run needs.
#[derive(Clone)]
pub(super) struct SubAgentRun {
    pub(super) control: Arc<Control>,
    pub(super) journal: Journal,
    pub(super) ids: Arc<dyn Ids>,
}

impl Control {
    pub(super) fn interrupt(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            self.set_interrupt_reason(reason);
        }
        self.interrupted.set(true);
        self.waker.wake();
    }

    /// Sets the reason for the interrupt, unless an earlier interrupt has given a reason.
    pub(super) fn set_interrupt_reason(&self, reason: String) {
        let _ = self.interrupt_reason.set(reason.into());
    }

    pub(super) fn interrupt_reason(&self) -> Option<Arc<str>> {
        self.interrupt_reason.get().cloned()
    }

    /// Registers the waker through which an interrupt or a verdict wakes the run. Call this method
    /// before a poll that may return `Poll::Pending`.
    pub(super) fn register_waker(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn started_at(&self) -> Instant {
        *self.started_at.get_or_init(Instant::now)
    }

    pub(super) fn enqueue_input(
        &self,
        when: DeliveryPoint,
        input: UndeliveredInput,
    ) -> Result<(), RefusedInput> {
        let mut inbox = lock_ignoring_poison(&self.inbox);
        let is_full = inbox.queued_inputs() >= MAX_QUEUED_INPUTS
            || inbox.queued_bytes.saturating_add(queued_bytes(&input.items)) > MAX_QUEUED_BYTES;
        // If the queue is empty, input of any size is accepted: otherwise, it could never be sent.
        if is_full && inbox.queued_inputs() > 0 && !inbox.is_closed {
            return Err(RefusedInput::QueueIsFull(input));
        }
        inbox.push(when, input)
    }

    /// Queues input that another queue has already accepted, so that the limits of this queue do
    /// not apply.
    pub(super) fn enqueue_accepted_input(
        &self,
        when: DeliveryPoint,
        input: UndeliveredInput,
    ) -> Result<(), RefusedInput> {
        lock_ignoring_poison(&self.inbox).push(when, input)
    }

    pub(super) fn has_queued_input(&self, when: DeliveryPoint) -> bool {
        !lock_ignoring_poison(&self.inbox).queue_mut(when).is_empty()
    }

    /// Removes and returns the next queued input, which is to be delivered in request number
    /// `turn`.
    pub(super) fn dequeue_input(&self, when: DeliveryPoint, turn: u32) -> Option<UndeliveredInput> {
        let mut inbox = lock_ignoring_poison(&self.inbox);
        let input = inbox.queue_mut(when).pop_front()?;
        inbox.queued_bytes -= queued_bytes(&input.items);
        inbox.delivery_turns.insert(input.id.clone(), turn);
        Some(input)
    }

    pub(super) fn delivery_turn(&self, id: &str) -> Option<u32> {
        lock_ignoring_poison(&self.inbox).delivery_turns.get(id).copied()
    }

    pub(super) fn register_awaited_verdict(&self, request: &PendingCall, external: bool) {
        let (call_id, request) = (request.call_id.clone(), request.clone());
        let awaited = AwaitedVerdict { request, is_external: external, verdict: None };
        lock_ignoring_poison(&self.awaited_verdicts).insert(call_id, awaited);
    }

    /// Submits a verdict on a call, from the view of the agent that made the call. The verdict is
    /// accepted only if it [answers](Verdict::answers) a request that has no verdict yet.
    pub(super) fn submit_verdict(
        &self,
        call: &PendingCall,
        verdict: Verdict,
    ) -> Result<(), VerdictRejection> {
        let mut awaited = lock_ignoring_poison(&self.awaited_verdicts);
        let waiting = awaited.get_mut(&call.call_id);
        let waiting = waiting
            .filter(|it| it.verdict.is_none() && verdict.answers(&it.request, call))
            .ok_or(VerdictRejection::NotAwaited)?;
        if waiting.is_external && verdict == Verdict::Approve {
            return Err(VerdictRejection::ExternalTool);
        }
        waiting.verdict = Some(verdict);
        drop(awaited);
        self.waker.wake();
        Ok(())
    }

    /// Takes the verdict that answers this request. The request then no longer accepts a verdict.
    pub(super) fn take_verdict(&self, request: &PendingCall) -> Option<Verdict> {
        let mut awaited = lock_ignoring_poison(&self.awaited_verdicts);
        let waiting = awaited.get(&request.call_id).filter(|it| it.request == *request)?;
        let verdict = waiting.verdict.clone()?;
        awaited.remove(&request.call_id);
        Some(verdict)
    }

    /// Returns true if an accepted verdict has not been retrieved yet. Otherwise, rejects all
    /// further verdicts and returns false.
    pub(super) fn has_verdict_or_stop_accepting(&self) -> bool {
        let mut awaited = lock_ignoring_poison(&self.awaited_verdicts);
        let holds = awaited.values().any(|it| it.verdict.is_some());
        if !holds {
            awaited.clear();
        }
        holds
    }

    /// Rejects all further verdicts.
    pub(super) fn stop_accepting_verdicts(&self) {
        lock_ignoring_poison(&self.awaited_verdicts).clear();
    }

    /// Sets the price at which usage is charged from now on.
    pub(super) fn set_price(&self, price: Option<Price>) {
        lock_ignoring_poison(&self.charged_usage).price = price;
    }

    pub(super) fn add_started_call(&self, context: &ToolContext) {
        lock_ignoring_poison(&self.started_calls).push(context.clone());
    }

    /// Removes and returns the contexts of the tool calls that have started since this method was
    /// last called.
    pub(super) fn take_started_calls(&self) -> Vec<ToolContext> {
        std::mem::take(&mut *lock_ignoring_poison(&self.started_calls))
    }

    /// Charges the usage since this method was last called, and returns the total usage charged so
    /// far.
    pub(super) fn charge_usage(
        &self,
        usage: Usage,
        drain: impl FnOnce(Usage, u64),
    ) -> ChargedUsage {
        let mut charged = lock_ignoring_poison(&self.charged_usage);
        let more = usage.increase_since(charged.usage);
        if more != Usage::default() {
            let cost = charged.price.map_or(0, |price| price.cost(&more));
            drain(more, cost);
            charged.cost = charged.cost.saturating_add(cost);
            if charged.price.is_none() {
                charged.unpriced_tokens = charged.unpriced_tokens.saturating_add(more.total());
            }
            charged.usage = usage;
        }
        *charged
    }

    /// Returns the budget usage that the run will have once `usage` is charged.
    pub(super) fn projected_usage(&self, usage: Usage, tool_calls: u32) -> BudgetUsage {
        let charged = *lock_ignoring_poison(&self.charged_usage);
        let more =
            charged.price.map_or(0, |price| price.cost(&usage.increase_since(charged.usage)));
        let (cost, elapsed) = (charged.cost.saturating_add(more), self.started_at().elapsed());
        BudgetUsage { usage, cost, elapsed, tool_calls }
    }

    pub(super) fn set_label(&self, label: Arc<str>) {
        let _ = self.label.set(label);
    }

    /// Returns the agent's label, or an empty string if the agent has no label.
    pub(super) fn label(&self) -> &str {
        self.label.get().map_or("", |label| label)
    }

    /// Stores a request error that is being reported to hooks.
    pub(super) fn set_last_failure(&self, error: &Error) {
        let before = lock_ignoring_poison(&self.last_failure).replace(error.clone());
        drop(before);
    }

    /// Returns the most recent request error that was reported to hooks.
    pub(super) fn last_failure(&self) -> Option<Error> {
        lock_ignoring_poison(&self.last_failure).clone()
    }

    /// Updates the data that is available to the run's tools.
    pub(super) fn update_run_data(&self, change: impl FnOnce(RunData) -> RunData) {
        let data = self.run_data();
        *lock_ignoring_poison(&self.run_data) = change(data);
    }

    pub(super) fn run_data(&self) -> RunData {
        lock_ignoring_poison(&self.run_data).clone()
    }

    /// Records that the body is receiving an event. If the event changes the history, the run must
    /// observe it before the body uses the history again.
    pub(super) fn track_unobserved_change(&self, event: &Event) {
        if event.changes_items() {
            self.unobserved_changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Records that the run has observed an event.
    pub(super) fn mark_change_observed(&self, event: &Event) {
        if event.changes_items() {
            let less = |owed: usize| owed.checked_sub(1);
            let _ = self.unobserved_changes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// Discards the unobserved changes after the body that received them has been dropped.
    pub(super) fn clear_unobserved_changes(&self) {
        self.unobserved_changes.store(0, Ordering::Release);
    }

    /// Returns whether the body has received a change to the history that the run has not observed
    /// yet.
    pub(super) fn has_unobserved_changes(&self) -> bool {
        self.unobserved_changes.load(Ordering::Acquire) > 0
    }

    /// Registers a sub-agent's run, so that the sub-agent can receive a verdict whenever this run
    /// can.
    pub(super) fn attach_sub_agent(self: &Arc<Self>, call_id: &str, child: SubAgentRun) {
        child.control.requires_external_handle.set(true);
        let _ = child.control.parent.set(Arc::downgrade(self));
        let before = lock_ignoring_poison(&self.sub_agents).insert(call_id.to_owned(), child);
        drop(before);
    }

    pub(super) fn sub_agent(&self, call_id: &str) -> Option<SubAgentRun> {
        lock_ignoring_poison(&self.sub_agents).get(call_id).cloned()
    }

    pub(super) fn set_sub_agent_verdicts(&self, verdicts: ResumeVerdicts) {
        let before =
            std::mem::replace(&mut *lock_ignoring_poison(&self.sub_agent_verdicts), verdicts);
        drop(before);
    }

    /// Returns the verdicts on the calls made by the suspended sub-agent that the call `call_id`
    /// started.
    pub(super) fn sub_agent_verdicts(&self, call_id: &str) -> ResumeVerdicts {
        lock_ignoring_poison(&self.sub_agent_verdicts)
            .for_sub_agent(call_id)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn on_handle_created(&self) {
        self.handle_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that a handle was dropped. If the dropped handle was the last handle, wakes the run,
    /// which may be waiting for a verdict that can no longer arrive.
    pub(super) fn on_handle_dropped(&self) {
        if self.handle_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    /// Returns whether a verdict can arrive from the owner of the polled stream, from a handle, or
    /// through the parent's run.
    pub(super) fn can_receive_verdict(&self) -> bool {
        !self.requires_external_handle.get()
            || self.handle_count.load(Ordering::Acquire) > 0
            || self.parent.get().and_then(Weak::upgrade).is_some_and(|it| it.can_receive_verdict())
    }

    /// Wakes the run and its sub-agents' runs.
    fn wake(&self) {
        self.waker.wake();
        let children: Vec<_> = lock_ignoring_poison(&self.sub_agents).values().cloned().collect();
        for child in children {
            child.control.wake();
        }
    }

    /// Closes the input queue, and returns the input that is still queued.
    pub(super) fn close_and_drain_inbox(&self) -> Vec<UndeliveredInput> {
        drop(self.waker.take());
        self.stop_accepting_verdicts();
        drop(self.take_started_calls());
        self.update_run_data(|_| RunData::new());
        self.tombstone_queue.close();
        let mut inbox = lock_ignoring_poison(&self.inbox);
        inbox.is_closed = true;
        inbox.queued_bytes = 0;
        let steered = std::mem::take(&mut inbox.steering);
        steered.into_iter().chain(std::mem::take(&mut inbox.follow_ups)).collect()
    }
}

/// Returns the number of bytes that count towards [`MAX_QUEUED_BYTES`].
pub(crate) fn queued_bytes(items: &[Item]) -> usize {
    let part_bytes = |item: &Item| match &item.kind {
        ItemKind::User { content: Content::Parts(parts) } => parts.len() * size_of::<Part>(),
        _ => 0,
    };
    items.iter().map(|item| ITEM_BYTES + part_bytes(item) + item.byte_len()).sum()
}

impl Inbox {
    /// Queues input unless the run is over. Input without items is ignored.
    fn push(&mut self, when: DeliveryPoint, input: UndeliveredInput) -> Result<(), RefusedInput> {
        if self.is_closed {
            return Err(RefusedInput::RunIsOver(input));
        }
        if !input.items.is_empty() {
            self.queued_bytes += queued_bytes(&input.items);
            self.queue_mut(when).push_back(input);
        }
        Ok(())
    }

    fn queued_inputs(&self) -> usize {
        self.steering.len() + self.follow_ups.len()
    }

    fn queue_mut(&mut self, when: DeliveryPoint) -> &mut VecDeque<UndeliveredInput> {
        match when {
            DeliveryPoint::BeforeNextRequest => &mut self.steering,
            DeliveryPoint::AfterModelStops => &mut self.follow_ups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Media, MediaSource};

    #[test]
    fn parts_without_text_and_media_types_count_towards_the_size_of_queued_input() {
        let control = Control::default();
        let input =
            |parts: Vec<Part>| UndeliveredInput { id: "i".into(), items: vec![Item::user(parts)] };
        let enqueue = |parts| control.enqueue_input(DeliveryPoint::BeforeNextRequest, input(parts));
        enqueue(vec![Part::from("first")]).unwrap();
        let empty = vec![Part::from(""); MAX_QUEUED_BYTES / size_of::<Part>() + 1];
        assert!(matches!(enqueue(empty), Err(RefusedInput::QueueIsFull(_))));
        let media_type = format!("image/{}", "a".repeat(MAX_QUEUED_BYTES));
        let picture =
            Part::Image(Media { media_type, source: MediaSource::Data(String::new()), name: None });
        assert!(matches!(enqueue(vec![picture]), Err(RefusedInput::QueueIsFull(_))));
        enqueue(vec![Part::from("second")]).unwrap();
    }

    #[test]
    fn input_that_another_queue_has_accepted_is_not_limited_again() {
        let control = Control::default();
        let input = |n: usize| UndeliveredInput { id: n.to_string(), items: vec![Item::user("a")] };
        let when = DeliveryPoint::BeforeNextRequest;
        for n in 0..MAX_QUEUED_INPUTS {
            control.enqueue_input(when, input(n)).unwrap();
        }
        let refused = control.enqueue_input(when, input(MAX_QUEUED_INPUTS));
        assert!(matches!(refused, Err(RefusedInput::QueueIsFull(_))));
        control.enqueue_accepted_input(when, input(MAX_QUEUED_INPUTS)).unwrap();
        let ids = std::iter::from_fn(|| control.dequeue_input(when, 1)).map(|input| input.id);
        assert!(ids.eq((0..=MAX_QUEUED_INPUTS).map(|n| n.to_string())));
    }

    #[test]
    fn every_accepted_verdict_is_used_and_late_ones_are_rejected() {
        let json = r#"{"approval_id":"a","call_id":"c","name":"t","arguments":"{}"}"#;
        let call: PendingCall = serde_json::from_str(json).unwrap();
        let approve = |control: &Control| control.submit_verdict(&call, Verdict::Approve);
        for in_time in [true, false] {
            let control = Control::default();
            control.register_awaited_verdict(&call, false);
            // A check found no verdict; then, in one case, another thread submits one.
            assert_eq!(control.take_verdict(&call), None);
            assert!(!in_time || approve(&control).is_ok());
            assert_eq!(control.has_verdict_or_stop_accepting(), in_time);
            assert_eq!(control.take_verdict(&call), in_time.then_some(Verdict::Approve));
            assert_eq!(approve(&control), Err(VerdictRejection::NotAwaited));
        }
    }
}
