//! The content of a user message or a tool result: plain text, or a list of parts.

use std::borrow::Cow;

use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};

use crate::item::Text;

/// The content of a message or tool result: plain text, or a list of parts. Plain text serializes
/// to a string, and a list of parts serializes to an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(Text),
    /// A list of text parts, images and files, in order.
    Parts(Vec<Part>),
}

/// One part of the content of a message or a tool result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// A text part.
    Text {
        /// The part's text.
        text: Text,
    },
    /// An image.
    Image(Media),
    /// Any other file, for example a PDF.
    File(Media),
}

/// An image or a file, together with its media type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// The media type, for example `image/png`.
    pub media_type: String,
    /// The image or file itself, either as inline bytes or as a URL.
    #[serde(flatten)]
    pub source: MediaSource,
    /// The name of the file, for example `report.pdf`. Chat Completions, Responses and Messages
    /// send the name of a file, so that the model can refer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How closely the model looks at the image or file. The Chat wire (for images), the Responses
    /// wire and Gemini 3 and later models have such a setting. On other wires, it has no effect.
    /// <https://developers.openai.com/api/docs/guides/images-vision#specify-image-input-detail-level>,
    /// <https://ai.google.dev/gemini-api/docs/media-resolution>
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
}

/// How closely a model looks at an image or a file. More detail costs more tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Detail {
    /// The model sees the image in a low resolution.
    Low,
    /// The model sees the image in a high resolution.
    High,
    /// The model sees the image in its own resolution, as far as the model supports it.
    Original,
}

/// The data of an image or a file, given either as inline bytes or as a URL. A `MediaSource` can be
/// created from bytes, or from text that is already base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// The bytes, encoded as base64 (standard alphabet, with padding).
    Data(Text),
    /// A URL that the provider fetches.
    Url(Text),
    /// The id of a file that was uploaded to the provider, for example `file-…` (OpenAI), `file_…`
    /// (Anthropic) or `files/…` (Gemini). Only the provider that issued the id accepts it. The
    /// Messages and Responses wires accept images and files by id, OpenAI's and Azure's dialects of
    /// the Chat wire accept files, and Gemini accepts the ids of its own Files API. If the form of
    /// an id shows that another vendor issued it, the request fails with an
    /// [`Unsupported`](crate::ErrorKind::Unsupported) error before it is sent to the vendor's own
    /// server.
    /// <https://platform.claude.com/docs/en/build-with-claude/files>,
    /// <https://developers.openai.com/api/docs/guides/file-inputs>,
    /// <https://ai.google.dev/gemini-api/docs/files>
    FileId(Text),
}

impl Content {
    /// Returns the concatenated text of all text parts. Images and files are left out.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.to_string(),
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
    /// Creates an image or a file without a name.
    pub fn new(media_type: impl Into<String>, source: impl Into<MediaSource>) -> Self {
        Self { media_type: media_type.into(), source: source.into(), name: None, detail: None }
    }

    /// Returns a URL for the image or file, or `None` if only its id is known. For inline bytes,
    /// the URL is a `data:` URL.
    pub(crate) fn to_url(&self) -> Option<Cow<'_, str>> {
        match &self.source {
            MediaSource::Data(data) => {
                Some(format!("data:{};base64,{data}", self.media_type).into())
            }
            MediaSource::Url(url) => Some(url.as_str().into()),
            MediaSource::FileId(_) => None,
        }
    }
}

