//! The sources that a text cites, which are stored with the text.

use serde_json::value::{RawValue, to_raw_value};

use crate::item::RawJson;
use crate::provider::codec::lenient::non_null;
use crate::provider::codec::ordered_fields::OrderedFields;

/// The annotations and citations for a text.
#[derive(Debug, Default)]
pub(super) struct Citations {
    annotations: Vec<OrderedFields<'static>>,
    citations: Option<Box<RawValue>>,
}

impl Citations {
    /// Adds the annotations from a delta.
    pub(super) fn add_annotations(&mut self, annotations: Option<&RawValue>) {
        let annotations = OrderedFields::parse_list(annotations);
        self.annotations.extend(annotations.into_iter().map(OrderedFields::into_owned));
    }

    /// Stores the citations from a chunk, which include those from all earlier chunks.
    pub(super) fn set_citations(&mut self, citations: Option<&RawValue>) {
        let held = self.citations.as_deref().map(RawValue::get);
        if let Some(citations) = non_null(citations).filter(|raw| Some(raw.get()) != held) {
            self.citations = Some(citations.to_owned());
        }
    }

    /// Returns all of the annotations and citations as JSON, or `None` if the text has neither.
    pub(super) fn into_json(self) -> Option<RawJson> {
        let mut fields = OrderedFields::default();
        if !self.annotations.is_empty() {
            fields.set("annotations", to_raw_value(&self.annotations).ok()?);
        }
        if let Some(citations) = self.citations {
            fields.set("citations", citations);
        }
        fields.into_non_empty_json()
    }
}
