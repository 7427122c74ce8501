//! The two eras of the protocol, and the versions that belong to each era.

/// The protocol versions without a handshake, newest first.
pub(super) const MODERN_VERSIONS: &[&str] = &["2026-07-28"];

/// The protocol versions in which a client starts with `initialize`, newest first.
pub(super) const LEGACY_VERSIONS: &[&str] =
    &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Determines which eras of the protocol an [`McpServer`](crate::mcp::McpServer) supports.
///
/// The modern era (2026-07-28) has no sessions, and a client may start with `server/discover`. In
/// the legacy era (2025-11-25 and earlier), a client starts with `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpEra {
    /// Both eras. A client's first request selects the era.
    #[default]
    Both,
    /// Only the modern era. The server rejects the `initialize` method and sends a list of the
    /// supported versions.
    Modern,
    /// Only the legacy era. The server rejects the `server/discover` method, because either the
    /// method is unknown or the session is missing.
    Legacy,
    /// Only the legacy era. The server never answers `server/discover`, which is how some old
    /// servers behave.
    LegacySilentOnDiscover,
}

impl McpEra {
    pub(super) fn is_modern_spoken(self) -> bool {
        match self {
            Self::Both | Self::Modern => true,
            Self::Legacy | Self::LegacySilentOnDiscover => false,
        }
    }

    pub(super) fn is_legacy_spoken(self) -> bool {
        match self {
            Self::Modern => false,
            Self::Both | Self::Legacy | Self::LegacySilentOnDiscover => true,
        }
    }
}

/// The era that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Modern,
    Legacy,
}
