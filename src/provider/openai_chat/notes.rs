//! What a text refers to, kept beside it.

use serde_json::value::{RawValue, to_raw_value};

use super::wire::{objects, said};
use crate::item::Json;
use crate::provider::fields::Fields;

/// The annotations and citations of a text.
#[derive(Debug, Default)]
pub(super) struct Notes {
    annotations: Vec<Fields>,
    citations: Option<Box<RawValue>>,
}

impl Notes {
    /// Takes the annotations of a delta.
    pub(super) fn annotate(&mut self, annotations: Option<&RawValue>) {
        if said(annotations).is_some() {
            self.annotations.extend(objects(annotations));
        }
    }

    /// Takes the citations of a chunk, which repeats those before it.
    pub(super) fn cite(&mut self, citations: Option<&RawValue>) {
        let held = self.citations.as_deref().map(RawValue::get);
        if let Some(citations) = said(citations).filter(|raw| Some(raw.get()) != held) {
            self.citations = Some(citations.to_owned());
        }
    }

    /// All of it; `None` if there is nothing.
    pub(super) fn value(self) -> Option<Json> {
        let mut fields = Fields::default();
        if !self.annotations.is_empty() {
            fields.set("annotations", to_raw_value(&self.annotations).ok()?);
        }
        if let Some(citations) = self.citations {
            fields.set("citations", citations);
        }
        match fields.is_empty() {
            true => None,
            false => fields.into_json(),
        }
    }
}
