//! Contents and parts in their serialized form.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::item::{self, MediaSource, ToolResult};
use crate::provider::codec::portable_values::result_text;

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
        text: &'a str,
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
    },
    File {
        file_data: FileData<'a>,
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
    pub(super) file_uri: &'a str,
}

impl Part<'_> {
    /// Returns whether this is a call that is sent with the given id.
    pub(super) fn is_call_with_id(&self, id: &str) -> bool {
        matches!(self, Self::Call { function_call, .. } if function_call.id.as_deref() == Some(id))
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
    let part = Part::Text { text, thought: false, thought_signature: None };
    (!text.trim().is_empty()).then_some(part).into_iter()
}

pub(super) fn content_parts(content: &item::Content) -> Vec<Part<'_>> {
    match content {
        item::Content::Text(text) => text_part(text).collect(),
        item::Content::Parts(parts) => parts.iter().filter_map(content_part).collect(),
    }
}

fn content_part(part: &item::Part) -> Option<Part<'_>> {
    let media = match part {
        item::Part::Text { text } => return text_part(text).next(),
        item::Part::Image(media) | item::Part::File(media) => media,
    };
    let mime_type = &media.media_type;
    Some(match &media.source {
        MediaSource::Data(data) => Part::Inline { inline_data: InlineData { mime_type, data } },
        MediaSource::Url(file_uri) => Part::File { file_data: FileData { mime_type, file_uri } },
    })
}
