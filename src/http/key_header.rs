//! The header in which a key is sent.

/// The header in which a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeader {
    /// The header `authorization: Bearer …`.
    Bearer,
    /// The header with this name, for example `api-key`. The header's value is the key without a
    /// prefix.
    Named(&'static str),
}
