//! The cost of one request.

use std::collections::BTreeMap;
use std::time::SystemTime;

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use turnstream::usage::{Billing, Cost, CostGap, CostGapKind, PricedRequest};

/// The model that a name stands for.
pub(crate) struct Listed {
    /// The id of the provider.
    pub(crate) provider: String,
    /// The id of the model.
    pub(crate) model: String,
}

impl Listed {
    /// Finds the model that a name stands for. If `provider` is `None`, the name determines the
    /// provider.
    pub(crate) fn find(
        calculator: &Calculator,
        provider: Option<&str>,
        model: &str,
    ) -> Option<Self> {
        // The price of nothing, at any time, only to match the name.
        let usage = Usage::new();
        let mut request = PriceRequest::new(model, &usage).with_timestamp(SystemTime::UNIX_EPOCH);
        request.provider_id = provider;
        let priced = calculator.calculate(&request).ok()?;
        Some(Self { provider: priced.provider_id, model: priced.model_id })
    }
}

/// Calculates the cost of one request, and determines what it does not include.
///
/// The data does not state which kinds of usage a model has prices for. A kind without a price is
/// charged as a more general kind, or not at all. Therefore, each kind of usage that only some
/// models have a price for is added separately: if it does not change the cost, it has no price.
pub(crate) struct PricedUsage<'a> {
    calculator: &'a Calculator,
    request: &'a PricedRequest<'a>,
    listed: Listed,
    usage: Usage,
    tier: Option<&'a str>,
    gaps: Vec<CostGap>,
}

impl<'a> PricedUsage<'a> {
    pub(crate) fn new(
        calculator: &'a Calculator,
        request: &'a PricedRequest<'a>,
        listed: Listed,
    ) -> Self {
        let usage = plain_usage(&request.usage);
        Self { calculator, request, listed, usage, tier: None, gaps: Vec::new() }
    }

    /// Returns `None` if the request cannot be priced at all.
    pub(crate) fn cost(mut self) -> Option<Cost> {
        let mut dollars = self.price()?;
        if let Some(tier) = self.request.billing.and_then(Billing::service_tier) {
            self.tier = Some(tier);
            let at_tier = self.price()?;
            if dollars > 0.0 && !differs(dollars, at_tier) {
                self.add_gap(CostGapKind::ServiceTier, Some(tier));
            }
            dollars = at_tier;
        }
        let long_writes = cache_writes(&self.request.usage).1;
        if long_writes > 0
            && !self.adds(UsageKey::CACHE_WRITE_1H_TOKENS, long_writes, &mut dollars)?
        {
            self.add_gap(CostGapKind::LongCacheWrites, None);
        }
        for (tool, calls) in self.request.billing.into_iter().flat_map(Billing::server_tool_calls) {
            let is_priced = match tool {
                Billing::WEB_SEARCH => {
                    let searches = self.charged_web_searches(calls);
                    self.adds(UsageKey::WEB_SEARCHES, searches, &mut dollars)?
                }
                Billing::FILE_SEARCH => {
                    self.adds(UsageKey::STORAGE_SEARCHES, calls, &mut dollars)?
                }
                Billing::CODE_EXECUTION => {
                    self.adds(UsageKey::CODE_EXECUTIONS, calls, &mut dollars)?
                }
                // "Web fetch usage has no additional charges beyond standard token costs":
                // https://platform.claude.com/docs/en/about-claude/pricing
                "web_fetch" => true,
                _ => false,
            };
            if !is_priced {
                self.add_gap(CostGapKind::ServerTool, Some(tool));
            }
        }
        self.add_kinds_of_tokens(&mut dollars);
        Some(Cost { micros: to_micros(dollars), gaps: self.gaps })
    }

    /// Adds the kinds of tokens that may have a price of their own. Without one, they are charged
    /// like other tokens.
    fn add_kinds_of_tokens(&mut self, dollars: &mut f64) {
        let Some(billing) = self.request.billing else { return };
        let usage = self.request.usage;
        let all: BTreeMap<&str, u64> = billing.tokens_by_kind().collect();
        for (&kind, &tokens) in &all {
            let is_priced = match kind {
                "input_audio" => {
                    let cached = all.get("cache_read_audio").copied().unwrap_or_default();
                    self.adds_input_audio(tokens, cached, dollars)
                }
                // It is added with `input_audio`.
                "cache_read_audio" => true,
                "output_audio" | "output_image" | "output_video" | "citation" => {
                    let key = match kind {
                        "output_audio" => UsageKey::OUTPUT_AUDIO_TOKENS,
                        "output_image" => UsageKey::OUTPUT_IMAGE_TOKENS,
                        "output_video" => UsageKey::OUTPUT_VIDEO_TOKENS,
                        _ => UsageKey::OUTPUT_CITATION_TOKENS,
                    };
                    let counted = tokens.min(usage.output_tokens);
                    self.adds_tokens(&[(key, counted)], dollars) && counted == tokens
                }
                "cache_storage" => {
                    self.add_gap(CostGapKind::CacheStorage, None);
                    true
                }
                _ => false,
            };
            if !is_priced {
                self.add_gap(CostGapKind::TokenKind, Some(kind));
            }
        }
    }

