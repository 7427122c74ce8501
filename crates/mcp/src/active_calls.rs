//! Tracks the calls in progress on a connection, and delivers the server's messages to these calls.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::lock::lock_ignoring_poison;

/// The maximum number of unregistered calls whose progress is kept.
const MAX_EARLY_PROGRESS: usize = 64;

/// The maximum length of a progress token, all of which the client has created, in bytes.
const MAX_TOKEN_BYTES: usize = 64;

/// The maximum number of questions from the server that can be queued for each registered call, and
/// for all unregistered calls together.
const MAX_WAITING_QUESTIONS: usize = 16;

/// The calls in progress on a connection. The connection's tasks store incoming messages here, and
/// each call takes its messages when it is polled. Messages for dropped calls are discarded.
#[derive(Debug, Default)]
pub(crate) struct ActiveCalls {
    registered: Mutex<Registered>,
    next_number: AtomicU64,
}

#[derive(Debug, Default)]
struct Registered {
    calls: Vec<Arc<ActiveCall>>,
    early_progress: HashMap<String, Value>,
    /// The number of calls that are being sent and do not have a known id yet.
    sending_count: usize,
    /// Questions that may belong to calls that are being sent, each paired with the id of its
    /// request, if known.
    early_questions: Vec<(Option<String>, Question)>,
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct ActiveCall {
    number: u64,
    /// The id of the call's request, as JSON, which is also the format of the progress token.
    request_id: String,
    progress_token: String,
    state: Mutex<CallState>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct CallState {
    /// The latest progress that the call has not taken yet. Newer progress replaces older progress.
    progress: Option<Value>,
    questions: VecDeque<Question>,
    is_over: bool,
}

/// A request from the server, and the channel for sending the answer. Dropping a question declines
/// it.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) answer: oneshot::Sender<Value>,
}

/// A message from the server that belongs to a call, other than the call's answer.
#[derive(Debug)]
pub(crate) enum Arrived {
    Progress(Value),
    Question(Question),
}

/// A call that is being sent. Any questions that the server asks before the call is registered are
/// held until the call is registered or this value is dropped.
#[derive(Debug)]
pub(crate) struct SendingCall(Arc<ActiveCalls>);

impl Drop for SendingCall {
    fn drop(&mut self) {
        let mut registered = lock_ignoring_poison(&self.0.registered);
        registered.sending_count -= 1;
        let unclaimed = match registered.sending_count {
            0 => std::mem::take(&mut registered.early_questions),
            _ => Vec::new(),
        };
        drop(registered);
        drop(unclaimed);
    }
}

impl ActiveCalls {
    /// Announces that a call is about to be sent.
    pub(crate) fn begin_sending(self: &Arc<Self>) -> SendingCall {
        lock_ignoring_poison(&self.registered).sending_count += 1;
        SendingCall(Arc::clone(self))
    }

    /// Registers a call that has been sent. Dropping the returned guard unregisters the call.
    pub(crate) fn register(
        self: &Arc<Self>,
        request_id: String,
        progress_token: String,
    ) -> ActiveCallGuard {
        let mut registered = lock_ignoring_poison(&self.registered);
        let progress = registered.early_progress.remove(&progress_token);
        let is_of_call = |(id, _): &mut (Option<String>, Question)| {
            id.as_ref().is_none_or(|id| *id == request_id)
        };
        let early = registered.early_questions.extract_if(.., is_of_call);
        let questions = early.map(|(_, question)| question).collect();
        let call = Arc::new(ActiveCall {
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            request_id,
            progress_token,
            state: Mutex::new(CallState { progress, questions, is_over: false }),
            waker: AtomicWaker::new(),
        });
        registered.calls.push(Arc::clone(&call));
        drop(registered);
        ActiveCallGuard { calls: Arc::clone(self), call }
    }

    /// Stores progress for the call with this token, replacing any progress that the call has not
    /// taken yet.
    pub(crate) fn on_progress(&self, token: &str, progress: Value) {
        let mut registered = lock_ignoring_poison(&self.registered);
        match registered.calls.iter().find(|call| call.progress_token == token).cloned() {
            Some(call) => {
                drop(registered);
                lock_ignoring_poison(&call.state).progress = Some(progress);
                call.waker.wake();
            }
            // No call has such a token.
            None if token.len() > MAX_TOKEN_BYTES => {}
            None => {
                // Most entries belong to calls that have already ended.
                if registered.early_progress.len() >= MAX_EARLY_PROGRESS {
                    registered.early_progress.clear();
                }
                registered.early_progress.insert(token.to_owned(), progress);
            }
        }
    }

