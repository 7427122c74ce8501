//! Serializes entries to JSON.

use std::io::{self, Write};

use crate::error::Error;
use crate::item::{Content, Item, ItemKind, Text, ToolResult};
use crate::session::Entry;
use crate::session::backend::checks::store_error;

/// The length of the plain text of a user's message or of a tool result from which on the text is
/// large. A large text is not parsed again to check the line, and the line's length is computed
/// before the line is written. Lists of parts, texts of a model and arguments of calls are always
/// parsed again.
const LARGE_TEXT_BYTES: usize = 64 << 10;

/// Serializes an entry to a single line of JSON, without a line break at the end. To read the
/// entry, parse the line with [`serde_json::from_str`].
///
/// # Errors
///
/// Returns a [`Store`](crate::ErrorKind::Store) error if the line cannot be parsed as an entry, for
/// example because its JSON is nested more deeply than `serde_json` allows. An entry that cannot be
/// parsed must not be written.
pub fn entry_to_json_line(entry: &Entry) -> Result<String, Error> {
    let line = match without_large_text(entry) {
        None => serde_json::to_string(entry).and_then(|line| check(&line).map(|()| line)),
        // Any text can be parsed. Parsing the whole line would copy the text several times.
        Some(short) => {
            let checked = serde_json::to_string(&short).and_then(|line| check(&line));
            checked.and_then(|()| to_exact_string(entry))
        }
    };
    line.map_err(|error| store_error("an entry cannot be stored as JSON", error))
}

fn check(line: &str) -> serde_json::Result<()> {
    serde_json::from_str::<Entry>(line).map(drop)
}

/// Returns a copy of the entry without its text, if the entry is a message or a result whose text
/// is large.
fn without_large_text(entry: &Entry) -> Option<Entry> {
    let Entry::Item(item) = entry else { return None };
    let is_large = |content: &Content| matches!(content, Content::Text(text) if text.len() >= LARGE_TEXT_BYTES);
    let content = Content::Text(Text::default());
    let kind = match &item.kind {
        ItemKind::User { content: text } if is_large(text) => ItemKind::User { content },
        ItemKind::ToolResult(result) if is_large(&result.content) => {
            ItemKind::ToolResult(ToolResult { content, ..result.clone() })
        }
        _ => return None,
    };
    Some(Entry::Item(Item { kind, ..item.clone() }))
}

/// Serializes an entry to a string whose capacity is the length of the line and of a line break.
fn to_exact_string(entry: &Entry) -> serde_json::Result<String> {
    let mut length = ByteCount(0);
    serde_json::to_writer(&mut length, entry)?;
    let mut line = Vec::with_capacity(length.0 + 1);
    serde_json::to_writer(&mut line, entry)?;
    String::from_utf8(line).map_err(serde::ser::Error::custom)
}

/// Counts the bytes that are written to it.
struct ByteCount(usize);

impl Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ResultKind;

    fn large_entries() -> [Entry; 2] {
        let text = "a \"text\"\n".repeat(LARGE_TEXT_BYTES / 8);
        let result = ToolResult {
            call_id: "c1".to_owned(),
            name: "read".to_owned(),
            content: text.clone().into(),
            kind: ResultKind::Ok,
            report: None,
        };
        [Item::user(text).into(), Item::tool_result(result).into()]
    }

    #[test]
    fn a_large_text_is_written_without_further_capacity_and_is_read_again() {
        for entry in large_entries() {
            let line = entry_to_json_line(&entry).unwrap();
            assert_eq!(line, serde_json::to_string(&entry).unwrap());
            assert_eq!(line.capacity(), line.len() + 1);
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry);
        }
    }

    #[test]
    fn an_entry_that_cannot_be_parsed_is_an_error_even_if_its_text_is_large() {
        let nested = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let nested = crate::item::RawJson::parse(&nested).unwrap();
        let data = crate::item::ProviderData::new("p", "m", nested);
        for entry in large_entries() {
            let Entry::Item(mut item) = entry else { unreachable!("all entries are items") };
            item.provider_data = Some(std::sync::Arc::new(data.clone()));
            assert!(entry_to_json_line(&item.into()).is_err());
        }
    }
}
