//! Credentials that authorize requests with a key, a token, or a signature.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use crate::env::instant_after;
use crate::error::{Error, ErrorKind, panic_to_error_async};
use crate::http::endpoint::{Endpoint, Header, secrets_in_header};
use crate::http::{KeyHeader, RequestBody, Secret};
use crate::lock::lock_ignoring_poison;

/// The time before a token's expiry at which the token is replaced. This margin ensures that the
/// token is still valid when a request reaches the server. If a tenth of the token's lifetime is
/// shorter than this margin, a tenth of the lifetime is used instead.
const EXPIRY_MARGIN: Duration = Duration::from_mins(1);

/// The maximum number of token refreshes to track, including refreshes in runtimes that have ended.
/// When the maximum is reached, the oldest refresh is evicted.
const MAX_TOKEN_REFRESHES: usize = 32;

/// Authorizes requests with a key, a token, or a signature. A credential is cheap to clone; clones
/// share a token.
///
/// | credential | sent |
/// |---|---|
/// | [`key`](Self::key) | in the wire's key header, or another [`KeyHeader`] |
/// | [`token`](Self::token) | as `authorization: Bearer …` |
/// | [`signer`](Self::signer) | in the headers that the signer returns |
///
/// Errors and `Debug` output mask keys, tokens, and the values of headers whose names contain a
/// word such as `authorization`, `token` or `signature`.
///
/// ```
/// use std::time::Duration;
/// use turnstream::http::{Credential, Token};
/// use turnstream::provider::OpenAiResponses;
///
/// # async fn fetch() -> Result<String, turnstream::Error> { Ok(String::new()) }
/// // For example a token of Microsoft Entra, or of Google's `cloud-platform` scope.
/// let credential = Credential::token(|| async {
///     let token = fetch().await?;
///     Ok(Token::new(token).expires_in(Duration::from_secs(3600)))
/// });
/// let model = OpenAiResponses::new("gpt-5.1").with_credential(credential);
/// ```
#[derive(Clone)]
pub struct Credential(CredentialKind);

#[derive(Clone)]
enum CredentialKind {
    Key(Secret),
    Token(Arc<TokenCache>),
    Signer(Arc<SignFn>),
}

type SignFn = dyn Fn(UnsignedRequest) -> BoxFuture<'static, Result<Vec<(String, String)>, Error>>
    + Send
    + Sync;

/// An access token and its lifetime, as a function passed to [`Credential::token`] returns it.
#[derive(Clone, Debug)]
pub struct Token {
    secret: Secret,
    lifetime: Option<Duration>,
}

impl Token {
    /// Creates a token without a known lifetime. The token is used until a server rejects it with
    /// status 401.
    pub fn new(token: impl AsRef<str>) -> Self {
        Self { secret: Secret::new(token), lifetime: None }
    }

    /// Sets the token's lifetime (`expires_in` in OAuth), measured from when `fetch` returns the
    /// token. The first request within the last minute of the lifetime, or within the last tenth if
    /// that is shorter, fetches a new token. A token with a lifetime of zero is used only by the
    /// requests that were waiting for it.
    pub fn expires_in(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }
}

/// A request that has not been signed yet. `Debug` output shows neither the request's body nor its
/// header values.
#[derive(Clone)]
#[non_exhaustive]
pub struct UnsignedRequest {
    /// The HTTP method, which is `POST` for all requests to providers.
    pub method: &'static str,
    /// The full URL, including the query. If the URL contains a user name, the transport sends it
    /// and the password as `authorization: Basic …`, unless the signer sets this header.
    pub url: String,
    /// The headers, with unique lower-case names. The transport also sends `host`, `content-length`
    /// and `user-agent`.
    pub headers: Vec<(String, String)>,
    /// The request body, exactly as it is sent.
    pub body: Bytes,
}

impl UnsignedRequest {
    /// Creates a `POST` request without headers and with an empty body, for
    /// [`Credential::authorize`].
    pub fn new(url: impl Into<String>) -> Self {
        Self { method: "POST", url: url.into(), headers: Vec::new(), body: Bytes::new() }
    }
}