    /// Passes a question to the registered call with the given request id or, without an id, to the
    /// newest registered call. If there is no such call, the question is held while calls are being
    /// sent. Returns the question as an error if it can be neither passed on nor held.
    pub(crate) fn on_question(
        &self,
        request_id: Option<&str>,
        question: Question,
    ) -> Result<(), Question> {
        let mut registered = lock_ignoring_poison(&self.registered);
        let call = match request_id {
            Some(id) => registered.calls.iter().find(|call| call.request_id == id),
            None => registered.calls.last(),
        };
        let Some(call) = call.cloned() else {
            // Questions that the server has withdrawn are not waiting any more.
            registered.early_questions.retain(|(_, question)| !question.answer.is_closed());
            let is_full = registered.early_questions.len() >= MAX_WAITING_QUESTIONS;
            if registered.sending_count == 0 || is_full {
                return Err(question);
            }
            registered.early_questions.push((request_id.map(str::to_owned), question));
            return Ok(());
        };
        drop(registered);
        let mut state = lock_ignoring_poison(&call.state);
        state.questions.retain(|question| !question.answer.is_closed());
        if state.is_over || state.questions.len() >= MAX_WAITING_QUESTIONS {
            return Err(question);
        }
        state.questions.push_back(question);
        drop(state);
        call.waker.wake();
        Ok(())
    }
}

/// A guard for a registered call. Dropping the guard unregisters the call.
#[derive(Debug)]
pub(crate) struct ActiveCallGuard {
    calls: Arc<ActiveCalls>,
    call: Arc<ActiveCall>,
}

impl ActiveCallGuard {
    /// Polls for the call's next message, other than its answer, and removes the message from the
    /// queue.
    pub(crate) fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<Arrived> {
        self.call.waker.register(cx.waker());
        let mut state = lock_ignoring_poison(&self.call.state);
        if let Some(progress) = state.progress.take() {
            return Poll::Ready(Arrived::Progress(progress));
        }
        match state.questions.pop_front() {
            Some(question) => Poll::Ready(Arrived::Question(question)),
            None => Poll::Pending,
        }
    }
}

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        let number = self.call.number;
        lock_ignoring_poison(&self.calls.registered).calls.retain(|call| call.number != number);
        let mut state = lock_ignoring_poison(&self.call.state);
        state.is_over = true;
        let questions = std::mem::take(&mut state.questions);
        drop(state);
        drop(questions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> (Question, oneshot::Receiver<Value>) {
        let (answer, answered) = oneshot::channel();
        (Question { method: "m".to_owned(), params: Value::Null, answer }, answered)
    }

    #[test]
    fn withdrawn_questions_are_not_kept() {
        let calls = Arc::<ActiveCalls>::default();
        let guard = calls.register("1".to_owned(), "1".to_owned());
        for _ in 0..4 * MAX_WAITING_QUESTIONS {
            let (question, answered) = question();
            assert!(calls.on_question(Some("1"), question).is_ok());
            drop(answered);
        }
        assert_eq!(lock_ignoring_poison(&guard.call.state).questions.len(), 1);
    }

    fn arrived(guard: &ActiveCallGuard) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        matches!(guard.poll_arrived(&mut cx), Poll::Ready(Arrived::Question(_)))
    }

    #[test]
    fn a_question_received_before_its_call_is_registered_waits_for_it() {
        for id in [None, Some("2")] {
            let calls = Arc::new(ActiveCalls::default());
            let sending = [calls.begin_sending(), calls.begin_sending()];
            let (question, mut answered) = question();
            assert!(calls.on_question(id, question).is_ok());
            let other = id.map(|_| calls.register("1".to_owned(), "1".to_owned()));
            assert!(other.is_none_or(|other| !arrived(&other)), "it is not of this call");
            let call = calls.register("2".to_owned(), "2".to_owned());
            drop(sending);
            assert!(arrived(&call));
            assert!(answered.try_recv().is_err());
        }
    }

    #[test]
    fn a_question_is_declined_if_no_call_is_sent_or_its_call_is_never_registered() {
        let calls = Arc::new(ActiveCalls::default());
        assert!(calls.on_question(None, question().0).is_err());
        let (first, second) = (calls.begin_sending(), calls.begin_sending());
        let (question, mut answered) = question();
        assert!(calls.on_question(Some("1"), question).is_ok());
        drop(first);
        assert_eq!(answered.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(second);
        assert_eq!(answered.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn at_most_sixteen_questions_wait_for_a_call() {
        let calls = Arc::new(ActiveCalls::default());
        let mut open = Vec::new();
        let mut accepted_count = || {
            let (questions, receivers): (Vec<_>, Vec<_>) = (0..100).map(|_| question()).unzip();
            open.extend(receivers);
            questions.into_iter().filter_map(|it| calls.on_question(Some("1"), it).ok()).count()
        };
        let sending = calls.begin_sending();
        assert_eq!(accepted_count(), 16);
        let call = calls.register("1".to_owned(), "1".to_owned());
        drop(sending);
        assert_eq!(accepted_count(), 0);
        assert_eq!((0..100).filter(|_| arrived(&call)).count(), 16);
        assert_eq!(accepted_count(), 16);
    }
}
