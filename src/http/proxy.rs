//! Determines which proxy a request uses, for use in error messages.

use std::error::Error as StdError;

use hyper_util::client::proxy::matcher::Matcher;

use crate::error::source_chain;
use crate::http::Endpoint;

/// The proxies that an HTTP client uses.
#[derive(Clone, Debug)]
pub(super) enum Proxies {
    /// The client uses no proxies.
    None,
    /// The client uses the proxies configured in the environment or the operating system.
    System,
    /// The client uses the proxies in its settings, given as their `Debug` output.
    Custom(String),
}

impl Proxies {
    /// Reads the proxies from the `Debug` output of a client and its settings, because neither the
    /// client nor its settings have a getter for them.
    pub(super) fn from_debug_output(settings: &str, client: &reqwest::Client) -> Self {
        match (proxy_list(settings), proxy_list(&format!("{client:?}"))) {
            (_, None) => Self::None,
            (Some(own), Some(_)) => Self::Custom(own.to_owned()),
            (None, Some(_)) => Self::System,
        }
    }

    /// Returns the proxy for requests to a URL, if it is known.
    pub(super) fn proxy_for(&self, endpoint: &Endpoint) -> Option<String> {
        match self {
            Self::None => None,
            Self::Custom(proxies) => {
                let marker = format!("{}: Intercept {{ uri: ", endpoint.url().scheme());
                let exempt = format!("\"{}\"", endpoint.host_name());
                let mut each = proxies.split("Matcher {").filter(|proxy| !proxy.contains(&exempt));
                let uri = each.find_map(|proxy| proxy.split_once(&marker))?.1;
                proxy_host(uri.split([' ', ',']).next().unwrap_or_default())
            }
            Self::System => {
                let target = endpoint.url().as_str().parse().ok()?;
                let proxy = Matcher::from_system().intercept(&target)?;
                proxy_host(&proxy.uri().to_string())
            }
        }
    }
}

/// Extracts the list of proxies from the `Debug` output of a client or its settings.
fn proxy_list(shown: &str) -> Option<&str> {
    let (_, list) = shown.split_once("proxies: [")?;
    let mut open = 1_usize;
    let end = list.find(|c| {
        match c {
            '[' => open += 1,
            ']' => open -= 1,
            _ => {}
        }
        open == 0
    });
    Some(&list[..end.unwrap_or(list.len())])
}

/// Returns a proxy's address without its user name and password, which must not be shown.
fn proxy_host(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let host = url.host_str()?;
    let scheme = url.scheme();
    Some(match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Returns whether an error occurred while connecting to the proxy, or is the proxy's response to
/// the tunnel request.
pub(super) fn is_tunnel_error(error: &(dyn StdError + 'static)) -> bool {
    // The error's type is private, so its text is compared.
    source_chain(error).any(|error| error.to_string().starts_with("tunnel error"))
}
