//! Converts the content of results, resources and prompts into parts that a model can read.

use std::fmt::Write;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

use crate::item::{Content, MediaSource, Part};
use crate::tool::ToolOutput;

/// The image types that are accepted by every provider that supports images.
const IMAGE_TYPES: &[&str] = &["image/gif", "image/jpeg", "image/png", "image/webp"];

/// Determines whether media in a server's results is sent to the model. Images in the GIF, JPEG,
/// PNG and WebP formats are always sent, because every provider that supports images accepts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MediaParts {
    /// Replaces audio and other files with a line that states their type and size, because a
    /// provider that does not support such files rejects the whole request.
    #[default]
    Named,
    /// Sends audio and other files as [`Part::File`], for providers that support them.
    Sent,
}

/// The rules for converting media into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct MediaRules {
    pub(super) parts: MediaParts,
    /// The maximum size of an image or file, in bytes. A larger image or file is replaced with a
    /// line that states its type and size.
    pub(super) max_bytes: usize,
}

/// Converts a call's result into the output that is sent to the model.
pub(super) fn tool_output(result: &Value, media: MediaRules) -> ToolOutput {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let mut parts: Vec<Part> = blocks.iter().flat_map(|block| parts_of(block, media)).collect();
    let has_text =
        parts.iter().any(|part| part.as_text().is_some_and(|text| !text.trim().is_empty()));
    match &result["structuredContent"] {
        Value::Null => {}
        structured if !has_text => parts.push(Part::Text { text: structured.to_string() }),
        _ => {}
    }
    let content = match parts.is_empty() {
        true => Content::from("The tool returned nothing."),
        false => content_of(parts),
    };
    match result["isError"] == true {
        true => ToolOutput::error(content),
        false => ToolOutput::ok(content),
    }
}

/// Creates content from parts. Consecutive text parts are joined by line feeds.
pub(super) fn content_of(parts: Vec<Part>) -> Content {
    let mut joined: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(Part::Text { text: last }), Part::Text { text }) => {
                last.push('\n');
                last.push_str(&text);
            }
            (_, part) => joined.push(part),
        }
    }
    match joined.as_slice() {
        [Part::Text { text }] => Content::Text(text.clone()),
        _ => Content::Parts(joined),
    }
}

/// Converts a content block into parts. A block of an unknown kind becomes a text part that
/// contains its JSON.
pub(super) fn parts_of(block: &Value, media: MediaRules) -> Vec<Part> {
    let text = |field: &str| block[field].as_str();
    let part = match (text("type"), text("data"), text("text")) {
        (Some("text"), _, Some(words)) => Part::Text { text: words.to_owned() },
        (Some(kind @ ("image" | "audio")), Some(data), _) => {
            let media_type = text("mimeType").unwrap_or(kind);
            return media_parts(media_type, data, kind, media);
        }
        (Some("resource_link"), ..) => Part::Text { text: describe_link(block) },
        (Some("resource"), ..) => return resource_parts(&block["resource"], media),
        _ => Part::Text { text: block.to_string() },
    };
    vec![part]
}

/// Converts a resource's contents into parts.
pub(super) fn resource_parts(resource: &Value, media: MediaRules) -> Vec<Part> {
    let uri = resource["uri"].as_str().unwrap_or("a resource");
    if let Some(text) = resource["text"].as_str() {
        return vec![Part::Text { text: format!("{uri}:\n{text}") }];
    }
    let media_type = resource["mimeType"].as_str().unwrap_or("application/octet-stream");
    match resource["blob"].as_str() {
        Some(blob) => media_parts(media_type, blob, uri, media),
        None => vec![Part::Text { text: format!("{uri} is empty.") }],
    }
}

fn media_parts(media_type: &str, base64: &str, what: &str, media: MediaRules) -> Vec<Part> {
    let Some(bytes) = decoded_len(base64) else {
        return vec![Part::Text { text: format!("[{what}: {media_type}, whose data is broken]") }];
    };
    let part = match (bytes <= media.max_bytes, media.parts) {
        (true, _) if IMAGE_TYPES.contains(&media_type) => {
            Part::image(media_type, MediaSource::Data(base64.to_owned()))
        }
        (true, MediaParts::Sent) => Part::file(media_type, MediaSource::Data(base64.to_owned())),
        (false, _) | (_, MediaParts::Named) => {
            let text = format!("[{what}: {media_type}, {bytes} bytes, which cannot be shown]");
            Part::Text { text }
        }
    };
    vec![part]
}

