//! The start of a run, as it is passed to the run's world.

use crate::item::{History, Item};

/// The start of a run: its history and its input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunStart<'a> {
    /// The history, without the input.
    pub history: &'a History,
    /// The input, which is appended to the history.
    pub input: &'a [Item],
    /// Whether the run resumes pending calls.
    pub is_resuming: bool,
}
