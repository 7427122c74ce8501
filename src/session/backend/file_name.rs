//! Converts session ids to file names and back.

use std::fmt::Write;

use crate::fnv::fnv1a_128;

/// The extension of session files.
pub(in crate::session) const SESSION_FILE_SUFFIX: &str = ".jsonl";

/// The maximum length of a file name. A longer name is replaced by a prefix and a hash, because
/// file systems limit names to about 255 bytes, and some to only 143.
const MAX_NAME_BYTES: usize = 120;
const SHORTENED_NAME_PREFIX_BYTES: usize = 80;

/// The names that Windows reserves for devices, regardless of the extension.
const WINDOWS_DEVICE_NAMES: [&str; 22] = [
    "con", "prn", "aux", "nul", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8",
    "com9", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
];

/// Returns a file name for the session with this id, without an extension. Lower-case letters,
/// digits, `-` and `_` are kept; every other byte is replaced by `%` and two hexadecimal digits.
/// Upper-case letters are also replaced, because a file system may be case-insensitive.
pub fn file_name_from_id(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for (at, byte) in id.bytes().enumerate() {
        let plain = matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        match plain && !(at == 0 && WINDOWS_DEVICE_NAMES.contains(&id)) {
            true => name.push(char::from(byte)),
            // Invariant: writing to a string does not fail.
            false => drop(write!(name, "%{byte:02x}")),
        }
    }
    match name.len() <= MAX_NAME_BYTES {
        true => name,
        // No other name contains `~`. The name is ASCII, so it can be truncated at any byte. The
        // file's header contains the whole id, so two ids with the same file name cause an error
        // and are never mixed up.
        false => format!(
            "{}~{:032x}",
            name.split_at(SHORTENED_NAME_PREFIX_BYTES).0,
            fnv1a_128(id.bytes())
        ),
    }
}

/// Returns the session id that a file name encodes, or `None` for shortened and invalid names.
pub(in crate::session) fn id_from_file_name(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => hex_digit_value(rest.next()?)? * 16 + hex_digit_value(rest.next()?)?,
            byte => byte,
        });
    }
    let id = String::from_utf8(bytes).ok()?;
    // Each id has exactly one valid name.
    (!id.is_empty() && file_name_from_id(&id) == name).then_some(id)
}

fn hex_digit_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &str, name: &str) {
        assert_eq!(file_name_from_id(id), name);
        assert_eq!(id_from_file_name(name).as_deref(), Some(id));
    }

    #[test]
    fn file_names_are_safe_and_decode_to_the_id() {
        check("chat-1_a", "chat-1_a");
        check("Chat", "%43hat");
        check("..", "%2e%2e");
        check("a/b\\c:d", "a%2fb%5cc%3ad");
        check("50%", "50%25");
        check("é\0\n", "%c3%a9%00%0a");
        check("nul", "%6eul");
        check("nulls", "nulls");
    }

    #[test]
    fn a_long_id_has_a_short_unique_file_name() {
        let one = "ü".repeat(300);
        let other = format!("{}u", "ü".repeat(299));
        assert!(file_name_from_id(&one).len() <= MAX_NAME_BYTES);
        assert_ne!(file_name_from_id(&one), file_name_from_id(&other));
        assert_eq!(id_from_file_name(&file_name_from_id(&one)), None);
    }

    #[test]
    fn a_file_name_that_no_id_encodes_to_is_not_decoded() {
        for name in ["", "A", "%41%", "%4", "%zz", "%61", "a.b", "%ff", "nul", "a~b", "%4A"] {
            assert_eq!(id_from_file_name(name), None, "{name}");
        }
    }
}
