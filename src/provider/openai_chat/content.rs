//! The content of a delta: a string, or an array of parts.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::provider::lenient::{Lax, List, Str};

/// Content: a string, or an array of parts whose texts count.
#[derive(Default)]
pub(super) struct Spoken<'a> {
    pub(super) text: Option<Cow<'a, str>>,
    /// Parts of type `thinking`, as Mistral sends them.
    pub(super) thinking: Option<Box<str>>,
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
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SpokenThought<'a> {
    #[serde(borrow)]
    text: Str<'a>,
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
                Ok(Spoken { text: Some(Cow::Borrowed(text)), thinking: None })
            }

            fn visit_str<E>(self, text: &str) -> Result<Spoken<'a>, E> {
                Ok(Spoken { text: Some(Cow::Owned(text.to_owned())), thinking: None })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Spoken<'a>, A::Error> {
                let (mut text, mut thinking) = (String::new(), String::new());
                while let Some(Lax(part)) = seq.next_element::<Lax<SpokenPart<'a>>>()? {
                    let Some(part) = part else { continue };
                    if part.r#type.get() == Some("thinking") {
                        thinking
                            .extend(part.thinking.0.iter().map(|thought| thought.text.or_empty()));
                    } else {
                        text.push_str(part.text.or_empty());
                    }
                }
                Ok(Spoken { text: Some(Cow::Owned(text)), thinking: Some(thinking.into()) })
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
