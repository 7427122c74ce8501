//! Checks requests as strictly as model vendors do.
//!
//! [`request`] checks a request's body and returns the errors that the vendor would send in a
//! response with status 400. The errors are worded similarly to the vendor's own. An empty list
//! means that the vendor would accept the body. A [`ModelServer`](crate::ModelServer)
//! calls [`request`] before replying from its script. You can also call [`request`] directly, for
//! example to test an encoder.
//!
//! The checks do not cover conditions that only the vendor can verify, for example that a model
//! exists, that the vendor itself issued a signature, or that an image can be decoded. A
//! `ModelServer` also checks that it has itself issued the signatures in a request.
//!
//! ```
//! use serde_json::json;
//! use turnstream_testing::{Wire, lint};
//!
//! let body = json!({
//!     "model": "gpt-5",
//!     "messages": [{ "role": "tool", "tool_call_id": "call_1", "content": "3" }],
//! });
//! let complaints = lint::request(Wire::OpenAiChat, "gpt-5", &body);
//! assert_eq!(complaints.len(), 1);
//! assert!(complaints[0].contains("must be a response to a preceeding message"));
//! ```

pub(super) mod anthropic;
pub(super) mod gemini;
mod ollama;
pub(super) mod openai_chat;
pub(super) mod openai_responses;

mod call_pairs;
mod openai;
mod options;
mod request;
mod schema;
mod violations;

#[cfg(test)]
mod tests;

pub(super) use anthropic::anthropic;
pub(super) use gemini::{gemini, gemini_3};
pub(super) use ollama::ollama;
pub(super) use openai_chat::openai_chat;
pub(super) use openai_responses::openai_responses;
pub use request::request;
