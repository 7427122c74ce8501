//! Who a request comes from.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::header::{self, HeaderMap};
use axum::http::request::Parts;
use futures::future::{self, BoxFuture};
use turnstream::agent::Budget;
use turnstream::{Error, ErrorKind};

/// The user or program from which a request comes.
///
/// ```
/// use turnstream::agent::Budget;
/// use turnstream_server::Principal;
///
/// let principal = Principal::new("ada")
///     .with_budget(Budget::new().with_total_tokens(100_000))
///     .with_max_runs(4);
/// assert_eq!(principal.id(), "ada");
/// ```
#[derive(Clone, Debug)]
pub struct Principal {
    id: Arc<str>,
    budget: Option<Budget>,
    max_runs: Option<usize>,
}

impl Principal {
    /// Creates a principal with an id. A response can be continued only by a principal with the id
    /// for which it was made.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), budget: None, max_runs: None }
    }

    /// Limits each run of the principal, in place of the agent's own budget. To limit all runs of
    /// the principal together, add the principal's [pool](Budget::with_pool) to the budget.
    ///
    /// A run that exceeds the budget before the client has received anything is answered with the
    /// status 429. Later, the answer ends as if the maximum number of tokens had been reached.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Limits the number of runs at the same time. Further requests are answered with the status
    /// 429. By default, the number is not limited.
    #[must_use]
    pub fn with_max_runs(mut self, max_runs: usize) -> Self {
        self.max_runs = Some(max_runs);
        self
    }

    /// Returns the principal's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }
}

/// Decides from whom a request comes, and whether it is accepted.
///
/// This trait is implemented for functions that need not wait. To read the key that a client has
/// sent, use [`presented_key`].
///
/// ```
/// use axum::http::request::Parts;
/// use turnstream::{Error, ErrorKind};
/// use turnstream_server::{Principal, presented_key};
///
/// let authorize = |request: &Parts| match presented_key(request) {
///     Some("a-long-secret") => Ok(Principal::new("ada")),
///     _ => Err(Error::new(ErrorKind::Auth, "unknown key")),
/// };
/// # let _ = turnstream_server::AgentServer::new().with_authorize(authorize);
/// ```
pub trait Authorize: Send + Sync {
    /// Returns the principal of a request. `request` contains everything but the body.
    ///
    /// # Errors
    ///
    /// An error refuses the request, and its message is sent to the client. The status is the
    /// error's own [status](Error::status) or, for the kind [`Auth`](ErrorKind::Auth), 401.
    fn authorize<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal, Error>>;
}

impl<F: Fn(&Parts) -> Result<Principal, Error> + Send + Sync> Authorize for F {
    fn authorize<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal, Error>> {
        Box::pin(future::ready(self(request)))
    }
}

/// Returns the key that a client has sent, from the place in which its vendor's clients send it:
/// the headers `authorization` (`Bearer …`), `x-api-key` or `x-goog-api-key`.
///
/// Keys in the query of an address are not read, because addresses are logged.
pub fn presented_key(request: &Parts) -> Option<&str> {
    let bearer = header_text(&request.headers, header::AUTHORIZATION.as_str());
    let bearer = bearer.and_then(|value| value.split_once(' '));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let other = ["x-api-key", "x-goog-api-key"];
    let other = other.iter().find_map(|name| header_text(&request.headers, name));
    bearer.map(|(_, key)| key.trim()).or(other)
}

/// Accepts requests whose `host` is this machine, so that no page of another site reaches the
/// server, not even under a name that an attacker has pointed here.
pub(crate) struct LoopbackOnly;

impl Authorize for LoopbackOnly {
    fn authorize<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Principal, Error>> {
        Box::pin(future::ready(check_loopback(request).map(|()| Principal::new("local"))))
    }
}

fn check_loopback(request: &Parts) -> Result<(), Error> {
    let refused = |status, message| Err(Error::new(ErrorKind::Auth, message).with_status(status));
    let host = header_text(&request.headers, header::HOST.as_str());
    let host = host.or_else(|| request.uri.authority().map(axum::http::uri::Authority::as_str));
    let host = host.unwrap_or_default().to_ascii_lowercase();
    if !is_loopback(&host) {
        let message =
            "without `with_authorize`, the server accepts only the host names of this machine";
        return refused(421, message);
    }
    let is_own = match header_text(&request.headers, header::ORIGIN.as_str()) {
        Some(origin) => {
            origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(&host))
        }
        None => header_text(&request.headers, "sec-fetch-site") != Some("cross-site"),
    };
    match is_own {
        true => Ok(()),
        false => refused(403, "pages of other origins may not use this server"),
    }
}

/// Returns whether a host, with or without a port, is a name of this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The number of active runs of each principal.
#[derive(Clone, Default)]
pub(crate) struct ActiveRuns(Arc<Mutex<HashMap<Arc<str>, usize>>>);

/// Counts as an active run until it is dropped.
pub(crate) struct ActiveRun {
    runs: ActiveRuns,
    principal: Arc<str>,
}

impl ActiveRuns {
    /// Adds a run.
    ///
    /// # Errors
    ///
    /// Returns a [`RateLimited`](ErrorKind::RateLimited) error if the principal has as many runs as
    /// it may have.
    pub(crate) fn start(&self, principal: &Principal) -> Result<ActiveRun, Error> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(Arc::clone(&principal.id)).or_default();
        if principal.max_runs.is_some_and(|max| *count >= max) {
            let message = "too many requests at the same time";
            return Err(Error::new(ErrorKind::RateLimited, message).with_status(429));
        }
        *count += 1;
        Ok(ActiveRun { runs: self.clone(), principal: Arc::clone(&principal.id) })
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        let mut counts = self.runs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
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
}
