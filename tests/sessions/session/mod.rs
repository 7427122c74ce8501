//! Sessions: when entries are written, what is read back, and the state after a crash.

mod checkpoints_and_forks;
mod compaction;
mod crash;
mod failures;
mod invariants;
mod leases;
mod resume;
mod sub_agent_histories;
mod tombstones;
mod writing;
