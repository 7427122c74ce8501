//! A compaction that came to nothing, and what it used.

use std::error::Error as StdError;
use std::fmt;

use crate::error::Error;
use crate::usage::Usage;

/// A compaction that came to nothing although a model was asked: what that has used.
///
/// It is the source of the error, and behind it in the chain stands the error that it was. An agent
/// counts the usage for its run.
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
    /// The same error with what was used; as it is if that is nothing.
    pub fn attach_usage(error: Error, usage: Usage) -> Error {
        match usage == Usage::default() {
            true => error,
            false => error.clone().with_source(Self { usage, error }),
        }
    }

    /// What was used until an error came; nothing where it does not say.
    pub fn usage_of(error: &Error) -> Usage {
        error.find_source().map_or_else(Usage::default, |failure: &Self| failure.usage)
    }
}

impl fmt::Display for CompactionFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a compaction came to nothing after {} tokens", self.usage.total())
    }
}

impl StdError for CompactionFailure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}
