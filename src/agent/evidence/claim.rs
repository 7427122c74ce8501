//! How a model says that it cannot go on.

/// What the last words of a blocked model begin with, in any case of letters.
pub const BLOCKED: &str = "BLOCKED:";

/// What a text that begins with a line `BLOCKED: …` says is missing, or `None` if it does not.
///
/// It is the rest of that line. An empty one means that nothing was named.
///
/// ```
/// use turnstream::agent::evidence::blocked_claim;
///
/// let claim = blocked_claim("Blocked: write access to `/srv`\nEverything else is done.");
/// assert_eq!(claim, Some("write access to `/srv`"));
/// assert_eq!(blocked_claim("BLOCKED:"), Some(""));
/// assert_eq!(blocked_claim("The door is BLOCKED: it is stuck"), None);
/// ```
pub fn blocked_claim(text: &str) -> Option<&str> {
    let line = text.trim_start().lines().next()?;
    let (head, rest) = line.split_at_checked(BLOCKED.len())?;
    head.eq_ignore_ascii_case(BLOCKED).then(|| rest.trim())
}
