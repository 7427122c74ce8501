//! The content of messages and results, as the protocol represents it.

use serde_json::{Value, json};

use crate::item::{Content, Media, MediaSource, Part};
use crate::ui::stored_file::stored_file_text;

pub(super) fn content_to_json(content: &Content) -> Value {
    match content {
        Content::Text(text) => text.as_str().into(),
        Content::Parts(parts) => parts.iter().map(part_to_json).collect(),
    }
}

fn part_to_json(part: &Part) -> Value {
    let media = |kind: &str, media: &Media| {
        let (source, value) = match &media.source {
            MediaSource::Data(data) => ("data", data),
            MediaSource::Url(url) => ("url", url),
            // The protocol only has these two sources, and a page cannot read the file.
            MediaSource::FileId(_) => {
                return json!({ "type": "text", "text": stored_file_text(media) });
            }
        };
        json!({
            "type": kind,
            "source": { "type": source, "value": value, "mimeType": media.media_type },
        })
    };
    match part {
        Part::Text { text } => json!({ "type": "text", "text": text }),
        Part::Image(image) => media("image", image),
        Part::File(file) if file.media_type.starts_with("audio/") => media("audio", file),
        Part::File(file) if file.media_type.starts_with("video/") => media("video", file),
        Part::File(file) => media("document", file),
    }
}
