//! The chat server: who may do what, limits, and its end.

mod limits;
mod principals;
mod shut_down;
mod support;
