//! Who speaks: providers stream one turn of a model.
//!
//! | provider | wire |
//! |---|---|
//! | [`Anthropic`](anthropic) | Anthropic Messages |
//! | [`OpenAiChat`](openai_chat) | OpenAI Chat Completions, and with a [`Dialect`](openai_chat::Dialect) every server that copies them |
//! | [`OpenAiResponses`](openai_responses) | OpenAI Responses |
//! | [`Gemini`](gemini) | Google's generateContent |
//! | [`Ollama`](ollama) | Ollama's own `/api/chat` |
//! | [`Scripted`] | none: it says what a script tells it to |
//!
//! Each wire has an encoder, from a request to a body, and a decoder, from frames to a turn. Both are pure and
//! always there. With the feature `http`, [`HttpProvider`] sends the one and reads the other for every
//! [`Wire`], also for one of your own; [`Anthropic`](anthropic) and the others are short names of it.
//! Keys, tokens and signatures are a [`Credential`](crate::http::Credential); models that Azure,
//! Amazon Bedrock or Google's Vertex AI host have a constructor each, such as
//! [`OpenAiChat::azure`] and [`Anthropic::vertex`].
//!
//! A provider made of a provider changes one thing and composes with the others in any order:
//! [`Retry`], [`Fallback`], [`CircuitBreaker`], [`Record`], [`Replay`].
//!
//! ```
//! use turnstream::provider::{Fallback, Reply, Retry, Scripted};
//! use turnstream::{Agent, Error, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! // The first is busy, and stays so; the second answers at once.
//! let busy = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Overloaded, "busy")));
//! let other = Scripted::new([Reply::text("Here I am.")]);
//! let model = Fallback::new(busy).or(Retry::new(other));
//! let outcome = Agent::new(model).run("Is anybody there?").outcome().await;
//! assert_eq!(outcome.text, "Here I am.");
//! # }
//! ```
//!
//! [The guide](crate::guide::wires) has what each wire carries.

pub mod anthropic;
mod body;
mod cache_control;
mod circuit_breaker;
mod closure_providers;
#[cfg(feature = "http")]
mod cloud_endpoints;
pub(crate) mod content_delta;
mod decode;
mod effort_names;
mod encode_context;
mod failure;
mod fallback;
mod first_poll;
mod frame_template;
#[cfg(feature = "http")]
mod from_env;
mod function_tool;
pub mod gemini;
mod handoff;
#[cfg(feature = "http")]
mod http;
mod lenient;
pub mod ollama;
mod openai;
pub mod openai_chat;
pub mod openai_responses;
mod ordered_fields;
mod portable_values;
mod record;
mod replay;
mod retry;
mod schema;
mod scripted;
#[cfg(feature = "testing")]
pub(crate) mod server;
mod should_fall_back;

use std::sync::Arc;

#[cfg(feature = "http")]
pub use anthropic::Anthropic;
pub use circuit_breaker::CircuitBreaker;
pub use closure_providers::{FromPollFn, FromStream, Piece, from_poll_fn, from_stream};
pub use decode::{Decode, Decoding, FrameOutcome};
pub use failure::error_in_stream;
pub use fallback::{Fallback, FallbackFailure};
#[cfg(feature = "http")]
pub use from_env::{from_env, from_model_name};
#[cfg(feature = "http")]
pub use gemini::Gemini;
pub use handoff::{Handoff, handoff};
#[cfg(feature = "http")]
pub use http::{Destination, EncodedRequest, ErrorResponse, HttpProvider, Wire};
#[cfg(feature = "http")]
pub use ollama::Ollama;
#[cfg(feature = "http")]
pub use openai_chat::OpenAiChat;
#[cfg(feature = "http")]
pub use openai_responses::OpenAiResponses;
pub use record::Record;
pub(crate) use record::is_vetoed_event;
pub use replay::{Replay, RequestMismatch};
pub(crate) use replay::{ReplayedEvent, ReplayedTurn, replay_event};
pub use retry::{Backoff, Retry};
#[cfg(feature = "testing")]
pub(crate) use scripted::ReplyStep;
pub use scripted::{Reply, Scripted};
pub(crate) use should_fall_back::should_fall_back;

use crate::request::Request;
use crate::stream::TurnStream;

/// Streams one turn of a model.
///
/// A decorator, for retries or for a record, is a provider made of a provider; it passes the
/// [`retries`](Request::retries) of the request on. A provider of your own is ten lines with
/// [`from_stream`] or [`from_poll_fn`]; one for another protocol over HTTP is an `HttpProvider` over a
/// `Wire` of your own.
///
/// With the feature `testing`, `testing::provider_suite` tests a provider that speaks to a server
/// against all of this.
pub trait Provider: Send + Sync {
    /// Asks the model and streams its turn, which obeys the rules of [`seal`](crate::stream::seal). It asks the
    /// model that the request names, or else [`model`](Self::model).
    ///
    /// Nothing is sent before the first poll. Dropping the stream cancels the request.
    ///
    /// A provider over HTTP needs a tokio runtime. A turn that was begun in a current-thread one has
    /// to be read there: a poll that would wait for its connection in another runtime, or outside of
    /// any, is an error instead of a wait for ever.
    fn stream_turn(&self, request: Request) -> TurnStream;

    /// The model that is asked unless a request names another.
    fn model(&self) -> &str;

    /// Whether it searches [deferred](crate::tool::ToolSpec::deferred) tools itself, so that a request offers all
    /// tools and the model sees those that a search on the server finds; `false` by default. A provider made of
    /// others does if all of them do.
    ///
    /// An agent whose toolkit is searchable then offers the [whole list](crate::Toolkit::deferred_specs), and its
    /// own two tools otherwise.
    fn has_tool_search(&self) -> bool {
        false
    }
}

macro_rules! impl_provider_for_pointer {
    ($($pointer:ty),*) => {$(
        impl<P: Provider + ?Sized> Provider for $pointer {
            fn stream_turn(&self, request: Request) -> TurnStream {
                (**self).stream_turn(request)
            }

            fn model(&self) -> &str {
                (**self).model()
            }

            fn has_tool_search(&self) -> bool {
                (**self).has_tool_search()
            }
        }
    )*};
}

impl_provider_for_pointer!(Arc<P>, Box<P>, &P);
