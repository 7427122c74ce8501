//! Checks whether a provider can send input before the input is appended to a history.

use crate::agent::settings::AgentSettings;
use crate::error::{Error, ErrorKind, panic_to_error};
use crate::item::{Content, Item, ItemKind, Part};
use crate::provider::{Provider, omitted_part_text};

/// Checks whether the provider can send the images and files in the input.
///
/// # Errors
///
/// Returns the error with which a request would fail.
pub(in crate::agent) fn check_input(settings: &AgentSettings, input: &[Item]) -> Result<(), Error> {
    if !must_be_checked(settings, input) {
        return Ok(());
    }
    let parts: Vec<Part> = input.iter().flat_map(media_parts).cloned().collect();
    let check = || settings.providers.provider.check_parts(&parts);
    panic_to_error(ErrorKind::Panic, "the provider", check).flatten()
}

/// Returns whether the input contains a part because of which it may be refused.
pub(in crate::agent) fn must_be_checked(settings: &AgentSettings, input: &[Item]) -> bool {
    !settings.prompt.options.omit_unsupported_parts
        && input.iter().any(|item| media_parts(item).next().is_some())
}

/// Replaces each image and file that the provider cannot send with a text that describes it.
pub(in crate::agent) fn describe_unsupported_parts(provider: &dyn Provider, items: &mut [Item]) {
    for item in items {
        let ItemKind::User { content: Content::Parts(parts) } = &mut item.kind else { continue };
        for part in parts.iter_mut().filter(|part| part.as_text().is_none()) {
            if provider.check_parts(std::slice::from_ref(part)).is_err() {
                *part = Part::Text { text: omitted_part_text(part).into_owned().into() };
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
