//! Sessions: what is written when, what is read back, and what a crash leaves.

mod breaks;
mod compaction;
mod crash;
mod law;
mod parts;
mod resume;
mod tombstones;
mod writing;
