//! Who sends a request again when it fails.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Whether the provider that gets a request may send it again by itself when it fails.
///
/// Only the outermost layer retries: a provider that retries, or that has another provider to ask
/// next, tells the providers below it to leave its errors alone. [`Retry`](crate::provider::Retry),
/// [`Fallback`](crate::provider::Fallback) and
/// [`Agent::with_fallback`](crate::Agent::with_fallback) do so. A provider of your own that is made
/// of a provider passes the request on as it is.
///
/// It says how a request is sent and not what is asked, so it is part of no recording, and any two
/// are equal.
///
/// ```
/// use turnstream::request::Retries;
/// use turnstream::{Error, ErrorKind};
///
/// let busy = Error::new(ErrorKind::Overloaded, "busy");
/// assert!(Retries::default().can_retry(&busy));
/// assert!(!Retries::none().can_retry(&busy));
/// let except = Retries::default().with_exception(|error| error.kind() == ErrorKind::Overloaded);
/// assert!(!except.can_retry(&busy));
/// assert!(except.can_retry(&Error::new(ErrorKind::Server, "down")));
/// ```
#[derive(Clone, Default)]
pub struct Retries {
    handled_errors: HandledErrors,
    /// Whether a connection that was closed while it was not in use is replaced at once, where the
    /// caller handles every error.
    reconnect_predicate: Option<Arc<ErrorPredicate>>,
    /// The connection of the attempt before was closed while it was not in use.
    is_new_connection_required: bool,
}

type ErrorPredicate = dyn Fn(&Error) -> bool + Send + Sync;

#[derive(Clone, Default)]
enum HandledErrors {
    /// The caller handles no error.
    #[default]
    None,
    /// The caller handles the errors for which this is true.
    Matching(Arc<ErrorPredicate>),
    /// The caller handles every error.
    All,
}

impl Retries {
    /// The caller retries: the request is sent once.
    pub fn none() -> Self {
        Self { handled_errors: HandledErrors::All, ..Self::default() }
    }

    /// The same, but errors for which `handled` is true are returned at once: the caller has
    /// something better to do than to wait.
    pub fn with_exception(self, handled: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        let handled = match self.handled_errors {
            HandledErrors::None => HandledErrors::Matching(Arc::new(handled)),
            HandledErrors::Matching(before) => {
                HandledErrors::Matching(Arc::new(move |error| before(error) || handled(error)))
            }
            HandledErrors::All => HandledErrors::All,
        };
        Self { handled_errors: handled, ..self }
    }

    /// The same, but a connection that was closed while it was not in use may be replaced at once if
    /// this is true for the error.
    pub(crate) fn with_reconnect_if(mut self, allows: Arc<ErrorPredicate>) -> Self {
        self.reconnect_predicate = Some(allows);
        self
    }

    /// Whether a request whose connection was closed while it was not in use may be sent again at once.
    pub(crate) fn can_reconnect(&self, error: &Error) -> bool {
        match (&self.handled_errors, &self.reconnect_predicate) {
            (HandledErrors::None | HandledErrors::Matching(_), _) => true,
            (HandledErrors::All, Some(allows)) => allows(error),
            (HandledErrors::All, None) => false,
        }
    }

    /// The same for a request that is sent again since its connection was closed.
    pub(crate) fn requires_new_connection(mut self) -> Self {
        self.is_new_connection_required = true;
        self
    }

    /// Whether the request is not to go out on a connection that was used before.
    #[cfg(feature = "http")]
    pub(crate) fn is_new_connection_required(&self) -> bool {
        self.is_new_connection_required
    }

    /// Whether a request that failed with this error may be sent again.
    pub fn can_retry(&self, error: &Error) -> bool {
        match &self.handled_errors {
            HandledErrors::None => true,
            HandledErrors::Matching(handled) => !handled(error),
            HandledErrors::All => false,
        }
    }

    /// Whether the request is sent once, whatever happens.
    pub fn is_none(&self) -> bool {
        matches!(self.handled_errors, HandledErrors::All)
    }
}

/// Always equal; see the type.
impl PartialEq for Retries {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.handled_errors {
            HandledErrors::None => "Retries::default()",
            HandledErrors::Matching(_) => "Retries::except(…)",
            HandledErrors::All => "Retries::none()",
        })
    }
}
