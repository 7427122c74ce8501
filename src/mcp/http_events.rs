//! Reads the events of a server's HTTP responses: limits the values in each message, and how often
//! the client resumes a stream that the server has ended.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use sse_stream::{Error as SseError, Sse};
use tokio::time::Instant;

use crate::fnv::fnv1a_64;
use crate::item::has_too_many_values;
use crate::lock::lock_ignoring_poison;

/// The code of the error that replaces an answer with too many values. Servers do not use it.
pub(super) const TOO_MANY_VALUES: i32 = -32_090;

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
pub(super) struct Resumptions {
    ended: Mutex<VecDeque<EndedStream>>,
}

#[derive(Debug)]
struct EndedStream {
    /// The hash of the id of the stream's last event, which identifies the stream when it is
    /// resumed.
    last_event_id: u64,
    attempt: StreamAttempt,
    ended_at: Instant,
}

/// An attempt to read a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamAttempt {
    /// The number of consecutive attempts before this one that made no progress.
    without_progress: u32,
    /// The message that replaces a message with too many values, or `None` to leave it out.
    replacement: Option<Arc<str>>,
}

impl StreamAttempt {
    /// Creates the first attempt to read the response to a request.
    pub(super) fn for_request(id: Option<&Value>) -> Self {
        let replacement = id.map(|id| {
            let error = json!({ "code": TOO_MANY_VALUES, "message": "too many JSON values" });
            json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string().into()
        });
        Self { without_progress: 0, replacement }
    }
}

impl Resumptions {
    /// Waits until a stream may be resumed. Returns `None` if there were too many attempts without
    /// progress.
    pub(super) async fn wait(&self, last_event_id: &str) -> Option<StreamAttempt> {
        let (attempt, ended_at) = match self.take(fnv1a_64(last_event_id.bytes())) {
            Some(EndedStream { attempt, ended_at, .. }) => (attempt, ended_at),
            None => (StreamAttempt::default(), Instant::now()),
        };
        if attempt.without_progress >= MAX_ATTEMPTS {
            return None;
        }
        let (first, longest) = RESUME_BACKOFF;
        let factor = 2_u32.saturating_pow(attempt.without_progress);
        tokio::time::sleep_until(ended_at + first.saturating_mul(factor).min(longest)).await;
        Some(attempt)
    }

    fn take(&self, last_event_id: u64) -> Option<EndedStream> {
        let mut ended = lock_ignoring_poison(&self.ended);
        let at = ended.iter().rposition(|stream| stream.last_event_id == last_event_id);
        at.and_then(|at| ended.remove(at))
    }

    /// Records that an attempt made no progress.
    pub(super) fn on_failed_attempt(&self, last_event_id: &str, attempt: StreamAttempt) {
        self.on_ended(fnv1a_64(last_event_id.bytes()), attempt, Progress::None);
    }

    fn on_ended(&self, last_event_id: u64, attempt: StreamAttempt, progress: Progress) {
        let without_progress = match progress {
            Progress::None => attempt.without_progress.saturating_add(1),
            Progress::Made => 0,
        };
        let attempt = StreamAttempt { without_progress, ..attempt };
        let mut ended = lock_ignoring_poison(&self.ended);
        if ended.len() >= MAX_ENDED_STREAMS {
            ended.pop_front();
        }
        ended.push_back(EndedStream { last_event_id, attempt, ended_at: Instant::now() });
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
pub(super) struct ServerEvents {
    events: BoxStream<'static, Result<Sse, SseError>>,
    resumptions: Arc<Resumptions>,
    attempt: StreamAttempt,
    /// The hash of the id of the last event, or `None` if the stream cannot be resumed.
    last_event_id: Option<u64>,
    opened_at: Instant,
    progress: Progress,
}

impl ServerEvents {
    /// Reads `events`, which continue after the event `last_event_id` if the stream was resumed.
    pub(super) fn new(
        events: BoxStream<'static, Result<Sse, SseError>>,
        resumptions: Arc<Resumptions>,
        attempt: StreamAttempt,
        last_event_id: Option<&str>,
    ) -> Self {
        Self {
            events,
            resumptions,
            attempt,
            last_event_id: last_event_id.map(|id| fnv1a_64(id.bytes())),
            opened_at: Instant::now(),
            progress: Progress::None,
        }
    }

    fn limit(&mut self, mut event: Sse) -> Sse {
        if let Some(id) = &event.id {
            self.last_event_id = Some(fnv1a_64(id.bytes()));
        }
        let longest = u64::try_from(MAX_REQUESTED_DELAY.as_millis()).unwrap_or(u64::MAX);
        event.retry = event.retry.map(|delay| delay.min(longest));
        if let Some(data) = &event.data
            && !data.is_empty()
        {
            self.progress = Progress::Made;
            if has_too_many_values(data.as_bytes()) {
                event.data = self.attempt.replacement.as_deref().map(str::to_owned);
            }
        }
        event
    }

    fn on_ended(&mut self) {
        let Some(id) = self.last_event_id.take() else { return };
        let progress = match self.opened_at.elapsed() >= PROGRESS_TIME {
            true => Progress::Made,
            false => self.progress,
        };
        self.resumptions.on_ended(id, self.attempt.clone(), progress);
    }
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
            match resumptions.wait("1").await {
                Some(next) => attempt = next,
                None => break,
            }
            delays.push(before.elapsed());
            attempts += 1;
        }
        let seconds: Vec<_> = delays.iter().take(7).map(Duration::as_secs).collect();
        assert_eq!((attempts, seconds), (MAX_ATTEMPTS - 1, vec![1, 2, 4, 8, 10, 10, 10]));
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
            attempt = resumptions.wait("1").await.unwrap();
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
        let attempt = StreamAttempt { without_progress: 50, replacement: None };
        let events = ServerEvents::new(open.boxed(), Arc::clone(&resumptions), attempt, None);
        assert_eq!(events.count().await, 1);
        assert_eq!(resumptions.wait("1").await.unwrap().without_progress, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_cannot_request_a_delay_of_more_than_a_minute() {
        let events = vec![event(Some("1"), Some(u64::MAX), None)];
        let events = read(events, &Arc::default(), StreamAttempt::default()).await;
        assert_eq!(events[0].retry, Some(60_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_with_too_many_values_is_replaced_in_a_resumed_stream_too() {
        let resumptions = Arc::<Resumptions>::default();
        let many = format!("[{}0]", "0,".repeat(1 << 20));
        let events = || vec![event(Some("1"), None, Some(&many))];
        let first = StreamAttempt::for_request(Some(&json!(7)));
        let read_first = read(events(), &resumptions, first).await;
        let resumed = resumptions.wait("1").await.unwrap();
        let read_resumed = read(events(), &resumptions, resumed).await;
        for data in [&read_first[0].data, &read_resumed[0].data] {
            let message: Value = serde_json::from_str(data.as_deref().unwrap()).unwrap();
            assert_eq!((&message["id"], &message["error"]["code"]), (&json!(7), &json!(-32_090)));
        }
        let unrelated = StreamAttempt::for_request(None);
        assert_eq!(read(events(), &resumptions, unrelated).await[0].data, None);
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
            assert!(include_str!("../guide/defaults.md").contains(&row), "{row}");
        }
    }

    #[test]
    fn only_the_last_ended_streams_are_remembered() {
        let resumptions = Resumptions::default();
        for id in 0..10 * MAX_ENDED_STREAMS {
            resumptions.on_failed_attempt(&id.to_string(), StreamAttempt::default());
        }
        assert_eq!(lock_ignoring_poison(&resumptions.ended).len(), MAX_ENDED_STREAMS);
    }
}
