//! The header in which a key is sent.

/// The header in which a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeader {
    /// `authorization: Bearer …`
    Bearer,
    /// The key without a prefix, in the header with this name, for example `api-key`.
    Named(&'static str),
}
