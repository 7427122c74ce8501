//! Checks whether a provider can send input before the input is appended to a history.

use crate::error::Error;
use crate::item::{Content, History, Item, ItemKind, Media, MediaSource, Part};
use crate::provider::{Provider, omitted_part_text};

/// Checks whether the provider can send the images and files in the history and the input.
///
/// # Errors
///
/// Returns the error with which a request would fail.
pub(super) fn check_input(
    provider: &dyn Provider,
    history: &History,
    input: &[Item],
) -> Result<(), Error> {
    let earlier = history.iter().filter(|item| !item.tombstone).flat_map(media_parts);
    let mut parts: Vec<Part> = earlier.map(without_data).collect();
    parts.extend(input.iter().flat_map(media_parts).cloned());
    match parts.is_empty() {
        true => Ok(()),
        false => provider.check_parts(&parts),
    }
}

/// Replaces each image and file that the provider cannot send with a text that describes it.
pub(super) fn describe_unsupported_parts(provider: &dyn Provider, items: &mut [Item]) {
    for item in items {
        let ItemKind::User { content: Content::Parts(parts) } = &mut item.kind else { continue };
        for part in parts.iter_mut().filter(|part| part.as_text().is_none()) {
            if provider.check_parts(std::slice::from_ref(part)).is_err() {
                *part = Part::Text { text: omitted_part_text(part).into_owned() };
            }
        }
    }
}

/// Returns the images and files in a user message.
fn media_parts(item: &Item) -> impl Iterator<Item = &Part> {
    let parts = match &item.kind {
        ItemKind::User { content: Content::Parts(parts) } => parts.as_slice(),
        _ => &[],
    };
    parts.iter().filter(|part| part.as_text().is_none())
}

/// Returns the part without its data. Whether a wire can express a part depends on the data only
/// for files that a wire sends as text, and the data of an earlier message has already been checked.
fn without_data(part: &Part) -> Part {
    let empty = |Media { media_type, source, name }: &Media| Media {
        media_type: media_type.clone(),
        source: match source {
            MediaSource::Data(_) => MediaSource::Data(String::new()),
            MediaSource::Url(url) => MediaSource::Url(url.clone()),
        },
        name: name.clone(),
    };
    match part {
        Part::Text { text } => Part::Text { text: text.clone() },
        Part::Image(media) => Part::Image(empty(media)),
        Part::File(media) => Part::File(empty(media)),
    }
}
