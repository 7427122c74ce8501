//! Authorization of requests: keys, tokens that are fetched, and signatures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use turnstream::http::{Credential, HttpClient, KeyHeader, Token};
use turnstream::provider::{Anthropic, Backoff, OpenAiResponses, Provider};
use turnstream::stream::TurnStreamExt;
use turnstream::turn::Turn;
use turnstream::{Error, ErrorKind, History, Item, Request};
use turnstream_testing::http::{HttpRequest, HttpResponse, LoopbackServer};
use turnstream_testing::{Answer, ModelServer};

fn model(url: &str) -> OpenAiResponses {
    let model = OpenAiResponses::new("o-x").with_http_client(HttpClient::without_proxy());
    model.with_base_url(url).unwrap()
}

fn request() -> Request {
    Request::new(History::from_items("h", [Item::user("hi")]))
}

async fn request_turn(model: &impl Provider) -> Result<Arc<Turn>, Error> {
    model.stream_turn(request()).into_turn().await
}

/// A credential with the tokens `token-0`, `token-1`, …, each returned after other tasks have run.
fn counting_credential() -> (Arc<AtomicUsize>, Credential) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let credential = Credential::token(move || {
        let n = counted.fetch_add(1, SeqCst);
        async move {
            tokio::task::yield_now().await;
            Ok(Token::new(format!("token-{n}")).expires_in(Duration::from_hours(1)))
        }
    });
    (calls, credential)
}

fn authorization_header(request: &HttpRequest) -> &str {
    request.header("authorization").unwrap_or_default()
}

