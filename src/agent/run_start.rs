//! What a run begins with.

use crate::item::{History, Item};

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunStart<'a> {
    /// The history, without the input.
    pub history: &'a History,
    /// What is said to it.
    pub input: &'a [Item],
    /// Whether the run goes on with calls that were left pending.
    pub is_resuming: bool,
}
