//! The URLs to which requests are sent.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use reqwest::Url;

use crate::error::{Error, ErrorKind};
use crate::http::Secret;

/// A header's name and value.
pub(crate) type Header = (Cow<'static, str>, String);

/// A URL to which requests are sent. `Debug` output and errors never show the URL's user name or
/// password.
#[derive(Clone)]
pub(crate) struct Endpoint(Url);

/// The placeholder for the model's name in a path.
const MODEL_PLACEHOLDER: &str = "{model}";

impl Endpoint {
    /// Parses a base URL; trailing slashes are ignored.
    pub(crate) fn new(base: &str) -> Result<Self, Error> {
        let Self(mut url) = Self::exact(base)?;
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }

    /// Parses a full request URL. Unlike `new`, this function keeps trailing slashes.
    pub(crate) fn exact(base: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            let message = format!("the base URL {what}");
            Error::new(ErrorKind::InvalidRequest, message).with_parameter("base_url")
        };
        let mut url =
            Url::parse(base.trim()).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("must begin with http:// or https://"));
        }
        url.set_fragment(None);
        Ok(Self(url))
    }

    /// Appends `path` and `query` to this URL and returns the resulting URL. In `path`, `{model}`
    /// is replaced with the model's name. Parameters after a `?` in `path` are added to the URL's
    /// query unless the query already contains them; parameters in `query` take precedence. The
    /// path and the parameters may already be percent-encoded; the model's name is fully encoded,
    /// except for `/`.
    pub(crate) fn join(
        &self,
        path: &str,
        model: &str,
        query: &[(String, String)],
    ) -> Result<Self, Error> {
        let mut url = self.0.clone();
        let (path, fixed) = path.split_once('?').unwrap_or((path, ""));
        let model = model.trim_matches('/');
        if path.contains(MODEL_PLACEHOLDER) {
            let odd = |c: char| c.is_whitespace() || c.is_control();
            let leads_elsewhere = |part: &str| matches!(part, "" | "." | "..");
            if model.split('/').any(leads_elsewhere) || model.contains(odd) {
                let message = "the model name cannot be part of a URL";
                return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("model"));
            }
        }
        // Percent-encoding in the path is decoded below, but the model's name must not be decoded.
        let path =
            path.trim_start_matches('/').replace(MODEL_PLACEHOLDER, &model.replace('%', "%25"));
        // Invariant: only a URL that cannot be a base has no segments, and `new` rejects such URLs.
        if let Ok(mut segments) = url.path_segments_mut()
            && !path.is_empty()
        {
            segments.pop_if_empty().extend(path.split('/').map(percent_decode));
        }
        let mut with_fixed = url.clone();
        with_fixed.set_query(Some(fixed));
        let fixed = with_fixed
            .query_pairs()
            .map(|(name, value)| (name, value.replace(MODEL_PLACEHOLDER, model)));
        let query = query.iter().map(|(name, value)| (Cow::from(name), value.clone()));
        for (name, value) in query.chain(fixed) {
            if url.query_pairs().all(|(known, _)| known != name) {
                url.query_pairs_mut().append_pair(&name, &value);
            }
        }
        Ok(Self(url))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// Returns the secrets in the URL: the password, the query values, and the user name and
    /// password in the encoded form in which they are sent. Short words, such as the API version in
    /// Azure's `api-version=preview`, are not treated as secrets, because they may also occur in
    /// errors.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        let is_long = |value: &str| value.len() >= 8;
        let query = self.0.query_pairs().filter(|(name, _)| name != "api-version");
        let query = query.filter(|(name, value)| is_secret_name(name) || is_long(value));
        let mut secrets: Vec<_> = query.map(|(_, value)| Secret::new(value)).collect();
        if self.0.username().is_empty() && self.0.password().is_none() {
            return secrets;
        }
        let (user, password) = (percent_decode(self.0.username()), self.0.password());
        let password = password.map(percent_decode).unwrap_or_default();
        // A user name without a password is treated as a key.
        let key = if password.is_empty() { &user } else { &password };
        secrets.extend([Secret::new(key), Secret::new(basic_credentials(&user, &password))]);
        secrets
    }

    /// Returns whether the server is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host_name().trim_matches(['[', ']']);
        match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) => address.is_loopback() || address.is_unspecified(),
            Err(_) => host == "localhost",
        }
    }

    /// Returns whether requests to the URL are sent without encryption.
    pub(crate) fn is_plain_http(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Returns whether the URL contains a user name, a password or a key.
    pub(crate) fn has_credentials(&self) -> bool {
        let in_query = |(name, _): (Cow<'_, str>, Cow<'_, str>)| is_secret_name(&name);
        let in_front = !self.0.username().is_empty() || self.0.password().is_some();
        in_front || self.0.query_pairs().any(in_query)
    }

    /// Returns the host without its port, and without the trailing dot of a fully qualified name.
    pub(crate) fn host_name(&self) -> &str {
        self.0.host_str().unwrap_or_default().trim_end_matches('.')
    }

    /// Returns the URL's host and port, which contain no credentials.
    pub(crate) fn host_and_port(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

/// Returns whether a header, query parameter or command line option with this name is assumed to
/// contain a secret, based on the words in the name.
///
/// ```
/// use turnstream::http::is_secret_name;
///
/// assert!(is_secret_name("x-api-key") && is_secret_name("Authorization"));
/// assert!(!is_secret_name("content-type") && !is_secret_name("idempotency-key"));
/// ```
pub fn is_secret_name(name: &str) -> bool {
    const SECRET_WORDS: [&str; 15] = [
        "auth",
        "authorization",
        "key",
        "apikey",
        "token",
        "secret",
        "cookie",
        "password",
        "credential",
        "credentials",
        "signature",
        "sig",
        "jwt",
        "bearer",
        "assertion",
    ];
    // An idempotency key only identifies a repeated request and is not a secret.
    let is_idempotency = name.eq_ignore_ascii_case("idempotency-key");
    let is_word = |part: &str| SECRET_WORDS.iter().any(|word| part.eq_ignore_ascii_case(word));
    !is_idempotency && name.split(['-', '_', '.']).any(is_word)
}

/// Returns the secrets in a URL, which should be [masked](Secret::mask_in) in errors: the password,
/// long query values, and the user name and password in the encoded form in which they are sent.
/// Returns an empty list if `url` is not an `http` or `https` URL.
///
/// ```
/// use turnstream::http::secrets_in_url;
///
/// let secrets = secrets_in_url("https://host/?api-version=preview&key=hunter22");
/// assert_eq!(secrets.len(), 1);
/// assert_eq!(secrets[0].expose(), "hunter22");
/// ```
pub fn secrets_in_url(url: &str) -> Vec<Secret> {
    Endpoint::exact(url).map(|endpoint| endpoint.secrets()).unwrap_or_default()
}

/// Returns the secrets in a header's value, which should be [masked](Secret::mask_in) in errors.
/// Returns an empty list if the header's name [does not indicate a secret](is_secret_name).
///
/// ```
/// use turnstream::http::secrets_in_header;
///
/// let secrets = secrets_in_header("authorization", "Bearer key-12345678");
/// assert!(secrets.iter().any(|secret| secret.expose() == "key-12345678"));
/// assert!(secrets_in_header("accept", "text/event-stream").is_empty());
/// ```
pub fn secrets_in_header(name: &str, value: &str) -> Vec<Secret> {
    if !is_secret_name(name) {
        return Vec::new();
    }
    // In values such as `Bearer abc` and `session=abc; user=def`, each part is also a secret,
    // unless it is a short word.
    let parts = value
        .split([' ', ';', ','])
        .flat_map(|part| part.split_once('=').map_or([part, part], |(_, value)| [part, value]));
    let parts = parts.filter(|part| part.len() >= 8);
    std::iter::once(value).chain(parts).map(Secret::new).collect()
}

/// Encodes a user name and password for basic authentication: `user:password` in base64 (RFC 7617),
/// without the trailing `=`.
fn basic_credentials(user: &str, password: &str) -> String {
    STANDARD_NO_PAD.encode(format!("{user}:{password}"))
}

/// Decodes percent-encoded bytes; invalid sequences are kept unchanged.
fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_and_port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::mask_secrets;

    fn joined(base: &str, path: &str, model: &str) -> Result<String, Error> {
        Ok(Endpoint::new(base)?.join(path, model, &[])?.url().as_str().to_owned())
    }

    #[test]
    fn a_slash_at_the_end_of_a_base_url_is_ignored() {
        for base in ["http://h:1/v1", "http://h:1/v1/", " http://h:1/v1// "] {
            let url = joined(base, "/chat/completions", "m").unwrap();
            assert_eq!(url, "http://h:1/v1/chat/completions");
        }
        assert_eq!(joined("http://h:1", "/v1/messages", "m").unwrap(), "http://h:1/v1/messages");
    }

    #[test]
    fn a_user_name_in_a_base_url_is_never_shown() {
        let endpoint = Endpoint::new("https://me:secret@host/v1").unwrap();
        assert_eq!(format!("{endpoint:?}"), "host");
    }

    #[test]
    fn query_values_are_masked_except_the_api_version() {
        let endpoint = Endpoint::new("https://host?api-version=preview&key=hunter22").unwrap();
        let shown = mask_secrets(&endpoint.secrets(), "hunter22 is no preview");
        assert_eq!(shown, "… is no preview");
    }

    #[test]
    fn a_url_without_an_http_scheme_is_rejected() {
        for base in ["", "localhost:8080", "ftp://h", "http://"] {
            let error = Endpoint::new(base).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{base}");
        }
    }

    #[test]
    fn a_model_name_is_part_of_the_url_or_rejected() {
        let path = "/v1/{model}:say?alt=sse";
        let check = |model: &str, url: &str| {
            assert_eq!(joined("http://h?a=1", path, model).unwrap(), url, "{model}");
        };
        check("m", "http://h/v1/m:say?a=1&alt=sse");
        check("models/m", "http://h/v1/models/m:say?a=1&alt=sse");
        check("a?b#c%d", "http://h/v1/a%3Fb%23c%25d:say?a=1&alt=sse");
        for odd in ["", " ", "a b", "a\nb", ".", "..", "models/../m", "a//b", "/"] {
            let error = joined("http://h", path, odd).unwrap_err();
            assert_eq!(error.parameter(), Some("model"), "{odd:?}");
        }
        assert_eq!(joined("http://h", "/v1", "a b").unwrap(), "http://h/v1");
    }

    #[test]
    fn only_the_model_name_is_percent_encoded_in_a_path() {
        let check = |path: &str, model: &str, url: &str| {
            assert_eq!(joined("http://h/b", path, model).unwrap(), url, "{path}");
        };
        check("/my%20place/say", "m", "http://h/b/my%20place/say");
        check("/my place/say", "m", "http://h/b/my%20place/say");
        check("/{model}/{model}:say", "a/b@1", "http://h/b/a/b@1/a/b@1:say");
        check("/{model}", "a%2Fb\\c?d", "http://h/b/a%252Fb%5Cc%3Fd");
        check("/say?v=1%202&w=a+b", "m", "http://h/b/say?v=1+2&w=a+b");
        check("/say?model={model}", "a b&c/d", "http://h/b/say?model=a+b%26c%2Fd");
        check("/say?beta", "m", "http://h/b/say?beta=");
        check("/%2e%2e/say", "m", "http://h/b/say");
        check("?v=1", "m", "http://h/b?v=1");
    }

    #[test]
    fn a_query_parameter_of_the_base_url_is_not_duplicated() {
        let base = Endpoint::new("http://h/?alt=json&x=a+b").unwrap();
        let query = [("x".to_owned(), "2".to_owned()), ("y".to_owned(), "ü&".to_owned())];
        let url = base.join("/p?alt=sse", "m", &query).unwrap();
        assert_eq!(url.url().as_str(), "http://h/p?alt=json&x=a+b&y=%C3%BC%26");
    }

    #[test]
    fn credentials_in_a_url_are_decoded_and_sent_as_basic_auth() {
        // The example of RFC 7617.
        assert_eq!(basic_credentials("Aladdin", "open sesame"), "QWxhZGRpbjpvcGVuIHNlc2FtZQ");
        assert_eq!(basic_credentials("", ""), "Og");
        assert_eq!(percent_decode("a%2Fb%20c%é%4"), "a/b c%é%4");
    }
}
