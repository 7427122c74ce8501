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
/// assert!(Retries::default().allow(&busy));
/// assert!(!Retries::none().allow(&busy));
/// let except = Retries::default().except(|error| error.kind() == ErrorKind::Overloaded);
/// assert!(!except.allow(&busy));
/// assert!(except.allow(&Error::new(ErrorKind::Server, "down")));
/// ```
#[derive(Clone, Default)]
pub struct Retries(Handled);

#[derive(Clone, Default)]
enum Handled {
    /// The caller handles no error.
    #[default]
    Nothing,
    /// The caller handles the errors for which this is true.
    Some(Arc<dyn Fn(&Error) -> bool + Send + Sync>),
    /// The caller handles every error.
    Everything,
}

impl Retries {
    /// The caller retries: the request is sent once.
    pub fn none() -> Self {
        Self(Handled::Everything)
    }

    /// The same, but errors for which `handled` is true are returned at once: the caller has
    /// something better to do than to wait.
    pub fn except(self, handled: impl Fn(&Error) -> bool + Send + Sync + 'static) -> Self {
        Self(match self.0 {
            Handled::Nothing => Handled::Some(Arc::new(handled)),
            Handled::Some(before) => {
                Handled::Some(Arc::new(move |error| before(error) || handled(error)))
            }
            Handled::Everything => Handled::Everything,
        })
    }

    /// Whether a request that failed with this error may be sent again.
    pub fn allow(&self, error: &Error) -> bool {
        match &self.0 {
            Handled::Nothing => true,
            Handled::Some(handled) => !handled(error),
            Handled::Everything => false,
        }
    }

    /// Whether the request is sent once, whatever happens.
    pub fn is_none(&self) -> bool {
        matches!(self.0, Handled::Everything)
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
        f.write_str(match &self.0 {
            Handled::Nothing => "Retries::default()",
            Handled::Some(_) => "Retries::except(…)",
            Handled::Everything => "Retries::none()",
        })
    }
}
