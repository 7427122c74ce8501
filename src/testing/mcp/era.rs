//! The two eras of the protocol, and the versions of each.

/// The versions without a handshake, newest first.
pub(super) const MODERN_VERSIONS: &[&str] = &["2026-07-28"];

/// The versions that begin with `initialize`, newest first.
pub(super) const LEGACY_VERSIONS: &[&str] =
    &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Which eras of the protocol an [`McpServer`](crate::testing::mcp::McpServer) speaks.
///
/// The modern era (2026-07-28) begins with `server/discover`, if with anything, and has no
/// sessions. The legacy era (2025-11-25 and before) begins with `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpEra {
    /// Both: a client gets the era that its first request belongs to.
    #[default]
    Both,
    /// The modern one. `initialize` is refused with the versions that are supported.
    Modern,
    /// The legacy one. `server/discover` is refused, as an unknown method or an uninitialized
    /// session.
    Legacy,
    /// The legacy one, as some old servers speak it: `server/discover` is never answered.
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

/// The era that one message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Modern,
    Legacy,
}
