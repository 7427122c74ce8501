//! Reads the context limit and the number of requested tokens from error messages.

use crate::error::ContextLimits;

/// The patterns for error messages, in lower case. `{limit}` and `{requested}` match numbers; if a
/// pattern contains `{requested}` twice, the two numbers are added together. `*` matches any text.
/// The text before and after the matched part of a message is ignored.
const LIMIT_PATTERNS: &[&str] = &[
    // The message from Anthropic.
    "prompt is too long: {requested} tokens > {limit} maximum",
    "exceed context limit: {requested} + {requested} > {limit}",
    // The message from vLLM, which counts both the prompt and the requested output.
    "maximum context length is {limit} tokens*for a total of at least {requested} tokens",
    "maximum context length is {limit} tokens*your request has {requested} input tokens",
    // The messages from OpenAI, DeepSeek, OpenRouter and vLLM: "you requested", "you requested
    // about", "your messages resulted in", "your prompt contains at least".
    "maximum context length is {limit} tokens*requested {requested} tokens",
    "maximum context length is {limit} tokens*requested about {requested} tokens",
    "maximum context length is {limit} tokens*resulted in {requested} tokens",
    "maximum context length is {limit} tokens*contains at least {requested} input tokens",
    "maximum context length is {limit} tokens*{requested} tokens",
    "maximum context length of {limit} tokens",
    "maximum context length is {limit}",
    // The message from Mistral.
    "prompt contains {requested} tokens*too large for model with {limit} maximum context length",
    // The message from Together.
    "must be <= {limit}. given: {requested} `inputs` tokens and {requested} `max_new_tokens`",
    "`inputs` must have less than {limit} tokens. given: {requested}",
    "input ({requested} tokens) is longer than the model's context length ({limit} tokens)",
    // The message from Google.
    "input token count ({requested}) exceeds the maximum number of tokens allowed ({limit})",
    "input token count exceeds the maximum number of tokens allowed {limit}",
    "input token count exceeds the maximum number of tokens allowed ({limit})",
    "input token count is {requested} but model only supports up to {limit}",
    // The message from llama.cpp and from LM Studio, which is built on llama.cpp.
    "request ({requested} tokens) exceeds the available context size ({limit} tokens)",
    "keep the first {requested} tokens*loaded with context length of only {limit} tokens",
    "requested tokens ({requested}) exceed context window of {limit}",
    // The message from vLLM.
    "(length {requested}) is longer than the maximum model length of {limit}",
    // The message from xAI, Moonshot and GitHub.
    "maximum prompt length is {limit} but the request contains {requested} tokens",
    "exceeded model token limit: {limit} (requested: {requested})",
    "prompt token count of {requested} exceeds the limit of {limit}",
    // The message from Cohere.
    "number of tokens in the prompt cannot exceed {limit} - received {requested}",
];

/// Reads the context limits from a lower-case message.
pub(super) fn read_context_limits(text: &str) -> Option<ContextLimits> {
    LIMIT_PATTERNS.iter().find_map(|message| match_pattern(message, text, ContextLimits::default()))
}

/// Finds the first position in `text` at which the pattern `message` matches, and adds the matched
/// numbers to `limits`.
fn match_pattern(message: &str, text: &str, limits: ContextLimits) -> Option<ContextLimits> {
    let at_number = |(at, c): (usize, char)| {
        let before = text[..at].chars().next_back();
        (c.is_ascii_digit() && !before.is_some_and(|c| c.is_ascii_digit() || c == ','))
            .then_some(at)
    };
    let starts: Vec<usize> = match message.split(['{', '*']).next()? {
        "" => text.char_indices().filter_map(at_number).collect(),
        literal => text.match_indices(literal).map(|(at, _)| at).collect(),
    };
    let mut found = starts.into_iter().filter_map(|at| text.get(at..));
    found.find_map(|text| match_pattern_at(message, text, limits))
}

