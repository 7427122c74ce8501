//! The hosts of Gemini models.

/// A host of Gemini models. Each host has options that the other one lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Host {
    /// The Gemini API, or a compatible server.
    #[default]
    GeminiApi,
    /// Vertex AI.
    #[cfg_attr(not(feature = "http"), allow(dead_code, reason = "it depends on the endpoint"))]
    Vertex,
}
