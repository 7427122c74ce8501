//! Converts the content of results, resources and prompts into parts that a model can read.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use turnstream::item::{Content, MediaSource, Part};
use turnstream::tool::ToolOutput;

use crate::repeated_media::{SentBlocks, media_blocks};
use crate::text_blob::{essence, text_of_file, text_of_text_type};

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
pub(crate) struct MediaRules {
    pub(crate) parts: MediaParts,
    /// The maximum size of an image or file, in bytes. A larger image or file is replaced with a
    /// line that states its type and size.
    pub(crate) max_bytes: usize,
}

/// Converts a call's result into the output that is sent to the model.
pub(crate) fn tool_output(result: &Value, media: MediaRules) -> ToolOutput {
    let blocks = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let mut sent = SentBlocks::new(blocks);
    let pieces = blocks.iter().filter_map(|block| match piece_of(block, media) {
        Piece::Text(text) => {
            let rest = match sent.remove_from_text(&text)? {
                Cow::Owned(rest) => Some(rest),
                Cow::Borrowed(_) => None,
            };
            Some(Piece::Text(rest.unwrap_or(text)))
        }
        piece => Some(piece),
    });
    let mut pieces: Vec<Piece> = pieces.collect();
    let structured = &result["structuredContent"];
    if !structured.is_null() && !pieces.iter().any(Piece::is_readable) {
        for block in media_blocks(structured) {
            if !sent.contains_medium(block) && decoded(&block["data"]).is_some() {
                sent.add(block);
                pieces.push(piece_of(block, media));
            }
        }
        let rest = sent.remove_from_json(structured);
        pieces.extend(rest.map(|rest| Piece::Text(rest.to_string())));
    }
    let content = match pieces.is_empty() {
        true => Content::from("The tool returned nothing."),
        false => content_of(&pieces.into_iter().map(Piece::into_part).collect::<Vec<_>>()),
    };
    match result["isError"] == true {
        true => ToolOutput::error(content),
        false => ToolOutput::ok(content),
    }
}

/// Creates content from parts. Consecutive text parts are joined by line feeds.
pub(crate) fn content_of(parts: &[Part]) -> Content {
    let is_text = |part: &Part| part.as_text().is_some();
    let runs = parts.chunk_by(|part, next| is_text(part) && is_text(next));
    let joined = runs.map(|run| match run {
        [part] => part.clone(),
        texts => {
            let texts: Vec<&str> = texts.iter().filter_map(Part::as_text).collect();
            texts.join("\n").as_str().into()
        }
    });
    let joined: Vec<Part> = joined.collect();
    match joined.as_slice() {
        [Part::Text { text }] => Content::Text(text.clone()),
        _ => Content::Parts(joined),
    }
}

/// The form in which a model receives a content block.
enum Piece {
    /// Text from the server.
    Text(String),
    /// A description of content that the model does not receive.
    Description(String),
    Media(Part),
}

impl Piece {
    /// Returns whether the piece is text from the server, which is not blank.
    fn is_readable(&self) -> bool {
        matches!(self, Self::Text(text) if !text.trim().is_empty())
    }

    fn into_part(self) -> Part {
        match self {
            Self::Text(text) | Self::Description(text) => Part::Text { text: text.into() },
            Self::Media(part) => part,
        }
    }
}

/// Converts a content block into a part. A block of an unknown kind becomes a text part that
/// contains its JSON.
pub(crate) fn part_of(block: &Value, media: MediaRules) -> Part {
    piece_of(block, media).into_part()
}

/// Converts a resource's contents into a part.
pub(crate) fn resource_part(resource: &Value, media: MediaRules) -> Part {
    resource_piece(resource, media).into_part()
}

fn piece_of(block: &Value, media: MediaRules) -> Piece {
    let text = |field: &str| block[field].as_str();
    match (text("type"), text("data"), text("text")) {
        (Some("text"), _, Some(text)) => Piece::Text(text.to_owned()),
        (Some(kind @ ("image" | "audio")), Some(_), _) => {
            let media_type = essence(text("mimeType").unwrap_or(kind));
            let Some((base64, bytes)) = decoded(&block["data"]) else {
                return broken(kind, &media_type);
            };
            match text_of_text_type(&media_type, &bytes) {
                Some(text) => Piece::Text(format!("{kind}:\n{text}")),
                None => media_piece(kind, &media_type, &base64, bytes.len(), media),
            }
        }
        (Some("resource_link"), ..) => Piece::Description(describe_link(block)),
        (Some("resource"), ..) => resource_piece(&block["resource"], media),
        _ => Piece::Text(block.to_string()),
    }
}

