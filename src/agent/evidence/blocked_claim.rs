//! How a model says that it cannot go on.

/// What the last words of a blocked model begin with, in any case of letters.
pub const BLOCKED_PREFIX: &str = "BLOCKED:";

/// What a text that begins with a line `BLOCKED: …` says is missing, or `None` if it does not.
///
/// It is the rest of that line. An empty one means that nothing was named.
pub(crate) fn strip_blocked_prefix(text: &str) -> Option<&str> {
    let line = text.trim_start().lines().next()?;
    let (head, rest) = line.split_at_checked(BLOCKED_PREFIX.len())?;
    head.eq_ignore_ascii_case(BLOCKED_PREFIX).then(|| rest.trim())
}
