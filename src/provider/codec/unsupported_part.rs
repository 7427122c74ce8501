//! Defines how encoders handle content parts that a wire cannot express.

use std::borrow::Cow;

use crate::error::Error;
use crate::item::Part;
use crate::request::Options;

/// How an encoder handles a content part that its wire cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) enum UnsupportedPart {
    /// Encoding fails.
    Refused,
    /// The part is replaced by a text that describes the part.
    Described,
}

/// A part that was encoded, or the text that replaces the part.
pub(in crate::provider) enum PartOrText<T> {
    Part(T),
    Text(String),
}

impl UnsupportedPart {
    /// The rule for tool results. If unsupported parts were refused, the conversation could not
    /// continue, because a call must not lose its result.
    pub(in crate::provider) const IN_TOOL_RESULTS: Self = Self::Described;

    /// Returns the rule for user messages.
    pub(in crate::provider) fn in_user_messages(options: &Options) -> Self {
        match options.omit_unsupported_parts {
            true => Self::Described,
            false => Self::Refused,
        }
    }

    /// Applies the rule to the result of encoding `part`.
    pub(in crate::provider) fn apply<T>(
        self,
        part: &Part,
        encoded: Result<T, Error>,
    ) -> Result<PartOrText<T>, Error> {
        match (encoded, self) {
            (Ok(encoded), _) => Ok(PartOrText::Part(encoded)),
            (Err(_), Self::Described) => Ok(PartOrText::Text(omitted_part_text(part).into_owned())),
            (Err(error), Self::Refused) => Err(error),
        }
    }
}

/// Appends a text in a paragraph of its own.
pub(in crate::provider) fn append_paragraph(to: &mut String, text: &str) {
    if !to.is_empty() {
        to.push_str("\n\n");
    }
    to.push_str(text);
}

/// Returns the text that a model reads instead of a part that it cannot receive.
pub(crate) fn omitted_part_text(part: &Part) -> Cow<'_, str> {
    let (article, kind, media) = match part {
        Part::Text { text } => return text.as_str().into(),
        Part::Image(media) => ("An", "image", media),
        Part::File(media) => ("A", "file", media),
    };
    let what = match media.name.as_deref().map(str::trim) {
        Some(name) if !name.is_empty() => format!("The {kind} `{name}`"),
        _ => format!("{article} {kind}"),
    };
    let media_type = match media.media_type.trim() {
        "" => String::new(),
        media_type => format!(" ({media_type})"),
    };
    format!("[{what}{media_type} was omitted, because this model cannot receive it]").into()
}
