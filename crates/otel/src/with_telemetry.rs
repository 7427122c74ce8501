//! A stream adapter that records the events of a run.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pin_project::pin_project;
use turnstream::error::Error;
use turnstream::event::Event;

use crate::run_telemetry::RunTelemetry;

/// An extension trait with the method [`with_telemetry`](Self::with_telemetry), which records a
/// single stream of events, such as that of a hand-written loop. To record all runs of an agent or
/// a hub, set a [`Telemetry`](crate::Telemetry) there.
pub trait TelemetryExt: Stream<Item = Result<Event, Error>> + Sized {
    /// Records the spans and metrics of the run whose events this stream yields. `telemetry` is a
    /// reference to a [`Telemetry`](crate::Telemetry), or a [`RunTelemetry`] with more information
    /// about the run.
    ///
    /// The run's span starts when the returned stream is first polled. Dropping the returned stream
    /// ends all open spans.
    ///
    /// If the run's agent or hub [records its runs](crate::Telemetry) too, pass
    /// [`RunTelemetry::contexts`] in the run's data, as the guide shows, so that the run is not
    /// recorded twice. A hub cannot know this of a stream that becomes a
    /// [`RunSource::new`](turnstream::hub::RunSource::new): use one of the two.
    fn with_telemetry(self, telemetry: impl Into<RunTelemetry>) -> WithTelemetry<Self> {
        WithTelemetry { events: self, telemetry: telemetry.into() }
    }
}

impl<T: Stream<Item = Result<Event, Error>>> TelemetryExt for T {}

/// The stream returned by the [`with_telemetry`](TelemetryExt::with_telemetry) method. Dropping it
/// drops the wrapped stream and then ends all open spans.
// The events are dropped first, so that whatever they report on drop is still recorded.
#[pin_project]
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct WithTelemetry<T> {
    #[pin]
    events: T,
    telemetry: RunTelemetry,
}

impl<T> WithTelemetry<T> {
    /// Returns the wrapped stream, for example to steer a run.
    pub fn get_ref(&self) -> &T {
        &self.events
    }
}

impl<T: Stream<Item = Result<Event, Error>>> Stream for WithTelemetry<T> {
    type Item = Result<Event, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        this.telemetry.start();
        let polled = this.events.poll_next(cx);
        match &polled {
            Poll::Ready(Some(Ok(event))) => this.telemetry.observe(event),
            Poll::Ready(Some(Err(error))) => this.telemetry.fail(error),
            Poll::Ready(None) => this.telemetry.end_of_events(),
            Poll::Pending => {}
        }
        polled
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}