impl fmt::Debug for UnsignedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("UnsignedRequest")
            .field("method", &self.method)
            .field("headers", &headers)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl Credential {
    /// Creates a credential from a fixed key. An empty key is treated as if no key had been set.
    pub fn key(key: impl AsRef<str>) -> Self {
        Self(CredentialKind::Key(Secret::new(key)))
    }

    /// Creates a credential whose token is fetched by calling `fetch`.
    ///
    /// The token is fetched for the first request and cached until it expires. If a server rejects
    /// a cached token with status 401, the token is discarded, and the request is immediately
    /// resent once with a new token. If the server rejects a token that was just fetched for the
    /// request, the turn fails.
    ///
    /// All requests in a tokio runtime that need a token at the same time share a single call to
    /// `fetch`. The waiting requests poll the future that `fetch` returned. If the request that
    /// started the call is dropped, the other requests continue. If all waiting requests are
    /// dropped, the future is dropped as well. The time that a request waits for a token counts
    /// towards its [`Timeouts`](crate::http::Timeouts).
    ///
    /// If `fetch` returns an error, the turns of all requests that were waiting for the token fail.
    /// A turn is retried after errors of the kinds [`ErrorKind::Connect`], `RateLimited`,
    /// `Overloaded` and `Server`, but not after `Timeout` errors. After an error, the next request
    /// calls `fetch` again. An empty token causes an [`ErrorKind::Auth`] error. If `fetch` panics,
    /// the turn fails with [`ErrorKind::Panic`].
    pub fn token<F, R>(fetch: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<Token, Error>> + Send + 'static,
    {
        let fetch = Box::new(move || fetch().boxed());
        Self(CredentialKind::Token(Arc::new(TokenCache {
            fetch_token: fetch,
            state: Mutex::default(),
        })))
    }

    /// Creates a credential that signs each request, for example with AWS Signature Version 4. The
    /// function `sign` receives the request with its encoded body and returns headers, which
    /// replace any headers of the request that have the same names.
    ///
    /// The function `sign` is called for each attempt at the request, and the returned future is
    /// dropped if the attempt is dropped. The time spent on signing counts as part of the attempt.
    /// An error from `sign` is handled as if the provider had returned it, so the request may be
    /// retried. If `sign` panics, the turn fails with [`ErrorKind::Panic`].
    ///
    /// ```
    /// use turnstream::http::Credential;
    ///
    /// let credential = Credential::signer(|request| async move {
    ///     // A crate such as `aws-sigv4` computes the signature.
    ///     let signature = format!("… of {} and {} bytes", request.url, request.body.len());
    ///     Ok(vec![("authorization".to_owned(), signature)])
    /// });
    /// ```
    pub fn signer<F, R>(sign: F) -> Self
    where
        F: Fn(UnsignedRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<(String, String)>, Error>> + Send + 'static,
    {
        Self(CredentialKind::Signer(Arc::new(move |request| sign(request).boxed())))
    }

    /// Returns whether the credential is an empty key.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.0, CredentialKind::Key(key) if key.is_empty())
    }

    /// Returns whether the credential signs requests, for which it reads their bodies.
    #[cfg(feature = "http")]
    pub(crate) fn is_signer(&self) -> bool {
        matches!(self.0, CredentialKind::Signer(_))
    }

    /// Authorizes a single request that you send yourself, for example with a
    /// [`reqwest_client`](crate::http::HttpClient::reqwest_client). Only a
    /// [signer](Self::signer) reads `request`. Keys are sent in `key_header`.
    ///
    /// Dropping the returned future does not cancel a token refresh that other requests are waiting
    /// for.
    ///
    /// ```
    /// use turnstream::http::{Credential, KeyHeader, UnsignedRequest};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let credential = Credential::key("key-12345678");
    /// let request = UnsignedRequest::new("https://tickets.example/rpc");
    /// let authorization = credential.authorize(KeyHeader::Bearer, request).await?;
    /// let (name, value) = &authorization.headers[0];
    /// assert_eq!((&**name, &**value), ("authorization", "Bearer key-12345678"));
    /// assert_eq!(authorization.secrets[0].mask_in("wrong: key-12345678"), "wrong: …");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of the function that fetches tokens or signs, or a
    /// [`Panic`](ErrorKind::Panic) error if it panics.
    pub async fn authorize(
        &self,
        key_header: KeyHeader,
        request: UnsignedRequest,
    ) -> Result<Authorization, Error> {
        self.authorize_with(key_header, || request).await
    }

    /// Authorizes a request to `to` with the given headers and body.
    pub(crate) async fn authorize_post(
        &self,
        key_header: KeyHeader,
        to: &Endpoint,
        headers: impl Iterator<Item = &Header> + Send,
        body: &RequestBody,
    ) -> Result<Authorization, Error> {
        let request = || {
            let mut own: Vec<(String, String)> = Vec::with_capacity(headers.size_hint().0);
            for (name, value) in headers {
                let name = name.to_ascii_lowercase();
                // If two headers have the same name, only the later header is sent.
                own.retain(|(known, _)| *known != name);
                own.push((name, value.clone()));
            }
            let url = to.url().as_str().to_owned();
            UnsignedRequest { method: "POST", url, headers: own, body: body.to_bytes() }
        };
        self.authorize_with(key_header, request).await
    }

    /// Authorizes a request, which is built only for a signer.
    async fn authorize_with(
        &self,
        key_header: KeyHeader,
        request: impl FnOnce() -> UnsignedRequest + Send,
    ) -> Result<Authorization, Error> {
        let mut authorization = Authorization::default();
        match &self.0 {
            CredentialKind::Key(key) if key.is_empty() => {}
            CredentialKind::Key(key) => {
                authorization.headers.push(credential_header(key_header, key));
                authorization.secrets.push(key.clone());
            }
            CredentialKind::Token(tokens) => {
                let (held, origin) = tokens.get_or_fetch().await?;
                authorization.headers.push(credential_header(KeyHeader::Bearer, &held.secret));
                authorization.secrets.push(held.secret.clone());
                authorization.cached_token =
                    (origin == TokenOrigin::Cache).then(|| (Arc::clone(tokens), held));
            }
            CredentialKind::Signer(sign) => {
                let request = request();
                authorization.is_signature = true;
                let signed =
                    panic_to_error_async("the signer", async { sign(request).await }).await?;
                let headers = signed.into_iter().map(|(name, value)| (name.into(), value));
                authorization.headers.extend(headers);
                let headers = authorization.headers.iter();
                let secrets = headers.flat_map(|(name, value)| secrets_in_header(name, value));
                authorization.secrets.extend(secrets);
            }
        }
        Ok(authorization)
    }
}

/// The authorization of a single request, returned by [`Credential::authorize`]. `Debug` output
/// shows neither the headers' values nor the secrets.
#[derive(Default)]
#[non_exhaustive]
pub struct Authorization {
    /// The headers to send, by name. They replace headers of the request that have the same names.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The secrets in the headers, which should be [masked](Secret::mask_in) in errors.
    pub secrets: Vec<Secret>,
    /// Whether the authorization signs the request's other headers. If true, the other headers must
    /// not be replaced.
    pub(crate) is_signature: bool,
    /// The token and the cache from which it came; `None` if it did not come from a cache.
    cached_token: Option<(Arc<TokenCache>, Arc<CachedToken>)>,
}

impl Authorization {
    /// Discards the cached token after a server has rejected it with status 401. Returns whether
    /// the server may accept a new token, so that the request should be authorized and sent once
    /// more.
    pub fn discard_cached_token(&self) -> bool {
        if let Some((tokens, held)) = &self.cached_token {
            tokens.discard(held);
        }
        self.cached_token.is_some()
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Authorization").field("headers", &headers).finish_non_exhaustive()
    }
}

/// Caches the token and fetches a new one when needed.
struct TokenCache {
    fetch_token: Box<dyn Fn() -> BoxFuture<'static, Result<Token, Error>> + Send + Sync>,
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    cached_token: Option<Arc<CachedToken>>,
    /// The token refreshes in progress, one per runtime. The requests that are waiting for a
    /// refresh own it, and the refresh ends when all of these requests have been dropped.
    refreshes: Vec<(Option<runtime::Id>, WeakShared<Refresh>)>,
}

type Refresh = BoxFuture<'static, Result<Arc<CachedToken>, Error>>;

struct CachedToken {
    secret: Secret,
    /// The time at which the token must be replaced; `None` if the token has no known lifetime.
    stale_at: Option<Instant>,
}

/// Indicates whether a token came from the cache or was just fetched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenOrigin {
    /// The token came from the cache; an earlier request may have used it.
    Cache,
    /// The token was fetched for this request.
    Fetched,
}

