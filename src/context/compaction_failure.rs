//! An error that carries the token usage of a failed compaction.

use std::error::Error as StdError;
use std::fmt;

use crate::error::Error;
use crate::usage::Usage;

/// An error that carries the token usage of a compaction that failed after calling a model.
///
/// [`attach_usage`](Self::attach_usage) makes a `CompactionFailure` the source of the compaction's
/// error. The source of the `CompactionFailure` is the original error. An agent adds the failed
/// compaction's usage to the run's usage.
///
/// ```
/// use turnstream::context::CompactionFailure;
/// use turnstream::{Error, ErrorKind, Usage};
///
/// let usage = Usage { output_tokens: 7, ..Usage::default() };
/// let error = CompactionFailure::attach_usage(Error::new(ErrorKind::Filtered, "no"), usage);
/// assert_eq!(error.kind(), ErrorKind::Filtered);
/// assert_eq!(CompactionFailure::usage_of(&error), usage);
/// ```
#[derive(Clone, Debug)]
pub struct CompactionFailure {
    usage: Usage,
    error: Error,
}

impl CompactionFailure {
    /// Attaches `usage` to an error. If `usage` is zero, the error is returned unchanged.
    pub fn attach_usage(error: Error, usage: Usage) -> Error {
        match usage == Usage::default() {
            true => error,
            false => error.clone().with_source(Self { usage, error }),
        }
    }

    /// Returns the tokens that had been used when the error occurred, or zero if the error carries
    /// no usage.
    pub fn usage_of(error: &Error) -> Usage {
        error.find_source().map_or_else(Usage::default, |failure: &Self| failure.usage)
    }
}

impl fmt::Display for CompactionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a compaction failed after {} tokens", self.usage.total())
    }
}

impl StdError for CompactionFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}
