//! Creates the messages that tell the model what the catalogs of an agent's sources contain.
//!
//! A message is a part of the history, so the history determines what the model knows: each listing
//! is compared with the messages in the history. A message that a compaction has removed is
//! therefore sent again, and a later run of the same session reports only what has changed.

use std::collections::BTreeMap;

use crate::item::{Content, History, truncate_middle};
use crate::tool::CatalogEntry;

/// The maximum number of entries in a message.
const MAX_ENTRIES: usize = 100;

/// The maximum length of the entries in a message, in bytes.
const MAX_ENTRIES_BYTES: usize = 32 * 1024;

/// The maximum length of an entry, in bytes. A character of a description may take four bytes.
const MAX_ENTRY_BYTES: usize = 5 * 1024;

/// The part of a catalog that the model has received in messages.
#[derive(Debug, PartialEq)]
enum ReportedCatalog {
    /// The history does not contain a message about the catalog.
    Unreported,
    /// The model has received these entries, each as a line with its name as the key.
    Listed(BTreeMap<String, String>),
    /// The model has received a message that the catalog has too many entries to list.
    TooLong,
}

/// Creates the message about the catalog of the source with the given name. Returns `None` if the
/// model has already received the entries. `pending` contains the messages that will be appended to
/// the history before the next request.
pub(in crate::agent) fn catalog_notice(
    source: &str,
    entries: &[CatalogEntry],
    history: &History,
    pending: &[String],
) -> Option<String> {
    let headings = Headings::new(source);
    let now: BTreeMap<String, String> = entries.iter().map(entry_line).collect();
    let is_short = is_short(now.values());
    match ReportedCatalog::read(&headings, history, pending) {
        ReportedCatalog::Unreported if now.is_empty() => None,
        ReportedCatalog::TooLong if !is_short => None,
        ReportedCatalog::Unreported | ReportedCatalog::TooLong => match is_short {
            true => Some(section(&headings.listed, now.values())),
            false => Some(headings.too_long),
        },
        ReportedCatalog::Listed(before) => {
            let updated = |(name, line): &(&String, &String)| before.get(*name) != Some(*line);
            let updated: Vec<&String> = now.iter().filter(updated).map(|(_, line)| line).collect();
            let is_gone = |name: &&String| !now.contains_key(*name);
            let gone: Vec<String> =
                before.keys().filter(is_gone).map(|name| format!("- {name}")).collect();
            if !is_short_change(&updated, &gone) {
                return Some(headings.too_long);
            }
            let mut sections = Vec::new();
            if !updated.is_empty() {
                sections.push(section(&headings.updated, updated));
            }
            if !gone.is_empty() {
                sections.push(section(&headings.gone, &gone));
            }
            (!sections.is_empty()).then(|| sections.join("\n"))
        }
    }
}

fn is_short<'a>(lines: impl IntoIterator<Item = &'a String>) -> bool {
    let lens: Vec<usize> = lines.into_iter().map(String::len).collect();
    lens.len() <= MAX_ENTRIES && lens.iter().sum::<usize>() <= MAX_ENTRIES_BYTES
}

fn is_short_change(updated: &[&String], gone: &[String]) -> bool {
    is_short(updated.iter().copied().chain(gone))
}

/// The headings of the sections of a message.
struct Headings {
    listed: String,
    too_long: String,
    updated: String,
    gone: String,
}

impl Headings {
    fn new(source: &str) -> Self {
        let source = one_line(source);
        Self {
            listed: format!("Available in `{source}`:"),
            too_long: format!(
                "Available in `{source}`: more than can be listed here. Search for what you need."
            ),
            updated: format!("New or changed in `{source}`:"),
            gone: format!("Not available any more in `{source}`:"),
        }
    }
}

impl ReportedCatalog {
    /// Returns the part of a catalog that the messages in a history report.
    fn read(headings: &Headings, history: &History, pending: &[String]) -> Self {
        // Earlier messages do not matter if a message has a complete list.
        let is_complete = |text: &str| {
            text.lines().any(|line| line == headings.listed || line == headings.too_long)
        };
        let texts = history.newest_first().filter_map(|item| match item.as_user()? {
            Content::Text(text) => Some(text.as_str()),
            Content::Parts(_) => None,
        });
        let mut newest_first = Vec::new();
        for text in pending.iter().rev().map(String::as_str).chain(texts) {
            newest_first.push(text);
            if is_complete(text) {
                break;
            }
        }
        let unreported = Self::Unreported;
        newest_first.into_iter().rev().fold(unreported, |it, text| it.after_text(headings, text))
    }

    fn after_text(self, headings: &Headings, text: &str) -> Self {
        let mut reported = self;
        let mut section = Section::Other;
        for line in text.lines() {
            if line == headings.listed {
                (reported, section) = (Self::Listed(BTreeMap::new()), Section::Updated);
            } else if line == headings.too_long {
                (reported, section) = (Self::TooLong, Section::Other);
            } else if line == headings.updated {
                section = Section::Updated;
            } else if line == headings.gone {
                section = Section::Gone;
            } else if let (Some(entry), Self::Listed(entries)) =
                (line.strip_prefix("- "), &mut reported)
            {
                match section {
                    Section::Updated => {
                        let name = entry.split_once(": ").map_or(entry, |(name, _)| name);
                        entries.insert(name.to_owned(), line.to_owned());
                    }
                    Section::Gone => {
                        entries.remove(entry);
                    }
                    Section::Other => {}
                }
            } else {
                section = Section::Other;
            }
        }
        reported
    }
}

