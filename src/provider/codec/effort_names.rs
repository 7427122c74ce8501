//! The names that servers use for reasoning effort levels.

use crate::request::Effort;

/// A server's names for the reasoning effort levels. If a server has fewer levels than [`Effort`],
/// several levels of `Effort` share the nearest name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffortNames {
    /// The name for [`Reasoning::Off`](crate::request::Reasoning::Off).
    pub off: &'static str,
    /// The name for [`Effort::Minimal`](Effort::Minimal).
    pub minimal: &'static str,
    /// The name for [`Effort::Low`](Effort::Low).
    pub low: &'static str,
    /// The name for [`Effort::Medium`](Effort::Medium).
    pub medium: &'static str,
    /// The name for [`Effort::High`](Effort::High).
    pub high: &'static str,
    /// The name for [`Effort::XHigh`](Effort::XHigh).
    pub xhigh: &'static str,
    /// The name for [`Effort::Max`](Effort::Max).
    pub max: &'static str,
}

impl EffortNames {
    /// The names used by OpenAI, from `none` to `xhigh`,
    /// <https://platform.openai.com/docs/guides/reasoning>. GPT-5.6 and later models also have
    /// `max`.
    pub const OPENAI: Self = Self {
        off: "none",
        minimal: "minimal",
        low: "low",
        medium: "medium",
        high: "high",
        xhigh: "xhigh",
        max: "xhigh",
    };
    /// The names for servers that accept only `none`, `low`, `medium` and `high`.
    pub const LOW_MEDIUM_HIGH: Self =
        Self { minimal: "low", xhigh: "high", max: "high", ..Self::OPENAI };

    /// Returns the server's name for an effort level.
    pub(crate) fn name_of(self, effort: Effort) -> &'static str {
        match effort {
            Effort::Minimal => self.minimal,
            Effort::Low => self.low,
            Effort::Medium => self.medium,
            Effort::High => self.high,
            Effort::XHigh => self.xhigh,
            Effort::Max => self.max,
        }
    }
}
