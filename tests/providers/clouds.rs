//! Models in clouds: the URL of each preset's request, its authorization, and the differences in
//! its body. The sources are in the docs of the presets.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnstream::http::{Credential, HttpClient, Token, UnsignedRequest};
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{
    Anthropic, Gemini, HttpProvider, OpenAiChat, OpenAiResponses, Provider, Wire,
};
use turnstream::request::Request;
use turnstream::stream::TurnStreamExt;
use turnstream::{Error, ErrorKind, History, Item};
use turnstream_testing::http::{HttpResponse, LoopbackServer};

const API_KEY: &str = "key-12345678";
const ACCESS_TOKEN: &str = "token-12345678";

/// A preset's request.
struct SentRequest {
    url: String,
    headers: Vec<(String, String)>,
    body: Value,
}

impl SentRequest {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

async fn request_error(model: &impl Provider) -> Error {
    let history = History::from_items("h", [Item::user("hi")]);
    model.stream_turn(Request::new(history)).into_turn().await.unwrap_err()
}

/// Captures the URL and the body as a signer receives them, and the headers as a server receives
/// them. Only the request for the headers is sent, to a loopback server.
async fn capture_request<W: Wire>(preset: HttpProvider<W>) -> SentRequest {
    let seen: Arc<Mutex<Option<UnsignedRequest>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let signer = Credential::signer(move |request| {
        *kept.lock().unwrap() = Some(request);
        async { Err(Error::new(ErrorKind::Other, "seen")) }
    });
    assert_eq!(request_error(&preset.clone().with_credential(signer)).await.message(), "seen");
    let unsigned = seen.lock().unwrap().take().expect("a request");

    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let there =
        preset.with_http_client(HttpClient::without_proxy()).with_base_url(server.url()).unwrap();
    request_error(&there).await;
    let received = server.requests().pop().expect("a request");
    assert_eq!(received.body, unsigned.body);
    let body = serde_json::from_slice(&unsigned.body).unwrap();
    SentRequest { url: unsigned.url, headers: received.headers, body }
}

fn token_credential() -> Credential {
    Credential::token(|| async { Ok(Token::new(ACCESS_TOKEN)) })
}

#[track_caller]
fn check_sent(sent: &SentRequest, url: &str, header: &str, value: &str) {
    assert_eq!(sent.url, url);
    let known = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];
    for name in known {
        assert_eq!(sent.header(name), (name == header).then_some(value), "{name} of {url}");
    }
}

#[tokio::test]
async fn azure_openai_requests_follow_its_v1_api() {
    let chat = || OpenAiChat::azure("res", "dep").unwrap();
    let url = "https://res.openai.azure.com/openai/v1/chat/completions";
    let by_key = capture_request(chat().with_api_key(API_KEY)).await;
    check_sent(&by_key, url, "api-key", API_KEY);
    assert_eq!(by_key.body["model"], "dep");
    let by_token = capture_request(chat().with_credential(token_credential())).await;
    check_sent(&by_token, url, "authorization", &format!("Bearer {ACCESS_TOKEN}"));

    let responses = || OpenAiResponses::azure("res", "dep").unwrap();
    let url = "https://res.openai.azure.com/openai/v1/responses";
    let by_key = capture_request(responses().with_api_key(API_KEY)).await;
    check_sent(&by_key, url, "api-key", API_KEY);
    assert_eq!(by_key.body["model"], "dep");
    let by_token = capture_request(responses().with_credential(token_credential())).await;
    check_sent(&by_token, url, "authorization", &format!("Bearer {ACCESS_TOKEN}"));
}

#[tokio::test]
async fn azure_openai_requests_follow_its_dated_api() {
    let model = OpenAiChat::azure_classic("res", "gpt-4.1", "2024-10-21").unwrap();
    let sent = capture_request(model.with_api_key(API_KEY)).await;
    let url = "https://res.openai.azure.com/openai/deployments/gpt-4.1/chat/completions\
               ?api-version=2024-10-21";
    check_sent(&sent, url, "api-key", API_KEY);
}

