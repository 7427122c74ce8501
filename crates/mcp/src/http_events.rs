//! Reads the events of a server's HTTP responses: limits the values in each message, and how often
//! the client resumes a stream that the server has ended.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::stream::BoxStream;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sse_stream::{Error as SseError, Sse};
use tokio::time::Instant;

use crate::fnv::fnv1a_64;
use crate::json_values::has_too_many_values;
use crate::lock::lock_ignoring_poison;

/// The code of the error that replaces an answer with too many values. Servers do not use it.
pub(crate) const TOO_MANY_VALUES: i32 = -32_090;

/// The maximum length of the id of a request of this client, as JSON.
const MAX_ID_BYTES: usize = 64;

/// The delay before a stream is resumed, whatever delay the server requests. The delay doubles with
/// each attempt without progress, up to a maximum.
const RESUME_BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// The maximum delay that a server may request before its stream is resumed.
const MAX_REQUESTED_DELAY: Duration = Duration::from_mins(1);

/// The maximum number of consecutive attempts to read a stream without progress. This number of
/// attempts takes longer than the default limit for a call.
const MAX_ATTEMPTS: u32 = 100;

/// How long a stream must stay open to count as progress if it contains no message.
const PROGRESS_TIME: Duration = Duration::from_secs(10);

/// The maximum number of ended streams whose attempts are remembered.
const MAX_ENDED_STREAMS: usize = 64;

/// The streams that the server has ended and the client may resume.
#[derive(Debug, Default)]
pub(crate) struct Resumptions {
    ended: Mutex<VecDeque<EndedStream>>,
}

#[derive(Debug)]
struct EndedStream {
    key: StreamKey,
    attempt: StreamAttempt,
    ended_at: Instant,
}

/// An attempt to read a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamAttempt {
    /// The number of consecutive attempts before this one that made no progress.
    without_progress: u32,
}

/// Identifies a stream when it is read again: the hash of the id of its last event. A session's
/// stream without event ids is identified by the hash of an empty id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamKey(u64);

impl StreamKey {
    pub(crate) fn new(last_event_id: Option<&str>) -> Self {
        Self(fnv1a_64(last_event_id.unwrap_or_default().bytes()))
    }
}

/// Reads the id of the request that a message answers, without building a tree from the message.
/// Returns `None` if the message is not an answer, or if its id cannot be the id of a request of
/// this client.
///
/// # Errors
///
/// Returns an error if the text is not a JSON object.
pub(crate) fn answered_request_id(json: &[u8]) -> Result<Option<Value>, serde_json::Error> {
    #[derive(serde::Deserialize)]
    struct Envelope<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        method: Option<IgnoredAny>,
    }
    let envelope: Envelope<'_> = serde_json::from_slice(json)?;
    let id = envelope.id.filter(|id| envelope.method.is_none() && id.get().len() <= MAX_ID_BYTES);
    id.map(|id| serde_json::from_str(id.get())).transpose()
}

impl Resumptions {
    /// Waits until a stream may be resumed. Returns `None` if there were too many attempts without
    /// progress.
    pub(crate) async fn wait(&self, key: StreamKey) -> Option<StreamAttempt> {
        let ended = self.take(key);
        let ended = ended.map(|ended| (ended.attempt, ended.ended_at));
        self.wait_after(ended.unwrap_or((StreamAttempt::default(), Instant::now()))).await
    }

    /// Waits until a session's stream may be opened. The first time, there is nothing to wait for.
    /// Returns `None` if there were too many attempts without progress.
    pub(crate) async fn wait_to_open(&self) -> Option<StreamAttempt> {
        match self.take(StreamKey::new(None)) {
            Some(ended) => self.wait_after((ended.attempt, ended.ended_at)).await,
            None => Some(StreamAttempt::default()),
        }
    }

    async fn wait_after(
        &self,
        (attempt, ended_at): (StreamAttempt, Instant),
    ) -> Option<StreamAttempt> {
        if attempt.without_progress >= MAX_ATTEMPTS {
            return None;
        }
        let (first, longest) = RESUME_BACKOFF;
        let factor = 2_u32.saturating_pow(attempt.without_progress.saturating_sub(1));
        tokio::time::sleep_until(ended_at + first.saturating_mul(factor).min(longest)).await;
        Some(attempt)
    }

    fn take(&self, key: StreamKey) -> Option<EndedStream> {
        let mut ended = lock_ignoring_poison(&self.ended);
        let at = ended.iter().rposition(|stream| stream.key == key);
        at.and_then(|at| ended.remove(at))
    }

