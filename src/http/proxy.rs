//! Which proxy a request goes through, for the words of an error.

use std::error::Error as StdError;

use hyper_util::client::proxy::matcher::Matcher;

use crate::error::source_chain;
use crate::http::Endpoint;

/// The proxies of a client.
#[derive(Clone, Debug)]
pub(super) enum Proxies {
    /// It has none.
    None,
    /// Those that the environment, or the system, names.
    System,
    /// Those that it was given, as its settings show them.
    Custom(String),
}

impl Proxies {
    /// Reads them off the settings of a client, and the client: neither has a getter, and both show
    /// what proxies they have.
    pub(super) fn from_debug_output(settings: &str, client: &reqwest::Client) -> Self {
        match (proxy_list(settings), proxy_list(&format!("{client:?}"))) {
            (_, None) => Self::None,
            (Some(own), Some(_)) => Self::Custom(own.to_owned()),
            (None, Some(_)) => Self::System,
        }
    }

    /// The proxy for an address, if requests to it go through one that is known.
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

/// The list of proxies in what a client, or its settings, shows.
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

/// The part of a proxy's address that can be shown: not its user name and password.
fn proxy_host(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let host = url.host_str()?;
    let scheme = url.scheme();
    Some(match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Whether an error came up on the way to the proxy, or is what the proxy said to the request for a
/// tunnel.
pub(super) fn is_tunnel_error(error: &(dyn StdError + 'static)) -> bool {
    // The type of it is not public.
    source_chain(error).any(|error| error.to_string().starts_with("tunnel error"))
}