    /// Adds audio in the input, of which `cached` tokens were read from a cache. Returns `false` if
    /// a part of it is charged like text.
    fn adds_input_audio(&mut self, tokens: u64, cached: u64, dollars: &mut f64) -> bool {
        let usage = &self.request.usage;
        let read = usage.cache_read_input_tokens.min(usage.input_tokens);
        let cached = cached.min(tokens).min(read);
        // Some providers do not report how much of the audio they have read from a cache.
        let uncached = usage.input_tokens - read - cache_writes(usage).0;
        let counted = tokens.min(uncached + cached);
        let keys = [
            (UsageKey::INPUT_AUDIO_TOKENS, counted),
            (UsageKey::CACHE_AUDIO_READ_TOKENS, cached),
            (UsageKey::CACHE_AUDIO_WRITE_TOKENS, 0),
            (UsageKey::CACHE_AUDIO_WRITE_1H_TOKENS, 0),
        ];
        self.adds_tokens(&keys, dollars) && counted == tokens
    }

    /// Adds tokens that may have no price of their own. Returns whether they have one, and updates
    /// the cost. Without a price, the usage is unchanged.
    fn adds_tokens(&mut self, keys: &[(UsageKey, u64)], dollars: &mut f64) -> bool {
        let before = self.usage.clone();
        for (key, count) in keys {
            self.usage.insert(key.clone(), to_number(*count));
        }
        match self.price() {
            Some(price) if differs(*dollars, price) => {
                *dollars = price;
                true
            }
            Some(_) | None => {
                self.usage = before;
                false
            }
        }
    }

    /// Adds usage that may have no price. Returns whether it has one, and updates the cost.
    fn adds(&mut self, key: UsageKey, count: u64, dollars: &mut f64) -> Option<bool> {
        self.usage.insert(key, to_number(count));
        let before = std::mem::replace(dollars, self.price()?);
        Some(differs(before, *dollars))
    }

    fn price(&self) -> Option<f64> {
        let mut request = PriceRequest::new(self.request.model, &self.usage)
            .with_provider_id(&self.listed.provider)
            .with_timestamp(self.request.sent_at);
        if let Some(tier) = self.tier {
            // In the data, a batch is not a tier.
            let key = if tier == "batch" { "processing" } else { "service_tier" };
            request = request.with_price_context(key, tier);
        }
        let priced = self.calculator.calculate(&request).ok()?;
        Some(priced.total_price)
    }

    /// Returns the number of web searches that are charged. Google charges for each search only
    /// from Gemini 3 on, and for each prompt that led to searches before:
    /// <https://ai.google.dev/gemini-api/docs/pricing>.
    fn charged_web_searches(&self, searches: u64) -> u64 {
        let is_charged_by_prompt = self.listed.provider == "google"
            && ["gemini-1", "gemini-2"].iter().any(|family| self.listed.model.starts_with(family));
        if is_charged_by_prompt { searches.min(1) } else { searches }
    }

    fn add_gap(&mut self, kind: CostGapKind, detail: Option<&str>) {
        let gap = CostGap::new(kind, self.request.model);
        self.gaps.push(match detail {
            Some(detail) => gap.with_detail(detail),
            None => gap,
        });
    }
}

/// Returns the usage that every model has a price for, or is charged as one that has. Counts that
/// contradict each other are reduced, since the data would have no price for them.
fn plain_usage(usage: &turnstream::Usage) -> Usage {
    let read = usage.cache_read_input_tokens.min(usage.input_tokens);
    let reasoning_tokens = usage.reasoning_tokens.min(usage.output_tokens);
    Usage::from([
        (UsageKey::INPUT_TOKENS, to_number(usage.input_tokens)),
        (UsageKey::OUTPUT_TOKENS, to_number(usage.output_tokens)),
        (UsageKey::CACHE_READ_TOKENS, to_number(read)),
        (UsageKey::CACHE_WRITE_TOKENS, to_number(cache_writes(usage).0)),
        (UsageKey::OUTPUT_REASONING_TOKENS, to_number(reasoning_tokens)),
    ])
}

/// Returns the number of all tokens written to a cache, and of those written for an hour.
fn cache_writes(usage: &turnstream::Usage) -> (u64, u64) {
    let uncached = usage.input_tokens.saturating_sub(usage.cache_read_input_tokens);
    let written = usage.cache_write_input_tokens.min(uncached);
    (written, usage.cache_write_1h_input_tokens.min(written))
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens stay far below 2^53")]
fn to_number(count: u64) -> f64 {
    count as f64
}

/// Returns whether two amounts of dollars differ by more than an error of rounding.
fn differs(one: f64, other: f64) -> bool {
    (one - other).abs() > 1e-12 * one.abs().max(other.abs())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and the amount is not negative"
)]
fn to_micros(dollars: f64) -> u64 {
    (dollars * 1_000_000.0).round() as u64
}
