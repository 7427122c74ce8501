//! Content parts in their serialized form.

use std::borrow::Cow;

use serde::Serialize;

use crate::error::Error;
use crate::item::{Content, Detail, Media, MediaSource, Part};
use crate::provider::codec::file_ids::FileIdVendor;
use crate::provider::codec::portable_values::ServerKind;
use crate::provider::codec::unsupported_part::{PartOrText, UnsupportedPart};
use crate::provider::wires::openai::detail_name;

/// An element of the input, with its `type` as the first field.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum InputItem<'a> {
    Message { role: &'static str, content: &'a [ContentPart<'a>] },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: &'a str },
    FunctionCallOutput { call_id: &'a str, output: CallOutput<'a> },
}

/// The result of a call.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum CallOutput<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

/// A part of a message or of a call's result.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart<'a> {
    InputText {
        text: Cow<'a, str>,
    },
    OutputText {
        text: &'a str,
    },
    InputImage {
        #[serde(skip_serializing_if = "Option::is_none")]
        image_url: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_id: Option<&'a str>,
        detail: &'static str,
    },
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'static str>,
    },
}

/// Encodes the parts of a message or of a call's result.
///
/// # Errors
///
/// Returns an error for the file of another vendor, if `unsupported` does not replace it by a text.
pub(super) fn content_parts(
    content: &Content,
    server: ServerKind,
    unsupported: UnsupportedPart,
) -> Result<Vec<ContentPart<'_>>, Error> {
    let parts = match content {
        Content::Text(text) => return Ok(text_part(text).into_iter().collect()),
        Content::Parts(parts) => parts,
    };
    let mut encoded = Vec::with_capacity(parts.len());
    for part in parts {
        match unsupported.apply(part, content_part(part, server))? {
            PartOrText::Part(part) => encoded.extend(part),
            PartOrText::Text(text) => {
                encoded.push(ContentPart::InputText { text: text.into() });
            }
        }
    }
    Ok(encoded)
}

fn content_part(part: &Part, server: ServerKind) -> Result<Option<ContentPart<'_>>, Error> {
    if let (ServerKind::Vendor, Part::Image(media) | Part::File(media)) = (server, part) {
        FileIdVendor::OpenAi.ensure_own(media)?;
    }
    Ok(match part {
        Part::Text { text } => text_part(text),
        Part::Image(media) => Some(ContentPart::InputImage {
            image_url: media.to_url(),
            file_id: file_id(media),
            detail: media.detail.map_or("auto", detail_name),
        }),
        Part::File(media) => Some(file_part(media)),
    })
}

pub(super) fn text_part(text: &str) -> Option<ContentPart<'_>> {
    (!text.is_empty()).then_some(ContentPart::InputText { text: text.into() })
}

fn file_part(media: &Media) -> ContentPart<'_> {
    // A file has no original resolution.
    let detail = media.detail.map(|detail| match detail {
        Detail::Low => "low",
        Detail::High | Detail::Original => "high",
    });
    let (filename, file_data, file_url) = match &media.source {
        // The API determines a file's type from its file name extension.
        MediaSource::Data(_) => {
            let unnamed = || format!("file.{}", file_extension(&media.media_type)).into();
            let name = media.name.as_deref().map_or_else(unnamed, Cow::Borrowed);
            (Some(name), media.to_url(), None)
        }
        MediaSource::Url(url) => (None, None, Some(url.as_str())),
        MediaSource::FileId(_) => (None, None, None),
    };
    ContentPart::InputFile { filename, file_data, file_url, file_id: file_id(media), detail }
}

/// Returns the id of a file that was uploaded to OpenAI.
pub(super) fn file_id(media: &Media) -> Option<&str> {
    match &media.source {
        MediaSource::FileId(id) => Some(id),
        MediaSource::Data(_) | MediaSource::Url(_) => None,
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
