//! The prefix with which a model reports that it is blocked.

/// The prefix with which a model's last text reports that the model is blocked, matched
/// case-insensitively.
pub const BLOCKED_PREFIX: &str = "BLOCKED:";

/// Returns what follows `BLOCKED:` in a text's first line, which names what is missing, or `None`
/// if the text does not start with that prefix.
///
/// If the returned text is empty, the model has not named what is missing.
pub(crate) fn strip_blocked_prefix(text: &str) -> Option<&str> {
    let line = text.trim_start().lines().next()?;
    let (head, rest) = line.split_at_checked(BLOCKED_PREFIX.len())?;
    head.eq_ignore_ascii_case(BLOCKED_PREFIX).then(|| rest.trim())
}
