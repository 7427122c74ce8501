//! Reasoning that goes back as it came: signed, encrypted, or in a server's own form.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::{RawValue, to_raw_value};

use super::frames::RareFields;
use crate::item::Json;
use crate::provider::lenient::{non_null, string};
use crate::provider::openai_chat::passthrough::{BLOCKS, DETAILS};
use crate::provider::ordered_fields::Fields;

/// The reasoning of a turn, put together from its pieces.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    details: Vec<Piece>,
    /// The newest of `details` of each kind and index.
    newest: HashMap<(&'static str, String), usize>,
    blocks: Vec<Piece>,
}

/// More fields are not put together: no element has as many.
const MOST_FIELDS: usize = 64;

/// The types of details and of blocks whose text comes in pieces, each with the field it is in.
const DETAIL_TEXTS: &[(&str, &str)] =
    &[("reasoning.text", "text"), ("reasoning.summary", "summary")];
const BLOCK_TEXTS: &[(&str, &str)] = &[("thinking", "thinking")];

/// An element of one of the arrays. Its text grows by what later elements add.
#[derive(Debug)]
struct Piece {
    fields: Fields,
    /// The field that the text goes to; empty for what is kept as it is.
    text_field: &'static str,
    text: String,
}

impl Reasoning {
    /// Takes what a delta holds, and gives the words in it. `None` if it holds nothing of the kind.
    pub(super) fn take(&mut self, delta: &RareFields<'_>) -> Option<String> {
        if delta.reasoning_details.is_none() && delta.thinking_blocks.is_none() {
            return None;
        }
        let mut words = String::new();
        for fields in Fields::list(delta.reasoning_details) {
            let piece = Piece::new(fields, DETAIL_TEXTS);
            words.push_str(&piece.text);
            let place = (piece.text_field, raw(&piece.fields, "index").unwrap_or("").to_owned());
            let newest = self.newest.get(&place).and_then(|at| self.details.get_mut(*at));
            match newest.filter(|old| old.continues_in(&piece)) {
                Some(old) => old.grow(piece),
                None => {
                    self.newest.insert(place, self.details.len());
                    self.details.push(piece);
                }
            }
        }
        let details_spoke = !words.is_empty();
        for fields in Fields::list(delta.thinking_blocks) {
            let piece = Piece::new(fields, BLOCK_TEXTS);
            if !details_spoke {
                words.push_str(&piece.text);
            }
            match self.blocks.last_mut().filter(|last| last.is_open_for(&piece)) {
                Some(last) => last.grow(piece),
                None => self.blocks.push(piece),
            }
        }
        Some(words)
    }

    /// All of it, to be sent back; `None` if there is nothing.
    pub(super) fn value(self) -> Option<Json> {
        let mut fields = Fields::default();
        for (name, pieces) in [(DETAILS, self.details), (BLOCKS, self.blocks)] {
            if pieces.is_empty() {
                continue;
            }
            let pieces: Vec<Fields> = pieces.into_iter().map(Piece::into_fields).collect();
            fields.set(name, to_raw_value(&pieces).ok()?);
        }
        fields.into_filled_json()
    }
}

impl Piece {
    /// An element whose type may be one of these, each with the field that its text is in.
    fn new(fields: Fields, texts: &[(&str, &'static str)]) -> Self {
        let kind = text(&fields, "type").unwrap_or_default();
        let text_field = texts.iter().find(|(of, _)| *of == kind).map_or("", |(_, field)| field);
        let text = text(&fields, text_field).unwrap_or_default().into_owned();
        Self { fields, text_field, text }
    }

    /// Whether `next` adds to this element of `reasoning_details`: it is of the same kind under the
    /// same index. What is encrypted comes whole.
    fn continues_in(&self, next: &Self) -> bool {
        let same = |name| raw(&self.fields, name) == raw(&next.fields, name);
        let other = |name| raw(&next.fields, name).is_some() && !same(name);
        !self.text_field.is_empty()
            && self.takes_fields_of(next)
            && self.text_field == next.text_field
            && same("index")
            && !(other("id") && raw(&self.fields, "id").is_some())
    }

    /// Whether `next` adds to this thinking block: it is signed at its end.
    fn is_open_for(&self, next: &Self) -> bool {
        let signed = text(&self.fields, "signature").is_some_and(|sign| !sign.is_empty());
        let is_thinking = !self.text_field.is_empty() && self.text_field == next.text_field;
        is_thinking && !signed && self.takes_fields_of(next)
    }

    fn takes_fields_of(&self, next: &Self) -> bool {
        self.fields.len() + next.fields.len() <= MOST_FIELDS
    }

    fn grow(&mut self, next: Self) {
        self.text.push_str(&next.text);
        for (name, value) in next.fields.into_iter() {
            let says = !matches!(value.get(), "null" | "\"\"");
            if says && name != self.text_field {
                self.fields.set(&name, value);
            }
        }
    }

    fn into_fields(mut self) -> Fields {
        if !self.text_field.is_empty()
            && let Ok(text) = to_raw_value(&self.text)
        {
            self.fields.set(self.text_field, text);
        }
        self.fields
    }
}

/// A field that says something, as it is written.
fn raw<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    non_null(fields.get(name)).map(RawValue::get)
}

fn text<'a>(fields: &'a Fields, name: &str) -> Option<Cow<'a, str>> {
    fields.get(name).and_then(string)
}
