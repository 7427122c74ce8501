//! The settings of an HTTP provider that are the same for every wire.

use std::fmt;

use crate::error::{AuthProblem, Error, ErrorKind};
use crate::http::{
    Credential, Endpoint, Header, HttpClient, KeyHeader, Secret, Timeouts, is_secret_name,
    secrets_in_header,
};
use crate::provider::http::wire::Wire;
use crate::provider::wrap::retry::RetryPolicy;

/// The headers that describe the body or negotiate its format, which users cannot set.
const TRANSPORT_HEADERS: [&str; 6] = [
    "content-type",
    "content-length",
    "transfer-encoding",
    "content-encoding",
    "accept",
    "accept-encoding",
];

#[derive(Clone)]
pub(super) struct HttpSettings {
    pub(super) http_client: HttpClient,
    pub(super) credential: Option<Credential>,
    /// The header in which a key is sent, if different from the wire's key header.
    pub(super) key_header: Option<KeyHeader>,
    pub(super) timeouts: Timeouts,
    pub(super) retry_policy: RetryPolicy,
    /// The headers set by the user. These headers are sent in addition to the wire's headers and
    /// replace any wire headers with the same name.
    pub(super) headers: Vec<Header>,
    /// Whether keys may be sent over plain HTTP to other machines.
    pub(super) allows_plain_http: bool,
    /// The base URL, if different from the wire's base URL.
    pub(super) base_url: Option<Endpoint>,
    /// The path below the base URL, if different from the wire's path.
    pub(super) path: Option<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) target: RequestTarget,
}

/// The request URLs, computed from the wire and the settings.
#[derive(Clone)]
pub(super) struct RequestTarget {
    /// The host in the vendor's own base URL, or `None` for a plain HTTP URL, which belongs to the
    /// user's own server.
    vendor_host: Option<String>,
    /// The base URL, or an error if it is invalid.
    base_url: Result<Endpoint, Error>,
    /// The URL for requests to the provider's own model, or an error if it cannot be built.
    pub(super) endpoint: Result<Endpoint, Error>,
}

impl HttpSettings {
    pub(super) fn new<W: Wire>(wire: &W, model: &str) -> Self {
        let nowhere = || Err(Error::new(ErrorKind::InvalidRequest, "no base URL is set"));
        let mut settings = Self {
            http_client: HttpClient::shared(),
            credential: None,
            key_header: None,
            timeouts: Timeouts::default(),
            retry_policy: RetryPolicy::new(is_retryable_by_default),
            headers: Vec::new(),
            allows_plain_http: false,
            base_url: None,
            path: None,
            query: Vec::new(),
            target: RequestTarget { vendor_host: None, base_url: nowhere(), endpoint: nowhere() },
        };
        settings.resolve_target(wire, model);
        settings
    }

    /// Updates the request target after a change to a setting on which it depends.
    pub(super) fn resolve_target<W: Wire>(&mut self, wire: &W, model: &str) {
        let vendor = match wire.base_url() {
            "" => {
                let message = format!("`{}` has no default URL", wire.name());
                let error = Error::new(ErrorKind::InvalidRequest, message);
                Err(error.with_parameter("base_url"))
            }
            url => Endpoint::new(url),
        };
        let host =
            |vendor: &Endpoint| (!vendor.is_plain_http()).then(|| vendor.host_name().to_owned());
        self.target.vendor_host = vendor.as_ref().ok().and_then(host);
        self.target.base_url = self.base_url.clone().map_or(vendor, Ok);
        self.target.endpoint = self.endpoint_for(wire, model);
    }

    /// Returns the URL for requests to the given model.
    pub(super) fn endpoint_for<W: Wire>(&self, wire: &W, model: &str) -> Result<Endpoint, Error> {
        self.endpoint_at(self.path.as_deref().unwrap_or_else(|| wire.path(model)), model)
    }

    /// Returns the URL for requests to a path below the base URL.
    pub(super) fn endpoint_at(&self, path: &str, model: &str) -> Result<Endpoint, Error> {
        let base = self.target.base_url.as_ref().map_err(Error::clone)?;
        base.join(path, model, &self.query)
    }

    /// Returns whether the path of requests was set by the user.
    pub(super) fn has_own_path(&self) -> bool {
        self.path.is_some()
    }

    /// Returns whether requests are sent to the vendor's own server.
    pub(super) fn is_vendor_endpoint(&self) -> bool {
        let host = self.target.base_url.as_ref().ok().map(Endpoint::host_name);
        host.is_some() && self.target.vendor_host.as_deref() == host
    }