fn match_pattern_at(
    mut message: &str,
    mut text: &str,
    mut limits: ContextLimits,
) -> Option<ContextLimits> {
    loop {
        let end = message.find(['{', '*']).unwrap_or(message.len());
        let (literal, rest) = message.split_at_checked(end)?;
        text = text.strip_prefix(literal)?;
        // After a `*`, the pattern may continue at any position, including at a number.
        if let Some(behind) = rest.strip_prefix('*') {
            return match_pattern(behind, text, limits);
        }
        let Some((slot, behind)) = rest.split_once('}') else { return Some(limits) };
        let (number, left) = read_number(text)?;
        match slot {
            "{limit" => limits.limit = Some(number),
            _ => {
                let sum = limits.requested.unwrap_or_default().checked_add(number)?;
                limits.requested = Some(sum);
            }
        }
        (message, text) = (behind, left);
    }
}

/// Reads a number, which may contain commas. Returns the number and the text after it.
fn read_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    let written = text[..end].trim_end_matches(',');
    let digits: String = written.chars().filter(char::is_ascii_digit).collect();
    Some((digits.parse().ok()?, &text[written.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, limit: impl Into<Option<u64>>, requested: impl Into<Option<u64>>) {
        let expected = ContextLimits::new(limit.into(), requested.into());
        assert_eq!(read_context_limits(&text.to_lowercase()), Some(expected), "{text}");
    }

    #[test]
    fn context_limits_are_read_from_every_known_message() {
        check("prompt is too long: 210000 tokens > 200000 maximum", 200_000, 210_000);
        check(
            "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease",
            200_000,
            242_959,
        );
        check(
            "This model's maximum context length is 128000 tokens. However, your messages resulted \
             in 130000 tokens. Please reduce the length of the messages.",
            128_000,
            130_000,
        );
        check(
            "This model's maximum context length is 4097 tokens, however you requested 6539 tokens \
             (6283 in your prompt; 256 for the completion).",
            4_097,
            6_539,
        );
        check(
            "This endpoint's maximum context length is 32768 tokens. However, you requested about \
             40041 tokens (40041 of text input).",
            32_768,
            40_041,
        );
        check(
            "This model's maximum context length is 262144 tokens. However, you requested 128000 \
             output tokens and your prompt contains at least 134145 input tokens, for a total of \
             at least 262145 tokens.",
            262_144,
            262_145,
        );
        check(
            "'max_tokens' is too large: 2000. This model's maximum context length is 4096 tokens \
             and your request has 2104 input tokens (2000 > 4096 - 2104).",
            4_096,
            2_104,
        );
        check(
            "Requested token count exceeds the model's maximum context length of 131,072 tokens.",
            131_072,
            None,
        );
        check(
            "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 \
             maximum context length",
            32_768,
            65_673,
        );
        check(
            "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` tokens and \
             4096 `max_new_tokens`",
            4_097,
            84_221,
        );
        check(
            "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
            262_144,
            516_368,
        );
        check(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            1_048_576,
            1_200_000,
        );
        check(
            "The input token count exceeds the maximum number of tokens allowed 1048576.",
            1_048_576,
            None,
        );
        check(
            "request (14429 tokens) exceeds the available context size (8192 tokens), try \
             increasing it",
            8_192,
            14_429,
        );
        check(
            "Trying to keep the first 10136 tokens when context the overflows. However, the model \
             is loaded with context length of only 7866 tokens, which is not enough.",
            7_866,
            10_136,
        );
        check("Requested tokens (516) exceed context window of 512", 512, 516);
        check(
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            4_096,
            5_000,
        );
        check(
            "maximum prompt length is 131072 but the request contains 537812 tokens",
            131_072,
            537_812,
        );
        check("exceeded model token limit: 262144 (requested: 300000)", 262_144, 300_000);
        check("prompt token count of 93854 exceeds the limit of 90000", 90_000, 93_854);
    }

    #[test]
    fn messages_without_valid_numbers_yield_no_context_limits() {
        for text in [
            "",
            "your input exceeds the context window of this model",
            "prompt is too long: many tokens > few maximum",
            "prompt is too long: 99999999999999999999999 tokens > 5 maximum",
            "exceed context limit: 18446744073709551615 + 1 > 5",
            "maximum context length is ",
        ] {
            assert_eq!(read_context_limits(text), None, "{text}");
        }
    }
}