    /// Records that an attempt made no progress.
    pub(crate) fn on_failed_attempt(&self, key: StreamKey, attempt: StreamAttempt) {
        self.on_ended(key, attempt, Progress::None);
    }

    fn on_ended(&self, key: StreamKey, attempt: StreamAttempt, progress: Progress) {
        let without_progress = match progress {
            Progress::None => attempt.without_progress.saturating_add(1),
            Progress::Made => 0,
        };
        let attempt = StreamAttempt { without_progress };
        let mut ended = lock_ignoring_poison(&self.ended);
        if ended.len() >= MAX_ENDED_STREAMS {
            ended.pop_front();
        }
        ended.push_back(EndedStream { key, attempt, ended_at: Instant::now() });
    }
}

/// Whether an attempt to read a stream made progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    None,
    /// A message has arrived, or the stream has been open for some time.
    Made,
}

/// Stream of the events in a response.
pub(crate) struct ServerEvents {
    events: BoxStream<'static, Result<Sse, SseError>>,
    resumptions: Arc<Resumptions>,
    attempt: StreamAttempt,
    /// `None` if the stream cannot be resumed.
    key: Option<StreamKey>,
    opened_at: Instant,
    progress: Progress,
}

impl ServerEvents {
    /// Reads `events` of the stream that `key` identifies, if it can be resumed.
    pub(crate) fn new(
        events: BoxStream<'static, Result<Sse, SseError>>,
        resumptions: Arc<Resumptions>,
        attempt: StreamAttempt,
        key: Option<StreamKey>,
    ) -> Self {
        Self {
            events,
            resumptions,
            attempt,
            key,
            opened_at: Instant::now(),
            progress: Progress::None,
        }
    }

    fn limit(&mut self, mut event: Sse) -> Sse {
        if let Some(id) = &event.id {
            self.key = Some(StreamKey::new(Some(id)));
        }
        let longest = u64::try_from(MAX_REQUESTED_DELAY.as_millis()).unwrap_or(u64::MAX);
        event.retry = event.retry.map(|delay| delay.min(longest));
        if let Some(data) = &event.data
            && !data.is_empty()
        {
            self.progress = Progress::Made;
            if has_too_many_values(data.as_bytes()) {
                event.data = replace_too_large(data.as_bytes());
            }
        }
        event
    }

    fn on_ended(&mut self) {
        let Some(key) = self.key.take() else { return };
        let progress = match self.opened_at.elapsed() >= PROGRESS_TIME {
            true => Progress::Made,
            false => self.progress,
        };
        self.resumptions.on_ended(key, self.attempt, progress);
    }
}

/// Returns the error that replaces an answer with too many values. Other messages are ignored.
fn replace_too_large(json: &[u8]) -> Option<String> {
    let id = answered_request_id(json).ok().flatten()?;
    let error = json!({ "code": TOO_MANY_VALUES, "message": "too many JSON values" });
    Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
}

