//! The checks that every request passes: its host name, the page that has sent it, and the user.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::header;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use turnstream::{Error, ErrorKind};

use crate::authorize::{Authorize, Principal, header_text};

/// The host names under which clients reach a server, and the pages that may use it.
///
/// Any page can make a browser send requests to any address, also to one on the user's machine. A
/// request from a page of another origin is refused, unless the origin is allowed. An attacker can
/// point a DNS name to the server, so that its pages seem to have the server's origin. To prevent
/// this, a server without [`Authorize`] accepts only known host names.
///
/// ```
/// use turnstream_server::AllowedSites;
///
/// # fn main() -> Result<(), turnstream::Error> {
/// let sites = AllowedSites::of_hosts(["chat.example"]).with_origin("https://app.example")?;
/// # drop(sites);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AllowedSites {
    hosts: Hosts,
    origins: Origins,
}

#[derive(Clone, Debug)]
enum Hosts {
    /// The names of this machine.
    Loopback,
    /// All IP addresses, `localhost` and these names.
    Listed(Vec<String>),
    Any,
}

#[derive(Clone, Debug)]
enum Origins {
    /// The server's own origin and these ones.
    Listed(Vec<String>),
    Any,
}

/// The names of this machine.
impl Default for AllowedSites {
    fn default() -> Self {
        Self::loopback()
    }
}

impl AllowedSites {
    /// Accepts only the names of this machine: `localhost` and the loopback addresses.
    pub fn loopback() -> Self {
        Self { hosts: Hosts::Loopback, origins: Origins::Listed(Vec::new()) }
    }

    /// Accepts these host names, without ports, and also `localhost` and all IP addresses, which no
    /// DNS server can redirect.
    pub fn of_hosts<T: Into<String>>(hosts: impl IntoIterator<Item = T>) -> Self {
        let hosts = hosts.into_iter().map(|host| host.into().to_lowercase()).collect();
        Self { hosts: Hosts::Listed(hosts), origins: Origins::Listed(Vec::new()) }
    }

    /// Accepts any host name. Use it if each request contains a secret that a page of another site
    /// does not have.
    pub fn any_host() -> Self {
        Self { hosts: Hosts::Any, origins: Origins::Listed(Vec::new()) }
    }

    /// Accepts any host name and pages of all origins.
    pub(crate) fn any() -> Self {
        Self { hosts: Hosts::Any, origins: Origins::Any }
    }

    /// Lets the pages of another origin use the server: a scheme, a host and perhaps a port, such
    /// as `http://localhost:3000`. Browsers receive the headers that allow it.
    ///
    /// # Errors
    ///
    /// Returns an [`InvalidRequest`](ErrorKind::InvalidRequest) error if this is not an origin.
    pub fn with_origin(mut self, origin: impl AsRef<str>) -> Result<Self, Error> {
        let given = origin.as_ref();
        let Some(origin) = parse_origin(given) else {
            let message = format!("`{given}` is not an origin such as http://localhost:3000");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        };
        if let Origins::Listed(origins) = &mut self.origins {
            origins.push(origin);
        }
        Ok(self)
    }

    /// Returns the origin of the page that has sent a request, if it is another origin that is
    /// allowed.
    pub(crate) fn allowed_origin(&self, request: &Parts) -> Option<String> {
        let origin = header_text(&request.headers, header::ORIGIN.as_str())?.to_lowercase();
        match &self.origins {
            Origins::Listed(origins) => origins.contains(&origin).then_some(origin),
            Origins::Any => None,
        }
    }

    /// Whether responses depend on the origin of the page.
    pub(crate) fn lists_origins(&self) -> bool {
        matches!(&self.origins, Origins::Listed(origins) if !origins.is_empty())
    }

    fn check(&self, request: &Parts) -> Result<(), Error> {
        let refused =
            |status, message| Err(Error::new(ErrorKind::Auth, message).with_status(status));
        let host = header_text(&request.headers, header::HOST.as_str());
        let host = host.or_else(|| request.uri.authority().map(Authority::as_str));
        let host = host.unwrap_or_default().to_lowercase();
        if !self.is_own_host(&host) {
            return refused(421, "this server does not accept this host name");
        }
        if !self.is_allowed_page(request, &host) {
            return refused(403, "pages of other origins may not use this server");
        }
        Ok(())
    }

