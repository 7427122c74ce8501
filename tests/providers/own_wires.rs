//! Wires that are written outside of the crate, with every fault that one may have.

use turnstream::framing::{Frame, NdJson};
use turnstream::http::{HttpClient, KeyHeader};
use turnstream::provider::{
    Decode, Destination, EncodedRequest, ErrorResponse, FrameOutcome, HttpProvider, Provider, Wire,
};
use turnstream::stream::TurnStreamExt;
use turnstream::testing::http::{HttpResponse, LoopbackServer};
use turnstream::turn::TurnBuilder;
use turnstream::{Error, ErrorKind, History, Item, Request};

/// A wire one of whose parts panics.
#[derive(Clone, Debug, Default)]
struct Faulty(Part);

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Part {
    #[default]
    None,
    Path,
    Headers,
    KeyHeader,
    Encode,
    Decoder,
    Refused,
}

impl Faulty {
    fn run(&self, part: Part) {
        assert!(self.0 != part, "no {part:?}");
    }
}

impl Wire for Faulty {
    type Framing = NdJson;
    type Decoder = Nothing;

    fn name(&self) -> &'static str {
        "faulty"
    }

    fn path(&self, model: &str) -> &'static str {
        // The provider's own model has an address from the beginning.
        if model == "other" {
            self.run(Part::Path);
        }
        "/say"
    }

    fn headers(&self) -> &[(&'static str, &'static str)] {
        self.run(Part::Headers);
        &[("x-version", "1")]
    }

    fn key_header(&self) -> KeyHeader {
        self.run(Part::KeyHeader);
        KeyHeader::Bearer
    }

    fn encode(&self, _: &Request, _: Destination<'_>) -> Result<EncodedRequest, Error> {
        self.run(Part::Encode);
        Ok(EncodedRequest::from(b"{}".to_vec()).with_header("X-Feature", "two"))
    }

    fn decoder(&self, _: &Request, _: Destination<'_>) -> Nothing {
        self.run(Part::Decoder);
        Nothing
    }

    fn error_from_response(&self, refusal: &ErrorResponse<'_>) -> Error {
        self.run(Part::Refused);
        refusal.to_error()
    }
}

#[derive(Debug)]
struct Nothing;

impl Decode for Nothing {
    fn frame(&mut self, _: Frame<'_>, _: &mut TurnBuilder) -> Result<FrameOutcome, Error> {
        Ok(FrameOutcome::Done)
    }
}

fn provider(wire: Faulty, server: &LoopbackServer) -> HttpProvider<Faulty> {
    let provider = HttpProvider::from_wire(wire, "own").with_base_url(server.url()).unwrap();
    provider.with_http_client(HttpClient::without_proxy()).with_api_key("key-12345678")
}

async fn ask(model: &impl Provider) -> Error {
    let mut request = Request::new(History::from_items("h", [Item::user("hi")]));
    request.model = Some("other".to_owned());
    model.stream_turn(request).into_turn().await.unwrap_err()
}

#[tokio::test]
async fn a_panic_in_any_part_of_a_wire_is_an_error_of_the_turn() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let before = [Part::Path, Part::Headers, Part::KeyHeader, Part::Encode, Part::Decoder];
    for part in before.into_iter().chain([Part::Refused]) {
        let model = provider(Faulty(part), &server);
        let error = tokio::spawn(async move { ask(&model).await }).await;
        let error = error.unwrap_or_else(|_| panic!("{part:?} ended the task"));
        assert_eq!(error.kind(), ErrorKind::Panic, "{part:?}");
        assert!(error.message().contains(&format!("no {part:?}")), "{error}");
        assert_eq!(server.requests().len(), usize::from(part == Part::Refused), "{part:?}");
    }
}

#[tokio::test]
async fn headers_set_by_a_wire_merge_with_the_users_case_insensitively() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let model = provider(Faulty::default(), &server);
    ask(&model).await;
    ask(&model.with_header("x-feature", "one")).await;
    let sent: Vec<_> = server.requests();
    let sent: Vec<_> = sent.iter().filter_map(|request| request.header("x-feature")).collect();
    assert_eq!(sent, ["two", "one,two"]);
}
