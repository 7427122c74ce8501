//! Serializes entries to JSON.

use std::io::{self, Write};

use crate::error::Error;
use crate::item::{Content, Item, ItemKind, Media, MediaSource, Part, Text, ToolResult};
use crate::session::Entry;
use crate::session::backend::checks::store_error;

/// The length of the texts of a user's message or of a tool result, media included, from which on
/// the content is large. The texts of a large content are not parsed again to check the line, and
/// the line's length is computed before the line is written. Texts of a model and arguments of
/// calls are always parsed again.
const LARGE_CONTENT_BYTES: usize = 64 << 10;

/// Serializes an entry to a single line of JSON, without a line break at the end. To read the
/// entry, parse the line with [`serde_json::from_str`].
///
/// # Errors
///
/// Returns a [`Store`](crate::ErrorKind::Store) error if the line cannot be parsed as an entry, for
/// example because its JSON is nested more deeply than `serde_json` allows. An entry that cannot be
/// parsed must not be written.
pub fn entry_to_json_line(entry: &Entry) -> Result<String, Error> {
    let line = match without_large_content(entry) {
        None => serde_json::to_string(entry).and_then(|line| check(&line).map(|()| line)),
        // Any text can be parsed. Parsing the whole line would copy the texts several times.
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

/// Returns a copy of the entry without the texts of its content, if the entry is a message or a
/// result whose content is large.
fn without_large_content(entry: &Entry) -> Option<Entry> {
    let Entry::Item(item) = entry else { return None };
    // Each field is copied on its own, since a clone of the item would contain the texts.
    let kind = match &item.kind {
        ItemKind::User { content } => ItemKind::User { content: without_large_texts(content)? },
        ItemKind::ToolResult(result) => ItemKind::ToolResult(ToolResult {
            content: without_large_texts(&result.content)?,
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            kind: result.kind,
            report: result.report.clone(),
        }),
        _ => return None,
    };
    Some(Entry::Item(Item {
        kind,
        provider_data: item.provider_data.clone(),
        interrupted: item.interrupted,
        compacted: item.compacted,
        tombstone: item.tombstone,
        commentary: item.commentary,
        idempotent: item.idempotent,
        turn: item.turn.clone(),
    }))
}

/// Returns a copy of the content without its texts and media, if the content is large.
fn without_large_texts(content: &Content) -> Option<Content> {
    let parts = match content {
        Content::Text(text) => {
            return (text.len() >= LARGE_CONTENT_BYTES).then(|| Content::Text(Text::default()));
        }
        Content::Parts(parts) => parts,
    };
    let bytes: usize = parts.iter().map(text_bytes).sum();
    let short = || parts.iter().map(without_text).collect();
    (bytes >= LARGE_CONTENT_BYTES).then(|| Content::Parts(short()))
}

fn text_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        Part::Image(media) | Part::File(media) => match &media.source {
            MediaSource::Data(text) | MediaSource::Url(text) | MediaSource::FileId(text) => {
                text.len()
            }
        },
    }
}

fn without_text(part: &Part) -> Part {
    let without_source = |media: &Media| Media {
        media_type: media.media_type.clone(),
        source: match media.source {
            MediaSource::Data(_) => MediaSource::Data(Text::default()),
            MediaSource::Url(_) => MediaSource::Url(Text::default()),
            MediaSource::FileId(_) => MediaSource::FileId(Text::default()),
        },
        name: media.name.clone(),
        detail: media.detail,
    };
    match part {
        Part::Text { .. } => Part::Text { text: Text::default() },
        Part::Image(media) => Part::Image(without_source(media)),
        Part::File(media) => Part::File(without_source(media)),
    }
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

    fn large_entries() -> Vec<Entry> {
        let text = "a \"text\"\n".repeat(LARGE_CONTENT_BYTES / 8);
        let parts: Vec<Part> = vec![
            "look".into(),
            Part::image("image/png", text.clone()),
            Part::file("text/plain", MediaSource::Url(text.as_str().into()))
                .with_name("a \"name\""),
        ];
        let small_parts: Vec<Part> = vec!["a \"text\"".into(); LARGE_CONTENT_BYTES / 8];
        let result = |content: Content| ToolResult {
            call_id: "c1".to_owned(),
            name: "read".to_owned(),
            content,
            kind: ResultKind::Ok,
            report: None,
        };
        let contents = [text.into(), parts.into(), small_parts.into()];
        let entries = |content: Content| {
            [Item::user(content.clone()).into(), Item::tool_result(result(content)).into()]
        };
        contents.into_iter().flat_map(entries).collect()
    }

    #[test]
    fn large_content_is_written_without_further_capacity_and_is_read_again() {
        for entry in large_entries() {
            let line = entry_to_json_line(&entry).unwrap();
            assert_eq!(line, serde_json::to_string(&entry).unwrap());
            assert_eq!(line.capacity(), line.len() + 1);
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry);
        }
    }

    #[test]
    fn an_entry_that_cannot_be_parsed_is_an_error_even_if_its_content_is_large() {
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
