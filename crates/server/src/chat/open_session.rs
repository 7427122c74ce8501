//! An open session, and this process's state for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use turnstream::item::PendingCall;
use turnstream::session::{Session, SessionState};
use turnstream::tool::Verdict;

use super::failure::Failure;
use super::message_queue::MessageQueue;
use super::request_keys::RequestKeys;
use super::requests::WaitingCalls;
use super::run_records::RunRecords;

/// An open session, and this process's state for it.
pub(super) struct OpenSession {
    pub(super) session: Session,
    /// Locked while a run starts.
    pub(super) starting: tokio::sync::Mutex<RequestKeys>,
    runs: Mutex<RunRecords>,
    /// The verdicts that were received while others are missing.
    verdicts: Mutex<Vec<(PendingCall, Verdict)>>,
    pub(super) queue: MessageQueue,
}

/// The verdicts on the waiting calls.
pub(super) enum Verdicts {
    /// All waiting calls have a verdict.
    Complete(Vec<(PendingCall, Verdict)>),
    /// This number of verdicts is missing.
    Missing(usize),
}

impl OpenSession {
    pub(super) fn new(session: Session) -> Self {
        Self {
            session,
            starting: tokio::sync::Mutex::default(),
            runs: Mutex::default(),
            verdicts: Mutex::default(),
            queue: MessageQueue::default(),
        }
    }

    /// Returns whether the session may be closed without forgetting an idempotency key or a
    /// verdict.
    pub(super) fn may_close(&self) -> bool {
        self.lock_verdicts().is_empty()
            && self.starting.try_lock().is_ok_and(|mut keys| keys.is_empty())
    }

    pub(super) fn runs(&self) -> MutexGuard<'_, RunRecords> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a message that would give up calls that wait for approval, unless it says so. No run
    /// is active.
    pub(super) fn check_waiting_calls(&self, waiting_calls: WaitingCalls) -> Result<(), Failure> {
        match (waiting_calls, self.count_waiting_calls()) {
            (WaitingCalls::GiveUp, _) | (WaitingCalls::Keep, 0) => Ok(()),
            (WaitingCalls::Keep, count) => Err(Failure::calls_wait(count)),
        }
    }

    pub(super) fn count_waiting_calls(&self) -> usize {
        match self.session.state() {
            SessionState::Pending { calls } => calls.len(),
            SessionState::Idle | SessionState::Unfinished { .. } => 0,
        }
    }

    /// Adds verdicts. The calls have to be pending, with the arguments that the user has seen.
    pub(super) fn add_verdicts(
        &self,
        given: Vec<(PendingCall, Verdict)>,
    ) -> Result<Verdicts, Failure> {
        let SessionState::Pending { calls } = self.session.state() else {
            return Err(Failure::conflict("no call is waiting for a verdict"));
        };
        if given.iter().any(|(call, _)| !calls.contains(call)) {
            return Err(Failure::conflict(
                "this call is not waiting for a verdict, or has other arguments",
            ));
        }
        let mut verdicts = self.lock_verdicts();
        verdicts.retain(|(known, _)| calls.contains(known));
        for (call, verdict) in given {
            verdicts.retain(|(known, _)| *known != call);
            verdicts.push((call, verdict));
        }
        Ok(match calls.len() - verdicts.len() {
            0 => Verdicts::Complete(verdicts.clone()),
            missing => Verdicts::Missing(missing),
        })
    }

    /// Clears the verdicts after they were passed to a run.
    pub(super) fn clear_verdicts(&self) {
        self.lock_verdicts().clear();
    }

    fn lock_verdicts(&self) -> MutexGuard<'_, Vec<(PendingCall, Verdict)>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
