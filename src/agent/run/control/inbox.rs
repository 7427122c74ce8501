//! The input that waits for a run.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use crate::agent::run::tombstone_queue::TombstoneQueue;
use crate::event::UndeliveredInput;
use crate::item::{Content, Item, ItemKind, Part};
use crate::lock::lock_ignoring_poison;

/// The maximum number of inputs that wait for a run.
const MAX_QUEUED_INPUTS: usize = 1_000;

/// The maximum size of all inputs that wait for a run, unless only one input waits.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// The number of bytes that an item counts in addition to its text and data.
const ITEM_BYTES: usize = size_of::<Item>();

/// The input that handles have queued for a run, and the changes that they make to items.
#[derive(Default)]
pub(in crate::agent) struct Inbox {
    queues: Mutex<InputQueues>,
    /// The items that will become tombstones.
    pub(in crate::agent) tombstone_queue: TombstoneQueue,
}

#[derive(Default)]
struct InputQueues {
    steering: VecDeque<UndeliveredInput>,
    follow_ups: VecDeque<UndeliveredInput>,
    /// The total size of the queued input.
    queued_bytes: usize,
    delivery_turns: HashMap<String, u32>,
    is_closed: bool,
}

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

/// The point in a run at which queued input is delivered.
#[derive(Clone, Copy)]
pub(in crate::agent) enum DeliveryPoint {
    BeforeNextRequest,
    AfterModelStops,
}

impl DeliveryPoint {
    /// Returns the point at which steering input, or a follow-up, is delivered.
    pub(in crate::agent) fn of_input(is_follow_up: bool) -> Self {
        match is_follow_up {
            true => Self::AfterModelStops,
            false => Self::BeforeNextRequest,
        }
    }
}

impl Inbox {
    pub(in crate::agent) fn enqueue(
        &self,
        when: DeliveryPoint,
        input: UndeliveredInput,
    ) -> Result<(), RefusedInput> {
        let mut queues = lock_ignoring_poison(&self.queues);
        let is_full = queues.queued_inputs() >= MAX_QUEUED_INPUTS
            || queues.queued_bytes.saturating_add(queued_bytes(&input.items)) > MAX_QUEUED_BYTES;
        // If the queue is empty, input of any size is accepted: otherwise, it could never be sent.
        if is_full && queues.queued_inputs() > 0 && !queues.is_closed {
            return Err(RefusedInput::QueueIsFull(input));
        }
        queues.push(when, input)
    }

    /// Queues input that another queue has already accepted, so that the limits of this queue do
    /// not apply.
    pub(in crate::agent) fn enqueue_accepted(
        &self,
        when: DeliveryPoint,
        input: UndeliveredInput,
    ) -> Result<(), RefusedInput> {
        lock_ignoring_poison(&self.queues).push(when, input)
    }

    pub(in crate::agent) fn has_input(&self, when: DeliveryPoint) -> bool {
        !lock_ignoring_poison(&self.queues).queue_mut(when).is_empty()
    }

    /// Removes and returns the next queued input, which is to be delivered in request number
    /// `turn`.
    pub(in crate::agent) fn dequeue(
        &self,
        when: DeliveryPoint,
        turn: u32,
    ) -> Option<UndeliveredInput> {
        let mut queues = lock_ignoring_poison(&self.queues);
        let input = queues.queue_mut(when).pop_front()?;
        queues.queued_bytes -= queued_bytes(&input.items);
        queues.delivery_turns.insert(input.id.clone(), turn);
        Some(input)
    }

    /// Records the request that delivers input which an earlier attempt of a durable run has
    /// dequeued.
    pub(in crate::agent) fn record_delivery(&self, id: &str, turn: u32) {
        let mut queues = lock_ignoring_poison(&self.queues);
        if !queues.delivery_turns.contains_key(id) {
            queues.delivery_turns.insert(id.to_owned(), turn);
        }
    }

