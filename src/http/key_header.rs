//! The header that a key is sent in.

/// The header that a key is sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeader {
    /// `authorization: Bearer …`
    Bearer,
    /// The key alone in the header of this name, for example `api-key`.
    Named(&'static str),
}