    /// Sets a header, replacing any earlier header with the same name.
    pub(super) fn set_header(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name.into(), value.to_owned()));
    }

    /// Returns the secrets in the URL and the headers, which must be masked in errors.
    pub(super) fn secrets(&self, to: &Endpoint) -> Vec<Secret> {
        let mut secrets = to.secrets();
        let headers = self.headers.iter();
        secrets.extend(headers.flat_map(|(name, value)| secrets_in_header(name, value)));
        secrets
    }

    pub(super) fn has_key(&self, to: &Endpoint) -> bool {
        let by_header =
            self.headers.iter().any(|(name, value)| is_secret_name(name) && !value.is_empty());
        let by_field = self.credential.as_ref().is_some_and(|credential| !credential.is_empty());
        by_header || by_field || to.has_credentials()
    }

    /// Checks that a required key is set, and that no key would be sent over plain HTTP to another
    /// machine.
    pub(super) fn validate(&self, to: &Endpoint) -> Result<(), Error> {
        validate_headers(&self.headers)?;
        if self.is_vendor_endpoint() && !self.has_key(to) {
            let message = format!("{} needs a key, and none is set", to.host_and_port());
            return Err(
                Error::new(ErrorKind::Auth, message).with_auth_problem(AuthProblem::MissingKey)
            );
        }
        if self.has_key(to) && to.is_plain_http() && !to.is_loopback() && !self.allows_plain_http {
            let message = format!(
                "a key is not sent to {} over plain http, where others can read it: use https, or \
                 allow it with `allow_plain_http`",
                to.host_and_port()
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("base_url"));
        }
        Ok(())
    }
}

/// Returns an error if `headers` contains a header that only the transport may set.
pub(super) fn validate_headers(headers: &[Header]) -> Result<(), Error> {
    let own =
        |(name, _): &&Header| TRANSPORT_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own));
    match headers.iter().find(own) {
        None => Ok(()),
        Some((name, _)) => {
            let message = format!(
                "the header `{name}` is set by the transport and cannot be \
            replaced"
            );
            Err(Error::new(ErrorKind::InvalidRequest, message).with_parameter("headers"))
        }
    }
}

/// Appends a string to the value of a header, unless the value already contains it.
pub(super) fn append_header(headers: &mut Vec<Header>, name: &str, value: &str) {
    match headers.iter_mut().find(|(known, _)| known == name) {
        Some((_, values)) if values.is_empty() => value.clone_into(values),
        Some((_, values)) => {
            let is_new = values.split(',').all(|known| known.trim() != value);
            if is_new && !value.is_empty() {
                *values = format!("{values},{value}");
            }
        }
        None => headers.push((name.to_owned().into(), value.to_owned())),
    }
}

/// Shows only the names of headers, since the values may be secret.
impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpSettings")
            .field("endpoint", &self.target.endpoint)
            .field("credential", &self.credential)
            .field("timeouts", &self.timeouts)
            .field("retry_policy", &self.retry_policy)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

/// Returns whether a request is retried by default after an error. The rules are the same as in the
/// vendors' SDKs. A request is retried after a failed connection or a response with status 408,
/// 409, 429 or 5xx, unless the body reports that the cause is permanent. The vendor's
/// `x-should-retry` header takes precedence.
///
/// A request is not retried after an incomplete turn or after one of this crate's own timeouts.
/// After a timeout, the provider may still be processing the request.
pub(super) fn is_retryable_by_default(error: &Error) -> bool {
    use ErrorKind::{Connect, Overloaded, RateLimited, Server, Timeout, Unsupported};
    if let Some(is_retryable) = error.retryable_override() {
        return is_retryable;
    }
    let (kind, may_pass) = (error.kind(), error.is_retryable());
    match error.status() {
        Some(status @ (408 | 409 | 429 | 500..)) => {
            may_pass || (status, kind) == (501, Unsupported)
        }
        Some(_) => false,
        None => match kind {
            Connect | RateLimited | Overloaded | Server => may_pass,
            Timeout => may_pass && error.is_server_message(),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::wires::gemini::GenerateContent;

    #[test]
    fn an_invalid_default_model_name_does_not_affect_requests_with_another_model() {
        let settings = HttpSettings::new(&GenerateContent::default(), "a b");
        assert!(settings.target.endpoint.is_err());
        assert!(settings.is_vendor_endpoint());
        let to = settings.endpoint_for(&GenerateContent::default(), "gemini-3-flash").unwrap();
        let error = settings.validate(&to).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
}
