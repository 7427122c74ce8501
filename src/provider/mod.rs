//! Providers, each of which streams a model's turns.
//!
//! | provider | wire |
//! |---|---|
//! | [`Anthropic`](anthropic) | Anthropic Messages |
//! | [`OpenAiChat`](openai_chat) | OpenAI Chat Completions, in any [`Dialect`](openai_chat::Dialect) |
//! | [`OpenAiResponses`](openai_responses) | OpenAI Responses |
//! | [`Gemini`](gemini) | Google's generateContent |
//! | [`Ollama`](ollama) | Ollama's own `/api/chat` |
//! | [`Scripted`] | none; returns scripted replies |
//!
//! A wire is a vendor's HTTP protocol. Each wire has an encoder, which converts a request to a
//! body, and a decoder, which converts frames to a turn. Both are pure and available without any
//! feature. With the feature `http`, [`HttpProvider`] sends the encoded body and decodes the
//! response for every [`Wire`], including your own wires. [`Anthropic`](anthropic) and the other
//! HTTP providers are type aliases of `HttpProvider`. A [`Credential`](crate::http::Credential)
//! authorizes requests with a key, a token or a signature. For models hosted by Azure, Amazon
//! Bedrock or Google's Vertex AI, there are constructors such as [`OpenAiChat::azure`] and
//! [`Anthropic::vertex`].
//!
//! Some providers wrap an inner provider and change one aspect of its behavior. These providers can
//! be combined in any order: [`Retry`], [`Fallback`], [`CircuitBreaker`], [`Record`], [`Replay`].
//!
//! ```
//! use turnstream::provider::{Fallback, Reply, Retry, Scripted};
//! use turnstream::{Agent, Error, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! // The first provider stays overloaded, so the second one answers.
//! let busy = Scripted::from_fn(|_, _| Reply::error(Error::new(ErrorKind::Overloaded, "busy")));
//! let other = Scripted::new([Reply::text("Here I am.")]);
//! let model = Fallback::new(busy).or(Retry::new(other));
//! let outcome = Agent::new(model).run("Is anybody there?").outcome().await;
//! assert_eq!(outcome.text, "Here I am.");
//! # }
//! ```
//!
//! [The guide](crate::guide::providers) lists the features that each wire supports.

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

/// Streams a model's turns.
///
/// A decorator, for example for retries or recording, is a provider that wraps an inner provider. A
/// decorator must pass the request's [`retries`](Request::retries) on to the inner provider. With
/// [`from_stream`] or [`from_poll_fn`], you can write your own provider in ten lines. For another
/// HTTP protocol, use an `HttpProvider` with your own `Wire`.
///
/// With the feature `testing`, `testing::provider_suite` checks whether a provider that
/// communicates with a server follows all rules of this trait.
pub trait Provider: Send + Sync {
    /// Sends the request and streams the model's turn, which obeys the rules of
    /// [`seal`](crate::stream::seal). The request is sent to the model that the request names, or
    /// else to the provider's own [`model`](Self::model).
    ///
    /// Nothing is sent before the first poll. Dropping the stream cancels the request.
    ///
    /// A provider over HTTP needs a tokio runtime. A turn that was started in a current-thread
    /// runtime must be polled in that runtime. A poll in another runtime, or outside of any
    /// runtime, returns an error if the poll would have to wait for the connection, because such a
    /// wait might never end.
    fn stream_turn(&self, request: Request) -> TurnStream;

    /// Returns the name of the model to use if a request does not name a model.
    fn model(&self) -> &str;

    /// Returns whether the provider itself searches [deferred](crate::tool::ToolSpec::deferred)
    /// tools; `false` by default. If the provider does, a request declares all tools, and the model
    /// sees only the deferred tools that a search on the server finds. A provider that wraps
    /// several providers returns `true` only if all of the wrapped providers do.
    ///
    /// An agent with a searchable toolkit sends the [complete tool
    /// list](crate::Toolkit::deferred_specs) to a provider that searches tools. To any other
    /// provider, the agent instead sends two search tools of its own.
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
