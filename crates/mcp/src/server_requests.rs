//! Tracks the requests that a server has sent and this client has not answered yet. The number and
//! the size of these requests are limited, so that a server cannot fill the client's memory.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use tokio::sync::Notify;
use turnstream::item::count_json_values;

use crate::lock::lock_ignoring_poison;

/// The maximum number of requests that the client reads before it has sent their answers, apart
/// from questions that wait for the user. Further messages are not read until the server has read
/// an answer.
pub(crate) const MAX_UNANSWERED_REQUESTS: usize = 64;

/// The size of a JSON value in memory, in addition to its text. The size of small values is
/// determined by their number, not by their text.
const VALUE_OVERHEAD: usize = 100;

/// The requests of a server that this client has not answered yet.
#[derive(Debug)]
pub(crate) struct ServerRequests {
    /// The maximum total size of the requests that are being answered, and of those that wait for
    /// the user.
    max_bytes: usize,
    open: Mutex<OpenRequests>,
    waker: AtomicWaker,
}

#[derive(Debug, Default)]
struct OpenRequests {
    by_id: HashMap<String, OpenRequest>,
    /// The number and the size of the requests that are being answered.
    answering_count: usize,
    answering_bytes: usize,
    /// The size of the requests that wait for the user.
    asking_bytes: usize,
    /// The ids of the handshake's requests that the server has not answered yet.
    starting: HashSet<String>,
}

#[derive(Debug)]
struct OpenRequest {
    bytes: usize,
    stage: Stage,
    withdrawal: Arc<Notify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The client answers the request without waiting for anyone but the server.
    Answering,
    /// The request is a question that waits for the user.
    Asking,
    /// The server has withdrawn the request, so the answer is not sent.
    Withdrawn,
}

impl OpenRequests {
    fn set_stage(&mut self, id: &str, stage: Stage) {
        let Some(request) = self.by_id.get_mut(id) else { return };
        let (before, bytes) = (std::mem::replace(&mut request.stage, stage), request.bytes);
        self.remove_size(before, bytes);
        match stage {
            Stage::Asking => self.asking_bytes += bytes,
            Stage::Answering | Stage::Withdrawn => {
                self.answering_count += 1;
                self.answering_bytes += bytes;
            }
        }
    }

    /// Forgets the requests that rmcp has handled during the handshake, most of them without an
    /// answer.
    fn forget_requests(&mut self) {
        let starting = std::mem::take(&mut self.starting);
        *self = Self { starting, ..Self::default() };
    }

    fn remove(&mut self, id: &str) {
        if let Some(request) = self.by_id.remove(id) {
            self.remove_size(request.stage, request.bytes);
        }
    }

    fn remove_size(&mut self, stage: Stage, bytes: usize) {
        match stage {
            Stage::Asking => self.asking_bytes -= bytes,
            Stage::Answering | Stage::Withdrawn => {
                self.answering_count -= 1;
                self.answering_bytes -= bytes;
            }
        }
    }
}

/// An answer that is about to be sent. Dropping it records that the answer has been sent, or never
/// will be.
#[derive(Debug)]
pub(crate) struct UnsentAnswer {
    requests: Arc<ServerRequests>,
    id: String,
}

impl Drop for UnsentAnswer {
    fn drop(&mut self) {
        self.requests.update(|open| open.remove(&self.id));
    }
}

/// A request that waits for the user. Dropping it records that the client now answers the request.
#[derive(Debug)]
pub(crate) struct AskedQuestion {
    requests: Arc<ServerRequests>,
    id: String,
    withdrawal: Arc<Notify>,
}

impl AskedQuestion {
    /// Waits until the server withdraws the request.
    pub(crate) async fn withdrawn(&self) {
        self.withdrawal.notified().await;
    }
}

impl Drop for AskedQuestion {
    fn drop(&mut self) {
        self.requests.update(|open| {
            if open.by_id.get(&self.id).is_some_and(|request| request.stage == Stage::Asking) {
                open.set_stage(&self.id, Stage::Answering);
            }
        });
    }
}