    /// Returns whether a host, with or without a port, is a name of this server.
    fn is_own_host(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address =
            name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        let address = address.parse::<IpAddr>();
        match &self.hosts {
            Hosts::Loopback => {
                name == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
            Hosts::Listed(hosts) => {
                name == "localhost" || address.is_ok() || hosts.iter().any(|host| host == name)
            }
            Hosts::Any => true,
        }
    }

    fn is_allowed_page(&self, request: &Parts, host: &str) -> bool {
        let Origins::Listed(origins) = &self.origins else { return true };
        let header = |name| header_text(&request.headers, name);
        match header(header::ORIGIN.as_str()) {
            Some(origin) => {
                let origin = origin.to_lowercase();
                let authority = origin.split_once("://").map(|(_, authority)| authority);
                authority == Some(host) || origins.contains(&origin)
            }
            // A page of another site that loads a resource with a tag sends no origin.
            None => {
                header("sec-fetch-site") != Some("cross-site")
                    || header("sec-fetch-mode") == Some("navigate")
            }
        }
    }
}

/// Returns an origin as browsers send it: in lower case, and without its scheme's default port.
fn parse_origin(given: &str) -> Option<String> {
    let origin = given.trim().to_lowercase();
    let (scheme, rest) = origin.split_once("://")?;
    let default_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority: Authority = rest.strip_suffix('/').unwrap_or(rest).parse().ok()?;
    let (host, port) = (authority.host(), authority.port_u16());
    let whole = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    // An authority can also contain a user's name, or a port that is not a number.
    if host.is_empty() || host.contains('*') || whole != authority.as_str() {
        return None;
    }
    let shown = if port == Some(default_port) { host } else { &*whole };
    Some(format!("{scheme}://{shown}"))
}

/// Decides which requests are accepted, and from whom they come.
#[derive(Clone, Default)]
pub(crate) struct Access {
    /// `None` if all requests come from the user of this machine.
    pub(crate) authorize: Option<Arc<dyn Authorize>>,
    /// `None` for the sites of [`sites`](Self::sites).
    pub(crate) sites: Option<AllowedSites>,
}

impl Access {
    pub(crate) fn sites(&self) -> AllowedSites {
        match (&self.sites, &self.authorize) {
            (Some(sites), _) => sites.clone(),
            (None, None) => AllowedSites::loopback(),
            (None, Some(_)) => AllowedSites::of_hosts::<String>([]),
        }
    }

    /// Returns the principal of a request.
    ///
    /// # Errors
    ///
    /// Returns an error with the status of the response if the request is refused.
    pub(crate) async fn admit(&self, request: &Parts) -> Result<Principal, Error> {
        self.sites().check(request)?;
        let Some(authorize) = &self.authorize else { return Ok(Principal::new("local")) };
        let principal = authorize.authorize(request).await;
        principal.map_err(|error| match (error.status(), error.kind()) {
            (None, ErrorKind::Auth) => error.with_status(401),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        let is_loopback = |host: &str| AllowedSites::loopback().is_own_host(host);
        for host in
            ["localhost", "localhost:80", "127.0.0.1", "127.0.0.1:8080", "[::1]:80", "[::1]"]
        {
            assert!(is_loopback(host), "{host}");
        }
        let others =
            ["", "example.com", "localhost.example.com", "10.0.0.1:80", "0.0.0.0", "[::]:80"];
        for host in others {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn only_a_scheme_with_a_host_is_an_origin() {
        for (given, sent) in [
            ("http://localhost:3000", "http://localhost:3000"),
            (" https://App.example/ ", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://app.example:443", "http://app.example:443"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(parse_origin(given).as_deref(), Some(sent), "{given}");
        }
        for origin in [
            "",
            "*",
            "null",
            "localhost",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a//",
            "http://a?b",
            "http://a#b",
            "http://*",
            "http://*.a",
            "http://a:b:c",
            "http://a:",
            "http://a:b",
            "http://a:99999",
            "http://:80",
            "http://a\\b",
            "http://a b",
            "http://user@a",
            "http://[::1",
        ] {
            assert!(AllowedSites::loopback().with_origin(origin).is_err(), "{origin}");
        }
    }

    #[test]
    fn addresses_and_listed_names_are_hosts_and_other_names_are_not() {
        let sites = AllowedSites::of_hosts(["Chat.example"]);
        for host in ["localhost:80", "10.0.0.1:80", "[::]:80", "chat.example", "chat.example:443"] {
            assert!(sites.is_own_host(host), "{host}");
        }
        for host in ["", "example", "a.chat.example", "127.0.0.1.attacker.example"] {
            assert!(!sites.is_own_host(host), "{host}");
        }
    }
}