impl Part {
    /// Returns the text if this part is a text part, and `None` otherwise.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image(_) | Self::File(_) => None,
        }
    }

    /// Creates an image part from bytes, from base64 text, or from a [`MediaSource`] such as a URL.
    ///
    /// ```
    /// use turnstream::Item;
    /// use turnstream::item::{MediaSource, Part};
    ///
    /// let drawn = Part::image("image/png", b"\x89PNG\r\n\x1a\n");
    /// let url = MediaSource::Url("https://example.com/photo.jpg".into());
    /// let fetched = Part::image("image/jpeg", url);
    /// let message = Item::user(vec!["What is different?".into(), drawn, fetched]);
    /// # let _ = message;
    /// ```
    pub fn image(media_type: impl Into<String>, source: impl Into<MediaSource>) -> Self {
        Self::Image(Media::new(media_type, source))
    }

    /// Creates a file part, for example for a PDF, from bytes, from base64 text, or from a
    /// [`MediaSource`].
    ///
    /// ```no_run
    /// use turnstream::item::Part;
    ///
    /// let bytes = std::fs::read("report.pdf")?;
    /// let report = Part::file("application/pdf", bytes).with_name("report.pdf");
    /// # let _ = report;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn file(media_type: impl Into<String>, source: impl Into<MediaSource>) -> Self {
        Self::File(Media::new(media_type, source))
    }

    /// Sets the [name](Media::name) of an image or a file. A text part has no name.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        match &mut self {
            Self::Image(media) | Self::File(media) => media.name = Some(name.into()),
            Self::Text { .. } => {}
        }
        self
    }

    /// Sets how closely the model looks at an image or a file; see [`Media::detail`]. A text part
    /// has no detail.
    pub fn with_detail(mut self, detail: Detail) -> Self {
        match &mut self {
            Self::Image(media) | Self::File(media) => media.detail = Some(detail),
            Self::Text { .. } => {}
        }
        self
    }
}

/// Accepts base64 with or without padding.
const LENIENT_BASE64: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

impl MediaSource {
    /// Decodes the inline bytes. Returns `None` for a URL or a file's id, and for data that is not
    /// base64. Padding is optional, and white space is ignored.
    ///
    /// ```
    /// use turnstream::item::MediaSource;
    ///
    /// assert_eq!(MediaSource::from(b"GIF89a").to_bytes().as_deref(), Some(&b"GIF89a"[..]));
    /// assert_eq!(MediaSource::Url("https://example.com/a.gif".into()).to_bytes(), None);
    /// ```
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Data(base64) => {
                let digits: Vec<u8> =
                    base64.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
                GeneralPurpose::new(&STANDARD, LENIENT_BASE64).decode(digits).ok()
            }
            Self::Url(_) | Self::FileId(_) => None,
        }
    }
}

impl From<&[u8]> for MediaSource {
    fn from(bytes: &[u8]) -> Self {
        Self::Data(BASE64_STANDARD.encode(bytes).into())
    }
}

impl From<Vec<u8>> for MediaSource {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl<const N: usize> From<&[u8; N]> for MediaSource {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl From<&str> for MediaSource {
    /// Uses the text as base64 data, without encoding it again.
    fn from(base64: &str) -> Self {
        Self::Data(base64.into())
    }
}

impl From<String> for MediaSource {
    /// Uses the text as base64 data, without encoding it again.
    fn from(base64: String) -> Self {
        Self::Data(base64.into())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Vec<Part>> for Content {
    fn from(parts: Vec<Part>) -> Self {
        Self::Parts(parts)
    }
}

impl From<Part> for Content {
    fn from(part: Part) -> Self {
        Self::Parts(vec![part])
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::Text { text: text.into() }
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
            &vec!["look".into(), Part::image("image/png", b"\0\0\0")].into(),
            r#"[{"type":"text","text":"look"},{"type":"image","media_type":"image/png","data":"AAAA"}]"#,
        );
        round_trip(
            &vec![Part::image("image/png", MediaSource::Url("https://a.example/b.png".into()))]
                .into(),
            r#"[{"type":"image","media_type":"image/png","url":"https://a.example/b.png"}]"#,
        );
        round_trip(
            &vec![
                Part::image("image/png", MediaSource::FileId("file-1".into()))
                    .with_detail(Detail::Original),
            ]
            .into(),
            r#"[{"type":"image","media_type":"image/png","file_id":"file-1","detail":"original"}]"#,
        );
    }
    #[track_caller]
    fn check_bytes(base64: &str, expected: Option<&str>) {
        let bytes = MediaSource::from(base64).to_bytes();
        assert_eq!(bytes.as_deref(), expected.map(str::as_bytes), "{base64}");
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding_and_white_space() {
        check_bytes("", Some(""));
        check_bytes("Zg==", Some("f"));
        check_bytes("Zm8=", Some("fo"));
        check_bytes("Zm9v", Some("foo"));
        check_bytes("Zm9vYg", Some("foob"));
        check_bytes("Zm9v\nYmFy\n", Some("foobar"));
        check_bytes("w6k/", Some("é?"));
        check_bytes("Z", None);
        check_bytes("Zm9v!", None);
        check_bytes("Zm=v", None);
    }
}
