//! Content parts in their serialized form.

use serde_json::{Value, json};

use crate::item::{Content, Media, MediaSource, Part};

pub(super) fn content_parts(content: &Content) -> Vec<Value> {
    match content {
        Content::Text(text) => text_part(text).into_iter().collect(),
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => text_part(text),
                Part::Image(media) => Some(json!({
                    "type": "input_image",
                    "image_url": media.to_url(),
                    "detail": "auto",
                })),
                Part::File(media) => Some(file_part(media)),
            })
            .collect(),
    }
}

pub(super) fn text_part(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!({ "type": "input_text", "text": text }))
}

fn file_part(media: &Media) -> Value {
    match &media.source {
        // The API determines a file's type from its file name extension.
        MediaSource::Data(_) => {
            let unnamed = || format!("file.{}", file_extension(&media.media_type));
            json!({
                "type": "input_file",
                "filename": media.name.clone().unwrap_or_else(unnamed),
                "file_data": media.to_url(),
            })
        }
        MediaSource::Url(url) => json!({ "type": "input_file", "file_url": url }),
    }
}

/// Returns the usual file name extension for a media type.
fn file_extension(media_type: &str) -> &str {
    let (of_what, subtype) = media_type.split_once('/').unwrap_or_default();
    match subtype {
        "plain" => "txt",
        "markdown" => "md",
        "javascript" => "js",
        "vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "vnd.openxmlformats-officedocument.presentationml.presentation" => "pptx",
        "pdf" | "json" | "csv" | "html" | "xml" | "css" | "rtf" => subtype,
        _ if of_what == "text" => "txt",
        _ => "bin",
    }
}
