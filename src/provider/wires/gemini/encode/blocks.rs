//! Contents and parts in their serialized form.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::generation::ModelGeneration;
use crate::error::{Error, ErrorKind};
use crate::item::{self, Detail, Media, MediaSource, ToolResult};
use crate::provider::codec::portable_values::result_text;
use crate::provider::codec::unsupported_part::{PartOrText, UnsupportedPart, append_paragraph};

/// A message with a single role, whose parts are the consecutive items with that role.
#[derive(Serialize)]
pub(super) struct Content<'a> {
    pub(super) role: &'static str,
    pub(super) parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        thought: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<String>,
    },
    Call {
        function_call: FunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<Cow<'static, str>>,
    },
    Response {
        function_response: FunctionResponse<'a>,
    },
    Inline {
        inline_data: InlineData<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        media_resolution: Option<MediaResolution>,
    },
    File {
        file_data: FileData<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        media_resolution: Option<MediaResolution>,
    },
    Verbatim(Box<RawValue>),
}

#[derive(Serialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<Box<RawValue>>,
}

#[derive(Serialize)]
pub(super) struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    pub(super) response: ResponseValue<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<Part<'a>>,
}

/// The value of a function response: "Use `output` key to specify function output and `error` key
/// to specify error details."
///
/// A tool result's text is always sent as a string, even if it is JSON. If the text were sent as an
/// object, the numbers in the object would be converted to doubles.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResponseValue<'a> {
    Output(Cow<'a, str>),
    Error(Cow<'a, str>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData<'a> {
    pub(super) mime_type: &'a str,
    pub(super) data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileData<'a> {
    pub(super) mime_type: &'a str,
    pub(super) file_uri: Cow<'a, str>,
}

/// The number of tokens that represent a part,
/// <https://ai.google.dev/gemini-api/docs/media-resolution>.
#[derive(Serialize)]
pub(super) struct MediaResolution {
    level: &'static str,
}

impl MediaResolution {
    /// Returns the resolution for a part, which models before Gemini 3 do not accept.
    fn of_media(media: &Media, generation: ModelGeneration) -> Option<Self> {
        let level = match media.detail.filter(|_| generation == ModelGeneration::Gemini3OrLater)? {
            Detail::Low => "MEDIA_RESOLUTION_LOW",
            Detail::High => "MEDIA_RESOLUTION_HIGH",
            Detail::Original => "MEDIA_RESOLUTION_ULTRA_HIGH",
        };
        Some(Self { level })
    }
}

impl Part<'_> {
    /// Returns whether this is a call that is sent with the given id.
    pub(super) fn is_call_with_id(&self, id: &str) -> bool {
        matches!(self, Self::Call { function_call, .. } if function_call.id.as_deref() == Some(id))
    }
}

impl ResponseValue<'_> {
    /// Appends a paragraph to the text.
    pub(super) fn append(&mut self, paragraph: &str) {
        let (Self::Output(text) | Self::Error(text)) = self;
        append_paragraph(text.to_mut(), paragraph);
    }
}

pub(super) fn response_value(result: &ToolResult) -> ResponseValue<'_> {
    match result.is_error() {
        true => ResponseValue::Error(result_text(result)),
        false => ResponseValue::Output(result_text(result)),
    }
}

/// Returns a text part, unless the text is blank. For blank text, the API reports "Unable to submit
/// request because it must have a text parameter."
pub(super) fn text_part(text: &str) -> impl Iterator<Item = Part<'_>> {
    let part = Part::Text { text: text.into(), thought: false, thought_signature: None };
    (!text.trim().is_empty()).then_some(part).into_iter()
}

/// Encodes the parts of a message or a result.
///
/// # Errors
///
/// Returns an error if the API lacks a part and `unsupported` does not replace it by a text.
pub(super) fn content_parts(
    content: &item::Content,
    generation: ModelGeneration,
    unsupported: UnsupportedPart,
) -> Result<Vec<Part<'_>>, Error> {
    let parts = match content {
        item::Content::Text(text) => return Ok(text_part(text).collect()),
        item::Content::Parts(parts) => parts,
    };
    let mut encoded = Vec::with_capacity(parts.len());
    for part in parts {
        match unsupported.apply(part, content_part(part, generation))? {
            PartOrText::Part(part) => encoded.extend(part),
            PartOrText::Text(text) => {
                let text = Cow::Owned(text);
                encoded.push(Part::Text { text, thought: false, thought_signature: None });
            }
        }
    }
    Ok(encoded)
}

/// The address of the Files API, below which the files have their ids, such as `files/abc-123`.
const FILES_URL: &str = "https://generativelanguage.googleapis.com/v1beta/";

fn content_part(part: &item::Part, generation: ModelGeneration) -> Result<Option<Part<'_>>, Error> {
    let media = match part {
        item::Part::Text { text } => return Ok(text_part(text).next()),
        item::Part::Image(media) | item::Part::File(media) => media,
    };
    let mime_type = &media.media_type;
    let media_resolution = MediaResolution::of_media(media, generation);
    let file_uri = match &media.source {
        MediaSource::Data(data) => {
            let inline_data = InlineData { mime_type, data };
            return Ok(Some(Part::Inline { inline_data, media_resolution }));
        }
        MediaSource::Url(url) => Cow::Borrowed(url.as_str()),
        MediaSource::FileId(id) if id.starts_with("files/") => format!("{FILES_URL}{id}").into(),
        MediaSource::FileId(_) => {
            let message = "the Gemini wire only accepts ids of the Gemini Files API, `files/…`";
            return Err(Error::new(ErrorKind::Unsupported, message).with_parameter("content"));
        }
    };
    Ok(Some(Part::File { file_data: FileData { mime_type, file_uri }, media_resolution }))
}