/// Returns the number of bytes that a base64 string decodes to, or `None` if the string is empty or
/// not base64.
fn decoded_len(base64: &str) -> Option<usize> {
    let engine = GeneralPurpose::new(&STANDARD, PAD_OR_NOT);
    engine.decode(base64).ok().map(|bytes| bytes.len()).filter(|len| *len > 0)
}

const PAD_OR_NOT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

/// Describes a resource that a result links to but does not contain.
fn describe_link(link: &Value) -> String {
    let mut text = format!("[resource {}", link["uri"].as_str().unwrap_or("without an address"));
    for field in ["name", "description", "mimeType"] {
        if let Some(value) = link[field].as_str().filter(|value| !value.is_empty()) {
            let _ = write!(text, ", {value}");
        }
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMED: MediaRules = MediaRules { parts: MediaParts::Named, max_bytes: 100 };

    fn content(result: &Value) -> Content {
        tool_output(result, NAMED).content
    }

    #[test]
    fn texts_are_joined_and_images_keep_their_position() {
        let result = json!({ "content": [
            { "type": "text", "text": "a" },
            { "type": "text", "text": "b" },
            { "type": "image", "mimeType": "image/png", "data": "AAAA" },
            { "type": "text", "text": "c" },
        ]});
        let parts = vec!["a\nb".into(), Part::image("image/png", b"\0\0\0"), "c".into()];
        assert_eq!(content(&result), Content::Parts(parts));
    }

    #[test]
    fn structured_content_is_used_if_there_is_no_text() {
        let structured = json!({ "degrees": 4 });
        let with_text = json!({ "content": [{ "type": "text", "text": "4" }], "structuredContent": structured });
        assert_eq!(content(&with_text), Content::from("4"));
        let alone = json!({ "content": [], "structuredContent": structured });
        assert_eq!(content(&alone), Content::from(r#"{"degrees":4}"#));
    }

    #[test]
    fn audio_is_named_in_text_or_sent_as_a_file() {
        let audio =
            json!({ "content": [{ "type": "audio", "mimeType": "audio/wav", "data": "AAAA" }] });
        assert_eq!(
            content(&audio),
            Content::from("[audio: audio/wav, 3 bytes, which cannot be shown]")
        );
        let sent = tool_output(&audio, MediaRules { parts: MediaParts::Sent, ..NAMED }).content;
        assert_eq!(sent, Content::Parts(vec![Part::file("audio/wav", b"\0\0\0")]));
    }

    #[test]
    fn an_image_beyond_the_limit_is_named() {
        let data = "A".repeat(136);
        let image =
            json!({ "content": [{ "type": "image", "mimeType": "image/png", "data": data }] });
        assert_eq!(
            content(&image),
            Content::from("[image: image/png, 102 bytes, which cannot be shown]")
        );
    }

    #[test]
    fn resources_are_text_with_their_address() {
        let result = json!({ "content": [
            { "type": "resource", "resource": { "uri": "file:///a", "text": "hello" } },
            { "type": "resource", "resource": { "uri": "file:///b", "mimeType": "image/png", "blob": "AAAA" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c.txt", "mimeType": "text/plain" },
        ]});
        assert_eq!(
            content(&result),
            Content::Parts(vec![
                "file:///a:\nhello".into(),
                Part::image("image/png", b"\0\0\0"),
                "[resource file:///c, c.txt, text/plain]".into(),
            ])
        );
    }

    #[test]
    fn empty_results_and_unknown_blocks_become_text() {
        assert_eq!(content(&json!({})), Content::from("The tool returned nothing."));
        let odd = json!({ "content": [{ "type": "hologram", "x": 1 }], "isError": true });
        let output = tool_output(&odd, NAMED);
        assert!(output.failed);
        assert_eq!(output.content, Content::from(r#"{"type":"hologram","x":1}"#));
    }
}
