//! Messages and content parts in their serialized form.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::{Error, ErrorKind};
use crate::item::{self, MediaSource};
use crate::provider::codec::cache_control::CacheControl;
use crate::provider::codec::encode_context::SystemZone;
use crate::provider::codec::file_ids::FileIdVendor;
use crate::provider::wires::openai::detail_name;
use crate::provider::wires::openai_chat::dialect::{Dialect, MediaForms};

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Content::is_absent")]
    pub(super) content: Content<'a>,
    /// The fields that most servers do not use, boxed to keep messages small.
    #[serde(flatten)]
    pub(super) rare: Option<Box<RareFields<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<Call<'a>>,
}

/// Fields of a message that only some servers support.
#[derive(Default, Serialize)]
pub(super) struct RareFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_blocks: Option<Box<RawValue>>,
}

#[derive(Serialize)]
pub(super) struct Call<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) r#type: &'static str,
    pub(super) function: CallFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra_content: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider_specific_fields: Option<Box<RawValue>>,
}

#[derive(Serialize)]
pub(super) struct CallFunction<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) provider_specific_fields: Option<Box<RawValue>>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    /// The `content` field is omitted.
    Absent,
    Null,
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// An image, an audio clip or a file, as a JSON object that includes its type.
    #[serde(untagged)]
    Media(Value),
}

/// A message that contains parts of the system prompt.
#[derive(Serialize)]
pub(super) struct Instructions<'a> {
    pub(super) role: &'static str,
    pub(super) content: InstructionContent<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum InstructionContent<'a> {
    Zone(SystemZone<'a>),
    Joined(String),
    Parts(Vec<InstructionPart<'a>>),
}

#[derive(Serialize)]
pub(super) struct InstructionPart<'a> {
    r#type: &'static str,
    text: SystemZone<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl Instructions<'_> {
    /// Adds a cache marker to the first part, if the content consists of parts.
    pub(super) fn mark_first_part(&mut self, mark: CacheControl) {
        if let InstructionContent::Parts(parts) = &mut self.content
            && let Some(part) = parts.first_mut()
        {
            part.cache_control = Some(mark);
        }
    }
}

impl<'a> InstructionPart<'a> {
    pub(super) fn new(text: SystemZone<'a>) -> Self {
        Self { r#type: "text", text, cache_control: None }
    }
}

impl<'a> Message<'a> {
    pub(super) fn new(role: &'static str, content: Content<'a>) -> Self {
        Self { role, tool_call_id: None, content, tool_calls: Vec::new(), rare: None }
    }

    /// Returns whether the message contains tool calls.
    pub(super) fn has_calls(&self) -> bool {
        !self.tool_calls.is_empty()
    }

    /// Returns whether this message can hold the cache marker that is placed on the newest message.
    pub(super) fn accepts_cache_mark(&mut self) -> bool {
        matches!(self.role, "user" | "assistant")
            && self.content.cache_control_slots().next().is_some()
    }

    /// Returns the fields that only some servers support, creating them on first use.
    pub(super) fn rare_fields_mut(&mut self) -> &mut RareFields<'a> {
        self.rare.get_or_insert_default()
    }
}

