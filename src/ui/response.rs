//! A web server's response and its body.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use pin_project::pin_project;

use crate::env::Deadline;
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::event::Event;

/// The default time that a stream may be idle before a keep-alive comment is sent. Proxies close
/// idle connections, often after 30 or 60 seconds.
pub(super) const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A response that a web server can send: a status, headers, and a streamed body.
///
/// `B` is a [`ResponseBody`], or any other body type that a server supports.
#[derive(Debug)]
#[non_exhaustive]
pub struct Response<B> {
    /// The response's HTTP status.
    pub status: u16,
    /// The headers, with lower-case names.
    pub headers: Vec<(&'static str, &'static str)>,
    /// The response's body. Dropping the body drops the stream that it was created from.
    pub body: B,
}

impl<B> Response<B> {
    /// Creates a response that contains a stream of server-sent events.
    pub(super) fn of_stream(body: B, header: Option<(&'static str, &'static str)>) -> Self {
        let mut headers = vec![
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            // Without this header, nginx buffers the response.
            ("x-accel-buffering", "no"),
        ];
        headers.extend(header);
        Self { status: 200, headers, body }
    }
}

impl Response<String> {
    /// Creates a response whose body is a complete string.
    pub(super) fn of_text(status: u16, media_type: &'static str, body: String) -> Self {
        Self { status, headers: vec![("content-type", media_type)], body }
    }
}

/// The body of a streamed [`Response`]. Each item contains the bytes of one event.
///
/// The body polls its stream for an event only when the server polls the body for bytes, so a slow
/// client slows down the run. Dropping the body drops the event stream. If the stream is a run, its
/// running tools and its request to the model are dropped as well. If the stream is a hub's reader,
/// the body neither slows down nor ends the run.
#[pin_project]
#[must_use = "streams do nothing unless polled"]
pub struct ResponseBody<S, E = Event> {
    /// The stream of events, or `None` after the last event has been sent.
    #[pin]
    events: Option<S>,
    encoder: Box<dyn EncodeEvents<E> + Send>,
    has_begun: bool,
    keep_alive: KeepAlive,
}

/// Encodes events in the format of one protocol.
pub(super) trait EncodeEvents<E = Event> {
    /// Writes the bytes before the first event.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Writes an event in the protocol's format.
    fn encode(&mut self, event: &E, out: &mut Vec<u8>);

    /// Writes what is due when no further event is ready.
    fn encode_idle(&mut self, _out: &mut Vec<u8>) {}

    /// Returns whether an event is the last event in the response.
    fn is_last(&self, event: &E) -> bool;

    /// Returns whether a stream may end normally without an event that [`is_last`](Self::is_last)
    /// accepts.
    fn may_end_without_last(&self) -> bool {
        false
    }

    /// Writes the end marker. `error` is set if the stream ended before the run
    /// [finished](Event::Finished).
    fn end(&mut self, error: Option<&Error>, out: &mut Vec<u8>);

    /// Writes a comment, which readers ignore.
    fn keep_alive(&self, out: &mut Vec<u8>);
}

impl<S, E> ResponseBody<S, E> {
    /// Creates a body that has already ended.
    pub(super) fn empty(encoder: impl EncodeEvents<E> + Send + 'static) -> Self {
        let encoder = Box::new(encoder);
        Self { events: None, encoder, has_begun: true, keep_alive: KeepAlive::new(None) }
    }

    pub(super) fn new(
        events: S,
        encoder: impl EncodeEvents<E> + Send + 'static,
        keep_alive: Option<Duration>,
    ) -> Self {
        Self {
            events: Some(events),
            encoder: Box::new(encoder),
            has_begun: false,
            keep_alive: KeepAlive::new(keep_alive),
        }
    }
}

impl<S: Stream<Item = Result<E, Error>>, E> Stream for ResponseBody<S, E> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        let mut out = Vec::with_capacity(256);
        if !std::mem::replace(this.has_begun, true) {
            this.encoder.begin(&mut out);
        }
        while out.is_empty() {
            let Some(events) = this.events.as_mut().as_pin_mut() else { return Poll::Ready(None) };
            let polled =
                panic_to_error(ErrorKind::Panic, "the stream of events", || events.poll_next(cx));
            let error = match polled {
                Ok(Poll::Pending) => {
                    this.encoder.encode_idle(&mut out);
                    if out.is_empty() {
                        if !this.keep_alive.is_due(cx) {
                            return Poll::Pending;
                        }
                        this.encoder.keep_alive(&mut out);
                    }
                    break;
                }
                Ok(Poll::Ready(Some(Ok(event)))) => {
                    this.encoder.encode(&event, &mut out);
                    if this.encoder.is_last(&event) {
                        this.encoder.end(None, &mut out);
                        this.events.set(None);
                    }
                    continue;
                }
                Ok(Poll::Ready(Some(Err(error)))) | Err(error) => error,
                Ok(Poll::Ready(None)) if this.encoder.may_end_without_last() => {
                    this.encoder.end(None, &mut out);
                    this.events.set(None);
                    continue;
                }
                Ok(Poll::Ready(None)) => {
                    Error::new(ErrorKind::Other, "the stream ended before the run had finished")
                }
            };
            this.encoder.end(Some(&error), &mut out);
            this.events.set(None);
        }
        this.keep_alive.has_sent = true;
        Poll::Ready(Some(Ok(out.into())))
    }
}

impl<S, E> fmt::Debug for ResponseBody<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("ended", &self.events.is_none())
            .finish_non_exhaustive()
    }
}

/// Detects when no data has been sent for at least half of the keep-alive interval. The timer runs
/// for half of the interval, so that no clock needs to be read.
struct KeepAlive {
    half: Option<Duration>,
    timer: Option<Deadline>,
    /// Whether data has been sent since the timer started.
    has_sent: bool,
}

impl KeepAlive {
    fn new(every: Option<Duration>) -> Self {
        Self { half: every.map(|every| every / 2), timer: None, has_sent: false }
    }

    /// Returns whether a keep-alive comment is due. If no comment is due, the task is woken at the
    /// next time at which a comment might be due. Without tokio timers, comments are never due.
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(half) = self.half else { return false };
        loop {
            if self.timer.is_none() {
                self.timer = Deadline::try_start(half);
                self.has_sent = false;
            }
            match self.timer.as_mut().map(|timer| timer.poll(cx)) {
                Some(Poll::Ready(_)) => {
                    self.timer = None;
                    if !self.has_sent {
                        return true;
                    }
                }
                Some(Poll::Pending) | None => return false,
            }
        }
    }
}
