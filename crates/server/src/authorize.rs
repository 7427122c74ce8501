//! Who a request comes from.

use std::sync::Arc;

use axum::http::header::{self, HeaderMap};
use axum::http::request::Parts;
use futures::future::{self, BoxFuture};
use turnstream::Error;
#[cfg(doc)]
use turnstream::ErrorKind;
use turnstream::agent::Budget;
use turnstream::propagation::TraceContext;

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
    trace_parent: Option<TraceContext>,
}

impl Principal {
    /// Creates a principal with an id. A session can be used, and a response continued, only by a
    /// principal with the id for which it was made.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), budget: None, max_runs: None, trace_parent: None }
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
    /// 429. By default, a [`ChatServer`](crate::ChatServer) has a [limit for
    /// all](crate::ChatLimits::max_runs_per_principal), and an
    /// [`AgentServer`](crate::AgentServer) has none.
    #[must_use]
    pub fn with_max_runs(mut self, max_runs: usize) -> Self {
        self.max_runs = Some(max_runs);
        self
    }

    /// Makes the runs that this request starts part of a distributed trace: the context becomes a
    /// part of their [data](turnstream::Run::with_data), in which telemetry code such as that of
    /// the crate `turnstream-otel` looks for it. By default, the headers of a request have no
    /// effect, since its client could join any trace, and decide whether it is recorded. Pass
    /// [`presented_trace`] for clients that you trust with it, such as your own services.
    ///
    /// ```
    /// use axum::http::request::Parts;
    /// use turnstream_server::{Principal, presented_trace};
    ///
    /// let authorize = |request: &Parts| {
    ///     // A check of the request's key goes here.
    ///     Ok(Principal::new("service").with_trace_parent(presented_trace(request)))
    /// };
    /// # let _ = turnstream_server::AgentServer::new().with_authorize(authorize);
    /// ```
    #[must_use]
    pub fn with_trace_parent(mut self, parent: impl Into<Option<TraceContext>>) -> Self {
        self.trace_parent = parent.into();
        self
    }

    /// Returns the id that was passed to [`new`](Self::new).
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn shared_id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    pub(crate) fn budget(&self) -> Option<&Budget> {
        self.budget.as_ref()
    }

    pub(crate) fn max_runs(&self) -> Option<usize> {
        self.max_runs
    }

    pub(crate) fn trace_parent(&self) -> Option<&TraceContext> {
        self.trace_parent.as_ref()
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
    /// Returns the principal of a request. `request` contains everything but the body. The returned
    /// future is dropped if the client closes its connection.
    ///
    /// # Errors
    ///
    /// An error refuses the request. If it has a [status](Error::status), or the kind
    /// [`Auth`](ErrorKind::Auth), its message is sent to the client, with this status or with 401. A
    /// [`ChatServer`](crate::ChatServer) answers any other error, such as one of a database, with the
    /// status 500, and reports it only to its [log](crate::ChatServer::with_error_log).
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

/// Returns the trace context in the headers `traceparent` and `tracestate` of a request, if it is
/// valid.
pub fn presented_trace(request: &Parts) -> Option<TraceContext> {
    let header = |name| header_text(&request.headers, name);
    TraceContext::parse(header("traceparent")?, header("tracestate"))
}

pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
