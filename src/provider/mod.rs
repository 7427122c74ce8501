//! Providers, which stream the turns of a model.
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
//! request body, and a decoder, which converts a response's frames to a turn. Encoders and decoders
//! are pure and available without any feature. With the `http` feature, [`HttpProvider`] sends the
//! encoded body and decodes the response for any [`Wire`], including your own.
//! [`Anthropic`](anthropic) and the other HTTP providers are type aliases of `HttpProvider`. A
//! [`Credential`](crate::http::Credential) authorizes requests with a key, a token or a signature.
//! For models hosted on Azure, Amazon Bedrock or Google's Vertex AI, there are constructors such as
//! [`OpenAiChat::azure`] and [`Anthropic::vertex`].
//!
//! Some providers wrap an inner provider and change one aspect of its behavior: [`Retry`],
//! [`Fallback`], [`CircuitBreaker`] and [`Record`](crate::replay::Record). These wrappers can be
//! combined in any order.
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
//!
//! # Limits
//!
//! The third column names the setter, if there is one. [The guide](crate::guide::defaults) lists
//! the limits of requests and runs.
//!
//! | limit | value | when it is reached |
//! |---|---|---|
//! | size of a server-sent event | 16 MiB | a `too_large` error |
//! | size of a JSON line or an event in Amazon's framing | 64 MiB | a `too_large` error |
//! | JSON values in an event or a line | 1,000,000 | a `too_large` error |
//! | JSON values in a frame that must be repaired, and in an error's body | 200,000 | the frame is a `protocol` error; the body is ignored |
//! | total size of a turn's frames that produce no event | 256 MiB | a `too_large` error |
//! | immediate retries after an idle connection was closed | 1 | the next retry waits |
//! | retries after a token is rejected with 401 | 1 | an `auth` error |
//! | time to read the body of an error response | 5 s | the rest of the body is ignored |
//! | time and bytes to read after a stream's end marker | 50 ms, 64 KiB | the connection is closed, not reused |
//! | size of an error response's body | 64 KiB | the rest of the body is ignored |
//! | bytes of a server's message in an error | 500 | the message is truncated |
//! | length of a key that is masked in errors and recordings | at least 4 bytes | a shorter key is not masked |
//! | bytes of a call's id in a request | 64 (Anthropic, Responses), 40 (Chat Completions) | the id is replaced with a shorter one that contains a hash |
//! | length of a tool's name in a request | 64 bytes | the name is cut off, and a hash is appended |
//! | `max_tokens` in Anthropic Messages | 8,192 | `Options::max_output_tokens`; the turn is truncated |
//! | minimum `thinking` budget in Anthropic Messages | 1,024 | `Options::reasoning`; the request fails |
//! | stop sequences in Chat Completions | 4 | [`max_stop_sequences`](openai_chat::Dialect::max_stop_sequences); the request fails |
//! | largest seed (Ollama) | 2⁵³ − 1 | `Options::seed`; the request fails |
//! | size of a line in `TurnStreamExt::json_lines` | 1 MiB | [`with_max_line_bytes`](crate::stream::JsonLines::with_max_line_bytes); an error in place of the line |
//! | open blocks per turn (Anthropic) | 256 | a `too_large` error |
//! | parts per item (Responses) | 1,024 | a `too_large` error |
//! | JSON values in a call's streamed arguments (Gemini) | 200,000 | a `too_large` error |
//! | nesting depth of a call's streamed arguments (Gemini) | 100 levels | a `protocol` error |
//! | sources of each kind (Gemini) | 64 | further sources are dropped |
//! | characters of a finish message in an error (Gemini) | 500 | the rest is left out |
//! | nodes and levels in an output or tool schema that is rewritten | 20,000, 64 | the request fails with an error |
//! | levels and schemas that are merged into the root of a tool schema | 16, 1,000 | further references and alternatives are left out |
//! | nesting depth, and JSON values, in a value of [`PartialValues`] | 127 levels, 200,000 | the value grows no further |
//! | text before a growing answer in [`PartialValues`] | 1,024 bytes | the answer is read only when its turn is complete |
//!
//! [`PartialValues`]: crate::partial::PartialValues

mod codec;
mod wires;
mod wrap;

#[cfg(feature = "http")]
mod http;

mod citations;
mod closure_providers;
mod handoff;
mod scripted;
pub mod server;

use std::sync::Arc;

use futures::future::BoxFuture;

pub use citations::{Citation, citations};
pub use closure_providers::{Piece, from_poll_fn, from_stream};
pub use codec::decode::{Decode, Decoding, FrameOutcome};
pub use codec::failure::error_in_stream;
pub(crate) use codec::provider_items::{
    is_model_output, unanswered_client_call, without_reasoning,
};
pub(crate) use codec::unsupported_part::omitted_part_text;
pub use handoff::{Handoff, handoff};
#[cfg(feature = "http")]
pub use http::from_env::{from_env, from_model_name};
#[cfg(feature = "http")]
pub use http::{Destination, EncodedRequest, ErrorResponse, HttpProvider, TokenCountRequest, Wire};
pub use scripted::{Reply, ReplyStep, Scripted};
#[cfg(feature = "http")]
pub use wires::anthropic::Anthropic;
#[cfg(feature = "http")]
pub use wires::gemini::Gemini;
#[cfg(feature = "http")]
pub use wires::ollama::Ollama;
#[cfg(feature = "http")]
pub use wires::openai_chat::OpenAiChat;
#[cfg(feature = "http")]
pub use wires::openai_responses::OpenAiResponses;
pub use wires::{anthropic, gemini, ollama, openai_chat, openai_responses};
pub use wrap::circuit_breaker::CircuitBreaker;
pub use wrap::fallback::{Fallback, FallbackFailure};
pub(crate) use wrap::first_poll::start_at_first_poll;
pub use wrap::retry::{Backoff, Retry};
pub(crate) use wrap::should_fall_back::should_fall_back;