/// The section of a message that contains a line.
#[derive(Clone, Copy)]
enum Section {
    Updated,
    Gone,
    /// Text that is not about the catalog.
    Other,
}

fn section<'a>(heading: &str, lines: impl IntoIterator<Item = &'a String>) -> String {
    lines.into_iter().fold(heading.to_owned(), |text, line| text + "\n" + line)
}

/// Returns the name of an entry, and the line that lists the entry.
fn entry_line(entry: &CatalogEntry) -> (String, String) {
    let name = one_line(&entry.name).replace(": ", ":");
    let line = format!("- {name}: {}", one_line(&entry.description));
    (name, truncate_middle(line, MAX_ENTRY_BYTES).replace('\n', " "))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::Item;

    fn entries(entries: &[(&str, &str)]) -> Vec<CatalogEntry> {
        let entry = |(name, description): &(&str, &str)| CatalogEntry {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
        };
        entries.iter().map(entry).collect()
    }

    fn many(len: usize) -> Vec<CatalogEntry> {
        let entry =
            |n| CatalogEntry { name: format!("e{n:03}"), description: "an entry".to_owned() };
        (0..len).map(entry).collect()
    }

    /// Returns the messages for one catalog after the other, each appended to the history.
    fn notices(catalogs: &[Vec<CatalogEntry>]) -> Vec<Option<String>> {
        let mut history = History::empty("h");
        history.push(Item::user("go"));
        let mut notices = Vec::new();
        for entries in catalogs {
            let notice = catalog_notice("skills", entries, &history, &[]);
            if let Some(notice) = &notice {
                history.push(Item::user(notice.clone()));
            }
            notices.push(notice);
        }
        notices
    }

    #[test]
    fn the_first_message_lists_all_entries_and_later_messages_only_changes() {
        let first = entries(&[("pdf", "Reads PDFs"), ("commit", "Writes\n  messages")]);
        let second = entries(&[("pdf", "Reads: PDFs"), ("docx", "Reads documents")]);
        let notices = notices(&[first.clone(), first, second.clone(), second, vec![]]);
        let expected = [
            Some("Available in `skills`:\n- commit: Writes messages\n- pdf: Reads PDFs"),
            None,
            Some(
                "New or changed in `skills`:\n- docx: Reads documents\n- pdf: Reads: PDFs\n\
                 Not available any more in `skills`:\n- commit",
            ),
            None,
            Some("Not available any more in `skills`:\n- docx\n- pdf"),
        ];
        assert_eq!(notices.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_empty_catalog_is_not_reported() {
        assert_eq!(notices(&[vec![], vec![]]), [None, None]);
    }

    #[test]
    fn a_catalog_that_was_emptied_is_filled_by_changes() {
        let notices = notices(&[entries(&[("a", "x")]), vec![], entries(&[("b", "y")])]);
        assert_eq!(notices[2].as_deref(), Some("New or changed in `skills`:\n- b: y"));
    }

    #[test]
    fn a_catalog_of_more_than_a_hundred_entries_is_not_listed() {
        let notices = notices(&[many(100), many(101), many(400), many(100)]);
        let full = notices[0].as_deref().unwrap();
        assert_eq!(full.lines().count(), 101, "{full}");
        assert_eq!(notices[1].as_deref(), Some("New or changed in `skills`:\n- e100: an entry"));
        let too_long =
            "Available in `skills`: more than can be listed here. Search for what you need.";
        assert_eq!(notices[2].as_deref(), Some(too_long));
        assert_eq!(notices[3].as_deref(), Some(full));
    }

    #[test]
    fn changes_of_a_catalog_that_is_not_listed_are_not_reported() {
        let notices = notices(&[many(101), many(300), many(101)]);
        assert!(notices[0].is_some());
        assert_eq!(notices[1..], [None, None]);
    }

    #[test]
    fn a_catalog_of_more_than_32_kib_is_not_listed() {
        let of_len = |len: usize| entries(&[("a", &"x".repeat(len)), ("b", "y")]);
        let exact: Vec<CatalogEntry> =
            (0..8).flat_map(|n| entries(&[(&format!("e{n}"), &"x".repeat(4_090))])).collect();
        let mut long = exact.clone();
        long.extend(of_len(0));
        assert!(notices(&[exact])[0].as_ref().unwrap().starts_with("Available in `skills`:\n"));
        assert!(notices(&[long])[0].as_ref().unwrap().starts_with("Available in `skills`: more"));
        // An entry of any length is cut.
        assert!(notices(&[of_len(100_000)])[0].as_ref().unwrap().len() < 6_000);
    }

    #[test]
    fn a_message_that_waits_for_the_next_request_counts_as_received() {
        let history = History::empty("h");
        let entries = entries(&[("a", "x")]);
        let notice = catalog_notice("skills", &entries, &history, &[]).unwrap();
        let joined = format!("Some tools of `other` are left out: x.\n{notice}");
        assert_eq!(catalog_notice("skills", &entries, &history, &[joined]), None);
    }

    #[test]
    fn the_catalogs_of_two_sources_do_not_mix() {
        let mut history = History::empty("h");
        let entries = entries(&[("a", "x")]);
        let first = catalog_notice("skills", &entries, &history, &[]).unwrap();
        history.push(Item::user(first.clone()));
        let second = catalog_notice("prompts", &entries, &history, &[]).unwrap();
        history.push(Item::user(format!("{first}\n{second}")));
        assert_eq!(second, "Available in `prompts`:\n- a: x");
        assert_eq!(catalog_notice("skills", &entries, &history, &[]), None);
        assert_eq!(catalog_notice("prompts", &entries, &history, &[]), None);
    }
}
