//! The content of a delta: a string, or an array of parts.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::provider::lenient::{Lax, List, Str};

/// Content: a string, or an array of parts.
#[derive(Default)]
pub(super) struct Spoken<'a> {
    /// The string, or the parts of type `text` and `output_text`.
    pub(super) text: Option<Cow<'a, str>>,
    pub(super) beside: Option<Box<Beside<'a>>>,
}

/// The parts of a content that are not text.
#[derive(Default)]
pub(super) struct Beside<'a> {
    /// Parts of type `thinking`, as Mistral sends them, and `reasoning`, as Databricks does.
    pub(super) thoughts: String,
    pub(super) images: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpokenPart<'a> {
    #[serde(borrow)]
    r#type: Str<'a>,
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    thinking: List<SpokenThought<'a>>,
    #[serde(borrow)]
    summary: List<SpokenThought<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpokenThought<'a> {
    #[serde(borrow)]
    text: Str<'a>,
}

impl SpokenPart<'_> {
    /// The words of a part that is not the answer: in one of its lists, or its own.
    fn thoughts(&self, into: &mut String) {
        let listed = self.thinking.0.iter().chain(&self.summary.0);
        let before = into.len();
        into.extend(listed.map(|thought| thought.text.or_empty()));
        if into.len() == before {
            into.push_str(self.text.or_empty());
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Spoken<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for V<'a> {
            type Value = Spoken<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("content")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Spoken<'a>, E> {
                Ok(Spoken { text: Some(Cow::Borrowed(text)), beside: None })
            }

            fn visit_str<E>(self, text: &str) -> Result<Spoken<'a>, E> {
                Ok(Spoken { text: Some(Cow::Owned(text.to_owned())), beside: None })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Spoken<'a>, A::Error> {
                let (mut text, mut beside) = (String::new(), Beside::default());
                while let Some(raw) = seq.next_element::<&'a RawValue>()? {
                    let part: Lax<SpokenPart<'a>> =
                        serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
                    let Some(part) = part.0 else { continue };
                    match part.r#type.get() {
                        Some("text" | "output_text") | None => text.push_str(part.text.or_empty()),
                        Some("thinking" | "reasoning") => part.thoughts(&mut beside.thoughts),
                        Some("image_url") => beside.images.push(raw),
                        Some(_) => {}
                    }
                }
                Ok(Spoken { text: Some(Cow::Owned(text)), beside: Some(Box::new(beside)) })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spoken<'a>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Spoken::default())
            }

            fn visit_unit<E>(self) -> Result<Spoken<'a>, E> {
                Ok(Spoken::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Spoken<'a>, E> {
                Ok(Spoken::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Spoken<'a>, E> {
                Ok(Spoken::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Spoken<'a>, E> {
                Ok(Spoken::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Spoken<'a>, E> {
                Ok(Spoken::default())
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}
