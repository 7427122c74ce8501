//! How servers of the Messages API differ.

/// Describes how a server of the Messages API differs from Anthropic's own.
///
/// A provider whose dialect is not set uses [`Signed`](Self::Signed) at Anthropic's own address and
/// [`Unsigned`](Self::Unsigned) at any other address. For a server whose thinking has
/// signatures, both dialects send the same requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// The server signs its thinking, and rejects thinking without a signature. Thinking without a
    /// signature is not sent back.
    #[default]
    Signed,
    /// The server may not sign its thinking, as is the case with Kimi, z.ai and Xiaomi. Complete
    /// thinking without a signature is sent back with an empty signature, and only to the model
    /// that wrote it.
    Unsigned,
}
