//! Sessions: what is written when, what is read back, and what a crash leaves.

mod checkpoints_and_forks;
mod compaction;
mod crash;
mod failures;
mod invariants;
mod leases;
mod resume;
mod tombstones;
mod writing;
