//! A provider with a fault.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use turnstream::error::{Error, ErrorKind};
use turnstream::http::HttpClient;
use turnstream::item::History;
use turnstream::provider::{HttpProvider, Piece, Provider, Wire};
use turnstream::request::Request;
use turnstream::stream::{TurnStream, seal};
use turnstream::turn::{TurnBuilder, TurnEvent};

use super::plain_wire::{Plain, write};
use crate::provider_suite::Subject;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    None,
    SendsAtOnce,
    NumbersItsRequests,
    SendsTheLastItem,
    RewritesTheFirstItem,
    DoesNotSettle,
    AsksItsOwnModel,
    ReadsInATask,
    SendsAgainWhenDropped,
    HasNoEnd,
    GathersTheTurn,
    LosesADelta,
    TrimsText,
    SpeaksItsThoughts,
    DecodesEachChunk,
    LosesArguments,
    NamesItsCalls,
    LosesTheSecondCall,
    KnowsNoHistory,
    AlwaysStops,
    CountsNothing,
    CompletesWhatBreaksOff,
    TakesABreakForAFailure,
    HasOneError,
    Retries,
    CompletesWhatFails,
    ShowsItsKey,
    RepeatsTheKey,
    Panics,
}

/// A subject with a fault.
pub(super) struct Broken {
    fault: Fault,
    clock: Clock,
}

impl Broken {
    pub(super) fn by(fault: Fault) -> Self {
        Self { fault, clock: Clock::default() }
    }
}

impl Subject for Broken {
    type Provider = BrokenProvider;

    fn provider(&self, url: &str, key: &str) -> BrokenProvider {
        fn over(wire: impl Wire, url: &str, key: &str) -> Arc<dyn Provider> {
            let provider = HttpProvider::from_wire(wire, "m").with_base_url(url).unwrap();
            let provider = provider.with_http_client(HttpClient::without_proxy());
            Arc::new(provider.with_api_key(key))
        }
        let inner = match self.fault {
            Fault::DecodesEachChunk => over(Plain::<true>(self.fault), url, key),
            _ => over(Plain::<false>(self.fault), url, key),
        };
        let clock = self.clock.clone();
        BrokenProvider { fault: self.fault, inner, key: key.to_owned(), clock }
    }

    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>> {
        Some(write(pieces))
    }

    fn stream_error_frame(&self, message: &str) -> Option<Vec<u8>> {
        Some(format!("{}\n", json!({ "error": { "message": message } })).into_bytes())
    }
}

/// Pauses the clock when a fault waits forever, so that the suite does not wait in real time.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicBool>);

impl Clock {
    fn stop(&self) {
        if !self.0.swap(true, Ordering::SeqCst) {
            tokio::time::pause();
        }
    }
}

pub(super) struct BrokenProvider {
    fault: Fault,
    inner: Arc<dyn Provider>,
    key: String,
    clock: Clock,
}

type Events = BoxStream<'static, Result<TurnEvent, Error>>;

impl Provider for BrokenProvider {
    fn stream_turn(&self, mut request: Request) -> TurnStream {
        match self.fault {
            Fault::Panics => panic!("it panics"),
            Fault::AsksItsOwnModel => request.model = None,
            Fault::KnowsNoHistory => request.history = History::empty("another"),
            _ => {}
        }
        let again = {
            let (inner, request) = (Arc::clone(&self.inner), request.clone());
            move || inner.stream_turn(request.clone())
        };
        let turn = self.inner.stream_turn(request);
        let clock = self.clock.clone();
        let key = self.key.clone();
        let events: Events = match self.fault {
            Fault::SendsAtOnce => {
                tokio::spawn(async move { again().next().await });
                turn.boxed()
            }
            Fault::ReadsInATask => {
                let (events, received) = mpsc::unbounded();
                tokio::spawn(turn.for_each(move |event| {
                    clock.stop();
                    let _ = events.unbounded_send(event);
                    async {}
                }));
                received.boxed()
            }
            Fault::SendsAgainWhenDropped => {
                let dropped = WhenDropped(Some(move || {
                    tokio::spawn(async move { again().next().await });
                }));
                // It is dropped with the closure, and therefore with the turn.
                turn.inspect(move |_| debug_assert!(dropped.0.is_some())).boxed()
            }
            Fault::HasNoEnd => turn
                .try_filter(|event| {
                    let is_end = matches!(event, TurnEvent::TurnComplete { .. });
                    async move { !is_end }
                })
                .boxed(),
            Fault::GathersTheTurn => {
                let gathered = turn.inspect(move |_| clock.stop()).collect::<Vec<_>>();
                stream::once(gathered).flat_map(stream::iter).boxed()
            }
            Fault::LosesADelta => {
                let mut is_first = true;
                turn.try_filter(move |event| {
                    let is_text = matches!(event, TurnEvent::TextDelta { .. });
                    let is_lost = is_text && std::mem::take(&mut is_first);
                    async move { !is_lost }
                })
                .boxed()
            }
            Fault::TakesABreakForAFailure => turn
                .map_err(|error| Error::new(ErrorKind::Server, error.message().to_owned()))
                .boxed(),
            Fault::RepeatsTheKey => turn
                .map_err(move |error| Error::new(error.kind(), format!("{error}, with {key}")))
                .boxed(),
            Fault::Retries => turn
                .map(|event| event.map_err(Some))
                .chain(stream::once(async { Err(None) }))
                .scan(Some(again), |again, event| {
                    let events = match (event, again.take()) {
                        (Err(Some(_)), Some(again)) => again().boxed(),
                        (Err(Some(error)), None) => stream::iter([Err(error)]).boxed(),
                        (Err(None), _) => stream::empty().boxed(),
                        (Ok(event), rest) => {
                            *again = rest;
                            stream::iter([Ok(event)]).boxed()
                        }
                    };
                    async { Some(events) }
                })
                .flatten()
                .boxed(),
            _ => turn.boxed(),
        };
        seal(TurnBuilder::new(), events)
    }

    fn model(&self) -> &str {
        self.inner.model()
    }
}

impl fmt::Debug for BrokenProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("BrokenProvider");
        out.field("fault", &self.fault);
        if self.fault == Fault::ShowsItsKey {
            out.field("key", &self.key);
        }
        out.finish_non_exhaustive()
    }
}

/// Runs a function when it is dropped.
struct WhenDropped<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for WhenDropped<F> {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}