fn resource_piece(resource: &Value, media: MediaRules) -> Piece {
    let uri = resource["uri"].as_str().unwrap_or("a resource");
    if let Some(text) = resource["text"].as_str() {
        return Piece::Text(format!("{uri}:\n{text}"));
    }
    if resource["blob"].as_str().is_none_or(str::is_empty) {
        return Piece::Description(format!("{uri} is empty."));
    }
    let media_type = essence(resource["mimeType"].as_str().unwrap_or("application/octet-stream"));
    let Some((base64, bytes)) = decoded(&resource["blob"]) else {
        return broken(uri, &media_type);
    };
    match text_of_file(&media_type, &bytes) {
        Some(text) => Piece::Text(format!("{uri}:\n{text}")),
        None => media_piece(uri, &media_type, &base64, bytes.len(), media),
    }
}

fn broken(what: &str, media_type: &str) -> Piece {
    Piece::Description(format!("[{what}: {media_type}, whose data is broken]"))
}

fn media_piece(
    what: &str,
    media_type: &str,
    base64: &str,
    bytes: usize,
    media: MediaRules,
) -> Piece {
    match (bytes <= media.max_bytes, media.parts) {
        (true, _) if IMAGE_TYPES.contains(&media_type) => {
            Piece::Media(Part::image(media_type, MediaSource::Data(base64.into())))
        }
        (true, MediaParts::Sent) => {
            Piece::Media(Part::file(media_type, MediaSource::Data(base64.into())))
        }
        (false, _) | (_, MediaParts::Named) => Piece::Description(format!(
            "[{what}: {media_type}, {bytes} bytes, which cannot be shown]"
        )),
    }
}

/// Returns a base64 string without line breaks, and the bytes that it decodes to. Returns `None` if
/// the value is empty or not base64.
fn decoded(base64: &Value) -> Option<(Cow<'_, str>, Vec<u8>)> {
    let mut base64 = Cow::Borrowed(base64.as_str()?);
    if base64.contains(|c: char| c.is_ascii_whitespace()) {
        base64.to_mut().retain(|c| !c.is_ascii_whitespace());
    }
    let engine = GeneralPurpose::new(&STANDARD, PAD_OR_NOT);
    let bytes = engine.decode(base64.as_bytes()).ok().filter(|bytes| !bytes.is_empty())?;
    Some((base64, bytes))
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

    use turnstream::tool::OutputStatus;

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
    fn a_text_file_that_is_sent_as_base64_is_text() {
        let resource = |media_type: &str, blob: &str| {
            let resource = json!({ "uri": "file:///a", "mimeType": media_type, "blob": blob });
            content(&json!({ "content": [{ "type": "resource", "resource": resource }] }))
        };
        let text = Content::from("file:///a:\nhello");
        assert_eq!(resource("text/x-csharp; charset=utf-8", "aGVsbG8="), text);
        assert_eq!(resource("application/octet-stream", "aGVs\nbG8"), text);
        assert_eq!(resource("text/plain", ""), Content::from("file:///a is empty."));
        let svg = json!({ "type": "image", "mimeType": "image/svg+xml", "data": "PHN2Zy8+" });
        assert_eq!(content(&json!({ "content": [svg] })), Content::from("image:\n<svg/>"));
    }

    #[test]
    fn structured_content_that_repeats_media_is_not_sent_again() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" });
        let audio = json!({ "type": "audio", "mimeType": "audio/wav", "data": "AAAA" });
        let named = Content::from("[audio: audio/wav, 3 bytes, which cannot be shown]");
        let part = Content::Parts(vec![Part::image("image/png", b"\0\0\0")]);
        for (block, expected) in [(&image, &part), (&audio, &named)] {
            let repeated =
                json!({ "content": [block], "structuredContent": { "result": [block] } });
            assert_eq!(content(&repeated), *expected);
            // Some servers send the media only in the structured content.
            let alone = json!({ "content": [], "structuredContent": { "result": block } });
            assert_eq!(content(&alone), *expected);
        }
        let described = json!({ "content": [audio], "structuredContent": { "seconds": 2 } });
        let text = "[audio: audio/wav, 3 bytes, which cannot be shown]\n{\"seconds\":2}";
        assert_eq!(content(&described), Content::from(text));
    }

    #[test]
    fn a_text_that_repeats_media_as_json_is_not_sent() {
        let data = "AAAA".repeat(20);
        let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
        let structured = json!({ "result": [image] });
        let result = json!({
            "content": [{ "type": "text", "text": structured.to_string() }, image],
            "structuredContent": structured,
        });
        assert_eq!(
            content(&result),
            Content::Parts(vec![Part::image("image/png", MediaSource::Data(data.as_str().into()))])
        );
    }

    #[test]
    fn empty_results_and_unknown_blocks_become_text() {
        assert_eq!(content(&json!({})), Content::from("The tool returned nothing."));
        let odd = json!({ "content": [{ "type": "hologram", "x": 1 }], "isError": true });
        let output = tool_output(&odd, NAMED);
        assert_eq!(output.status, OutputStatus::Failed);
        assert_eq!(output.content, Content::from(r#"{"type":"hologram","x":1}"#));
    }
}
