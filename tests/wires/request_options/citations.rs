//! Citations: enabled for documents, and read from the answer.

use turnstream::item::{Part, ProviderData, RawJson};
use turnstream::provider::{Citation, citations};
use turnstream::request::{Options, Output, OutputSchema, WebFetch};

use super::*;

#[test]
fn all_documents_of_a_request_can_be_cited_on_the_messages_wire() {
    let report = || Part::file("application/pdf", b"%PDF").with_name("report.pdf");
    let items = [Item::user(vec![report(), "And?".into()]), Item::text("."), Item::user(report())];
    let options = Options { citations: true, ..Options::default() };
    let request = Request::new(History::from_items("h", items)).with_options(options);
    let body = Wire::Messages.encode(&request).unwrap();
    for (message, block) in [(0, 0), (2, 0)] {
        let document = &body["messages"][message]["content"][block];
        assert_eq!(document["citations"], json!({ "enabled": true }), "{document}");
    }
    for wire in [Wire::Chat, Wire::CompatibleChat, Wire::Responses, Wire::Gemini, Wire::Ollama] {
        let error = wire.encode(&hello().with_options(request.options.clone())).unwrap_err();
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some("citations")));
    }
}

#[test]
fn citations_beside_a_schema_are_refused_before_the_request() {
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let output = Output::Schema(OutputSchema { name: "a".to_owned(), schema });
    let options = Options { citations: true, output, ..Options::default() };
    let error = Wire::Messages.encode(&hello().with_options(options)).unwrap_err();
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some("citations")));
}

#[test]
fn pages_that_the_vendor_fetches_are_cited_if_documents_are() {
    for citations in [false, true] {
        let server_tools = vec![WebFetch::default().into()];
        let options = Options { citations, server_tools, ..Options::default() };
        let body = Wire::Messages.encode(&hello().with_options(options)).unwrap();
        assert_eq!(body["tools"][0]["citations"]["enabled"] == true, citations, "{body}");
    }
}

#[test]
fn the_same_history_is_encoded_with_and_without_citations() {
    // Encoded items are cached, and the option changes them.
    let part = Part::file("application/pdf", b"%PDF");
    let items = [Item::user(part), Item::text("."), Item::user("And?")];
    let plain = Request::new(History::from_items("h", items));
    let cited = plain.clone().with_options(Options { citations: true, ..Options::default() });
    let citations = |request: &Request| {
        Wire::Messages.encode(request).unwrap()["messages"][0]["content"][0]["citations"].clone()
    };
    assert_eq!(citations(&plain), Value::Null);
    assert_eq!(citations(&cited), json!({ "enabled": true }));
    assert_eq!(citations(&plain), Value::Null);
}

/// The citations of a text item with the given provider data.
fn read(text: &str, provider: &str, data: Value) -> Vec<Citation> {
    let (provider, model, value) = (provider.to_owned(), "m".to_owned(), RawJson::from(data));
    let data = ProviderData { provider, model, value };
    let item = Item { provider_data: Some(data.into()), ..Item::text(text) };
    citations(&item)
}

#[test]
fn anthropics_citations_of_documents_and_pages_are_typed() {
    let cited = read(
        "Blue.",
        "anthropic",
        json!({ "citations": [
            { "type": "page_location", "cited_text": "It is blue.", "document_index": 1,
              "document_title": "Sky", "start_page_number": 1, "end_page_number": 2 },
            { "type": "web_search_result_location", "url": "https://a.example", "title": "A",
              "cited_text": "blue", "encrypted_index": "x" },
            { "type": "whatever_comes_next" },
        ] }),
    );
    assert_eq!(cited.len(), 3);
    assert_eq!(cited[0].title.as_deref(), Some("Sky"));
    assert_eq!(cited[0].cited_text.as_deref(), Some("It is blue."));
    assert_eq!(cited[0].document_index, Some(1));
    assert_eq!(cited[1].url.as_deref(), Some("https://a.example"));
    assert_eq!(cited[2], Citation::default());
}

