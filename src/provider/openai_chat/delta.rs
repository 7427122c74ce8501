//! What a chunk adds to the answer. It is moved about for every token, so that what only some
//! servers send is kept apart.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::content::Spoken;
use super::wire::Pieces;
use crate::provider::lenient::Str;

#[derive(Default)]
pub(super) struct Delta<'a> {
    pub(super) content: Spoken<'a>,
    pub(super) refusal: Str<'a>,
    /// Reasoning under the first of its names that says something.
    pub(super) thought: Str<'a>,
    pub(super) tool_calls: Pieces<'a>,
    pub(super) seldom: Option<Box<Seldom<'a>>>,
}

/// What only some servers send, as it is written; never `null`.
#[derive(Clone, Copy, Default)]
pub(super) struct Seldom<'a> {
    pub(super) reasoning_details: Option<&'a RawValue>,
    pub(super) thinking_blocks: Option<&'a RawValue>,
    pub(super) annotations: Option<&'a RawValue>,
    pub(super) audio: Option<&'a RawValue>,
    /// Pictures that the model made, <https://openrouter.ai/docs/features/multimodal/image-generation>.
    pub(super) images: Option<&'a RawValue>,
    /// What `tool_calls` replaced.
    pub(super) function_call: Option<&'a RawValue>,
}

/// The names that servers have for reasoning. The same words under two of them are said once.
const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

impl<'de: 'a, 'a> Deserialize<'de> for Delta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for V<'a> {
            type Value = Delta<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a delta")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Delta<'a>, A::Error> {
                let mut delta = Delta::default();
                let mut rank = THOUGHTS.len();
                while let Some(Str(name)) = map.next_key::<Str<'a>>()? {
                    match name.as_deref().unwrap_or_default() {
                        "content" => delta.content = map.next_value()?,
                        "tool_calls" => delta.tool_calls = map.next_value()?,
                        "refusal" => delta.refusal = map.next_value()?,
                        name if let Some(at) = THOUGHTS.iter().position(|known| *known == name) => {
                            let thought: Str<'a> = map.next_value()?;
                            if at < rank && !thought.or_empty().is_empty() {
                                (delta.thought, rank) = (thought, at);
                            }
                        }
                        name => match place_of(name) {
                            Some(place) => {
                                let raw: &'a RawValue = map.next_value()?;
                                if raw.get() != "null" {
                                    *place(delta.seldom.get_or_insert_default()) = Some(raw);
                                }
                            }
                            None => drop(map.next_value::<IgnoredAny>()?),
                        },
                    }
                }
                Ok(delta)
            }
        }
        deserializer.deserialize_map(V(PhantomData))
    }
}

type Place = for<'s, 'a> fn(&'s mut Seldom<'a>) -> &'s mut Option<&'a RawValue>;

fn place_of(name: &str) -> Option<Place> {
    Some(match name {
        "reasoning_details" => |seldom| &mut seldom.reasoning_details,
        "thinking_blocks" => |seldom| &mut seldom.thinking_blocks,
        "annotations" => |seldom| &mut seldom.annotations,
        "images" => |seldom| &mut seldom.images,
        "audio" => |seldom| &mut seldom.audio,
        "function_call" => |seldom| &mut seldom.function_call,
        _ => return None,
    })
}