impl CachedToken {
    fn new(token: Token) -> Self {
        let lasts = |lifetime: Duration| lifetime.saturating_sub(EXPIRY_MARGIN.min(lifetime / 10));
        let stale =
            token.lifetime.and_then(|lifetime| instant_after(Instant::now(), lasts(lifetime)));
        Self { secret: token.secret, stale_at: stale }
    }

    fn is_fresh(&self) -> bool {
        self.stale_at.is_none_or(|stale| Instant::now() < stale)
    }
}

impl TokenCache {
    async fn get_or_fetch(self: &Arc<Self>) -> Result<(Arc<CachedToken>, TokenOrigin), Error> {
        let refresh = {
            let mut state = lock_ignoring_poison(&self.state);
            if let Some(held) = state.cached_token.as_ref().filter(|held| held.is_fresh()) {
                return Ok((Arc::clone(held), TokenOrigin::Cache));
            }
            let here = Handle::try_current().ok().map(|runtime| runtime.id());
            let running = state.refreshes.iter().find(|(runtime, _)| *runtime == here);
            let running = running.and_then(|(_, refresh)| refresh.upgrade());
            running.unwrap_or_else(|| self.begin_refresh(here, &mut state))
        };
        refresh.await.map(|held| (held, TokenOrigin::Fetched))
    }

