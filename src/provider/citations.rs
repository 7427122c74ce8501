//! The sources that an answer cites.

use std::ops::Range;

use serde_json::Value;

use crate::item::Item;

/// A source that a text cites. A provider reports only some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Citation {
    /// The address of a page.
    pub url: Option<String>,
    /// The title of the page or the document.
    pub title: Option<String>,
    /// The id of a file that was uploaded to the provider.
    pub file_id: Option<String>,
    /// The text in the source that supports the answer.
    pub cited_text: Option<String>,
    /// The index of the cited document among all documents in the request, from 0.
    pub document_index: Option<usize>,
    /// The part of the item's text that the source supports, as a range of bytes. `None` if the
    /// source supports the whole text, or if the provider reports no range that lies within the
    /// text.
    pub range: Option<Range<usize>>,
}

/// Returns the sources that an item's text cites, in the order in which the provider reports them.
/// The list is empty for an item without citations, and for an item that is not a text.
///
/// Citations of documents are enabled with
/// [`Options::citations`](crate::request::Options::citations). The results of a search are cited
/// without an option. The citations are read from the item's provider data, which also contains
/// fields that this function does not return.
///
/// | wire | read from |
/// |---|---|
/// | Messages | `citations` of a text block |
/// | Chat | `annotations` of a message, and Perplexity's `citations` |
/// | Responses | `annotations` of a message's part |
/// | Gemini | `groundingMetadata` of the candidate, on the turn's last text |
///
/// ```
/// use turnstream::TurnEvent;
/// use turnstream::provider::citations;
///
/// fn print_sources(event: &TurnEvent) {
///     if let TurnEvent::TurnComplete { turn } = event {
///         for citation in turn.items().iter().flat_map(citations) {
///             println!("{}", citation.url.or(citation.title).unwrap_or_default());
///         }
///     }
/// }
/// ```
pub fn citations(item: &Item) -> Vec<Citation> {
    let (Some(text), Some(data)) = (item.as_text(), item.provider_data.as_deref()) else {
        return Vec::new();
    };
    // This cheap check limits the number of items whose data has to be parsed.
    let fields = ["\"citations\"", "\"annotations\"", "\"groundingMetadata\""];
    if !fields.iter().any(|field| data.value.as_str().contains(field)) {
        return Vec::new();
    }
    let data = data.value.to_value();
    let listed = elements(&data["citations"]).map(from_citation);
    let annotated = elements(&data["annotations"]).map(|it| from_annotation(it, text));
    let in_parts = from_parts(&data["item"]["content"], text);
    let grounded = elements(&data["groundingMetadata"]).flat_map(|it| from_grounding(it, text));
    listed.chain(annotated).chain(in_parts).chain(grounded).collect()
}

/// Reads the annotations of a message's parts. The positions in an annotation are those of the
/// part, and the item's text is that of all parts.
fn from_parts(parts: &Value, text: &str) -> Vec<Citation> {
    let mut cited = Vec::new();
    let mut start = 0;
    let mut is_unchanged = true;
    for part in elements(parts) {
        let of_part =
            part["text"].as_str().or_else(|| part["refusal"].as_str()).unwrap_or_default();
        // Neither a text that has changed nor the parts after it have known positions.
        is_unchanged &= text.get(start..).is_some_and(|rest| rest.starts_with(of_part));
        let of_part = if is_unchanged { of_part } else { "" };
        for annotation in elements(&part["annotations"]) {
            let citation = from_annotation(annotation, of_part);
            let range = citation.range.map(|range| start + range.start..start + range.end);
            cited.push(Citation { range, ..citation });
        }
        start += of_part.len();
    }
    cited
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn index(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|index| usize::try_from(index).ok())
}

/// Reads a citation of Anthropic, or the address of a page, as Perplexity sends it.
/// <https://platform.claude.com/docs/en/build-with-claude/citations>
fn from_citation(citation: &Value) -> Citation {
    Citation {
        // A search result has a source, which is usually an address.
        url: string(citation)
            .or_else(|| string(&citation["url"]))
            .or_else(|| string(&citation["source"])),
        title: string(&citation["title"]).or_else(|| string(&citation["document_title"])),
        file_id: string(&citation["file_id"]),
        cited_text: string(&citation["cited_text"]),
        document_index: index(&citation["document_index"]),
        range: None,
    }
}

/// Reads an annotation of OpenAI, whose positions are counted in characters. In a chunk of Chat
/// Completions, the fields are in an object with the name of the type.
/// <https://developers.openai.com/api/docs/guides/tools-web-search#output-and-citations>
fn from_annotation(annotation: &Value, text: &str) -> Citation {
    let kind = annotation["type"].as_str().unwrap_or_default();
    let fields = annotation.get(kind).unwrap_or(annotation);
    let byte_of = |position: &Value| {
        let position = index(position)?;
        let mut bytes = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        bytes.nth(position)
    };
    let range = match (byte_of(&fields["start_index"]), byte_of(&fields["end_index"])) {
        (Some(start), Some(end)) if start < end => Some(start..end),
        _ => None,
    };
    Citation {
        url: string(&fields["url"]),
        title: string(&fields["title"]).or_else(|| string(&fields["filename"])),
        file_id: string(&fields["file_id"]),
        range,
        ..Citation::default()
    }
}

/// Reads the sources of Gemini's grounding, whose positions are counted in bytes.
/// <https://ai.google.dev/api/generate-content#GroundingMetadata>
fn from_grounding(grounding: &Value, text: &str) -> Vec<Citation> {
    let source = |chunk: &Value| {
        let kinds = ["web", "retrievedContext", "maps"].iter();
        let fields = kinds.map(|kind| &chunk[*kind]).find(|fields| fields.is_object())?;
        Some(Citation {
            url: string(&fields["uri"]),
            title: string(&fields["title"]),
            cited_text: string(&fields["text"]),
            ..Citation::default()
        })
    };
    let sources: Vec<_> = elements(&grounding["groundingChunks"]).map(source).collect();
    let mut cited = Vec::new();
    for support in elements(&grounding["groundingSupports"]) {
        let segment = &support["segment"];
        let start = index(&segment["startIndex"]).unwrap_or_default();
        let range = index(&segment["endIndex"]).map(|end| start..end);
        // The positions are those of a part, which can be shorter than the item's text.
        let range = range
            .filter(|range| text.get(range.clone()).is_some_and(|part| segment["text"] == part));
        let indices = elements(&support["groundingChunkIndices"]).filter_map(index);
        let of_support = indices.filter_map(|at| sources.get(at)?.clone());
        cited.extend(of_support.map(|source| Citation { range: range.clone(), ..source }));
    }
    if cited.is_empty() { sources.into_iter().flatten().collect() } else { cited }
}
