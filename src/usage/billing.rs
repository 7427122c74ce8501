//! The service tier, the server tools and the kinds of tokens of a turn, which affect its price.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The service tier, the server tools and the kinds of tokens of a turn, which affect its price
/// beside its [`Usage`](crate::Usage).
///
/// A provider may charge another price for some kinds of tokens. Their counts are, apart from the
/// last one, part of the counts in the usage:
///
/// | kind | tokens |
/// |---|---|
/// | `input_audio` | audio in the input, including cached audio |
/// | `cache_read_audio` | audio in the input that was read from a cache |
/// | `output_audio`, `output_image`, `output_video` | media in the output |
/// | `citation` | sources that the model has read and that are counted as output |
/// | `cache_storage` | input tokens read from a cache that the application pays to store |
///
/// Images, videos and documents in the input are charged like text, so they are not counted.
///
/// ```
/// use turnstream::usage::Billing;
///
/// let mut billing = Billing::default();
/// billing.set_service_tier("flex");
/// billing.set_server_tool_calls(Billing::WEB_SEARCH, 3);
/// assert_eq!(billing.service_tier(), Some("flex"));
/// assert_eq!(billing.server_tool_calls().collect::<Vec<_>>(), [("web_search", 3)]);
///
/// // The standard tier is the absence of another tier.
/// billing.set_service_tier("default");
/// assert_eq!(billing.service_tier(), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Billing {
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    server_tool_calls: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tokens_by_kind: BTreeMap<String, u64>,
}

/// The names that providers use for the tier with the standard price. `auto` occurs in requests,
/// and in events that are sent before the tier is known.
const STANDARD_TIERS: [&str; 5] = ["auto", "default", "standard", "on_demand", "unspecified"];

/// Returns whether a provider's name for a tier stands for the standard price.
pub(crate) fn is_standard_tier(tier: &str) -> bool {
    let tier = tier.trim();
    tier.is_empty() || STANDARD_TIERS.iter().any(|name| name.eq_ignore_ascii_case(tier))
}

impl Billing {
    /// The name under which the calls of a provider's web search are counted.
    pub const WEB_SEARCH: &str = "web_search";
    /// The name under which the calls of a provider's code execution are counted.
    pub const CODE_EXECUTION: &str = "code_execution";
    /// The name under which the searches in a provider's file storage are counted.
    pub const FILE_SEARCH: &str = "file_search";

    /// Returns the service tier that served the request, in lower case, such as `flex` or
    /// `priority`. Returns `None` if the provider reported the standard tier or no tier.
    pub fn service_tier(&self) -> Option<&str> {
        self.service_tier.as_deref()
    }

    /// Sets the service tier that served the request. A tier with the standard price, such as
    /// `default`, clears the tier.
    pub fn set_service_tier(&mut self, tier: &str) {
        self.service_tier = (!is_standard_tier(tier)).then(|| {
            let tier = tier.trim().to_ascii_lowercase();
            tier.strip_prefix("on_demand_").map(str::to_owned).unwrap_or(tier)
        });
    }

    /// Returns the number of calls of each tool that ran on the provider's servers, ordered by
    /// name.
    pub fn server_tool_calls(&self) -> impl Iterator<Item = (&str, u64)> {
        self.server_tool_calls.iter().map(|(name, calls)| (name.as_str(), *calls))
    }

    /// Sets the number of calls of a tool that ran on the provider's servers. The count replaces
    /// the earlier count for this tool.
    pub fn set_server_tool_calls(&mut self, tool: &str, calls: u64) {
        match calls {
            0 => drop(self.server_tool_calls.remove(tool)),
            calls => drop(self.server_tool_calls.insert(tool.to_owned(), calls)),
        }
    }

    /// Adds one call of a tool that ran on the provider's servers.
    pub(crate) fn count_server_tool_call(&mut self, tool: &str) {
        let calls = self.server_tool_calls.entry(tool.to_owned()).or_default();
        *calls = calls.saturating_add(1);
    }

    /// Returns the number of tokens of each kind that may have another price, ordered by kind.
    pub fn tokens_by_kind(&self) -> impl Iterator<Item = (&str, u64)> {
        self.tokens_by_kind.iter().map(|(kind, tokens)| (kind.as_str(), *tokens))
    }

    /// Sets the number of tokens of a kind that may have another price. The count replaces the
    /// earlier count for this kind.
    pub fn set_tokens_of_kind(&mut self, kind: &str, tokens: u64) {
        match tokens {
            0 => drop(self.tokens_by_kind.remove(kind)),
            tokens => drop(self.tokens_by_kind.insert(kind.to_owned(), tokens)),
        }
    }

    /// Returns whether nothing was reported that affects a price, so that the token usage alone
    /// determines the cost.
    pub fn is_empty(&self) -> bool {
        self.service_tier.is_none()
            && self.server_tool_calls.is_empty()
            && self.tokens_by_kind.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tier_with_another_price_is_kept() {
        let tier = |name: &str| {
            let mut billing = Billing::default();
            billing.set_service_tier(name);
            billing.service_tier().map(str::to_owned)
        };
        for standard in ["", "auto", "default", "STANDARD", "on_demand"] {
            assert_eq!(tier(standard), None, "{standard}");
        }
        assert_eq!(tier("Priority").as_deref(), Some("priority"));
        assert_eq!(tier(" flex ").as_deref(), Some("flex"));
        assert_eq!(tier("ON_DEMAND_FLEX").as_deref(), Some("flex"));
    }

    #[test]
    fn an_empty_billing_is_an_empty_object() {
        let mut billing = Billing::default();
        billing.set_server_tool_calls("web_search", 0);
        billing.set_tokens_of_kind("input_audio", 0);
        assert!(billing.is_empty());
        assert_eq!(serde_json::to_string(&billing).unwrap(), "{}");
        billing.count_server_tool_call("web_search");
        billing.set_service_tier("flex");
        billing.set_tokens_of_kind("input_audio", 5);
        let json = r#"{"service_tier":"flex","server_tool_calls":{"web_search":1},"tokens_by_kind":{"input_audio":5}}"#;
        assert_eq!(serde_json::to_string(&billing).unwrap(), json);
        assert_eq!(serde_json::from_str::<Billing>(json).unwrap(), billing);
    }
}
