//! The form in which a model receives a result, a resource or a prompt.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use turnstream::item::{Content, MediaSource, Part};
use turnstream_mcp::Client;

use crate::raw_server::{client_of_one_tool, discovered, listed_tool, raw_client};

async fn call_content(content: Value, structured: Value) -> Content {
    let mut result = json!({ "resultType": "complete", "content": content });
    if !structured.is_null() {
        result["structuredContent"] = structured;
    }
    let client = client_of_one_tool(listed_tool("t"), result);
    client.call_tool("t", json!({})).await.unwrap().content
}

/// Files whose text contains `nonce-42`, as base64.
const TEXT_FILES: [(&str, &str); 6] = [
    ("text/plain", "bm9uY2UtNDI="),
    ("text/markdown; charset=utf-8", "bm9uY2UtNDI="),
    ("text/x-csharp", "bm9uY2UtNDI="),
    ("application/json", "eyJub25jZS00MiI6MX0="),
    ("application/vnd.example+xml", "PGE+bm9uY2UtNDI8L2E+"),
    ("application/octet-stream", "bm9uY2UtNDI="),
];

fn text_file(media_type: &str, blob: &str) -> Value {
    json!({ "uri": "file:///a", "mimeType": media_type, "blob": blob })
}

#[tokio::test(start_paused = true)]
async fn a_text_file_in_a_result_is_text_even_if_it_is_sent_as_base64() {
    for (media_type, blob) in TEXT_FILES {
        let block = json!({ "type": "resource", "resource": text_file(media_type, blob) });
        let text = call_content(json!([block]), Value::Null).await.text();
        assert!(
            text.starts_with("file:///a:\n") && text.contains("nonce-42"),
            "{media_type}: {text}"
        );
    }
}

fn client_of_file(media_type: &'static str, blob: &'static str) -> Client {
    raw_client(move |_, message, out| {
        let resource = text_file(media_type, blob);
        let mut result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                let mut result = discovered();
                result["capabilities"] = json!({ "resources": {}, "prompts": {} });
                return out.result(&message, result);
            }
            "resources/read" => json!({ "contents": [resource] }),
            "prompts/get" => {
                let content = json!({ "type": "resource", "resource": resource });
                json!({ "messages": [{ "role": "user", "content": content }] })
            }
            _ => return,
        };
        result["resultType"] = "complete".into();
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
        out.result(&message, result);
    })
}

#[tokio::test(start_paused = true)]
async fn a_text_file_in_a_resource_or_a_prompt_is_text_even_if_it_is_sent_as_base64() {
    for (media_type, blob) in TEXT_FILES {
        let client = client_of_file(media_type, blob);
        let text = client.read_resource("file:///a").await.unwrap().text();
        assert!(text.contains("nonce-42"), "{media_type}: {text}");
        let items = client.prompt("p", &BTreeMap::new()).await.unwrap();
        let text = items[0].as_user().unwrap().text();
        assert!(text.contains("nonce-42"), "{media_type}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn media_that_structured_content_repeats_is_not_sent_again_as_base64_text() {
    let data = "A".repeat(4000);
    let resource = json!({ "uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": data });
    let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
    for block in [
        image.clone(),
        json!({ "type": "audio", "mimeType": "audio/wav", "data": data }),
        json!({ "type": "resource", "resource": resource }),
    ] {
        let structured = json!({ "result": [block] });
        let copy = json!({ "type": "text", "text": structured.to_string() });
        for content in [json!([block]), json!([copy, block])] {
            let sent = call_content(content, structured.clone()).await;
            assert!(!sent.text().contains("AAAAAAAA"), "{block}");
            assert_eq!(sent.into_parts().len(), 1, "{block}");
        }
    }
    let described = json!({ "image": data, "width": 7 });
    let sent = call_content(json!([image]), described).await;
    let parts = vec![
        Part::image("image/png", MediaSource::Data(data.as_str().into())),
        r#"{"width":7}"#.into(),
    ];
    assert_eq!(sent, Content::Parts(parts));
}

#[tokio::test(start_paused = true)]
async fn a_resource_link_keeps_its_name_and_description() {
    let link = json!({
        "type": "resource_link", "uri": "file:///repo/main.rs", "name": "main.rs",
        "description": "Primary entry point", "mimeType": "text/x-rust", "size": 1234,
    });
    let text = call_content(json!([link]), Value::Null).await.text();
    let expected = "[resource file:///repo/main.rs, main.rs, Primary entry point, text/x-rust]";
    assert_eq!(text, expected);
}
