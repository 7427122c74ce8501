//! Files that were uploaded to the provider, and the detail of images.

use turnstream::item::{Detail, MediaSource, Part, ResultKind, ToolResult};

use super::*;

fn by_id(id: &str) -> MediaSource {
    MediaSource::FileId(id.into())
}

/// Encodes a message that contains a single part, and returns the part.
fn sent(wire: Wire, part: Part) -> Result<Value, Error> {
    let history = History::from_items("h", [Item::user(vec!["look".into(), part])]);
    let body = wire.encode(&Request::new(history))?;
    let (message, parts) = match wire {
        Wire::Responses => (&body["input"][0], "content"),
        Wire::Gemini => (&body["contents"][0], "parts"),
        Wire::Messages | Wire::Chat | Wire::CompatibleChat | Wire::Ollama => {
            (&body["messages"][0], "content")
        }
    };
    Ok(message[parts][1].clone())
}

#[track_caller]
fn check_refused(wire: Wire, part: Part) {
    let error = sent(wire, part).expect_err("the wire lacks the part");
    assert_eq!((error.kind(), error.parameter()), (ErrorKind::Unsupported, Some("content")));
}

#[test]
fn a_file_is_sent_by_the_id_that_the_provider_assigned() {
    let pdf = || Part::file("application/pdf", by_id("file-1"));
    let of_anthropic = || Part::file("application/pdf", by_id("file_1"));
    let document = json!({ "type": "document", "source": { "type": "file", "file_id": "file_1" } });
    let mut messages = sent(Wire::Messages, of_anthropic()).unwrap();
    messages.as_object_mut().unwrap().shift_remove("cache_control");
    assert_eq!(messages, document);
    let chat = json!({ "type": "file", "file": { "file_id": "file-1" } });
    assert_eq!(sent(Wire::Chat, pdf()).unwrap(), chat);
    let responses = json!({ "type": "input_file", "file_id": "file-1" });
    assert_eq!(sent(Wire::Responses, pdf()).unwrap(), responses);
    for wire in [Wire::CompatibleChat, Wire::Gemini, Wire::Ollama] {
        check_refused(wire, pdf());
    }
    let uri = "https://generativelanguage.googleapis.com/v1beta/files/abc";
    let gemini = json!({ "fileData": { "mimeType": "application/pdf", "fileUri": uri } });
    let part = Part::file("application/pdf", by_id("files/abc"));
    assert_eq!(sent(Wire::Gemini, part).unwrap(), gemini);
}

#[test]
fn an_image_is_sent_by_its_id() {
    let image = || Part::image("image/png", by_id("file-1"));
    let messages = sent(Wire::Messages, Part::image("image/png", by_id("file_1"))).unwrap();
    assert_eq!(messages["source"], json!({ "type": "file", "file_id": "file_1" }));
    let responses = json!({ "type": "input_image", "file_id": "file-1", "detail": "auto" });
    assert_eq!(sent(Wire::Responses, image()).unwrap(), responses);
    for wire in [Wire::Chat, Wire::CompatibleChat, Wire::Gemini, Wire::Ollama] {
        check_refused(wire, image());
    }
}

#[test]
fn the_id_of_another_vendors_file_is_refused_before_the_request() {
    let file = |id: &str| Part::file("application/pdf", by_id(id));
    for (id, accepted) in [
        ("file_011CNha8", vec![Wire::Messages]),
        ("file-XjGxS3KT", vec![Wire::Chat, Wire::Responses]),
        ("files/abc-123", vec![Wire::Gemini]),
        // The id may be that of another server, which has copied the wire.
        ("9b1deb4d", vec![Wire::Messages, Wire::Chat, Wire::Responses]),
    ] {
        for wire in WIRES {
            match accepted.contains(&wire) {
                true => drop(sent(wire, file(id)).unwrap()),
                false => check_refused(wire, file(id)),
            }
        }
    }
}

#[test]
fn another_vendors_file_is_described_in_a_result_and_in_an_earlier_message() {
    for wire in [Wire::Messages, Wire::Responses] {
        let body = wire.encode(&request_with_files("files/abc")).unwrap().to_string();
        let omitted = "[The file `a.pdf` (application/pdf) was omitted, because this model cannot";
        assert_eq!(body.matches(omitted).count(), 2, "{wire:?}: {body}");
        assert!(!body.contains("files/abc"), "{body}");
    }
}

