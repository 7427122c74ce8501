//! Sessions: what is written when, what is read back, and what a crash leaves.

mod breaks;
#[path = "../../agent/mix/cast.rs"]
mod cast;
mod crash;
mod kit;
mod law;
mod odd;
mod parts;
mod resume;
mod writing;
