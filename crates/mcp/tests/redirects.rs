//! Servers over HTTP that redirect to another address.

use std::sync::{Arc, Mutex};

use serde_json::json;
use turnstream::ErrorKind;
use turnstream_mcp::Client;

use crate::raw_server::{
    answer, discovered, http_answers, http_empty, http_json, http_message, listed,
};

type Requests = Arc<Mutex<Vec<String>>>;

/// The address of a server without tools, which records the requests that it receives. Requests to
/// `/mcp` are redirected, if `redirect` returns a status and a location.
async fn server(
    redirect: impl Fn() -> Option<(u16, String)> + Send + Sync + 'static,
) -> (String, Requests) {
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    let url = http_answers(move |request| {
        log.lock().unwrap().push(request.to_owned());
        if let Some((status, location)) = redirect()
            && request.starts_with("POST /mcp ")
        {
            let status = format!("{status} Redirect");
            return http_empty(&status, &format!("location: {location}\r\n"));
        }
        let message = http_message(request);
        let result = match message["method"].as_str() {
            Some("server/discover") => {
                let mut result = discovered();
                result["capabilities"] = json!({ "tools": {} });
                result
            }
            _ => listed(&json!([])),
        };
        http_json("200 OK", "", &answer(&message, &result))
    })
    .await;
    (url, requests)
}

fn client_at(url: &str) -> Client {
    Client::http(url).unwrap().with_name("s").with_header("x-api-key", "sk-very-secret").build()
}

#[tokio::test]
async fn a_redirect_that_keeps_the_body_is_followed_within_the_origin() {
    for status in [307, 308] {
        let (url, requests) = server(move || Some((status, "/v2/mcp".to_owned()))).await;
        client_at(&url).toolkit().await.unwrap();
        let requests = requests.lock().unwrap();
        let followed: Vec<_> =
            requests.iter().filter(|request| request.starts_with("POST /v2/mcp ")).collect();
        assert_eq!(followed.len(), 2, "{requests:?}");
        assert!(followed.iter().all(|request| request.contains("sk-very-secret")));
        assert_eq!(http_message(followed[1])["method"], "tools/list");
    }
}

#[tokio::test]
async fn any_other_redirect_is_an_error_with_its_location() {
    for status in [301, 302, 303] {
        let (url, requests) = server(move || Some((status, "/v2/mcp".to_owned()))).await;
        let error = client_at(&url).toolkit().await.unwrap_err();
        let location = format!("redirects to {}", url.replace("/mcp", "/v2/mcp"));
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert_eq!(error.status(), Some(status));
        assert!(error.message().contains(&location), "{error}");
        assert_eq!(requests.lock().unwrap().len(), 1, "no other version of the protocol is tried");
    }
}

#[tokio::test]
async fn a_redirect_to_another_origin_is_an_error_and_sends_no_key_there() {
    for status in [302, 307, 308] {
        let (other, received) = server(|| None).await;
        let location = format!("{other}/login?next=page&token=one-time-secret");
        let (url, _) = server(move || Some((status, location.clone()))).await;
        let error = client_at(&url).toolkit().await.unwrap_err();
        assert!(error.message().contains(&format!("redirects to {other}/login?next=page")));
        assert!(!error.message().contains("one-time-secret"), "{error}");
        assert!(received.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_server_that_redirects_forever_is_an_error() {
    let (url, requests) = server(|| Some((307, "/mcp".to_owned()))).await;
    let error = client_at(&url).toolkit().await.unwrap_err();
    assert!(error.message().contains(&format!("redirects to {url}")), "{error}");
    assert_eq!(requests.lock().unwrap().len(), 11);
}