impl Stream for ServerEvents {
    type Item = Result<Sse, SseError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = ready!(self.events.as_mut().poll_next(cx));
        Poll::Ready(match event {
            Some(Ok(event)) => Some(Ok(self.limit(event))),
            ended => {
                self.on_ended();
                ended
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use futures::stream;

    use super::*;

    fn event(id: Option<&str>, retry: Option<u64>, data: Option<&str>) -> Sse {
        Sse { event: None, data: data.map(str::to_owned), id: id.map(str::to_owned), retry }
    }

    /// Reads a stream of events to its end.
    async fn read(
        events: Vec<Sse>,
        resumptions: &Arc<Resumptions>,
        attempt: StreamAttempt,
    ) -> Vec<Sse> {
        let events = stream::iter(events.into_iter().map(Ok)).boxed();
        let events = ServerEvents::new(events, Arc::clone(resumptions), attempt, None);
        events.map(Result::unwrap).collect().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_progress_is_resumed_ever_more_slowly_and_not_without_end() {
        let (resumptions, began) = (Arc::<Resumptions>::default(), Instant::now());
        let (mut attempt, mut attempts, mut delays) = (StreamAttempt::default(), 0, Vec::new());
        loop {
            read(vec![event(Some("1"), Some(0), None)], &resumptions, attempt).await;
            let before = Instant::now();
            match resumptions.wait(StreamKey::new(Some("1"))).await {
                Some(next) => attempt = next,
                None => break,
            }
            delays.push(before.elapsed());
            attempts += 1;
        }
        let millis: Vec<_> = delays.iter().take(7).map(Duration::as_millis).collect();
        let expected = vec![500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000];
        assert_eq!((attempts, millis), (MAX_ATTEMPTS - 1, expected));
        assert!(began.elapsed() > Duration::from_mins(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_with_progress_is_resumed_after_the_minimum_delay() {
        let resumptions = Arc::<Resumptions>::default();
        let mut attempt = StreamAttempt::default();
        for _ in 0..2 * MAX_ATTEMPTS {
            let events = vec![event(Some("1"), Some(0), None), event(None, None, Some("{}"))];
            read(events, &resumptions, attempt).await;
            let before = Instant::now();
            attempt = resumptions.wait(StreamKey::new(Some("1"))).await.unwrap();
            assert_eq!(before.elapsed(), RESUME_BACKOFF.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_stayed_open_made_progress() {
        let resumptions = Arc::<Resumptions>::default();
        let open = stream::once(async {
            tokio::time::sleep(PROGRESS_TIME).await;
            Ok(event(Some("1"), None, None))
        });
        let attempt = StreamAttempt { without_progress: 50 };
        let events = ServerEvents::new(open.boxed(), Arc::clone(&resumptions), attempt, None);
        assert_eq!(events.count().await, 1);
        assert_eq!(resumptions.wait(StreamKey::new(Some("1"))).await.unwrap().without_progress, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_cannot_request_a_delay_of_more_than_a_minute() {
        let events = vec![event(Some("1"), Some(u64::MAX), None)];
        let events = read(events, &Arc::default(), StreamAttempt::default()).await;
        assert_eq!(events[0].retry, Some(60_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_stream_without_event_ids_is_opened_again_ever_more_slowly() {
        let resumptions = Arc::<Resumptions>::default();
        let mut delays = Vec::new();
        for _ in 0..6 {
            let before = Instant::now();
            let attempt = resumptions.wait_to_open().await.unwrap();
            delays.push(before.elapsed().as_millis());
            let events = stream::iter([Ok(event(None, Some(0), None))]).boxed();
            let key = Some(StreamKey::new(None));
            let events = ServerEvents::new(events, Arc::clone(&resumptions), attempt, key);
            assert_eq!(events.count().await, 1);
        }
        assert_eq!(delays, [0, 500, 1_000, 2_000, 4_000, 8_000]);
    }

    /// A message with more values than a tree is built from.
    fn large_message(fields: &str) -> String {
        format!("{{{fields}\"v\":[{}0]}}", "0,".repeat(1 << 20))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_with_too_many_values_becomes_an_error_and_other_messages_are_ignored() {
        let data = async |text: String| {
            let events = vec![event(Some("1"), None, Some(&text))];
            let mut read = read(events, &Arc::default(), StreamAttempt::default()).await;
            read.remove(0).data
        };
        let answer = data(large_message(r#""id":7,"#)).await.unwrap();
        let message: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((&message["id"], &message["error"]["code"]), (&json!(7), &json!(-32_090)));
        for other in [r#""method":"notifications/message","#, r#""id":7,"method":"ping","#, ""] {
            assert_eq!(data(large_message(other)).await, None, "{other}");
        }
    }

    #[test]
    fn no_tree_is_built_from_the_id_of_a_message() {
        let id = |json: &str| answered_request_id(json.as_bytes());
        assert_eq!(id(r#"{"id":"a","result":{}}"#).unwrap(), Some(json!("a")));
        let tree = format!(r#"{{"id":[{}0],"result":{{}}}}"#, "0,".repeat(100));
        assert_eq!(id(&tree).unwrap(), None);
        assert!(id("[0]").is_err());
    }

    #[test]
    fn the_guide_lists_the_limits() {
        let (first, longest) = RESUME_BACKOFF;
        let delay = format!(
            "| delay before a stream over HTTP is resumed | {} ms, doubled up to {} s ",
            first.as_millis(),
            longest.as_secs()
        );
        let attempts =
            format!("| attempts to read a stream over HTTP without progress | {MAX_ATTEMPTS} |");
        for row in [delay, attempts] {
            assert!(include_str!("guide/mcp.md").contains(&row), "{row}");
        }
    }

    #[test]
    fn only_the_last_ended_streams_are_remembered() {
        let resumptions = Resumptions::default();
        for id in 0..10 * MAX_ENDED_STREAMS {
            let key = StreamKey::new(Some(&id.to_string()));
            resumptions.on_failed_attempt(key, StreamAttempt::default());
        }
        assert_eq!(lock_ignoring_poison(&resumptions.ended).len(), MAX_ENDED_STREAMS);
    }
}