#[cfg(feature = "http")]
#[tokio::test]
async fn a_server_that_has_copied_the_wire_receives_ids_of_any_form() {
    use turnstream::http::HttpClient;
    use turnstream::provider::{OpenAiResponses, Provider, Reply};
    use turnstream::stream::TurnStreamExt;

    let server = turnstream_testing::ModelServer::openai_responses(|_, _| Reply::text("ok"));
    let server = server.await.unwrap();
    let model = OpenAiResponses::new("m")
        .with_base_url(server.url())
        .unwrap()
        .with_http_client(HttpClient::without_proxy());
    let part = Part::file("application/pdf", by_id("file_1"));
    let request = Request::new(History::from_items("h", [Item::user(part)]));
    model.stream_turn(request).into_turn().await.unwrap();
}

#[test]
fn a_dialect_of_another_server_accepts_file_ids_of_any_form() {
    use turnstream::provider::openai_chat::{self, Dialect};

    let file = || Part::file("application/pdf", by_id("file_1"));
    let request = || Request::new(History::from_items("h", [Item::user(file())]));
    let (name, supports_file_ids) = ("another", true);
    let accepting = Dialect { name, supports_file_ids, ..Dialect::MINIMAL };
    let body = openai_chat::encode(&request(), "m", &accepting).unwrap();
    assert!(String::from_utf8(body).unwrap().contains("file_1"));
    let error = openai_chat::encode(&request(), "m", &Dialect::OPENAI).unwrap_err();
    assert!(error.message().contains("a file at Anthropic"), "{error}");
    // A dialect without ids does not name a vendor.
    let error = openai_chat::encode(&request(), "m", &Dialect::MINIMAL).unwrap_err();
    assert!(error.message().contains("does not support a file by id"), "{error}");
}

/// A file in an earlier message and in a result.
fn request_with_files(id: &str) -> Request {
    let pdf = || Part::file("application/pdf", by_id(id)).with_name("a.pdf");
    let (call_id, name) = ("c1".to_owned(), "look".to_owned());
    let content = vec!["found".into(), pdf()].into();
    let result = ToolResult { call_id, name, content, kind: ResultKind::Ok, report: None };
    let items = [
        Item::user(pdf()),
        Item::tool_call("c1", "look", "{}"),
        Item::tool_result(result),
        Item::text("So."),
        Item::user("And?"),
    ];
    Request::new(History::from_items("h", items))
}

#[test]
fn an_id_that_gemini_does_not_accept_is_described_in_a_result_and_in_an_earlier_message() {
    let body = Wire::Gemini.encode(&request_with_files("file-1")).unwrap();
    let omitted = "[The file `a.pdf` (application/pdf) was omitted, because this model cannot \
                   receive it]";
    assert_eq!(body["contents"][0]["parts"][0]["text"], omitted);
    let response = &body["contents"][2]["parts"][0]["functionResponse"]["response"];
    assert_eq!(response["output"], format!("found\n\n{omitted}"));
}

#[test]
fn the_detail_of_an_image_is_sent_where_the_wire_has_one() {
    let image = |detail| Part::image("image/png", b"\0\0\0").with_detail(detail);
    let chat = sent(Wire::Chat, image(Detail::Low)).unwrap();
    assert_eq!(chat["image_url"]["detail"], "low");
    let responses = sent(Wire::Responses, image(Detail::Original)).unwrap();
    assert_eq!(responses["detail"], "original");
    let gemini = sent(Wire::Gemini, image(Detail::High)).unwrap();
    assert_eq!(gemini["mediaResolution"], json!({ "level": "MEDIA_RESOLUTION_HIGH" }));
    let file = Part::file("application/pdf", b"%PDF").with_detail(Detail::Original);
    assert_eq!(sent(Wire::Responses, file).unwrap()["detail"], "high");

    let plain = Part::image("image/png", b"\0\0\0");
    assert_eq!(sent(Wire::Messages, image(Detail::Low)), sent(Wire::Messages, plain.clone()));
    assert_eq!(sent(Wire::Chat, plain).unwrap()["image_url"].get("detail"), None);
    let history = History::from_items("h", [Item::user(image(Detail::High))]);
    let older = gemini::encode(&Request::new(history), "gemini-2.5-flash").unwrap();
    assert!(!String::from_utf8(older).unwrap().contains("mediaResolution"));
}
