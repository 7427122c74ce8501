//! Wires that are implemented outside of the crate, with every fault that one may have.

use turnstream::framing::{Frame, NdJson};
use turnstream::http::{HttpClient, KeyHeader};
use turnstream::provider::{
    Decode, Destination, EncodedRequest, ErrorResponse, FrameOutcome, HttpProvider, Provider, Wire,
};
use turnstream::stream::TurnStreamExt;
use turnstream::turn::TurnBuilder;
use turnstream::{Error, ErrorKind, History, Item, Request};
use turnstream_testing::http::{HttpResponse, LoopbackServer};

/// A wire one of whose methods panics.
#[derive(Clone, Debug, Default)]
struct FaultyWire(PanickingPart);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum PanickingPart {
    #[default]
    None,
    Path,
    Headers,
    KeyHeader,
    Encode,
    Decoder,
    Refused,
}

impl FaultyWire {
    fn panic_if(&self, part: PanickingPart) {
        assert!(self.0 != part, "no {part:?}");
    }
}

impl Wire for FaultyWire {
    type Framing = NdJson;
    type Decoder = DoneDecoder;

    fn name(&self) -> &'static str {
        "faulty"
    }

    fn path(&self, model: &str) -> &'static str {
        // The path of the provider's own model is needed when the provider is built.
        if model == "other" {
            self.panic_if(PanickingPart::Path);
        }
        "/say"
    }

    fn headers(&self) -> &[(&'static str, &'static str)] {
        self.panic_if(PanickingPart::Headers);
        &[("x-version", "1")]
    }

    fn key_header(&self) -> KeyHeader {
        self.panic_if(PanickingPart::KeyHeader);
        KeyHeader::Bearer
    }

    fn encode(&self, _: &Request, _: Destination<'_>) -> Result<EncodedRequest, Error> {
        self.panic_if(PanickingPart::Encode);
        Ok(EncodedRequest::from(b"{}".to_vec()).with_header("X-Feature", "two"))
    }

    fn decoder(&self, _: &Request, _: Destination<'_>) -> DoneDecoder {
        self.panic_if(PanickingPart::Decoder);
        DoneDecoder
    }

    fn error_from_response(&self, refusal: &ErrorResponse<'_>) -> Error {
        self.panic_if(PanickingPart::Refused);
        refusal.to_error()
    }
}

#[derive(Debug)]
struct DoneDecoder;

impl Decode for DoneDecoder {
    fn frame(&mut self, _: Frame<'_>, _: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        Ok(FrameOutcome::Done)
    }
}

fn provider(wire: FaultyWire, server: &LoopbackServer) -> HttpProvider<FaultyWire> {
    let provider = HttpProvider::from_wire(wire, "own").with_base_url(server.url()).unwrap();
    provider.with_http_client(HttpClient::without_proxy()).with_api_key("key-12345678")
}

async fn request_error(model: &impl Provider) -> Error {
    let mut request = Request::new(History::from_items("h", [Item::user("hi")]));
    request.model = Some("other".to_owned());
    model.stream_turn(request).into_turn().await.unwrap_err()
}

#[tokio::test]
async fn a_panic_in_any_part_of_a_wire_is_an_error_of_the_turn() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let before = [
        PanickingPart::Path,
        PanickingPart::Headers,
        PanickingPart::KeyHeader,
        PanickingPart::Encode,
        PanickingPart::Decoder,
    ];
    for part in before.into_iter().chain([PanickingPart::Refused]) {
        let model = provider(FaultyWire(part), &server);
        let error = tokio::spawn(async move { request_error(&model).await }).await;
        let error = error.unwrap_or_else(|_| panic!("{part:?} ended the task"));
        assert_eq!(error.kind(), ErrorKind::Panic, "{part:?}");
        assert!(error.message().contains(&format!("no {part:?}")), "{error}");
        assert_eq!(
            server.requests().len(),
            usize::from(part == PanickingPart::Refused),
            "{part:?}"
        );
    }
}

#[tokio::test]
async fn headers_set_by_a_wire_merge_with_the_users_case_insensitively() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let model = provider(FaultyWire::default(), &server);
    request_error(&model).await;
    request_error(&model.with_header("x-feature", "one")).await;
    let sent: Vec<_> = server.requests();
    let sent: Vec<_> = sent.iter().filter_map(|request| request.header("x-feature")).collect();
    assert_eq!(sent, ["two", "one,two"]);
}