    /// Calls `act` if this input is queued. The input is not dequeued meanwhile.
    pub(in crate::agent) fn if_queued(&self, id: &str, act: impl FnOnce()) {
        let queues = lock_ignoring_poison(&self.queues);
        if queues.steering.iter().chain(&queues.follow_ups).any(|input| input.id == id) {
            act();
        }
    }

    /// Calls `act` unless the run is over or this input has been dequeued. The input is not
    /// dequeued meanwhile.
    pub(in crate::agent) fn if_undelivered(&self, id: &str, act: impl FnOnce()) {
        let queues = lock_ignoring_poison(&self.queues);
        if !queues.is_closed && !queues.delivery_turns.contains_key(id) {
            act();
        }
    }

    pub(in crate::agent) fn delivery_turn(&self, id: &str) -> Option<u32> {
        lock_ignoring_poison(&self.queues).delivery_turns.get(id).copied()
    }

    /// Returns whether the run is over.
    pub(super) fn is_closed(&self) -> bool {
        lock_ignoring_poison(&self.queues).is_closed
    }

    /// Refuses all further input, and returns the input that is still queued.
    pub(in crate::agent) fn close_and_drain(&self) -> Vec<UndeliveredInput> {
        self.tombstone_queue.close();
        let mut queues = lock_ignoring_poison(&self.queues);
        queues.is_closed = true;
        queues.queued_bytes = 0;
        let steering = std::mem::take(&mut queues.steering);
        steering.into_iter().chain(std::mem::take(&mut queues.follow_ups)).collect()
    }
}

impl InputQueues {
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

/// Returns the number of bytes that count towards [`MAX_QUEUED_BYTES`].
pub(crate) fn queued_bytes(items: &[Item]) -> usize {
    let part_bytes = |item: &Item| match &item.kind {
        ItemKind::User { content: Content::Parts(parts) } => parts.len() * size_of::<Part>(),
        _ => 0,
    };
    items.iter().map(|item| ITEM_BYTES + part_bytes(item) + item.byte_len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Media, MediaSource};

    #[test]
    fn parts_without_text_and_media_types_count_towards_the_size_of_queued_input() {
        let inbox = Inbox::default();
        let input =
            |parts: Vec<Part>| UndeliveredInput { id: "i".into(), items: vec![Item::user(parts)] };
        let enqueue = |parts| inbox.enqueue(DeliveryPoint::BeforeNextRequest, input(parts));
        enqueue(vec![Part::from("first")]).unwrap();
        let empty = vec![Part::from(""); MAX_QUEUED_BYTES / size_of::<Part>() + 1];
        assert!(matches!(enqueue(empty), Err(RefusedInput::QueueIsFull(_))));
        let media_type = format!("image/{}", "a".repeat(MAX_QUEUED_BYTES));
        let picture = Part::Image(Media::new(media_type, MediaSource::Data("".into())));
        assert!(matches!(enqueue(vec![picture]), Err(RefusedInput::QueueIsFull(_))));
        enqueue(vec![Part::from("second")]).unwrap();
    }

    #[test]
    fn input_that_another_queue_has_accepted_is_not_limited_again() {
        let inbox = Inbox::default();
        let input = |n: usize| UndeliveredInput { id: n.to_string(), items: vec![Item::user("a")] };
        let when = DeliveryPoint::BeforeNextRequest;
        for n in 0..MAX_QUEUED_INPUTS {
            inbox.enqueue(when, input(n)).unwrap();
        }
        let refused = inbox.enqueue(when, input(MAX_QUEUED_INPUTS));
        assert!(matches!(refused, Err(RefusedInput::QueueIsFull(_))));
        inbox.enqueue_accepted(when, input(MAX_QUEUED_INPUTS)).unwrap();
        let ids = std::iter::from_fn(|| inbox.dequeue(when, 1)).map(|input| input.id);
        assert!(ids.eq((0..=MAX_QUEUED_INPUTS).map(|n| n.to_string())));
    }
}
