//! The chat server: who may do what, limits, and its end.

mod answers;
mod hidden_texts;
mod limits;
pub(crate) mod principals;
mod queue;
mod responses;
mod shut_down;
mod stores;
mod support;
mod verdicts;