impl<'a> Content<'a> {
    /// Returns whether the content contains more than the white space that models write before a
    /// tool call.
    pub(super) fn has_content(&self) -> bool {
        let speaks = |part: &Part<'_>| match part {
            Part::Text { text, .. } => !text.trim().is_empty(),
            Part::Media(_) => true,
        };
        match self {
            Self::Absent | Self::Null => false,
            Self::Text(text) => !text.trim().is_empty(),
            Self::Parts(parts) => parts.iter().any(speaks),
        }
    }

    /// Appends text to the content.
    pub(super) fn append_text(&mut self, more: &'a str, in_parts: bool) {
        match self {
            Self::Text(text) => text.to_mut().push_str(more),
            Self::Parts(parts) => match parts.last_mut() {
                Some(Part::Text { text, .. }) => text.to_mut().push_str(more),
                _ => parts.push(Part::text(more)),
            },
            Self::Absent | Self::Null if in_parts => *self = Self::Parts(vec![Part::text(more)]),
            Self::Absent | Self::Null => *self = Self::Text(Cow::Borrowed(more)),
        }
    }

    /// Returns the fields of the text parts that can hold a cache marker.
    pub(super) fn cache_control_slots(
        &mut self,
    ) -> impl DoubleEndedIterator<Item = &mut Option<CacheControl>> {
        let parts = match self {
            Self::Parts(parts) => parts.as_mut_slice(),
            Self::Absent | Self::Null | Self::Text(_) => &mut [],
        };
        parts.iter_mut().filter_map(Part::cache_control_slot)
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<'a> Part<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), cache_control: None }
    }

    fn cache_control_slot(&mut self) -> Option<&mut Option<CacheControl>> {
        match self {
            // "cache_control cannot be set for empty text blocks"
            Self::Text { text, .. } if text.trim().is_empty() => None,
            Self::Text { cache_control, .. } => Some(cache_control),
            Self::Media(_) => None,
        }
    }
}

/// Encodes a content part that is not text. Returns an error if the dialect does not support the
/// part's type.
pub(super) fn media_part<'a>(part: &'a item::Part, dialect: &Dialect) -> Result<Part<'a>, Error> {
    let (is_supported, what, part) = match part {
        item::Part::Text { text } => return Ok(Part::text(text.as_str())),
        item::Part::Image(media) => {
            let (needs, what) = match &media.source {
                MediaSource::Data(_) => (MediaForms::ImageBytes, "an image"),
                MediaSource::Url(_) => (MediaForms::ImageUrls, "an image by URL"),
                MediaSource::FileId(_) => return Err(unsupported_media_error("an image by id")),
            };
            let mut image = json!({ "url": media.to_url() });
            if let Some(detail) = media.detail {
                image["detail"] = detail_name(detail).into();
            }
            let part = json!({ "type": "image_url", "image_url": image });
            (dialect.media_forms >= needs, what, part)
        }
        item::Part::File(media) => match &media.source {
            MediaSource::Data(data) if media.media_type.starts_with("audio/") => {
                let format = match media.media_type.as_str() {
                    "audio/mpeg" | "audio/mp3" => "mp3",
                    "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                    other => other.trim_start_matches("audio/"),
                };
                let audio = json!({ "data": data, "format": format });
                let part = json!({ "type": "input_audio", "input_audio": audio });
                (dialect.media_forms >= MediaForms::FileBytes, "a sound", part)
            }
            MediaSource::FileId(id) => {
                // Another server may have assigned an id of any form.
                if *dialect == Dialect::OPENAI {
                    FileIdVendor::OpenAi.ensure_own(media)?;
                }
                let part = json!({ "type": "file", "file": { "file_id": id } });
                (dialect.supports_file_ids, "a file by id", part)
            }
            MediaSource::Data(_) | MediaSource::Url(_) => {
                let (needs, what) = match &media.source {
                    MediaSource::Url(_) => (MediaForms::FileUrls, "a file by URL"),
                    MediaSource::Data(_) | MediaSource::FileId(_) => {
                        (MediaForms::FileBytes, "a file")
                    }
                };
                let name = media.name.as_deref().unwrap_or("file");
                let file = json!({ "filename": name, "file_data": media.to_url() });
                let part = json!({ "type": "file", "file": file });
                (dialect.media_forms >= needs, what, part)
            }
        },
    };
    match is_supported {
        true => Ok(Part::Media(part)),
        false => Err(unsupported_media_error(what)),
    }
}

fn unsupported_media_error(what: &str) -> Error {
    let message = format!("this dialect of the Chat Completions wire does not support {what}");
    Error::new(ErrorKind::Unsupported, message).with_parameter("content")
}
