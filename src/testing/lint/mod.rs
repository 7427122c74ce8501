//! What a strict vendor refuses.
//!
//! [`request`] reads the body of a request and returns what its vendor would answer with status 400,
//! in words close to the vendor's own. An empty list is a body that would pass.
//! A [`ModelServer`](crate::testing::ModelServer) calls it before it replies from its script; it can be
//! used on its own, for a test of an encoder.
//!
//! What only the vendor can know is not in here: whether a model exists, whether a signature is its
//! own (a server knows those it gave), whether a picture can be read.
//!
//! ```
//! use serde_json::json;
//! use turnstream::testing::{Wire, lint};
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
