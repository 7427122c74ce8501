//! The prefix with which a model reports that it is blocked.

/// The prefix of a model's final text that signals that the model is blocked. The prefix is matched
/// case-insensitively.
const BLOCKED_PREFIX: &str = "BLOCKED:";

/// Returns the rest of the first line after the prefix `BLOCKED:`, which describes what is missing.
/// Returns `None` if the text does not start with this prefix.
///
/// If the returned string is empty, the model has not said what is missing.
pub(crate) fn strip_blocked_prefix(text: &str) -> Option<&str> {
    let line = text.trim_start().lines().next()?;
    let (head, rest) = line.split_at_checked(BLOCKED_PREFIX.len())?;
    head.eq_ignore_ascii_case(BLOCKED_PREFIX).then(|| rest.trim())
}
