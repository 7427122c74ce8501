//! The header in which a key is sent.

/// The header in which a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeader {
    /// The `authorization: Bearer …` header.
    Bearer,
    /// A header with this name, for example `api-key`, whose value is the key without a prefix.
    Named(&'static str),
}