use crate::error::Error;
use crate::item::Part;
use crate::request::Request;
use crate::stream::TurnStream;

/// Streams a model's turns.
///
/// A decorator is a provider that wraps an inner provider, for example to add retries or recording.
/// A decorator must pass the request's [`retries`](Request::retries) on to the inner provider. With
/// [`from_stream`] or [`from_poll_fn`], you can write your own provider in ten lines. For another
/// HTTP protocol, use an `HttpProvider` with your own `Wire`.
///
/// `provider_suite!` in the crate `turnstream-testing` checks whether a provider that communicates
/// with a server follows all the rules of this trait.
///
/// ```
/// use futures::future::BoxFuture;
/// use turnstream::item::Part;
/// use turnstream::provider::{Provider, Scripted};
/// use turnstream::{Agent, Error, Request, TurnStream};
///
/// /// Prints the number of items in each request.
/// struct Logged<P>(P);
///
/// impl<P: Provider> Provider for Logged<P> {
///     fn stream_turn(&self, request: Request) -> TurnStream {
///         println!("a request with {} items", request.history.len());
///         self.0.stream_turn(request)
///     }
///
///     fn model(&self) -> &str {
///         self.0.model()
///     }
///
///     fn has_tool_search(&self) -> bool {
///         self.0.has_tool_search()
///     }
///
///     fn count_tokens(
///         &self,
///         request: &Request,
///     ) -> Option<BoxFuture<'static, Result<u64, Error>>> {
///         self.0.count_tokens(request)
///     }
///
///     fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
///         self.0.check_parts(parts)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let agent = Agent::new(Logged(Scripted::new(["Hello!"])));
/// assert_eq!(agent.run("Hi").outcome().await.text, "Hello!");
/// # }
/// ```
pub trait Provider: Send + Sync {
    /// Sends the request and streams the model's turn, which obeys the rules of
    /// [`seal`](crate::stream::seal). The request is sent to the model that it names, or else to
    /// the provider's own [`model`](Self::model).
    ///
    /// Nothing is sent before the first poll. Dropping the stream cancels the request.
    ///
    /// An HTTP provider needs a tokio runtime. A turn that was started in a current-thread runtime
    /// must be polled in that runtime. Polling the turn in another runtime, or outside of any
    /// runtime, returns an error if the poll would have to wait for the connection, because the
    /// wait might never end.
    fn stream_turn(&self, request: Request) -> TurnStream;

    /// Returns the name of the model to use for requests that do not name a model.
    fn model(&self) -> &str;

    /// Returns whether the provider itself searches [deferred](crate::tool::ToolSpec::deferred)
    /// tools. Returns `false` by default. If the provider searches deferred tools, a request
    /// declares all tools, and the model sees only the deferred tools that a search on the server
    /// finds. A provider that wraps several providers returns `true` only if all of them do.
    ///
    /// An agent with a searchable toolkit sends the [complete tool
    /// list](crate::Toolkit::deferred_specs) to a provider that searches tools. To any other
    /// provider, such an agent sends two search tools of its own instead of the complete list.
    fn has_tool_search(&self) -> bool {
        false
    }

    /// Counts the tokens of a request's input at the vendor's endpoint. Returns `None` by default,
    /// and if the provider cannot count. A provider that wraps another one should pass the call on.
    ///
    /// Nothing is sent before the first poll, and dropping the future cancels the request. Most
    /// vendors do not charge for a count, but limit the number of counts per minute.
    ///
    /// The Messages, Responses and Gemini wires count, except on Vertex AI and with a
    /// [path](HttpProvider::with_path) that was set.
    ///
    /// # Errors
    ///
    /// The future returns the errors of a turn's request, or a
    /// [`Protocol`](crate::ErrorKind::Protocol) error if the answer contains no count.
    fn count_tokens(&self, request: &Request) -> Option<BoxFuture<'static, Result<u64, Error>>> {
        let _ = request;
        None
    }

    /// Checks, without sending anything, whether the provider can send these parts in a user
    /// message. Before an agent appends input to a history, it calls this method with the images
    /// and files in the input, so that input that the provider cannot send does not become part of
    /// the history. Returns `Ok` by default; a problem is then reported only by the request. A
    /// provider that wraps another one must pass the call on.
    ///
    /// # Errors
    ///
    /// Returns the error with which a request that contains the parts would fail, usually an
    /// [`Unsupported`](crate::ErrorKind::Unsupported) error.
    fn check_parts(&self, _parts: &[Part]) -> Result<(), Error> {
        Ok(())
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

            fn check_parts(&self, parts: &[Part]) -> Result<(), Error> {
                (**self).check_parts(parts)
            }

            fn count_tokens(
                &self,
                request: &Request,
            ) -> Option<BoxFuture<'static, Result<u64, Error>>> {
                (**self).count_tokens(request)
            }
        }
    )*};
}

impl_provider_for_pointer!(Arc<P>, Box<P>, &P);
