//! The address of a server that is reached over HTTP.

use std::fmt;
use std::net::IpAddr;

use turnstream::http::reqwest::Url;
use turnstream::http::{Secret, is_secret_name, secrets_in_url};
use turnstream::{Error, ErrorKind};

/// The URL of a server. `Debug` output and errors never show the URL's user name or password.
#[derive(Clone)]
pub(crate) struct Address(Url);

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            Error::new(ErrorKind::InvalidRequest, format!("the URL {what}")).with_parameter("url")
        };
        let mut url =
            Url::parse(url.trim()).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("must begin with http:// or https://"));
        }
        url.set_fragment(None);
        Ok(Self(url))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the secrets in the URL, such as its password.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        secrets_in_url(self.as_str())
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
        let in_front = !self.0.username().is_empty() || self.0.password().is_some();
        in_front || self.0.query_pairs().any(|(name, _)| is_secret_name(&name))
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

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_and_port())
    }
}
