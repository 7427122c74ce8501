//! Parses the id that a client sends when it reconnects.

/// Parses the value of the `last-event-id` header, which contains the number of the last event that
/// a client received. Returns `None` if the value does not start with `prefix` or is not a valid
/// id.
pub(super) fn parse_last_event_id(id: &str, prefix: &str) -> Option<u64> {
    let number = id.trim().strip_prefix(prefix)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok()).flatten()
}
