//! Which price applies to the name of a model.

use std::time::SystemTime;

use turnstream::usage::{NameMatch, Price, PriceSource, PricedRequest, Prices, Usage};
use turnstream_prices::BundledPrices;

/// Checks the cost of a million input tokens.
#[track_caller]
fn costs(prices: &Prices, model: &str, expected_micros: Option<u64>) {
    let usage = Usage { input_tokens: 1_000_000, ..Usage::default() };
    let request = PricedRequest::new(model, usage, SystemTime::UNIX_EPOCH);
    assert_eq!(prices.cost(&request).map(|cost| cost.micros), expected_micros, "{model}");
}

#[test]
fn an_own_price_wins_for_its_name_and_its_dates_but_not_over_a_listed_name() {
    let own = Price { input: 7.0, ..Price::default() };
    let prices = turnstream_prices::prices().with_price("gpt-5", own).with_price("gpt-4o", own);
    costs(&prices, "gpt-5", Some(7_000_000));
    costs(&prices, "gpt-5-2025-08-07", Some(7_000_000));
    costs(&prices, "gpt-5-mini", Some(250_000));
    costs(&prices, "gpt-4o-2024-08-06", Some(7_000_000));
    // This date is listed as a model of its own, with another price.
    costs(&prices, "gpt-4o-2024-05-13", Some(5_000_000));
}

#[test]
fn names_are_matched_exactly_or_by_a_rule_of_the_data() {
    let prices = BundledPrices::new();
    assert_eq!(prices.find_name("gpt-5"), Some(NameMatch::Exact));
    assert_eq!(prices.find_name("gpt-5-2025-08-07"), Some(NameMatch::ByRule));
    assert_eq!(prices.find_name("claude-sonnet-4-20250514"), Some(NameMatch::ByRule));
    assert_eq!(prices.find_name("gpt-5-unheard-of"), None);
    assert_eq!(prices.find_name(""), None);
}

#[test]
fn a_provider_can_be_chosen_for_models_that_several_providers_serve() {
    let groq = BundledPrices::new().of_provider("groq").unwrap();
    costs(&Prices::new().with_source(groq), "openai/gpt-oss-120b", Some(150_000));
    let error = BundledPrices::new().of_provider("nobody").unwrap_err();
    assert_eq!(error.to_string(), "no prices for the provider `nobody`");
}

#[test]
fn a_newer_file_replaces_the_bundled_data() {
    let file = r#"[{
        "id": "mine", "name": "Mine", "api_pattern": "mine", "extractors": [],
        "model_match": { "starts_with": "mine-" },
        "models": [{
            "id": "mine-1", "match": { "equals": "mine-1" }, "context_window": 4000,
            "prices": { "input_mtok": 3, "output_mtok": 5 }
        }]
    }]"#;
    let prices = Prices::new().with_source(BundledPrices::from_json(file).unwrap());
    costs(&prices, "mine-1", Some(3_000_000));
    costs(&prices, "gpt-5", None);
    assert!(BundledPrices::from_json("[{}]").is_err());
}
