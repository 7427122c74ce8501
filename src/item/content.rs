//! The content of a user message or a tool result: text, or parts with images and files.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Text, or a list of parts. Text is serialized as a string, and a list of parts as an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Content that consists only of text.
    Text(String),
    /// Text, images and files in the order given.
    Parts(Vec<Part>),
}

/// One part of a message's or tool result's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// A piece of text.
    Text {
        /// The text itself.
        text: String,
    },
    /// An image.
    Image(Media),
    /// Any other file, for example a PDF.
    File(Media),
}

/// An image or a file, with its media type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The media type, for example `image/png`.
    pub media_type: String,
    /// The bytes, or their URL.
    #[serde(flatten)]
    pub source: MediaSource,
}

/// The bytes of an image or a file, or their URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// The bytes, in base64 (standard alphabet, padded).
    Data(String),
    /// A URL that the provider fetches.
    Url(String),
}

impl Content {
    /// Returns the text of all text parts, concatenated.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().filter_map(Part::as_text).collect(),
        }
    }

    /// Returns the parts. Plain text becomes a single text part.
    pub fn into_parts(self) -> Vec<Part> {
        match self {
            Self::Text(text) => vec![Part::Text { text }],
            Self::Parts(parts) => parts,
        }
    }
}

impl Media {
    /// Returns the URL of the bytes, which is a `data:` URL if the bytes are inline.
    pub(crate) fn to_url(&self) -> Cow<'_, str> {
        match &self.source {
            MediaSource::Data(data) => format!("data:{};base64,{data}", self.media_type).into(),
            MediaSource::Url(url) => url.into(),
        }
    }
}

impl Part {
    /// Returns the text if this is a text part, and `None` otherwise.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image(_) | Self::File(_) => None,
        }
    }

    /// Creates an image from base64 data.
    pub fn image(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        let source = MediaSource::Data(base64.into());
        Self::Image(Media { media_type: media_type.into(), source })
    }

    /// Creates an image from a URL that the provider fetches.
    pub fn image_url(media_type: impl Into<String>, url: impl Into<String>) -> Self {
        let source = MediaSource::Url(url.into());
        Self::Image(Media { media_type: media_type.into(), source })
    }

    /// Creates a file, for example a PDF, from base64 data.
    pub fn file(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        let source = MediaSource::Data(base64.into());
        Self::File(Media { media_type: media_type.into(), source })
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<Part>> for Content {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::Text { text: text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(content: &Content, json: &str) {
        assert_eq!(serde_json::to_string(content).unwrap(), json);
        assert_eq!(&serde_json::from_str::<Content>(json).unwrap(), content);
    }

    #[test]
    fn content_is_a_string_or_an_array_of_parts() {
        round_trip(&"hi".into(), r#""hi""#);
        round_trip(
            &vec!["look".into(), Part::image("image/png", "AAAA")].into(),
            r#"[{"type":"text","text":"look"},{"type":"image","media_type":"image/png","data":"AAAA"}]"#,
        );
        round_trip(
            &vec![Part::image_url("image/png", "https://a.example/b.png")].into(),
            r#"[{"type":"image","media_type":"image/png","url":"https://a.example/b.png"}]"#,
        );
    }
}
