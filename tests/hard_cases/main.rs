//! The hard cases of an agent loop, one row after the other: each test begins with the number of
//! its row.

mod abort;
mod kit;
mod tools;
