//! The signals that handles send to a run between two polls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use futures::task::AtomicWaker;

use crate::agent::run::control::flag::Flag;
use crate::lock::lock_ignoring_poison;

/// Requests of handles to end the run, and the waker of the run.
///
/// The fields that each poll of the run uses come first, so that they share a cache line.
#[derive(Default)]
#[repr(C)]
pub(in crate::agent) struct Signals {
    pub(in crate::agent) interrupted: Flag,
    pub(in crate::agent) stop_requested: Flag,
    /// Whether the current turn must end. Once the turn has ended or input follows, the request is
    /// fulfilled.
    pub(in crate::agent) turn_interrupted: Flag,
    waker: AtomicWaker,
    /// The reason that the first interrupt with a reason gave.
    interrupt_reason: OnceLock<Arc<str>>,
    /// The ids of the latest commands that have interrupted a turn. A command may arrive twice,
    /// through a hub and through an engine.
    turn_interrupt_ids: Mutex<VecDeque<String>>,
}

/// The number of ids that are remembered.
const MAX_TURN_INTERRUPT_IDS: usize = 16;

impl Signals {
    pub(in crate::agent) fn interrupt(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            self.set_interrupt_reason(reason);
        }
        self.interrupted.set(true);
        self.waker.wake();
    }

    pub(in crate::agent) fn interrupt_turn(&self) {
        self.turn_interrupted.set(true);
        self.waker.wake();
    }

    /// Requests the end of the run after its turn, and wakes the run, which may be waiting for a
    /// pool.
    pub(in crate::agent) fn stop_after_turn(&self) {
        self.stop_requested.set(true);
        self.waker.wake();
    }

    /// Interrupts the turn, unless the command with this id has already done so.
    pub(in crate::agent) fn interrupt_turn_once(&self, id: String) {
        {
            let mut ids = lock_ignoring_poison(&self.turn_interrupt_ids);
            if ids.contains(&id) {
                return;
            }
            if ids.len() == MAX_TURN_INTERRUPT_IDS {
                ids.pop_front();
            }
            ids.push_back(id);
        }
        self.interrupt_turn();
    }

    /// Sets the reason for the interrupt, unless an earlier interrupt has given a reason.
    pub(in crate::agent) fn set_interrupt_reason(&self, reason: String) {
        let _ = self.interrupt_reason.set(reason.into());
    }

    pub(in crate::agent) fn interrupt_reason(&self) -> Option<Arc<str>> {
        self.interrupt_reason.get().cloned()
    }

    /// Registers the waker through which an interrupt or a verdict wakes the run. Call this method
    /// before a poll that may return `Poll::Pending`.
    pub(in crate::agent) fn register_waker(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    pub(super) fn discard_waker(&self) {
        drop(self.waker.take());
    }
}