#[test]
fn openais_annotations_have_ranges_in_bytes() {
    // The positions are counted in characters: `é` has two bytes.
    let text = "Café in Oslo.";
    let annotation = json!({ "type": "url_citation", "url": "https://a.example", "title": "A",
        "start_index": 0, "end_index": 4 });
    let content = json!([{ "type": "output_text", "text": text, "annotations": [
        annotation, { "type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3 },
    ] }]);
    let cited = read(text, "openai_responses", json!({ "item": { "content": content } }));
    assert_eq!(cited.len(), 2);
    assert_eq!(cited[0].url.as_deref(), Some("https://a.example"));
    assert_eq!(&text[cited[0].range.clone().unwrap()], "Café");
    assert_eq!(cited[1].file_id.as_deref(), Some("file-1"));
    assert_eq!((cited[1].title.as_deref(), &cited[1].range), (Some("a.pdf"), &None));

    // The item's text is that of both parts.
    let part = |text: &str, annotations: Value| json!({ "type": "output_text", "text": text, "annotations": annotations });
    let content = json!([part("Café ", json!([])), part("in Oslo.", json!([annotation]))]);
    let cited = read(text, "openai_responses", json!({ "item": { "content": content } }));
    assert_eq!(text.get(cited[0].range.clone().unwrap()), Some("in O"));
    let cited = read("Other.", "openai_responses", json!({ "item": { "content": content } }));
    assert_eq!(cited[0].range, None, "the text has changed");

    let nested = json!({ "type": "url_citation", "url_citation": { "url": "https://b.example",
        "title": "B", "start_index": 5, "end_index": 999 } });
    let cited = read(text, "openai_chat", json!({ "annotations": [nested] }));
    assert_eq!(cited[0].url.as_deref(), Some("https://b.example"));
    assert_eq!(cited[0].range, None, "the range does not lie within the text");
    let cited = read(text, "perplexity", json!({ "citations": ["https://c.example"] }));
    assert_eq!(cited[0].url.as_deref(), Some("https://c.example"));
}

#[test]
fn geminis_grounding_refers_to_the_supported_part_of_the_text() {
    let text = "Oslo is cold.";
    let grounding = json!({
        "groundingChunks": [
            { "web": { "uri": "https://a.example", "title": "A" } },
            { "retrievedContext": { "title": "notes.md", "text": "cold" } },
        ],
        "groundingSupports": [
            { "segment": { "endIndex": 4, "text": "Oslo" }, "groundingChunkIndices": [0] },
            { "segment": { "startIndex": 1, "endIndex": 5, "text": "cold" },
              "groundingChunkIndices": [1, 9] },
        ],
    });
    let cited = read(text, "gemini", json!({ "groundingMetadata": [grounding] }));
    assert_eq!(cited.len(), 2);
    assert_eq!(&text[cited[0].range.clone().unwrap()], "Oslo");
    assert_eq!(cited[0].url.as_deref(), Some("https://a.example"));
    assert_eq!(cited[1].cited_text.as_deref(), Some("cold"));
    assert_eq!(cited[1].range, None, "the positions are those of another text");
}

#[test]
fn an_item_without_citations_has_none() {
    assert_eq!(citations(&Item::text("Hi")), []);
    assert_eq!(citations(&Item::user("Hi")), []);
    assert_eq!(read("Hi", "gemini", json!({ "groundingMetadata": "x", "citations": 7 })), []);
}

#[test]
fn no_part_has_a_range_after_a_part_whose_text_has_changed() {
    let part = |text: &str| {
        let annotation = json!({ "type": "url_citation", "url": text, "start_index": 0,
            "end_index": 1 });
        json!({ "type": "output_text", "text": text, "annotations": [annotation] })
    };
    let data = json!({ "item": { "content": [part("ab"), part("old"), part("cd")] } });
    let ranges = |text: &str| -> Vec<_> {
        read(text, "openai_responses", data.clone()).into_iter().map(|it| it.range).collect()
    };
    assert_eq!(ranges("aboldcd"), [Some(0..1), Some(2..3), Some(5..6)]);
    assert_eq!(ranges("abcd"), [Some(0..1), None, None]);
}
