//! The limits on the size of messages.

use restate_sdk::prelude::Json;
use serde::Serialize;
use turnstream::session::Entry;
use turnstream::{Error, ErrorKind};

/// The maximum size of a message. Restate retries, and finally pauses, an invocation with a message
/// of 32 MiB or more.
const MAX_MESSAGE_BYTES: usize = 24 << 20;

/// The maximum length of an id and of an agent's name, in bytes. Restate accepts longer ids, but
/// then cannot perform the invocations, and retries them for ever.
pub(crate) const MAX_ID_BYTES: usize = 1 << 10;

/// The size above which entries are sent in several messages.
const PAGE_BYTES: usize = 8 << 20;

/// Returns the content of a message.
///
/// # Errors
///
/// Returns a [`TooLarge`](ErrorKind::TooLarge) error if the message would exceed
/// [`MAX_MESSAGE_BYTES`].
pub(crate) fn message<T: Serialize>(what: &str, content: T) -> Result<Json<T>, Error> {
    let bytes = size(&content);
    if bytes > MAX_MESSAGE_BYTES {
        let message = format!("{what} has {bytes} bytes, at most {MAX_MESSAGE_BYTES} can be sent");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(Json(content))
}

/// Removes the entries for the next message from the front of `entries`.
pub(crate) fn take_page(entries: &mut Vec<Entry>) -> Vec<Entry> {
    let mut bytes = 0;
    let mut fits = |entry: &Entry| {
        bytes += size(entry);
        bytes <= PAGE_BYTES
    };
    let count = entries.iter().take_while(|entry| fits(entry)).count();
    // An entry that is larger than a page is sent alone.
    let rest = entries.split_off(count.max(1).min(entries.len()));
    std::mem::replace(entries, rest)
}

/// The size in JSON. A value that cannot be serialized has no size; sending it reports the error.
fn size(content: &impl Serialize) -> usize {
    serde_json::to_vec(content).map_or(0, |json| json.len())
}

#[cfg(test)]
mod tests {
    use turnstream::Item;

    use super::*;

    fn entry(bytes: usize) -> Entry {
        Item::user("x".repeat(bytes)).into()
    }

    #[test]
    fn pages_contain_all_entries_in_order_and_a_large_entry_is_alone() {
        let all = vec![entry(3 << 20), entry(4 << 20), entry(9 << 20), entry(1), entry(2)];
        let (mut rest, mut pages) = (all.clone(), Vec::new());
        while !rest.is_empty() {
            pages.push(take_page(&mut rest));
        }
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 2]);
        assert_eq!(pages.concat(), all);
        assert_eq!(take_page(&mut rest), []);
    }

    #[test]
    fn a_message_that_restate_would_not_accept_is_too_large() {
        assert_eq!(message("it", "x".repeat(1_000)).unwrap().into_inner().len(), 1_000);
        let error = message("the input", "x".repeat(MAX_MESSAGE_BYTES)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.message().starts_with("the input has 25165826 bytes"), "{error}");
    }
}
