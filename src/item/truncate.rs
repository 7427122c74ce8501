//! Shortens long content by cutting out its middle.

use std::borrow::Cow;

use crate::item::{Content, Media, MediaSource, Part};

impl Content {
    /// Returns the length of the text, and of the images and files with their encoded data, in
    /// bytes.
    pub(crate) fn byte_len(&self) -> usize {
        let part_len = |part: &Part| match part {
            Part::Text { text } => text.len(),
            Part::Image(media) | Part::File(media) => {
                let Media { media_type, source, name, detail: _ } = media;
                let (MediaSource::Data(text) | MediaSource::Url(text) | MediaSource::FileId(text)) =
                    source;
                media_type.len() + text.len() + name.as_ref().map_or(0, String::len)
            }
        };
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts.iter().map(part_len).sum(),
        }
    }

    /// Returns the length of the text in bytes. Images and files are not counted.
    pub(crate) fn text_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Parts(parts) => parts.iter().filter_map(Part::as_text).map(str::len).sum(),
        }
    }

    /// Shortens the content to at most `max_bytes` of text. Returns `None` if the text already fits
    /// within this limit.
    ///
    /// Equal amounts of text are kept from the start and the end. The text is cut at character
    /// boundaries. A marker between the start and the end states the number of omitted bytes,
    /// followed by the `note`, if any. A note can state, for example, where the full text is
    /// stored. The marker counts towards `max_bytes`. If the marker alone is longer than
    /// `max_bytes`, the result consists only of the marker and exceeds the limit. The limit applies
    /// to the combined text of all parts. Images and files keep their positions.
    ///
    /// ```
    /// use turnstream::item::Content;
    ///
    /// let content = Content::from("0123456789".repeat(10));
    /// let clipped = content.truncate_middle(52, None).unwrap();
    /// assert_eq!(clipped.text(), "0123456789\n[80 bytes were left out here]\n0123456789");
    /// assert_eq!(content.truncate_middle(100, None), None);
    /// ```
    pub fn truncate_middle(&self, max_bytes: usize, note: Option<&str>) -> Option<Self> {
        if self.text_len() <= max_bytes {
            return None;
        }
        let text = match self {
            Self::Text(text) => Cow::Borrowed(text.as_str()),
            Self::Parts(_) => Cow::Owned(self.text()),
        };
        let cut = Truncation::new(&text, max_bytes, note);
        Some(match self {
            Self::Text(text) => cut.apply(text, 0).into(),
            Self::Parts(parts) => Self::Parts(cut.apply_to_parts(parts)),
        })
    }
}

/// Shortens a string to at most `max_bytes` bytes by cutting out its middle, in the same way as
/// [`Content::truncate_middle`].
pub(crate) fn truncate_middle(text: String, max_bytes: usize) -> String {
    let content = Content::from(text);
    content.truncate_middle(max_bytes, None).unwrap_or(content).text()
}

/// The range to cut out of a text, and the marker that replaces the removed text.
struct Truncation {
    from: usize,
    to: usize,
    marker: String,
}

impl Truncation {
    fn new(text: &str, max_bytes: usize, note: Option<&str>) -> Self {
        let marker = |bytes: usize| match note {
            Some(note) => format!("\n[{bytes} bytes were left out here. {note}]\n"),
            None => format!("\n[{bytes} bytes were left out here]\n"),
        };
        // The marker is longest when it states the full length.
        let capacity = max_bytes.saturating_sub(marker(text.len()).len());
        let tail = capacity / 2;
        let from = text.floor_char_boundary(capacity - tail);
        let to = text.ceil_char_boundary(text.len() - tail);
        Self { from, to, marker: marker(to - from) }
    }

    /// Returns the part of `piece` that remains, including the marker if the cut starts in this
    /// piece. `start` is the offset of the piece in the whole text.
    fn apply(&self, piece: &str, start: usize) -> String {
        let inside = |at: usize| at.saturating_sub(start).min(piece.len());
        let (head, tail) = (&piece[..inside(self.from)], &piece[inside(self.to)..]);
        // The marker is inserted into the piece in which the cut starts.
        let holds_marker = start <= self.from && self.from < start + piece.len();
        [head, if holds_marker { &self.marker } else { "" }, tail].concat()
    }

    fn apply_to_parts(&self, parts: &[Part]) -> Vec<Part> {
        let mut start = 0;
        let mut truncated = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part::Text { text } => {
                    let left = self.apply(text, start);
                    start += text.len();
                    if !left.is_empty() {
                        truncated.push(Part::Text { text: left.into() });
                    }
                }
                Part::Image(_) | Part::File(_) => truncated.push(part.clone()),
            }
        }
        truncated
    }
}