    /// Starts a token refresh for the requests in one runtime. Each runtime has its own refresh,
    /// because the runtime drives the I/O of the refresh, and may end or stop running while another
    /// runtime continues.
    fn begin_refresh(
        self: &Arc<Self>,
        here: Option<runtime::Id>,
        state: &mut TokenState,
    ) -> Shared<Refresh> {
        let tokens = Arc::clone(self);
        let refresh = async move {
            let fetched =
                panic_to_error_async("the token source", async { (tokens.fetch_token)().await })
                    .await;
            let mut state = lock_ignoring_poison(&tokens.state);
            state.refreshes.retain(|(runtime, _)| *runtime != here);
            let token = fetched?;
            if token.secret.is_empty() {
                return Err(Error::new(
                    ErrorKind::Auth,
                    "the token source returned an empty token",
                ));
            }
            let held = Arc::new(CachedToken::new(token));
            state.cached_token = Some(Arc::clone(&held));
            Ok(held)
        };
        let refresh = refresh.boxed().shared();
        state.refreshes.retain(|(runtime, _)| *runtime != here);
        if state.refreshes.len() == MAX_TOKEN_REFRESHES {
            state.refreshes.remove(0);
        }
        state.refreshes.extend(refresh.downgrade().map(|refresh| (here, refresh)));
        refresh
    }

    /// Discards the token, unless it has already been replaced.
    fn discard(&self, held: &Arc<CachedToken>) {
        let mut state = lock_ignoring_poison(&self.state);
        state.cached_token.take_if(|current| Arc::ptr_eq(current, held));
    }
}

