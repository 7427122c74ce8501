//! The cell that a run and its handles share.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Waker;

use futures::task::AtomicWaker;
use tokio::time::Instant;

use crate::agent::Verdicts;
use crate::agent::admission::Admission;
use crate::agent::budget::Spent;
use crate::agent::observers::Observers;
use crate::agent::tombstone_queue::TombstoneQueue;
use crate::env::Ids;
use crate::error::Error;
use crate::event::{Event, Undelivered};
use crate::item::ToolCall;
use crate::lock::lock_ignoring_poison;
use crate::story::Journal;
use crate::tool::{RunData, ToolContext, Verdict};
use crate::usage::{Price, Usage};

/// What holders want of a run, and what it has used. Its locks are never held across an await, and
/// no event travels through it.
#[derive(Default)]
pub(super) struct Control {
    interrupted: AtomicBool,
    stopping: AtomicBool,
    waker: AtomicWaker,
    /// When the run was first polled, where somebody counts the time.
    started: OnceLock<Instant>,
    said: Mutex<Said>,
    tombstones: TombstoneQueue,
    asked: Mutex<HashMap<String, Asked>>,
    /// The contexts of the calls of this turn that have started, in that order.
    started_calls: Mutex<Vec<ToolContext>>,
    charged: Mutex<Charged>,
    children: Mutex<HashMap<String, Child>>,
    /// The label of the run's agent below those above it.
    label: OnceLock<Arc<str>>,
    /// The run that this one is a sub-agent of, if it is one.
    parent: OnceLock<Weak<Self>>,
    /// How many handles there are outside the run.
    handles: AtomicUsize,
    /// Nothing can be done to the run between two polls, but by handles.
    unattended: AtomicBool,
    /// The verdicts on calls of sub-agents that were suspended, until these continue.
    verdicts: Mutex<Verdicts>,
    observers: Observers,
    /// How the last request failed that did, of which hooks know.
    last_failure: Mutex<Option<Error>>,
    /// A request was handed to a provider, and what it used is not counted yet.
    asking: AtomicBool,
    broke_off: AtomicBool,
    /// The time that was kept for a last turn is not needed for one.
    needs_no_last_turn: AtomicBool,
    admission: Admission,
    data: Mutex<RunData>,
    /// How many changes of the history the body was handed which the run has not had yet.
    owed: AtomicUsize,
}

#[derive(Default)]
struct Said {
    steered: VecDeque<Undelivered>,
    follow_ups: VecDeque<Undelivered>,
    delivered: HashMap<String, u32>,
    over: bool,
}

/// A call that waits for a verdict.
struct Asked {
    call: ToolCall,
    /// Its tool runs elsewhere: an approval does not answer it.
    external: bool,
    verdict: Option<Verdict>,
}

/// What was counted against budgets until now.
#[derive(Clone, Copy, Default)]
pub(super) struct Charged {
    pub(super) usage: Usage,
    /// In millionths.
    pub(super) cost: u64,
    /// Of the model that was asked last, where money is limited. It is kept here since a run may
    /// end before its state is replaced.
    price: Option<Price>,
}

/// When what a holder says is to be said.
#[derive(Clone, Copy)]
pub(super) enum When {
    NextRequest,
    ModelStops,
}

/// The run of a sub-agent, as the run of its parent sees it.
#[derive(Clone)]
pub(super) struct Child {
    pub(super) control: Arc<Control>,
    pub(super) journal: Journal,
    pub(super) ids: Arc<dyn Ids>,
}

