//! Reads the log probabilities of tokens.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::codec::lenient::{Lenient, LenientList, LenientStr};
use crate::turn::{TokenLogprob, TopLogprob};

/// A token, in the format of both OpenAI wires and Ollama, and in that of Gemini.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WireToken<'a> {
    token: LenientStr<'a>,
    #[serde(alias = "logProbability")]
    logprob: Option<&'a RawValue>,
    top_logprobs: LenientList<WireToken<'a>>,
}

impl WireToken<'_> {
    fn read(&self) -> Option<TopLogprob> {
        let logprob: f64 = self.logprob?.get().parse().ok()?;
        let token = self.token.or_empty().to_owned();
        logprob.is_finite().then_some(TopLogprob { token, logprob })
    }

    fn read_with_alternatives(&self, top: Vec<TopLogprob>) -> Option<TokenLogprob> {
        let TopLogprob { token, logprob } = self.read()?;
        Some(TokenLogprob { token, logprob, top })
    }
}

/// Reads a list of tokens, in the format of both OpenAI wires and Ollama. Malformed tokens are left
/// out.
pub(in crate::provider) fn read_tokens(raw: &RawValue) -> Vec<TokenLogprob> {
    let tokens: LenientList<WireToken<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
    let read = |token: &WireToken<'_>| {
        let top = token.top_logprobs.0.iter().filter_map(WireToken::read).collect();
        token.read_with_alternatives(top)
    };
    tokens.0.iter().filter_map(read).collect()
}

/// Reads Gemini's `logprobsResult`,
/// <https://ai.google.dev/api/generate-content#LogprobsResult>.
pub(in crate::provider) fn read_result(raw: &RawValue) -> Vec<TokenLogprob> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
    struct LogprobsResult<'a> {
        chosen_candidates: LenientList<WireToken<'a>>,
        top_candidates: LenientList<TopCandidates<'a>>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, bound(deserialize = "'de: 'a"))]
    struct TopCandidates<'a> {
        candidates: LenientList<WireToken<'a>>,
    }
    let result: Lenient<LogprobsResult<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
    let result = result.0.unwrap_or_default();
    let mut top = result.top_candidates.0.iter();
    let read = |token: &WireToken<'_>| {
        let top =
            top.next().map(|top| top.candidates.0.iter().filter_map(WireToken::read).collect());
        token.read_with_alternatives(top.unwrap_or_default())
    };
    result.chosen_candidates.0.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn top(token: &str, logprob: f64) -> TopLogprob {
        TopLogprob { token: token.to_owned(), logprob }
    }

    #[test]
    fn tokens_with_unexpected_values_are_left_out() {
        let raw = to_raw_value(&json!([
            { "token": "a", "logprob": -0.5, "bytes": [97],
              "top_logprobs": [{ "token": "a", "logprob": -0.5 }, { "token": "b" }, 7] },
            { "token": "b", "logprob": "high" },
            null,
            { "token": "c", "logprob": -2, "top_logprobs": null, "later": {} },
        ]));
        let read = read_tokens(&raw.unwrap());
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].token.as_str(), read[0].logprob), ("a", -0.5));
        assert_eq!(read[0].top, [top("a", -0.5)]);
        assert_eq!((read[1].token.as_str(), read[1].top.len()), ("c", 0));
        for odd in [json!(null), json!({}), json!("x")] {
            assert_eq!(read_tokens(&to_raw_value(&odd).unwrap()), []);
            assert_eq!(read_result(&to_raw_value(&odd).unwrap()), []);
        }
    }

    #[test]
    fn each_chosen_candidate_has_the_alternatives_of_its_position() {
        let raw = to_raw_value(&json!({
            "chosenCandidates": [
                { "token": "a", "tokenId": 1, "logProbability": -0.5 },
                { "token": "b", "logProbability": -1.5 },
            ],
            "topCandidates": [
                { "candidates": [{ "token": "a", "logProbability": -0.5 }] },
            ],
        }));
        let read = read_result(&raw.unwrap());
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].logprob, &*read[0].top), (-0.5, &[top("a", -0.5)][..]));
        assert_eq!((read[1].logprob, read[1].top.len()), (-1.5, 0));
    }
}
