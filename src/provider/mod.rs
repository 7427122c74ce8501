//! Who speaks: providers stream one turn of a model.

pub mod anthropic;
mod attempt;
mod breaker;
mod context;
mod decode;
#[cfg(feature = "http")]
mod exchange;
mod failure;
mod fallback;
mod fields;
#[cfg(feature = "http")]
mod from_env;
pub mod gemini;
mod handoff;
mod lenient;
pub mod openai_chat;
pub mod openai_responses;
mod patience;
mod record;
mod remedy;
mod replay;
mod retry;
mod schema;
mod scripted;

use std::sync::Arc;

#[cfg(feature = "http")]
pub use anthropic::Anthropic;
pub use breaker::CircuitBreaker;
pub use decode::{Decode, Decoding, Heard};
pub use fallback::{Fallback, FallbackFailure};
#[cfg(feature = "http")]
pub use from_env::{from_env, named};
#[cfg(feature = "http")]
pub use gemini::Gemini;
pub use handoff::{Handoff, handoff};
#[cfg(feature = "http")]
pub use openai_chat::OpenAiChat;
#[cfg(feature = "http")]
pub use openai_responses::OpenAiResponses;
pub use record::Record;
pub use replay::{Replay, RequestMismatch};
pub use retry::{Backoff, Retry};
#[cfg(feature = "testing")]
pub(crate) use scripted::{Move, Signed};
pub use scripted::{Reply, Scripted};

use crate::request::Request;
use crate::stream::TurnStream;

/// Streams one turn of a model.
///
/// A decorator, for retries or for a record, is a provider made of a provider.
pub trait Provider: Send + Sync {
    /// Asks the model and streams its turn, sealed.
    ///
    /// Nothing is sent before the first poll. Dropping the stream cancels the request.
    fn stream_turn(&self, request: Request) -> TurnStream;

    /// The model that is asked unless a request names another.
    fn model(&self) -> &str;
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn stream_turn(&self, request: Request) -> TurnStream {
        (**self).stream_turn(request)
    }

    fn model(&self) -> &str {
        (**self).model()
    }
}

impl<P: Provider + ?Sized> Provider for &P {
    fn stream_turn(&self, request: Request) -> TurnStream {
        (**self).stream_turn(request)
    }

    fn model(&self) -> &str {
        (**self).model()
    }
}

impl<P: Provider + ?Sized> Provider for Box<P> {
    fn stream_turn(&self, request: Request) -> TurnStream {
        (**self).stream_turn(request)
    }

    fn model(&self) -> &str {
        (**self).model()
    }
}
