//! Encodes the text, images and documents in user messages and tool results.

use std::borrow::Cow;

use super::blocks::{Block, CitationsConfig, Source};
use crate::error::{Error, ErrorKind};
use crate::item::{Content, Media, MediaSource, Part};
use crate::provider::codec::file_ids::FileIdVendor;
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::codec::unsupported_part::{PartOrText, UnsupportedPart};

/// The supported image types: "Input should be 'image/jpeg', 'image/png', 'image/gif' or
/// 'image/webp'".
const IMAGE_TYPES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];

const PDF_TYPE: &str = "application/pdf";

/// Media types that denote text formats but do not start with `text/`.
const TEXT_TYPES: &[&str] = &[
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/javascript",
];

/// Returns a text block, or `None` for blank text. The API reports that "text content blocks must
/// contain non-whitespace text".
pub(super) fn text_block(text: &str) -> Option<Block<'_>> {
    let is_there = !text.trim().is_empty();
    is_there.then(|| plain_text_block(text.into()))
}

fn plain_text_block(text: Cow<'_, str>) -> Block<'_> {
    Block::Text { text, citations: None, cache_control: None }
}

pub(super) fn content_blocks(
    content: &Content,
    citations: Option<CitationsConfig>,
    server: ServerKind,
    unsupported: UnsupportedPart,
) -> Result<Vec<Block<'_>>, Error> {
    let parts = match content {
        Content::Text(text) => return Ok(text_block(text).into_iter().collect()),
        Content::Parts(parts) => parts,
    };
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        match unsupported.apply(part, content_block(part, citations, server))? {
            PartOrText::Part(block) => blocks.extend(block),
            PartOrText::Text(text) => blocks.push(plain_text_block(text.into())),
        }
    }
    Ok(blocks)
}

fn content_block(
    part: &Part,
    citations: Option<CitationsConfig>,
    server: ServerKind,
) -> Result<Option<Block<'_>>, Error> {
    if let (ServerKind::Vendor, Part::Image(media) | Part::File(media)) = (server, part) {
        FileIdVendor::Anthropic.ensure_own(media)?;
    }
    match part {
        Part::Text { text } => Ok(text_block(text)),
        Part::Image(media) => image_block(media, &bare_media_type(media)).map(Some),
        Part::File(media) => {
            let kind = bare_media_type(media);
            if kind.starts_with("image/") {
                return image_block(media, &kind).map(Some);
            }
            document_block(media, &kind, citations)
        }
    }
}

/// Returns the media type in lowercase, without parameters.
fn bare_media_type(media: &Media) -> String {
    let kind = media.media_type.split(';').next().unwrap_or_default();
    match kind.trim().to_ascii_lowercase().as_str() {
        "image/jpg" => "image/jpeg".to_owned(),
        kind => kind.to_owned(),
    }
}

fn image_block<'a>(media: &'a Media, kind: &str) -> Result<Block<'a>, Error> {
    let known = IMAGE_TYPES.iter().find(|image| **image == kind);
    let source = match (&media.source, known) {
        (MediaSource::Data(data), Some(media_type)) => Source::Base64 { media_type, data },
        // The wire format has no media type field for a URL: the server detects the type from the
        // content.
        (MediaSource::Url(url), Some(_)) => Source::Url { url },
        (MediaSource::Url(url), None) if matches!(kind, "" | "image/*") => Source::Url { url },
        (MediaSource::FileId(file_id), _) => Source::File { file_id },
        (_, None) => return Err(unsupported_media(kind)),
    };
    Ok(Block::Image { source, cache_control: None })
}

/// Encodes a file as a document block. Only PDF files may be sent as base64 ("Input should be
/// 'application/pdf'"), so text files are sent as plain text. Returns `None` if a text file is
/// blank.
fn document_block<'a>(
    media: &'a Media,
    kind: &str,
    citations: Option<CitationsConfig>,
) -> Result<Option<Block<'a>>, Error> {
    let is_text = kind.starts_with("text/") || TEXT_TYPES.contains(&kind);
    let source = match &media.source {
        MediaSource::Data(data) if kind == PDF_TYPE => {
            Source::Base64 { media_type: PDF_TYPE, data }
        }
        MediaSource::Url(url) if matches!(kind, "" | PDF_TYPE) => Source::Url { url },
        MediaSource::FileId(file_id) if is_text || matches!(kind, "" | PDF_TYPE) => {
            Source::File { file_id }
        }
        MediaSource::Data(_) if is_text => {
            let text = media.source.to_bytes().and_then(|bytes| String::from_utf8(bytes).ok());
            let Some(data) = text else {
                let message = format!("a file of type `{kind}` is not base64 of UTF-8");
                return Err(Error::new(ErrorKind::InvalidRequest, message));
            };
            if data.trim().is_empty() {
                return Ok(None);
            }
            Source::Text { media_type: "text/plain", data }
        }
        MediaSource::Data(_) | MediaSource::Url(_) | MediaSource::FileId(_) => {
            return Err(unsupported_media(kind));
        }
    };
    let title = media.name.as_deref();
    Ok(Some(Block::Document { source, title, citations, cache_control: None }))
}

fn unsupported_media(kind: &str) -> Error {
    let shown: Cow<'_, str> = kind.chars().take(80).collect();
    let message = format!("the Anthropic Messages wire cannot carry a file of type `{shown}`");
    Error::new(ErrorKind::Unsupported, message).with_parameter("content")
}
