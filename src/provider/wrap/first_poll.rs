//! Creates turns that call the provider when they are first polled.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Error;
use crate::request::Request;
use crate::stream::{TurnPoll, TurnSource, TurnStream, seal};
use crate::turn::TurnBuilder;

/// Creates the turn for a request. The closure `ask` is called when the turn is first polled. If
/// `ask` returns an error, the turn fails with that error.
pub(crate) fn start_at_first_poll<T, F>(request: Request, ask: F) -> TurnStream
where
    T: TurnSource + Unpin + Send + 'static,
    F: FnOnce(Request, &mut TurnBuilder) -> Result<T, Error> + Unpin + Send + 'static,
{
    let turn = TurnBuilder::from(&request);
    seal(turn, FirstPoll::<T, F>::Waiting(Some((Box::new(request), ask))))
}

enum FirstPoll<T, F> {
    Waiting(Option<(Box<Request>, F)>),
    Started(T),
}

impl<T, F> TurnSource for FirstPoll<T, F>
where
    T: TurnSource + Unpin,
    F: FnOnce(Request, &mut TurnBuilder) -> Result<T, Error> + Unpin,
{
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>, turn: &mut TurnBuilder) -> TurnPoll {
        let this = self.get_mut();
        if let Self::Waiting(ask) = this {
            let Some((request, ask)) = ask.take() else { return Poll::Ready(None) };
            *this = Self::Started(ask(*request, turn)?);
        }
        let Self::Started(source) = this else { return Poll::Ready(None) };
        Pin::new(source).poll_turn(cx, turn)
    }

    fn describe(&self, turn: &mut TurnBuilder) {
        if let Self::Started(source) = self {
            source.describe(turn);
        }
    }
}
