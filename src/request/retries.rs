//! Controls which layer sends a request again after a failure.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Controls whether the provider that receives a request may send the request again after a
/// failure.
///
/// Only the outermost layer retries. [`Retry`](crate::provider::Retry),
/// [`Fallback`](crate::provider::Fallback) and
/// [`Agent::with_fallback`](crate::Agent::with_fallback) use this setting to prevent inner
/// providers from retrying errors that the outer layer handles itself. If your own provider wraps
/// another provider, it should pass the request on unchanged.
///
/// This setting affects how a request is sent, not its content; the setting is therefore not
/// included in recordings, and any two `Retries` values compare equal.
///
/// ```
/// use turnstream::request::Retries;
/// use turnstream::{Error, ErrorKind};
///
/// let busy = Error::new(ErrorKind::Overloaded, "busy");
/// assert!(Retries::default().can_retry(&busy));
/// assert!(!Retries::none().can_retry(&busy));
/// ```
#[derive(Clone, Default)]
pub struct Retries {
    handled_errors: HandledErrors,
    /// If the caller handles every error, this predicate decides after which errors the provider
    /// may still immediately send the request again over a new connection, because the previous
    /// connection was closed while idle.
    reconnect_predicate: Option<Arc<ErrorPredicate>>,
    /// Whether the connection used for the previous attempt was closed while idle.
    is_new_connection_required: bool,
    /// Whether the request must not be processed twice, so that it is sent again only if the server
    /// has certainly not processed it.
    must_not_repeat: bool,
}

type ErrorPredicate = dyn Fn(&Error) -> bool + Send + Sync;

#[derive(Clone, Default)]
enum HandledErrors {
    /// The caller handles no errors.
    #[default]
    None,
    /// The caller handles the errors for which the predicate returns true.
    Matching(Arc<ErrorPredicate>),
    /// The caller handles every error.
    All,
}

impl Retries {
    /// Creates a setting that leaves all retries to the caller, so that the provider sends the
    /// request only once.
    pub fn none() -> Self {
        Self { handled_errors: HandledErrors::All, ..Self::default() }
    }

    /// Prevents retries after errors for which `handled` returns true, in addition to any
    /// exceptions added earlier. The provider returns such errors immediately, because the caller
    /// has a better way to handle them than waiting and retrying.
    pub(crate) fn with_exception(
        self,
        handled: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        let handled = match self.handled_errors {
            HandledErrors::None => HandledErrors::Matching(Arc::new(handled)),
            HandledErrors::Matching(before) => {
                HandledErrors::Matching(Arc::new(move |error| before(error) || handled(error)))
            }
            HandledErrors::All => HandledErrors::All,
        };
        Self { handled_errors: handled, ..self }
    }

    /// Prevents retries after every error after which the server may have processed the request. A
    /// connection that may have been closed while idle is not used.
    pub(crate) fn without_repetition(self) -> Self {
        Self { must_not_repeat: true, is_new_connection_required: true, ..self }
    }

    /// Returns whether the request would be processed at most once if it was sent again.
    pub(crate) fn may_repeat_after(&self, error: &Error) -> bool {
        !self.must_not_repeat || error.is_unsent() || error.is_refusal()
    }

    /// Allows the provider to immediately send the request again over a new connection. The
    /// provider does so only if the previous connection was closed while idle and `allows` returns
    /// true for the error. This applies even if the caller handles all other errors itself.
    pub(crate) fn with_reconnect_if(mut self, allows: Arc<ErrorPredicate>) -> Self {
        self.reconnect_predicate = Some(allows);
        self
    }

    /// Returns whether a request whose connection was closed while idle may be sent again
    /// immediately.
    pub(crate) fn can_reconnect(&self, error: &Error) -> bool {
        if !self.may_repeat_after(error) {
            return false;
        }
        match (&self.handled_errors, &self.reconnect_predicate) {
            (HandledErrors::None | HandledErrors::Matching(_), _) => true,
            (HandledErrors::All, Some(allows)) => allows(error),
            (HandledErrors::All, None) => false,
        }
    }

    /// Marks the request as being sent again because the previous connection was closed.
    pub(crate) fn requires_new_connection(mut self) -> Self {
        self.is_new_connection_required = true;
        self
    }

    /// Returns whether the request must not reuse an existing connection.
    #[cfg(feature = "http")]
    pub(crate) fn is_new_connection_required(&self) -> bool {
        self.is_new_connection_required
    }

    /// Returns whether a request that failed with this error may be sent again. If this method
    /// returns `false`, a provider that retries must return the error.
    pub fn can_retry(&self, error: &Error) -> bool {
        let is_handled = match &self.handled_errors {
            HandledErrors::None => false,
            HandledErrors::Matching(handled) => handled(error),
            HandledErrors::All => true,
        };
        !is_handled && self.may_repeat_after(error)
    }

    /// Returns whether the request is sent only once, regardless of the error.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self.handled_errors, HandledErrors::All)
    }
}

/// Any two `Retries` values are equal; see the type's docs.
impl PartialEq for Retries {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.handled_errors {
            HandledErrors::None => "Retries::default()",
            HandledErrors::Matching(_) => "Retries::default().with_exception(…)",
            HandledErrors::All => "Retries::none()",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn errors_with_an_exception_are_not_retried() {
        let except =
            Retries::default().with_exception(|error| error.kind() == ErrorKind::Overloaded);
        assert!(!except.can_retry(&Error::new(ErrorKind::Overloaded, "busy")));
        assert!(except.can_retry(&Error::new(ErrorKind::Server, "down")));
    }

    #[test]
    fn a_request_that_must_not_be_repeated_is_retried_only_after_a_refusal() {
        let once = Retries::default().without_repetition();
        for (status, can_retry) in [
            (Some(429), true),
            (Some(400), true),
            (Some(408), false),
            (Some(409), false),
            (Some(500), false),
            (Some(529), false),
            (None, false),
        ] {
            let error = Error::new(ErrorKind::RateLimited, "no");
            let error = match status {
                Some(status) => error.with_status(status),
                None => error,
            };
            assert_eq!(once.can_retry(&error), can_retry, "{status:?}");
            assert_eq!(once.can_reconnect(&error), can_retry, "{status:?}");
            assert!(!Retries::none().without_repetition().can_retry(&error), "{status:?}");
        }
    }
}
