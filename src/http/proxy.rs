//! Which proxy a request goes through, for the words of an error.

use std::error::Error as StdError;

use hyper_util::client::proxy::matcher::Matcher;

use super::client::Endpoint;

/// The proxies of a client.
#[derive(Clone, Debug)]
pub(super) enum Proxies {
    /// It has none.
    None,
    /// Those that the environment, or the system, names.
    OfTheSystem,
    /// Those that it was given, as they are shown.
    Own(String),
}

impl Proxies {
    /// Reads them off the settings of a client, which show the proxies that were given to them.
    pub(super) fn of(settings: &reqwest::ClientBuilder) -> Self {
        let shown = format!("{settings:?}");
        let Some((_, shown)) = shown.split_once("proxies: [") else { return Self::OfTheSystem };
        let schemes = ["http://", "https://", "socks4://", "socks4a://", "socks5://", "socks5h://"];
        let is_in_address = |c: char| c.is_ascii_alphanumeric() || "-._~:/@[]%".contains(c);
        let mut found: Vec<String> = Vec::new();
        for word in shown.split(|c: char| !is_in_address(c)) {
            let address = schemes.iter().find_map(|scheme| word.find(scheme).map(|at| &word[at..]));
            let shown = address.and_then(host_of);
            if let Some(shown) = shown.filter(|shown| !found.contains(shown)) {
                found.push(shown);
            }
        }
        match found.is_empty() {
            true => Self::Own("that the client was given".to_owned()),
            false => Self::Own(found.join(" or ")),
        }
    }

    /// The proxy for an address, if requests to it go through one.
    pub(super) fn to(&self, endpoint: &Endpoint) -> Option<String> {
        match self {
            Self::None => None,
            Self::Own(proxies) => Some(proxies.clone()),
            Self::OfTheSystem => {
                let target = endpoint.as_str().parse().ok()?;
                let proxy = Matcher::from_system().intercept(&target)?;
                host_of(&proxy.uri().to_string())
            }
        }
    }
}

/// The part of a proxy's address that can be shown: not its user name and password.
fn host_of(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address.trim_end_matches(']')).ok()?;
    let host = url.host_str()?;
    let scheme = url.scheme();
    Some(match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Whether an error came up on the way to the proxy, or is what the proxy said to the request for a
/// tunnel.
pub(super) fn is_of_tunnel(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // The type of it is not public.
        if error.to_string().starts_with("tunnel error") {
            return true;
        }
        cause = error.source();
    }
    false
}
