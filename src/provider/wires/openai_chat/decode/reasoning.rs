//! Collects reasoning that must be sent back unchanged because it is signed, encrypted, or in a
//! server-specific format.

use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;

use super::frames::RareFields;
use crate::item::RawJson;
use crate::provider::codec::lenient::{deserialize_string, non_null};
use crate::provider::codec::ordered_fields::OrderedFields;
use crate::provider::wires::openai_chat::passthrough::{
    REASONING_DETAILS_FIELD, THINKING_BLOCKS_FIELD,
};
use crate::small_map::SmallMap;

/// A turn's reasoning details and thinking blocks, assembled from the pieces in the turn's deltas.
#[derive(Debug, Default)]
pub(super) struct ReasoningData {
    details: Vec<ReasoningPiece>,
    /// The position in `details` of the newest element for each kind and index.
    newest_detail: SmallMap<(&'static str, String), usize>,
    thinking_blocks: Vec<ReasoningPiece>,
}

/// The maximum number of fields in an element that is assembled from pieces. Servers send elements
/// with far fewer fields.
const MAX_FIELDS: usize = 64;

/// The types of reasoning details whose text arrives in pieces, each with the name of the field
/// that contains the text.
const DETAIL_TEXT_FIELDS: &[(&str, &str)] =
    &[("reasoning.text", "text"), ("reasoning.summary", "summary")];
const BLOCK_TEXT_FIELDS: &[(&str, &str)] = &[("thinking", "thinking")];

/// An element of `reasoning_details` or `thinking_blocks`. A later element can append text to an
/// earlier element.
#[derive(Debug)]
struct ReasoningPiece {
    fields: OrderedFields<'static>,
    /// The name of the field that contains the text, or an empty string if the element is stored
    /// unchanged.
    text_field: &'static str,
    text: String,
}

impl ReasoningData {
    /// Adds the reasoning from a delta, and returns the text of that reasoning. Returns `None` if
    /// the delta contains neither reasoning details nor thinking blocks.
    pub(super) fn push_rare_fields(&mut self, delta: &RareFields<'_>) -> Option<String> {
        if delta.reasoning_details.is_none() && delta.thinking_blocks.is_none() {
            return None;
        }
        let mut reasoning = String::new();
        for fields in OrderedFields::parse_list(delta.reasoning_details) {
            let piece = ReasoningPiece::new(fields, DETAIL_TEXT_FIELDS);
            reasoning.push_str(&piece.text);
            let place =
                (piece.text_field, raw_field(&piece.fields, "index").unwrap_or("").to_owned());
            let newest = self.newest_detail.get(&place).and_then(|at| self.details.get_mut(*at));
            match newest.filter(|old| old.is_continued_by(&piece)) {
                Some(old) => old.append(piece),
                None => {
                    self.newest_detail.insert(place, self.details.len());
                    self.details.push(piece);
                }
            }
        }
        let details_spoke = !reasoning.is_empty();
        for fields in OrderedFields::parse_list(delta.thinking_blocks) {
            let piece = ReasoningPiece::new(fields, BLOCK_TEXT_FIELDS);
            if !details_spoke {
                reasoning.push_str(&piece.text);
            }
            match self.thinking_blocks.last_mut().filter(|last| last.is_open_for(&piece)) {
                Some(last) => last.append(piece),
                None => self.thinking_blocks.push(piece),
            }
        }
        Some(reasoning)
    }

    /// Returns all of the turn's reasoning in a form that can be sent back, or `None` if the turn
    /// has no such reasoning.
    pub(super) fn into_json(self) -> Option<RawJson> {
        let mut fields = OrderedFields::default();
        for (name, pieces) in
            [(REASONING_DETAILS_FIELD, self.details), (THINKING_BLOCKS_FIELD, self.thinking_blocks)]
        {
            if pieces.is_empty() {
                continue;
            }
            let pieces: Vec<OrderedFields<'_>> =
                pieces.into_iter().map(ReasoningPiece::into_fields).collect();
            fields.set(name, to_raw_value(&pieces).ok()?);
        }
        fields.into_non_empty_json()
    }
}

impl ReasoningPiece {
    /// Creates an element from its fields. `texts` lists the types of elements that contain text,
    /// each with the name of the field that contains it.
    fn new(fields: OrderedFields<'_>, texts: &[(&str, &'static str)]) -> Self {
        let kind = string_field(&fields, "type").unwrap_or_default();
        let text_field = texts.iter().find(|(of, _)| *of == kind).map_or("", |(_, field)| field);
        let text = string_field(&fields, text_field).unwrap_or_default().into_owned();
        Self { text_field, text, fields: fields.into_owned() }
    }

    /// Returns whether `next` continues this element of `reasoning_details`, which requires that
    /// both elements have the same kind and index. Encrypted data is never split into several
    /// elements.
    fn is_continued_by(&self, next: &Self) -> bool {
        let same = |name| raw_field(&self.fields, name) == raw_field(&next.fields, name);
        let other = |name| raw_field(&next.fields, name).is_some() && !same(name);
        !self.text_field.is_empty()
            && self.can_merge_fields(next)
            && self.text_field == next.text_field
            && same("index")
            && !(other("id") && raw_field(&self.fields, "id").is_some())
    }

    /// Returns whether `next` continues this thinking block. A thinking block is complete once it
    /// has a signature.
    fn is_open_for(&self, next: &Self) -> bool {
        let signed = string_field(&self.fields, "signature").is_some_and(|sign| !sign.is_empty());
        let is_thinking = !self.text_field.is_empty() && self.text_field == next.text_field;
        is_thinking && !signed && self.can_merge_fields(next)
    }

    fn can_merge_fields(&self, next: &Self) -> bool {
        self.fields.len() + next.fields.len() <= MAX_FIELDS
    }

    fn append(&mut self, next: Self) {
        self.text.push_str(&next.text);
        for (name, value) in next.fields.into_iter() {
            let says = !matches!(value.get(), "null" | "\"\"");
            if says && name != self.text_field {
                self.fields.set(&name, value.into_owned());
            }
        }
    }

    fn into_fields(mut self) -> OrderedFields<'static> {
        if !self.text_field.is_empty()
            && let Ok(text) = to_raw_value(&self.text)
        {
            self.fields.set(self.text_field, text);
        }
        self.fields
    }
}

/// Returns the raw JSON of a field, or `None` if the field is absent or `null`.
fn raw_field<'a>(fields: &'a OrderedFields<'_>, name: &str) -> Option<&'a str> {
    non_null(fields.get(name)).map(RawValue::get)
}

fn string_field<'a>(fields: &'a OrderedFields<'_>, name: &str) -> Option<Cow<'a, str>> {
    fields.get(name).and_then(deserialize_string)
}
