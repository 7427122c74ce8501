//! The header that a key is sent in.

#[cfg(feature = "http")]
use std::borrow::Cow;

#[cfg(feature = "http")]
use crate::http::{Header, Secret};

/// The header that a key is sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization: Bearer …`
    Bearer,
    /// The key alone in the header of this name, for example `api-key`.
    Named(&'static str),
}

#[cfg(feature = "http")]
impl KeyHeader {
    pub(super) fn of(self, key: &Secret) -> Header {
        match self {
            Self::Bearer => (Cow::Borrowed("authorization"), format!("Bearer {}", key.expose())),
            Self::Named(name) => (Cow::Borrowed(name), key.expose().to_owned()),
        }
    }
}
