//! A file of which only the provider has the data.

use crate::item::{Media, MediaSource};

/// Returns the text that a front end shows in place of an image or a file that the provider stores.
/// A page cannot read such a file.
pub(super) fn stored_file_text(media: &Media) -> String {
    let id = match &media.source {
        MediaSource::FileId(id) => id.as_str(),
        MediaSource::Data(_) | MediaSource::Url(_) => "",
    };
    format!("[The file `{}`, stored by the provider]", media.name.as_deref().unwrap_or(id))
}