/// A server that accepts only the newest token of `calls`.
async fn newest_token_server(calls: &Arc<AtomicUsize>) -> ModelServer {
    let calls = Arc::clone(calls);
    ModelServer::start(move |asked| {
        let newest = format!("Bearer token-{}", calls.load(SeqCst) - 1);
        match asked.http.header("authorization") == Some(&newest) {
            true => Answer::reply("Hello."),
            false => Answer::error(401),
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn fifty_concurrent_requests_share_one_token_fetch() {
    let (calls, credential) = counting_credential();
    let server = newest_token_server(&calls).await;
    let model = model(&server.url()).with_credential(credential);
    let turns = join_all((0..50).map(|_| request_turn(&model))).await;
    assert!(turns.iter().all(Result::is_ok));
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test]
async fn a_token_fetch_survives_the_drop_of_the_turn_that_started_it() {
    let (calls, credential) = counting_credential();
    let server = newest_token_server(&calls).await;
    let model = model(&server.url()).with_credential(credential);
    let mut first = model.stream_turn(request());
    assert!(first.next().now_or_never().is_none());
    assert_eq!(calls.load(SeqCst), 1);
    let mut others: Vec<_> = (0..49).map(|_| Box::pin(request_turn(&model))).collect();
    for other in &mut others {
        assert!(other.now_or_never().is_none());
    }
    drop(first);
    assert!(join_all(others).await.iter().all(Result::is_ok));
    assert_eq!(calls.load(SeqCst), 1);
}

#[tokio::test]
async fn rejected_tokens_are_refreshed_once_and_the_requests_resent() {
    let (calls, credential) = counting_credential();
    let server = newest_token_server(&calls).await;
    let model = model(&server.url()).with_credential(credential).without_retries();
    request_turn(&model).await.unwrap();
    // Simulates a revoked token: the server requires one that no request has received.
    calls.fetch_add(1, SeqCst);
    let turns = join_all((0..50).map(|_| request_turn(&model))).await;
    let errors: Vec<_> = turns.iter().filter_map(|turn| turn.as_ref().err()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(calls.load(SeqCst), 3);
}

#[tokio::test]
async fn a_rejected_fresh_token_fails_the_turn() {
    let (calls, credential) = counting_credential();
    let server = LoopbackServer::start(|_| HttpResponse::text(401, "no")).await.unwrap();
    let model = model(&server.url()).with_credential(credential);
    let error = request_turn(&model).await.unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Auth, Some(401)));
    assert_eq!((calls.load(SeqCst), server.requests().len()), (1, 1));
    // The next request does not know yet that the token is invalid; it finds out once.
    request_turn(&model).await.unwrap_err();
    assert_eq!((calls.load(SeqCst), server.requests().len()), (2, 3));
}

#[tokio::test]
async fn an_error_of_the_token_source_is_retried_like_a_provider_error() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let credential = Credential::token(move || {
        let n = counted.fetch_add(1, SeqCst);
        async move {
            match n {
                0 => Err(Error::new(ErrorKind::Connect, "no tokens today")),
                _ => Ok(Token::new("token-1")),
            }
        }
    });
    let server = ModelServer::start(|_| Answer::reply("Hello.")).await.unwrap();
    let at_once =
        turnstream::provider::Backoff { base_delay: Duration::ZERO, ..Default::default() };
    let model = model(&server.url()).with_credential(credential).with_backoff(at_once);
    assert_eq!(request_turn(&model).await.unwrap().text(), "Hello.");
    assert_eq!(calls.load(SeqCst), 2);
}

#[tokio::test]
async fn tokens_and_signatures_echoed_by_a_server_are_masked() {
    let echo = |request: HttpRequest| {
        HttpResponse::text(403, format!("no {}", authorization_header(&request)))
    };
    let server = LoopbackServer::start(echo).await.unwrap();
    let token = Credential::token(|| async { Ok(Token::new("token-12345678")) });
    let signer = Credential::signer(|_| async {
        Ok(vec![("Authorization".to_owned(), "signed token-12345678".to_owned())])
    });
    for credential in [token, signer] {
        let model = model(&server.url()).with_credential(credential);
        assert!(!format!("{model:?}").contains("token-12345678"));
        let error = request_turn(&model).await.unwrap_err();
        assert!(!format!("{error:?} {error}").contains("token-12345678"), "{error}");
        assert!(
            authorization_header(server.requests().last().unwrap()).ends_with("token-12345678")
        );
    }
}

#[tokio::test]
async fn parts_of_a_signature_echoed_by_a_server_are_masked() {
    let server = LoopbackServer::start(|request| {
        let part = authorization_header(&request).rsplit('=').next().unwrap_or_default().to_owned();
        HttpResponse::text(403, format!("wrong: {part}"))
    });
    let server = server.await.unwrap();
    let signer = Credential::signer(|_| async {
        let signature = "AWS4-HMAC-SHA256 Credential=AKIA1234/x, Signature=0123456789abcdef";
        Ok(vec![("authorization".to_owned(), signature.to_owned())])
    });
    let error = request_turn(&model(&server.url()).with_credential(signer)).await.unwrap_err();
    assert!(error.message().contains("wrong: …"), "{error}");
}

#[tokio::test]
async fn a_signer_sees_each_header_once_with_its_final_value() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let signer = Credential::signer(move |request| {
        *kept.lock().unwrap() = request.headers;
        async { Ok(Vec::new()) }
    });
    let model = Anthropic::new("a-x").with_http_client(HttpClient::without_proxy());
    let model = model.with_base_url(server.url()).unwrap().with_credential(signer);
    request_turn(&model.with_header("Anthropic-Version", "own")).await.unwrap_err();
    let seen = seen.lock().unwrap();
    let versions: Vec<_> = seen.iter().filter(|(name, _)| name == "anthropic-version").collect();
    assert_eq!(versions, [&("anthropic-version".to_owned(), "own".to_owned())]);
    assert_eq!(server.requests().pop().unwrap().header("anthropic-version"), Some("own"));
}

#[tokio::test]
async fn a_signer_reads_the_same_bytes_of_a_long_body_on_each_attempt_without_a_copy() {
    let mut answers = [200, 503, 200].into_iter();
    let answers = std::sync::Mutex::new(move || answers.next().unwrap());
    let server = ModelServer::start(move |_| match answers.lock().unwrap()() {
        200 => Answer::reply("Hello."),
        status => Answer::error(status),
    });
    let server = server.await.unwrap();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let signer = Credential::signer(move |request| {
        kept.lock().unwrap().push(request.body);
        async { Ok(Vec::new()) }
    });
    let backoff = Backoff { base_delay: Duration::from_millis(1), ..Backoff::default() };
    let model = model(&server.url()).with_backoff(backoff).with_credential(signer);
    // The second request shares the encoded bytes of the first.
    let mut history = History::empty("h");
    for text in ["long ".repeat(50_000), "more".to_owned()] {
        history.push(Item::user(text));
        let turn = model.stream_turn(Request::new(history.clone()));
        turn.into_turn().await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[1].as_ptr(), seen[2].as_ptr());
    assert!(seen[1].starts_with(&seen[0][..250_000]));
}

#[tokio::test]
async fn a_signer_sees_the_final_request_and_its_headers_replace_others() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let url = server.url();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let signer = Credential::signer(move |request| {
        kept.lock().unwrap().push(request);
        async { Ok(vec![("X-Date".to_owned(), "signed".to_owned())]) }
    });
    let model = model(&url).with_credential(signer).with_header("x-date", "set");
    request_turn(&model.with_query("v", "1 2").with_path("/{model}/say?fixed=yes"))
        .await
        .unwrap_err();
    let received = server.requests().pop().unwrap();
    let seen = seen.lock().unwrap().pop().unwrap();
    assert_eq!(seen.method, "POST");
    assert_eq!(seen.url, format!("{url}/o-x/say?v=1+2&fixed=yes"));
    assert_eq!(seen.body, received.body);
    let of_seen = |name: &str| seen.headers.iter().find(|(known, _)| known == name);
    assert_eq!(of_seen("x-date").unwrap().1, "set");
    assert_eq!(of_seen("content-type").unwrap().1, "application/json");
    assert_eq!(received.header("x-date"), Some("signed"));
    assert_eq!(received.headers.iter().filter(|(name, _)| name == "x-date").count(), 1);
    for (name, value) in &seen.headers {
        assert!(name == "x-date" || received.header(name) == Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_signer_cannot_set_the_headers_of_the_transport_and_its_panic_is_an_error() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let signer = |headers: Vec<(String, String)>| {
        Credential::signer(move |_| std::future::ready(Ok(headers.clone())))
    };
    let length = signer(vec![("Content-Length".to_owned(), "5".to_owned())]);
    let error = request_turn(&model(&server.url()).with_credential(length)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    let panics = Credential::signer(|_| async { panic!("no ink") });
    let error = request_turn(&model(&server.url()).with_credential(panics)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Panic);
    assert!(error.message().contains("no ink"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn an_api_key_is_sent_in_the_configured_header() {
    let server = LoopbackServer::start(|_| HttpResponse::text(400, "no")).await.unwrap();
    let model = model(&server.url()).with_api_key("key-12345678");
    request_turn(&model.clone().with_key_header(KeyHeader::Named("x-own-key"))).await.unwrap_err();
    let received = server.requests().pop().unwrap();
    assert_eq!(received.header("x-own-key"), Some("key-12345678"));
    assert_eq!(received.header("authorization"), None);
    // A header that the user sets replaces it.
    request_turn(&model.with_header("Authorization", "Basic own")).await.unwrap_err();
    assert_eq!(authorization_header(server.requests().last().unwrap()), "Basic own");
}

#[tokio::test]
async fn a_token_is_not_sent_over_plain_http_to_another_host() {
    let (calls, credential) = counting_credential();
    let error =
        request_turn(&model("http://192.0.2.1/v1").with_credential(credential)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("plain http"), "{error}");
    assert_eq!(calls.load(SeqCst), 0);
}