#[tokio::test]
async fn claude_requests_follow_microsoft_foundry() {
    let model = || Anthropic::azure("res", "dep").unwrap();
    let url = "https://res.services.ai.azure.com/anthropic/v1/messages";
    let by_key = capture_request(model().with_api_key(API_KEY)).await;
    check_sent(&by_key, url, "api-key", API_KEY);
    assert_eq!(by_key.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(by_key.body["model"], "dep");
    let by_token = capture_request(model().with_credential(token_credential())).await;
    check_sent(&by_token, url, "authorization", &format!("Bearer {ACCESS_TOKEN}"));
}

#[tokio::test]
async fn gemini_requests_follow_vertex_ai() {
    for (location, host) in [
        ("us-central1", "us-central1-aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us", "aiplatform.us.rep.googleapis.com"),
    ] {
        let model = Gemini::vertex("proj", location, "gemini-3-flash").unwrap();
        let sent = capture_request(model.with_credential(token_credential())).await;
        let url = format!(
            "https://{host}/v1/projects/proj/locations/{location}/publishers/google/models/\
             gemini-3-flash:streamGenerateContent?alt=sse"
        );
        check_sent(&sent, &url, "authorization", &format!("Bearer {ACCESS_TOKEN}"));
        assert_eq!(sent.body["contents"][0]["parts"], json!([{ "text": "hi" }]));
    }
}

#[tokio::test]
async fn claude_on_vertex_ai_sends_version_and_betas_in_the_body() {
    let model = Anthropic::vertex("proj", "us-east5", "claude-sonnet-4-5@20250929").unwrap();
    let model = model.with_beta("one").with_beta("two").with_beta("one");
    let sent = capture_request(model.with_credential(token_credential())).await;
    let url = "https://us-east5-aiplatform.googleapis.com/v1/projects/proj/locations/us-east5/\
               publishers/anthropic/models/claude-sonnet-4-5@20250929:streamRawPredict";
    check_sent(&sent, url, "authorization", &format!("Bearer {ACCESS_TOKEN}"));
    assert_eq!(sent.body.get("model"), None);
    assert_eq!(sent.body["anthropic_version"], "vertex-2023-10-16");
    assert_eq!(sent.body["anthropic_beta"], json!(["one", "two"]));
    assert_eq!(sent.body["stream"], true);
    assert_eq!(sent.header("anthropic-version"), None);
    assert_eq!(sent.header("anthropic-beta"), None);
}

#[tokio::test]
async fn requests_for_other_models_follow_vertex_ai() {
    let model = OpenAiChat::vertex("org.com:proj", "us-central1", "meta/llama-4").unwrap();
    let sent = capture_request(model.with_credential(token_credential())).await;
    let url = "https://us-central1-aiplatform.googleapis.com/v1/projects/org.com:proj/locations/\
               us-central1/endpoints/openapi/chat/completions";
    check_sent(&sent, url, "authorization", &format!("Bearer {ACCESS_TOKEN}"));
    assert_eq!(sent.body["model"], "meta/llama-4");
}

#[tokio::test]
async fn requests_follow_amazon_bedrock() {
    let bearer = format!("Bearer {API_KEY}");
    let chat = OpenAiChat::bedrock("eu-west-1", "openai.gpt-oss-120b").unwrap();
    let sent_chat = capture_request(chat.with_api_key(API_KEY)).await;
    let base = "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1";
    check_sent(&sent_chat, &format!("{base}/chat/completions"), "authorization", &bearer);
    assert_eq!(sent_chat.body["model"], "openai.gpt-oss-120b");

    let responses = OpenAiResponses::bedrock("eu-west-1", "openai.gpt-oss-120b").unwrap();
    let sent_responses = capture_request(responses.with_api_key(API_KEY)).await;
    check_sent(&sent_responses, &format!("{base}/responses"), "authorization", &bearer);

    let claude = Anthropic::bedrock("us-east-1", "anthropic.claude-sonnet-5").unwrap();
    let sent_claude = capture_request(claude.with_api_key(API_KEY)).await;
    let url = "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages";
    check_sent(&sent_claude, url, "authorization", &bearer);
    assert_eq!(sent_claude.body["model"], "anthropic.claude-sonnet-5");
    assert_eq!(sent_claude.header("anthropic-version"), Some("2023-06-01"));
}

/// Cloudflare's gateway, <https://developers.cloudflare.com/ai-gateway/usage/chat-completion/>, a
/// proxy of LiteLLM, and OpenRouter.
#[tokio::test]
async fn openai_compatible_gateways_are_supported() {
    let bearer = format!("Bearer {API_KEY}");
    let base = "https://gateway.ai.cloudflare.com/v1/account/gateway/compat";
    let cloudflare = OpenAiChat::new("openai/gpt-5-mini").with_base_url(base).unwrap();
    let cloudflare = cloudflare.with_header("cf-aig-authorization", "Bearer gateway-12345678");
    let cloudflare = capture_request(cloudflare.with_api_key(API_KEY)).await;
    check_sent(&cloudflare, &format!("{base}/chat/completions"), "authorization", &bearer);
    assert_eq!(cloudflare.header("cf-aig-authorization"), Some("Bearer gateway-12345678"));
    assert_eq!(cloudflare.body["model"], "openai/gpt-5-mini");

    let proxy = OpenAiChat::new("claude").with_dialect(Dialect::LITELLM);
    let proxy = capture_request(
        proxy.with_base_url("https://litellm.example").unwrap().with_api_key(API_KEY),
    )
    .await;
    check_sent(&proxy, "https://litellm.example/chat/completions", "authorization", &bearer);

    let routed = OpenAiChat::new("openrouter/auto").with_dialect(Dialect::OPENROUTER);
    let routed = capture_request(routed.with_api_key(API_KEY)).await;
    let url = "https://openrouter.ai/api/v1/chat/completions";
    check_sent(&routed, url, "authorization", &bearer);
}

#[test]
fn a_resource_name_that_would_change_the_host_is_rejected() {
    for odd in ["", "a/b", "evil.example#", "a@b", "a b", "a?b", "ü"] {
        let errors = [
            OpenAiChat::azure(odd, "d").err(),
            OpenAiChat::azure_classic(odd, "d", "v").err(),
            OpenAiChat::bedrock(odd, "m").err(),
            OpenAiChat::vertex(odd, "l", "m").err(),
            OpenAiResponses::azure(odd, "d").err(),
            OpenAiResponses::bedrock(odd, "m").err(),
            Anthropic::azure(odd, "d").err(),
            Anthropic::bedrock(odd, "m").err(),
            Anthropic::vertex("p", odd, "m").err(),
            Gemini::vertex("p", odd, "m").err(),
        ];
        for error in errors {
            let error = error.unwrap_or_else(|| panic!("{odd:?} is taken"));
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{odd:?}");
            assert!(error.parameter().is_some(), "{odd:?}");
        }
    }
}

#[test]
fn a_project_that_would_change_the_path_is_rejected() {
    for odd in ["", ".", "..", "a/b", "a%2fb", "a?b"] {
        let errors = [
            OpenAiChat::vertex(odd, "l", "m").err(),
            Anthropic::vertex(odd, "l", "m").err(),
            Gemini::vertex(odd, "l", "m").err(),
        ];
        for error in errors {
            let error = error.unwrap_or_else(|| panic!("{odd:?} is taken"));
            assert_eq!(error.parameter(), Some("project"), "{odd:?}");
        }
    }
}
