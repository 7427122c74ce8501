//! What stands on the wire, as far as it is read. Every field is optional and forgiving.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::delta::Delta;
use super::shaped::Shaped;
use crate::provider::fields::Fields;
use crate::provider::lenient::{Lax, Num, Seldom, Str, repaired};
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
    /// Addresses that the text refers to by number, as Perplexity has them.
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
}

/// The choice with index 0, or without one; others were not asked for. Beside it, whether something
/// stands there that is none.
#[derive(Default)]
pub(super) struct First<'a>(pub(super) Option<Choice<'a>>, pub(super) bool);

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    index: Num,
    #[serde(borrow)]
    pub(super) delta: Shaped<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Str<'a>,
    /// Some servers put it here.
    pub(super) usage: Seldom<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    pub(super) index: Num,
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) function: Called<'a>,
    #[serde(borrow)]
    pub(super) r#type: Str<'a>,
    #[serde(borrow)]
    pub(super) custom: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) provider_specific_fields: Option<&'a RawValue>,
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

/// The pieces of calls in a delta; `misshapen` if something stands there that is none.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    pub(super) calls: Vec<WireCall<'a>>,
    pub(super) misshapen: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Pieces<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&'de RawValue>::deserialize(deserializer)?.get();
        let elements: Vec<&'de RawValue> = match raw.starts_with('[') {
            true => serde_json::from_str(raw).map_err(serde::de::Error::custom)?,
            false => Vec::new(),
        };
        let mut pieces =
            Self { misshapen: !matches!(raw.as_bytes(), [b'[', ..] | b"null"), ..Self::default() };
        for element in elements {
            match element.get() {
                "null" => {}
                object if object.starts_with('{') => {
                    let call = serde_json::from_str(object).map_err(serde::de::Error::custom)?;
                    pieces.calls.push(call);
                }
                _ => pieces.misshapen = true,
            }
        }
        Ok(pieces)
    }
}

impl<'a> Called<'a> {
    /// What stands in `function_call`.
    pub(super) fn read(raw: &'a RawValue) -> Self {
        serde_json::from_str(raw.get()).unwrap_or(Self { is: None, misshapen: true })
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

    /// Whether it is of the kind whose input is no JSON.
    pub(super) fn is_custom(&self) -> bool {
        self.r#type.get() == Some("custom") || said(self.custom).is_some()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) provider_specific_fields: Option<&'a RawValue>,
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
            Some(b'"') => string(raw),
            Some(b'{') => Some(Cow::Borrowed(raw.get())),
            Some(b'n') => Some(Cow::Borrowed("")),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Num,
    completion_tokens: Num,
    total_tokens: Num,
    /// Where some servers say what was read from a cache.
    cached_tokens: Num,
    prompt_cache_hit_tokens: Num,
    cache_read_input_tokens: Num,
    cache_creation_input_tokens: Num,
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
        let first = |counts: &[Num]| counts.iter().find_map(|count| count.0).unwrap_or_default();
        let prompt = self.prompt_tokens_details.0.unwrap_or_default();
        let completion = self.completion_tokens_details.0.unwrap_or_default();
        let (input, said) = (count(self.prompt_tokens), count(self.completion_tokens));
        let reasoned = count(completion.reasoning_tokens);
        // xAI leaves them out of its `completion_tokens`, as its total shows.
        let apart = input.saturating_add(said).saturating_add(reasoned);
        let is_apart = self.total_tokens.0 == Some(apart);
        Usage {
            input_tokens: input,
            output_tokens: if is_apart { said.saturating_add(reasoned) } else { said },
            cache_read_input_tokens: first(&[
                prompt.cached_tokens,
                self.cached_tokens,
                self.prompt_cache_hit_tokens,
                self.cache_read_input_tokens,
            ]),
            cache_write_input_tokens: first(&[
                prompt.cache_write_tokens,
                self.cache_creation_input_tokens,
            ]),
            reasoning_tokens: reasoned,
        }
    }
}

/// The text of a JSON string.
pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    match serde_json::from_str::<Str<'_>>(raw.get()) {
        Ok(text) => text.0,
        Err(_) => serde_json::from_str(&repaired(raw.get())?).ok().map(Cow::Owned),
    }
}

/// The objects of an array.
pub(super) fn objects(raw: Option<&RawValue>) -> Vec<Fields> {
    elements(raw).into_iter().filter_map(|element| Fields::parse(element.get())).collect()
}

/// The elements of an array, as they are written.
pub(super) fn elements(raw: Option<&RawValue>) -> Vec<&RawValue> {
    let elements = said(raw).map(|raw| serde_json::from_str(raw.get()));
    elements.and_then(Result::ok).unwrap_or_default()
}

/// What stands in a field, unless it is `null`.
pub(super) fn said(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|raw| raw.get() != "null")
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
                let (mut first, mut misshapen) = (None, false);
                while let Some(choice) = seq.next_element::<Shaped<Choice<'a>>>()? {
                    misshapen |= choice.misshapen;
                    let choice = choice.is.filter(|choice| choice.index.0.unwrap_or(0) == 0);
                    first = first.or(choice);
                }
                Ok(First(first, misshapen))
            }

            fn visit_unit<E>(self) -> Result<First<'a>, E> {
                Ok(First(None, false))
            }

            fn visit_str<E>(self, _: &str) -> Result<First<'a>, E> {
                Ok(First(None, true))
            }

            fn visit_bool<E>(self, _: bool) -> Result<First<'a>, E> {
                Ok(First(None, true))
            }

            fn visit_i64<E>(self, _: i64) -> Result<First<'a>, E> {
                Ok(First(None, true))
            }

            fn visit_u64<E>(self, _: u64) -> Result<First<'a>, E> {
                Ok(First(None, true))
            }

            fn visit_f64<E>(self, _: f64) -> Result<First<'a>, E> {
                Ok(First(None, true))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<First<'a>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(First(None, true))
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}
