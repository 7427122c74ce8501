//! The wires of the vendors. Each has an encoder, a decoder, and a writer for servers.

pub mod anthropic;
pub mod gemini;
pub mod ollama;
mod openai;
pub mod openai_chat;
pub mod openai_responses;
