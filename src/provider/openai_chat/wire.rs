//! What stands on the wire, as far as it is read. Every field is optional and forgiving.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::provider::lenient::{Lax, List, Num, Seldom, Str, repaired};
use crate::usage::Usage;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) model: Str<'a>,
    #[serde(borrow)]
    pub(super) choices: First<'a>,
    pub(super) usage: Seldom<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The choice with index 0, or without one; others were not asked for.
#[derive(Default)]
pub(super) struct First<'a>(pub(super) Option<Choice<'a>>);

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    index: Num,
    #[serde(borrow)]
    pub(super) delta: Lax<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Str<'a>,
    /// Some servers put it here.
    pub(super) usage: Seldom<WireUsage>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Spoken<'a>,
    #[serde(borrow)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Str<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Str<'a>,
    #[serde(borrow)]
    pub(super) reasoning_text: Str<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: List<WireCall<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    pub(super) index: Num,
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) function: Called<'a>,
}

/// The function of a call; `misshapen` if there is one and it is no object.
#[derive(Default)]
pub(super) struct Called<'a> {
    pub(super) is: Option<Function<'a>>,
    misshapen: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Called<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        let is = match raw.starts_with('{') {
            true => Some(serde_json::from_str(raw).map_err(serde::de::Error::custom)?),
            false => None,
        };
        Ok(Self { misshapen: is.is_none() && raw != "null", is })
    }
}

impl WireCall<'_> {
    pub(super) fn adds_arguments(&self) -> bool {
        let arguments = self.function.is.as_ref().map(Function::arguments);
        arguments.is_some_and(|piece| piece.is_none_or(|piece| !piece.is_empty()))
    }

    pub(super) fn is_misshapen(&self) -> bool {
        self.function.misshapen
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    /// A string on the wire of the vendor, an object on some others.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Function<'_> {
    /// The piece of JSON text that the arguments add; `None` if they are of a shape that adds none,
    /// so that what the model wrote is not known.
    pub(super) fn arguments(&self) -> Option<Cow<'_, str>> {
        let Some(raw) = self.arguments else { return Some(Cow::Borrowed("")) };
        match raw.get().as_bytes().first() {
            Some(b'"') => match serde_json::from_str::<Str<'_>>(raw.get()) {
                Ok(text) => text.0,
                Err(_) => serde_json::from_str(&repaired(raw.get())?).ok().map(Cow::Owned),
            },
            Some(b'{') => Some(Cow::Borrowed(raw.get())),
            Some(b'n') => Some(Cow::Borrowed("")),
            _ => None,
        }
    }
}

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

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Num,
    completion_tokens: Num,
    prompt_tokens_details: Lax<PromptDetails>,
    completion_tokens_details: Lax<CompletionDetails>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Num,
    cache_write_tokens: Num,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Num,
}

impl Copy for Lax<PromptDetails> {}
impl Copy for Lax<CompletionDetails> {}

impl WireUsage {
    pub(super) fn usage(self) -> Usage {
        let count = |Num(number): Num| number.unwrap_or_default();
        let prompt = self.prompt_tokens_details.0.unwrap_or_default();
        let completion = self.completion_tokens_details.0.unwrap_or_default();
        Usage {
            input_tokens: count(self.prompt_tokens),
            output_tokens: count(self.completion_tokens),
            cache_read_input_tokens: count(prompt.cached_tokens),
            cache_write_input_tokens: count(prompt.cache_write_tokens),
            reasoning_tokens: count(completion.reasoning_tokens),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for First<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for V<'a> {
            type Value = First<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("choices")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<First<'a>, A::Error> {
                let mut first = None;
                while let Some(Lax(choice)) = seq.next_element::<Lax<Choice<'a>>>()? {
                    let choice = choice.filter(|choice| choice.index.0.unwrap_or(0) == 0);
                    first = first.or(choice);
                }
                Ok(First(first))
            }

            fn visit_unit<E>(self) -> Result<First<'a>, E> {
                Ok(First(None))
            }

            fn visit_str<E>(self, _: &str) -> Result<First<'a>, E> {
                Ok(First(None))
            }

            fn visit_bool<E>(self, _: bool) -> Result<First<'a>, E> {
                Ok(First(None))
            }

            fn visit_i64<E>(self, _: i64) -> Result<First<'a>, E> {
                Ok(First(None))
            }

            fn visit_u64<E>(self, _: u64) -> Result<First<'a>, E> {
                Ok(First(None))
            }

            fn visit_f64<E>(self, _: f64) -> Result<First<'a>, E> {
                Ok(First(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<First<'a>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(First(None))
            }
        }
        deserializer.deserialize_any(V(PhantomData))
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