fn credential_header(header: KeyHeader, key: &Secret) -> Header {
    match header {
        KeyHeader::Bearer => (Cow::Borrowed("authorization"), format!("Bearer {}", key.expose())),
        KeyHeader::Named(name) => (Cow::Borrowed(name), key.expose().to_owned()),
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            CredentialKind::Key(_) => "Key(…)",
            CredentialKind::Token(_) => "Token(…)",
            CredentialKind::Signer(_) => "Signer(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures::future::join_all;

    use super::*;

    /// Returns the number of fetches so far and a cache of the tokens `t0`, `t1`, …, each of which
    /// takes a second to fetch and is valid for `lifetime`.
    fn source(lifetime: Duration) -> (Arc<AtomicUsize>, Arc<TokenCache>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let credential = Credential::token(move || {
            let n = counted.fetch_add(1, SeqCst);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok(Token::new(format!("t{n}")).expires_in(lifetime))
            }
        });
        let CredentialKind::Token(tokens) = credential.0 else { unreachable!("it is a token") };
        (calls, tokens)
    }

    async fn secret(tokens: &Arc<TokenCache>) -> String {
        tokens.get_or_fetch().await.unwrap().0.secret.expose().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_a_token_fetch_and_it_is_renewed_before_expiry() {
        let (calls, tokens) = source(Duration::from_hours(1));
        let all = join_all((0..50).map(|_| secret(&tokens))).await;
        assert!(all.iter().all(|token| token == "t0"));
        tokio::time::advance(Duration::from_mins(59) - Duration::from_millis(10)).await;
        assert_eq!(secret(&tokens).await, "t0");
        tokio::time::advance(Duration::from_millis(20)).await;
        let all = join_all((0..50).map(|_| secret(&tokens))).await;
        assert!(all.iter().all(|token| token == "t1"));
        assert_eq!(calls.load(SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_with_a_short_lifetime_is_renewed_a_tenth_of_it_before_expiry() {
        let (_, tokens) = source(Duration::from_secs(100));
        assert_eq!(secret(&tokens).await, "t0");
        tokio::time::advance(Duration::from_millis(89_990)).await;
        assert_eq!(secret(&tokens).await, "t0");
        tokio::time::advance(Duration::from_millis(20)).await;
        assert_eq!(secret(&tokens).await, "t1");
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_refresh_continues_when_its_initiating_request_is_dropped() {
        let (calls, tokens) = source(Duration::from_hours(1));
        let mut first = Box::pin(secret(&tokens));
        let mut others = Box::pin(join_all((0..49).map(|_| secret(&tokens))));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(others.as_mut().now_or_never().is_none());
        drop(first);
        assert!(others.await.iter().all(|token| token == "t0"));
        assert_eq!(calls.load(SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_refresh_without_waiting_requests_is_dropped() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&drops);
        let credential = Credential::token(move || {
            let guard = Dropped(Arc::clone(&counted));
            async move {
                let _guard = guard;
                std::future::pending().await
            }
        });
        let CredentialKind::Token(tokens) = credential.0 else { unreachable!("it is a token") };
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(secret(&tokens))).collect();
        for request in &mut waiting {
            assert!(request.as_mut().now_or_never().is_none());
        }
        drop(waiting.pop());
        drop(waiting.pop());
        assert_eq!(drops.load(SeqCst), 0);
        drop(waiting.pop());
        assert_eq!(drops.load(SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_rejected_token_is_discarded() {
        let (calls, tokens) = source(Duration::from_hours(1));
        let (first, origin) = tokens.get_or_fetch().await.unwrap();
        assert!(origin == TokenOrigin::Fetched);
        assert!(tokens.get_or_fetch().await.unwrap().1 == TokenOrigin::Cache);
        tokens.discard(&first);
        assert_eq!(secret(&tokens).await, "t1");
        tokens.discard(&first);
        assert_eq!(secret(&tokens).await, "t1");
        assert_eq!(calls.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn a_failing_token_source_fails_the_request_and_the_next_one_retries() {
        let calls = AtomicUsize::new(0);
        let credential = Credential::token(move || {
            let n = calls.fetch_add(1, SeqCst);
            assert!(n != 1, "no token today");
            async move {
                match n {
                    0 => Err(Error::new(ErrorKind::Connect, "unreachable")),
                    _ => Ok(Token::new("t")),
                }
            }
        });
        let CredentialKind::Token(tokens) = credential.0 else { unreachable!("it is a token") };
        let error = tokens.get_or_fetch().await.err().unwrap();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Connect, "unreachable"));
        let error = tokens.get_or_fetch().await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Panic);
        assert!(error.message().contains("no token today"), "{error}");
        assert_eq!(secret(&tokens).await, "t");
    }

    #[test]
    fn a_token_fetch_does_not_depend_on_another_requests_ended_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
        let credential = Credential::token(|| async {
            // Like a connection, it only makes progress in the runtime that started it.
            let begun = Handle::current().id();
            tokio::task::yield_now().await;
            match Handle::current().id() == begun {
                true => Ok(Token::new("t")),
                false => std::future::pending().await,
            }
        });
        let CredentialKind::Token(tokens) = credential.0 else { unreachable!("it is a token") };
        let (first, second) = (runtime(), runtime());
        let mut waiting = Box::pin(secret(&tokens));
        // The token's fetch was started in a runtime that has stopped running.
        assert!(first.block_on(async { (&mut waiting).now_or_never() }).is_none());
        let other = second.block_on(async {
            let mut other = Box::pin(secret(&tokens));
            for _ in 0..10 {
                if let Some(token) = (&mut other).now_or_never() {
                    return Some(token);
                }
                tokio::task::yield_now().await;
            }
            None
        });
        assert_eq!(other.as_deref(), Some("t"));
        assert_eq!(first.block_on(waiting), "t");
        assert!(lock_ignoring_poison(&tokens.state).cached_token.is_some());
    }

    #[tokio::test]
    async fn an_empty_token_is_an_error() {
        let credential = Credential::token(|| async { Ok(Token::new(" ")) });
        let CredentialKind::Token(tokens) = credential.0 else { unreachable!("it is a token") };
        let error = tokens.get_or_fetch().await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Auth);
        assert!(error.message().contains("empty token"), "{error}");
    }
}
