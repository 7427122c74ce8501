//! The two eras of the protocol, and the versions of each era.

/// The protocol versions without a handshake, newest first.
pub(super) const MODERN_VERSIONS: &[&str] = &["2026-07-28"];

/// The protocol versions that start with `initialize`, newest first.
pub(super) const LEGACY_VERSIONS: &[&str] =
    &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The eras of the protocol that an [`McpServer`](crate::testing::mcp::McpServer) speaks.
///
/// The modern era (2026-07-28) has no sessions, and optionally starts with `server/discover`. The
/// legacy era (2025-11-25 and before) starts with `initialize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpEra {
    /// Both eras, where the first request of a client selects the era.
    #[default]
    Both,
    /// Only the modern era, in which the method `initialize` is rejected with the list of supported
    /// versions.
    Modern,
    /// Only the legacy era, in which the method `server/discover` is rejected as unknown or because
    /// of the missing session.
    Legacy,
    /// Only the legacy era, as implemented by some old servers, which never answer
    /// `server/discover`.
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

/// The era of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Modern,
    Legacy,
}
