//! Defines how the start of a run is described to the run's world.

use crate::item::{History, Item};

/// Describes the start of a run, including its history and input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunStart<'a> {
    /// The history before the input is appended to it.
    pub history: &'a History,
    /// The input that is appended to the history.
    pub input: &'a [Item],
    /// Whether the run resumes pending calls.
    pub is_resuming: bool,
}