impl ServerRequests {
    /// Creates an empty set of requests. `message_bytes` is the maximum size of a message.
    pub(crate) fn new(message_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            max_bytes: message_bytes.saturating_mul(2),
            open: Mutex::default(),
            waker: AtomicWaker::new(),
        })
    }

    /// Records that a request of the handshake has been sent. Until it is answered, rmcp handles
    /// one message at a time, and does not answer most requests of the server.
    pub(crate) fn on_start_sent(&self, id: String) {
        lock_ignoring_poison(&self.open).starting.insert(id);
    }

    /// Records that the server has answered a request of this client.
    pub(crate) fn on_answer(&self, id: &str) {
        self.update(|open| {
            if open.starting.contains(id) {
                open.forget_requests();
                open.starting.remove(id);
            }
        });
    }

    /// Becomes ready once the next message may be read.
    pub(crate) fn poll_capacity(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        match self.has_capacity() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Returns whether another request can be answered.
    pub(crate) fn has_capacity(&self) -> bool {
        let open = lock_ignoring_poison(&self.open);
        open.answering_count < MAX_UNANSWERED_REQUESTS && open.answering_bytes < self.max_bytes
    }

    /// Records a request that has been received. Returns whether the request can be answered, which
    /// is not the case while another request with the same id is open.
    pub(crate) fn begin(&self, id: String, json: &[u8]) -> bool {
        let bytes = json.len() + VALUE_OVERHEAD * count_json_values(json, usize::MAX);
        let mut open = lock_ignoring_poison(&self.open);
        if !open.starting.is_empty() {
            open.forget_requests();
        }
        if open.by_id.contains_key(&id) {
            return false;
        }
        let (stage, withdrawal) = (Stage::Answering, Arc::default());
        open.by_id.insert(id, OpenRequest { bytes, stage, withdrawal });
        open.answering_count += 1;
        open.answering_bytes += bytes;
        true
    }

    /// Records that the server has withdrawn a request. Returns whether the request was open.
    pub(crate) fn withdraw(&self, id: &str) -> bool {
        self.update(|open| {
            let Some(request) = open.by_id.get(id) else { return false };
            request.withdrawal.notify_one();
            open.set_stage(id, Stage::Withdrawn);
            true
        })
    }

    /// Records that a request waits for the user. Returns `None` if it has been withdrawn, or if
    /// the requests that wait for the user would be too large together.
    pub(crate) fn begin_asking(self: &Arc<Self>, id: &str) -> Option<AskedQuestion> {
        self.update(|open| {
            let request = open.by_id.get(id).filter(|it| it.stage == Stage::Answering)?;
            if open.asking_bytes.saturating_add(request.bytes) > self.max_bytes {
                return None;
            }
            let withdrawal = Arc::clone(&request.withdrawal);
            open.set_stage(id, Stage::Asking);
            Some(AskedQuestion { requests: Arc::clone(self), id: id.to_owned(), withdrawal })
        })
    }

    /// Returns the answer to a request, or `None` if the request has been withdrawn and the answer
    /// must not be sent.
    pub(crate) fn answer(self: &Arc<Self>, id: String) -> Option<UnsentAnswer> {
        let is_withdrawn = |open: &mut OpenRequests| {
            open.by_id.get(&id).is_some_and(|request| request.stage == Stage::Withdrawn)
        };
        let is_withdrawn = self.update(is_withdrawn);
        let answer = UnsentAnswer { requests: Arc::clone(self), id };
        (!is_withdrawn).then_some(answer)
    }

    fn update<T>(&self, update: impl FnOnce(&mut OpenRequests) -> T) -> T {
        let updated = update(&mut lock_ignoring_poison(&self.open));
        self.waker.wake();
        updated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";

    #[test]
    fn the_guide_lists_the_limit() {
        let row = format!(
            "| requests of a server that are not answered yet | {MAX_UNANSWERED_REQUESTS}, of twice "
        );
        assert!(include_str!("guide/mcp.md").contains(&row), "{row}");
    }

    #[test]
    fn reading_stops_at_the_limit_until_an_answer_has_been_sent() {
        let requests = ServerRequests::new(16 << 20);
        for id in 0..MAX_UNANSWERED_REQUESTS {
            assert!(requests.has_capacity());
            assert!(requests.begin(id.to_string(), PING));
        }
        assert!(!requests.has_capacity());
        let answer = requests.answer("3".to_owned()).unwrap();
        assert!(!requests.has_capacity(), "the answer has not been sent");
        drop(answer);
        assert!(requests.has_capacity());
    }

    #[test]
    fn reading_stops_if_the_unanswered_requests_are_large_or_have_many_values() {
        let requests = ServerRequests::new(10_000);
        assert!(requests.begin("1".to_owned(), &[b'x'; 15_000]));
        assert!(requests.has_capacity());
        assert!(requests.begin("2".to_owned(), &b"1,".repeat(100)));
        assert!(!requests.has_capacity());
    }

    #[test]
    fn requests_during_the_handshake_take_no_capacity() {
        let requests = ServerRequests::new(16 << 20);
        requests.on_start_sent("0".to_owned());
        for id in 0..2 * MAX_UNANSWERED_REQUESTS {
            assert!(requests.has_capacity() && requests.begin(id.to_string(), PING));
        }
        let last = (2 * MAX_UNANSWERED_REQUESTS - 1).to_string();
        drop(requests.answer(last.clone()).expect("rmcp answers pings"));
        requests.on_answer("0");
        for id in 0..MAX_UNANSWERED_REQUESTS {
            assert!(requests.has_capacity() && requests.begin(id.to_string(), PING));
        }
        assert!(!requests.has_capacity());
    }

    #[test]
    fn a_request_with_the_id_of_an_open_request_is_not_answered() {
        let requests = ServerRequests::new(16 << 20);
        assert!(requests.begin("1".to_owned(), PING));
        assert!(!requests.begin("1".to_owned(), PING));
        drop(requests.answer("1".to_owned()));
        assert!(requests.begin("1".to_owned(), PING));
    }

    #[test]
    fn questions_that_wait_for_the_user_do_not_stop_reading_but_are_limited_in_size() {
        let requests = ServerRequests::new(10_000);
        assert!(requests.begin("1".to_owned(), &vec![b'x'; 19_000]));
        let first = requests.begin_asking("1").unwrap();
        assert!(requests.has_capacity());
        assert!(requests.begin("2".to_owned(), &[b'x'; 2_000]));
        assert!(requests.begin_asking("2").is_none());
        drop(first);
        assert!(!requests.has_capacity(), "both requests are being answered");
        assert!(requests.begin_asking("2").is_some());
    }

    #[tokio::test]
    async fn the_answer_to_a_withdrawn_request_is_not_sent() {
        let requests = ServerRequests::new(16 << 20);
        assert!(!requests.withdraw("1"));
        assert!(requests.begin("1".to_owned(), PING));
        let question = requests.begin_asking("1").unwrap();
        assert!(requests.withdraw("1"));
        question.withdrawn().await;
        drop(question);
        assert!(requests.begin_asking("1").is_none());
        assert!(requests.answer("1".to_owned()).is_none());
        assert!(!requests.withdraw("1"), "the request is not open any more");
    }
}
