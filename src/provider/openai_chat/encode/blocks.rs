//! A message and the parts of its content, as they are written.

use std::borrow::Cow;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind};
use crate::item::{self, MediaSource};
use crate::provider::cache_control::CacheControl;
use crate::provider::openai_chat::dialect::MediaForms;
use crate::provider::openai_chat::passthrough::{BLOCKS, DETAILS};
use crate::provider::portable::address;

pub(super) struct Message<'a> {
    pub(super) role: &'static str,
    pub(super) tool_call_id: Option<Cow<'a, str>>,
    pub(super) content: Content<'a>,
    pub(super) tool_calls: Vec<Call<'a>>,
    /// Boxed, so that the messages of most servers stay small.
    pub(super) rare: Option<Box<RareFields<'a>>>,
}

/// The fields of a message that only some servers have.
#[derive(Default)]
pub(super) struct RareFields<'a> {
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) reasoning_content: Option<Cow<'a, str>>,
    pub(super) reasoning_details: Option<Box<RawValue>>,
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
    /// No field.
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
    ImageUrl {
        image_url: ImageUrl<'a>,
    },
    File {
        file: File<'a>,
    },
    InputAudio {
        input_audio: InputAudio<'a>,
    },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    url: Cow<'a, str>,
}

#[derive(Serialize)]
pub(super) struct File<'a> {
    filename: &'static str,
    file_data: Cow<'a, str>,
}

#[derive(Serialize)]
pub(super) struct InputAudio<'a> {
    data: &'a str,
    format: &'a str,
}

impl<'a> Message<'a> {
    pub(super) fn new(role: &'static str, content: Content<'a>) -> Self {
        Self { role, tool_call_id: None, content, tool_calls: Vec::new(), rare: None }
    }

    /// Whether the model calls tools in it.
    pub(super) fn calls(&self) -> bool {
        !self.tool_calls.is_empty()
    }

    /// Whether the mark that moves with what is newest can stand on it.
    pub(super) fn takes_mark(&mut self) -> bool {
        matches!(self.role, "user" | "assistant") && self.content.last_text().is_some()
    }

    /// The fields that only some servers have, to be filled in.
    pub(super) fn rare(&mut self) -> &mut RareFields<'a> {
        self.rare.get_or_insert_default()
    }
}

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", self.role)?;
        if let Some(id) = &self.tool_call_id {
            map.serialize_entry("tool_call_id", id)?;
        }
        if !matches!(self.content, Content::Absent) {
            map.serialize_entry("content", &self.content)?;
        }
        if let Some(rare) = &self.rare {
            rare.write(&mut map)?;
        }
        if !self.tool_calls.is_empty() {
            map.serialize_entry("tool_calls", &self.tool_calls)?;
        }
        map.end()
    }
}

impl RareFields<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let texts = [("name", &self.name), ("reasoning_content", &self.reasoning_content)];
        for (name, text) in texts {
            if let Some(text) = text {
                map.serialize_entry(name, text)?;
            }
        }
        let raws = [(DETAILS, &self.reasoning_details), (BLOCKS, &self.thinking_blocks)];
        for (name, raw) in raws {
            if let Some(raw) = raw {
                map.serialize_entry(name, raw)?;
            }
        }
        Ok(())
    }
}

impl<'a> Content<'a> {
    /// White space says nothing: models write it before they call a tool.
    pub(super) fn says_something(&self) -> bool {
        let speaks = |part: &Part<'_>| match part {
            Part::Text { text, .. } => !text.trim().is_empty(),
            Part::ImageUrl { .. } | Part::File { .. } | Part::InputAudio { .. } => true,
        };
        match self {
            Self::Absent | Self::Null => false,
            Self::Text(text) => !text.trim().is_empty(),
            Self::Parts(parts) => parts.iter().any(speaks),
        }
    }

    /// Adds to the text.
    pub(super) fn say(&mut self, more: &'a str, in_parts: bool) {
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

    /// Where a mark can stand: the last text that is a part.
    pub(super) fn last_text(&mut self) -> Option<&mut Option<CacheControl>> {
        let Self::Parts(parts) = self else { return None };
        parts.iter_mut().rev().find_map(Part::mark)
    }

    /// Where a mark can stand: the first text that is a part.
    pub(super) fn first_text(&mut self) -> Option<&mut Option<CacheControl>> {
        let Self::Parts(parts) = self else { return None };
        parts.iter_mut().find_map(Part::mark)
    }
}

impl<'a> Part<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), cache_control: None }
    }

    fn mark(&mut self) -> Option<&mut Option<CacheControl>> {
        match self {
            // "cache_control cannot be set for empty text blocks"
            Self::Text { text, .. } if text.trim().is_empty() => None,
            Self::Text { cache_control, .. } => Some(cache_control),
            Self::ImageUrl { .. } | Self::File { .. } | Self::InputAudio { .. } => None,
        }
    }
}

/// A part of a content as a server takes it.
pub(super) fn media_part(part: &item::Part, takes: MediaForms) -> Result<Part<'_>, Error> {
    let (needs, what, part) = match part {
        item::Part::Text { text } => return Ok(Part::text(text)),
        item::Part::Image(media) => {
            let (needs, what) = match &media.source {
                MediaSource::Data(_) => (MediaForms::ImageBytes, "an image"),
                MediaSource::Url(_) => (MediaForms::Images, "an image by its address"),
            };
            (needs, what, Part::ImageUrl { image_url: ImageUrl { url: address(media) } })
        }
        item::Part::File(media) => match &media.source {
            MediaSource::Data(data) if media.media_type.starts_with("audio/") => {
                let format = match media.media_type.as_str() {
                    "audio/mpeg" | "audio/mp3" => "mp3",
                    "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
                    other => other.trim_start_matches("audio/"),
                };
                let input_audio = InputAudio { data, format };
                (MediaForms::FileBytes, "a sound", Part::InputAudio { input_audio })
            }
            source => {
                let (needs, what) = match source {
                    MediaSource::Data(_) => (MediaForms::FileBytes, "a file"),
                    MediaSource::Url(_) => (MediaForms::Files, "a file by its address"),
                };
                let file = File { filename: "file", file_data: address(media) };
                (needs, what, Part::File { file })
            }
        },
    };
    match takes >= needs {
        true => Ok(part),
        false => {
            let message = format!("this dialect of the Chat Completions wire does not take {what}");
            Err(Error::new(ErrorKind::Unsupported, message).with_parameter("content"))
        }
    }
}
