//! The claims that hold for every provider, over every wire of the crate and over one that is
//! implemented outside of it.

use turnstream::http::HttpClient;
use turnstream::provider::{
    Anthropic, Gemini, HttpProvider, Ollama, OpenAiChat, OpenAiResponses, Piece, Reply,
};
use turnstream::turn::StopReason;
use turnstream::{Error, ErrorKind, provider};
use turnstream_testing::provider_suite::Subject;
use turnstream_testing::{Answer, Wire};

use crate::own_wire::QuillworksWire;

/// A provider of the crate, whose server uses the crate's own encoder of responses.
struct CrateWireSubject<W> {
    wire: Wire,
    provider: HttpProvider<W>,
}

impl<W: provider::Wire> Subject for CrateWireSubject<W> {
    type Provider = HttpProvider<W>;

    fn provider(&self, url: &str, key: &str) -> HttpProvider<W> {
        let provider = self.provider.clone().with_http_client(HttpClient::without_proxy());
        provider.with_base_url(url).unwrap().with_api_key(key)
    }

    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>> {
        let reply = pieces.iter().fold(Reply::new(), |reply, piece| match piece {
            Piece::Text(text) => reply.say(text),
            Piece::Reasoning(text) => reply.think(text),
            Piece::ToolCall { id, name, arguments } => reply.call_raw(id, name, arguments),
            Piece::Usage(usage) => reply.usage(*usage),
            Piece::Stop(reason) => reply.stop(reason.clone()),
            _ => unreachable!("the suite has no other pieces"),
        });
        let reply = match pieces.last() {
            Some(Piece::Stop(_)) => reply,
            _ => reply.disconnect(),
        };
        let body = Answer::reply(reply).to_bytes(self.wire);
        // A value that the wire cannot express is written as an error document.
        (!body.starts_with(b"{\"error\"")).then_some(body)
    }

    fn stream_error_frame(&self, message: &str) -> Option<Vec<u8>> {
        let error = Error::new(ErrorKind::Server, message);
        Some(Answer::reply(Reply::error(error)).to_bytes(self.wire))
    }
}

turnstream_testing::provider_suite!(
    anthropic,
    super::CrateWireSubject {
        wire: super::Wire::Anthropic,
        provider: super::Anthropic::new("any")
    }
);
turnstream_testing::provider_suite!(
    openai_chat,
    super::CrateWireSubject {
        wire: super::Wire::OpenAiChat,
        provider: super::OpenAiChat::new("any")
    }
);
turnstream_testing::provider_suite!(
    openai_responses,
    super::CrateWireSubject {
        wire: super::Wire::OpenAiResponses,
        provider: super::OpenAiResponses::new("any"),
    }
);
turnstream_testing::provider_suite!(
    gemini,
    super::CrateWireSubject { wire: super::Wire::Gemini, provider: super::Gemini::new("any") }
);
turnstream_testing::provider_suite!(
    ollama,
    super::CrateWireSubject { wire: super::Wire::Ollama, provider: super::Ollama::new("any") }
);
turnstream_testing::provider_suite!(the_wire_of_the_example, super::ExampleWireSubject);

/// The wire of the example `own_wire`.
struct ExampleWireSubject;

impl Subject for ExampleWireSubject {
    type Provider = HttpProvider<QuillworksWire>;

    fn provider(&self, url: &str, key: &str) -> Self::Provider {
        let provider = HttpProvider::new("quill-1").with_http_client(HttpClient::without_proxy());
        provider.with_base_url(url).unwrap().with_api_key(key)
    }

    fn response_body(&self, pieces: &[Piece]) -> Option<Vec<u8>> {
        let mut body = String::new();
        for piece in pieces {
            body += &match piece {
                Piece::Text(text) => sse_event("say", &[text])?,
                Piece::ToolCall { id, name, arguments } => {
                    sse_event("call", &[id, name, arguments])?
                }
                Piece::Stop(StopReason::Stop) => sse_event("over", &["done"])?,
                Piece::Stop(StopReason::ToolCalls) => sse_event("over", &["your turn"])?,
                _ => return None,
            };
        }
        Some(body.into_bytes())
    }

    fn stream_error_frame(&self, message: &str) -> Option<Vec<u8>> {
        sse_event("error", &[message]).map(String::into_bytes)
    }
}

/// One value is written as it is, several as an array.
fn sse_event(kind: &str, values: &[&str]) -> Option<String> {
    let data = match values {
        [value] => serde_json::to_string(value),
        values => serde_json::to_string(values),
    };
    Some(format!("event: {kind}\ndata: {}\n\n", data.ok()?))
}