impl Control {
    pub(super) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    pub(super) fn stop_after_turn(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Is called before a poll that may be pending, so that an interrupt or a verdict wakes it.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn started(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    pub(super) fn say(&self, when: When, input: Undelivered) -> Result<(), Undelivered> {
        let mut said = lock_ignoring_poison(&self.said);
        if said.over {
            return Err(input);
        }
        if !input.items.is_empty() {
            said.queue(when).push_back(input);
        }
        Ok(())
    }

    pub(super) fn is_waiting(&self, when: When) -> bool {
        !lock_ignoring_poison(&self.said).queue(when).is_empty()
    }

    /// What is said next, as the `turn`th request is made.
    pub(super) fn take(&self, when: When, turn: u32) -> Option<Undelivered> {
        let mut said = lock_ignoring_poison(&self.said);
        let input = said.queue(when).pop_front()?;
        said.delivered.insert(input.id.clone(), turn);
        Some(input)
    }

    pub(super) fn delivered(&self, id: &str) -> Option<u32> {
        lock_ignoring_poison(&self.said).delivered.get(id).copied()
    }

    pub(super) fn ask(&self, call: &ToolCall, external: bool) {
        let asked = Asked { call: call.clone(), external, verdict: None };
        lock_ignoring_poison(&self.asked).insert(call.call_id.clone(), asked);
    }

    /// Takes a verdict, if exactly this call waits for one.
    pub(super) fn decide(&self, call: &ToolCall, verdict: Verdict) -> bool {
        let mut asked = lock_ignoring_poison(&self.asked);
        let waiting = asked.get_mut(&call.call_id);
        let Some(waiting) = waiting.filter(|it| it.call == *call && it.verdict.is_none()) else {
            return false;
        };
        if waiting.external && verdict == Verdict::Approve {
            return false;
        }
        waiting.verdict = Some(verdict);
        drop(asked);
        self.waker.wake();
        true
    }

    pub(super) fn verdict(&self, call: &ToolCall) -> Option<Verdict> {
        let mut asked = lock_ignoring_poison(&self.asked);
        let verdict = asked.get(&call.call_id)?.verdict.clone()?;
        asked.remove(&call.call_id);
        Some(verdict)
    }

    /// No verdict counts any more, unless one is there that nobody has looked at. Tells whether
    /// that is so.
    pub(super) fn holds_verdict_or_closes(&self) -> bool {
        let mut asked = lock_ignoring_poison(&self.asked);
        let holds = asked.values().any(|it| it.verdict.is_some());
        if !holds {
            asked.clear();
        }
        holds
    }

    /// No verdict counts any more.
    pub(super) fn close_verdicts(&self) {
        lock_ignoring_poison(&self.asked).clear();
    }

    /// Sets what is paid for what comes from here on.
    pub(super) fn set_price(&self, price: Option<Price>) {
        lock_ignoring_poison(&self.charged).price = price;
    }

    pub(super) fn start(&self, context: &ToolContext) {
        lock_ignoring_poison(&self.started_calls).push(context.clone());
    }

    /// The contexts of the calls that have started since this was last asked for.
    pub(super) fn take_started(&self) -> Vec<ToolContext> {
        std::mem::take(&mut *lock_ignoring_poison(&self.started_calls))
    }

    /// Counts what came on top since the last time, and gives all of it.
    pub(super) fn charge(&self, usage: Usage, drain: impl FnOnce(Usage)) -> Charged {
        let mut charged = lock_ignoring_poison(&self.charged);
        let more = usage.since(charged.usage);
        if more != Usage::default() {
            drain(more);
            let cost = charged.price.map_or(0, |price| price.cost(&more));
            charged.cost = charged.cost.saturating_add(cost);
            charged.usage = usage;
        }
        *charged
    }

    /// What the run will have spent once `usage` is counted.
    pub(super) fn would_have_spent(&self, usage: Usage, tool_calls: u32) -> Spent {
        let charged = *lock_ignoring_poison(&self.charged);
        let more = charged.price.map_or(0, |price| price.cost(&usage.since(charged.usage)));
        let (cost, elapsed) = (charged.cost.saturating_add(more), self.started().elapsed());
        Spent { usage, cost, elapsed, tool_calls }
    }

    /// The items that are to become void.
    pub(super) fn tombstones(&self) -> &TombstoneQueue {
        &self.tombstones
    }

    pub(super) fn set_label(&self, label: Arc<str>) {
        let _ = self.label.set(label);
    }

    /// What tells the run's agent apart; empty if nothing does.
    pub(super) fn label(&self) -> &str {
        self.label.get().map_or("", |label| label)
    }

    /// The hooks that observe the run.
    pub(super) fn observers(&self) -> &Observers {
        &self.observers
    }

    /// Hooks are told that a request has failed.
    pub(super) fn request_has_failed(&self, error: &Error) {
        let before = lock_ignoring_poison(&self.last_failure).replace(error.clone());
        drop(before);
    }

    /// How the last request failed that did.
    pub(super) fn last_failure(&self) -> Option<Error> {
        lock_ignoring_poison(&self.last_failure).clone()
    }

    /// Changes what the tools of the run are handed.
    pub(super) fn change_data(&self, change: impl FnOnce(RunData) -> RunData) {
        let data = self.data();
        *lock_ignoring_poison(&self.data) = change(data);
    }

    pub(super) fn data(&self) -> RunData {
        lock_ignoring_poison(&self.data).clone()
    }

    /// A request is handed to a provider.
    pub(super) fn request_is_open(&self) {
        self.asking.store(true, Ordering::Release);
    }

    /// The request is answered, has failed, or was dropped.
    pub(super) fn request_is_closed(&self) {
        self.asking.store(false, Ordering::Release);
    }

    /// Whether a provider has a request.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Acquire)
    }

    /// Whether the turn that failed last [broke off](crate::agent::Facts::broke_off).
    pub(super) fn broke_off(&self) -> bool {
        self.broke_off.load(Ordering::Acquire)
    }

    pub(super) fn set_broke_off(&self, broke_off: bool) {
        self.broke_off.store(broke_off, Ordering::Release);
    }

    /// Whether the time that was kept for a last turn belongs to what runs.
    pub(super) fn has_all_of_the_time(&self) -> bool {
        self.needs_no_last_turn.load(Ordering::Acquire)
    }

    /// No last turn follows what runs now, or it has begun.
    pub(super) fn give_all_of_the_time(&self) {
        self.needs_no_last_turn.store(true, Ordering::Release);
    }

    /// The body is handed an event. One that changes the history has to come to the run before the body
    /// looks at the history again.
    pub(super) fn hand_out(&self, event: &Event) {
        if event.changes_items() {
            self.owed.fetch_add(1, Ordering::Release);
        }
    }

    /// The run has an event.
    pub(super) fn has_come(&self, event: &Event) {
        if event.changes_items() {
            let less = |owed: usize| owed.checked_sub(1);
            let _ = self.owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// The body that was handed events is no more.
    pub(super) fn nothing_is_owed(&self) {
        self.owed.store(0, Ordering::Release);
    }

    /// Whether the history lacks a change that the body was handed.
    pub(super) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Acquire) > 0
    }

    /// What the run holds of its pool.
    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Takes a run as that of a sub-agent. It can be answered wherever this one can.
    pub(super) fn adopt(self: &Arc<Self>, call_id: &str, child: Child) {
        child.control.set_unattended();
        let _ = child.control.parent.set(Arc::downgrade(self));
        let before = lock_ignoring_poison(&self.children).insert(call_id.to_owned(), child);
        drop(before);
    }

    pub(super) fn child(&self, call_id: &str) -> Option<Child> {
        lock_ignoring_poison(&self.children).get(call_id).cloned()
    }

    pub(super) fn keep_verdicts(&self, verdicts: Verdicts) {
        let before = std::mem::replace(&mut *lock_ignoring_poison(&self.verdicts), verdicts);
        drop(before);
    }

    /// The verdicts on the calls of a sub-agent that was suspended.
    pub(super) fn verdicts_in(&self, call_id: &str) -> Verdicts {
        lock_ignoring_poison(&self.verdicts).nested(call_id).cloned().unwrap_or_default()
    }

    pub(super) fn handle_is_made(&self) {
        self.handles.fetch_add(1, Ordering::AcqRel);
    }

    /// Without a handle a run that waits may wait in vain.
    pub(super) fn handle_is_dropped(&self) {
        if self.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    pub(super) fn set_unattended(&self) {
        self.unattended.store(true, Ordering::Release);
    }

    /// Whether a verdict can come: from the owner of the stream that is polled, from a handle, or from
    /// where the run of the parent can be answered.
    pub(super) fn can_be_answered(&self) -> bool {
        !self.unattended.load(Ordering::Acquire)
            || self.handles.load(Ordering::Acquire) > 0
            || self.parent.get().and_then(Weak::upgrade).is_some_and(|it| it.can_be_answered())
    }

    /// Wakes the run and those of its sub-agents.
    fn wake(&self) {
        self.waker.wake();
        let children: Vec<_> = lock_ignoring_poison(&self.children).values().cloned().collect();
        for child in children {
            child.control.wake();
        }
    }

    /// Nothing is taken any more; gives back what waits.
    pub(super) fn close(&self) -> Vec<Undelivered> {
        drop(self.waker.take());
        self.close_verdicts();
        drop(self.take_started());
        self.change_data(|_| RunData::new());
        self.tombstones.close();
        let mut said = lock_ignoring_poison(&self.said);
        said.over = true;
        let steered = std::mem::take(&mut said.steered);
        steered.into_iter().chain(std::mem::take(&mut said.follow_ups)).collect()
    }
}

impl Said {
    fn queue(&mut self, when: When) -> &mut VecDeque<Undelivered> {
        match when {
            When::NextRequest => &mut self.steered,
            When::ModelStops => &mut self.follow_ups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_that_was_taken_is_heard_and_none_is_taken_that_would_not_be() {
        let call = ToolCall { call_id: "c".into(), name: "t".into(), arguments: "{}".into() };
        for in_time in [true, false] {
            let control = Control::default();
            control.ask(&call, false);
            // Somebody looked and found none; then one comes from another thread, or does not.
            assert_eq!(control.verdict(&call), None);
            assert!(!in_time || control.decide(&call, Verdict::Approve));
            assert_eq!(control.holds_verdict_or_closes(), in_time);
            assert_eq!(control.verdict(&call), in_time.then_some(Verdict::Approve));
            assert!(!control.decide(&call, Verdict::Approve));
        }
    }
}
