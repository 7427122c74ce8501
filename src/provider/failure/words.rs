//! What the words of vendors mean. Data first: a wording that is met anew is a row.

use crate::error::{AuthProblem, ErrorKind, RateLimitScope};
use crate::provider::failure::codes::{GENERAL, SPECIFIC};
use crate::provider::failure::limits;
use crate::provider::failure::said::Said;

use AuthProblem::{ExpiredKey, Forbidden, InvalidKey, MissingKey, Region};
use ErrorKind::{
    Auth, Billing, ContextWindow, Filtered, GenerationFailed, InvalidRequest, Overloaded, Protocol,
    RateLimited, Server, Timeout, Unsupported,
};
use RateLimitScope::{
    Concurrency, Daily, InputTokens, OutputTokens, RequestSize, Requests, Tokens,
};

/// What a message says by some of its words, in lower case, the first that fits. A message is
/// asked where the words for programs are silent: many a vendor calls everything an invalid
/// request.
const PHRASES: &[(&str, ErrorKind)] = &[
    // Anthropic, Bedrock.
    ("prompt is too long", ContextWindow),
    ("input is too long for requested model", ContextWindow),
    // OpenAI, vLLM, OpenRouter, DeepSeek, Together.
    ("maximum context length", ContextWindow),
    ("context window of this model", ContextWindow),
    ("context length exceeded", ContextWindow),
    ("context_length_exceeded", ContextWindow),
    ("longer than the model's context length", ContextWindow),
    ("longer than the maximum model length", ContextWindow),
    ("max_model_len", ContextWindow),
    // Groq.
    ("please reduce the length of the messages", ContextWindow),
    // Google.
    ("exceeds the maximum number of tokens", ContextWindow),
    // llama.cpp, LM Studio, Ollama.
    ("exceeds the available context size", ContextWindow),
    ("is greater than the context length", ContextWindow),
    ("loaded with context length of only", ContextWindow),
    ("max context length", ContextWindow),
    ("exceeds the context length", ContextWindow),
    ("exceed context window", ContextWindow),
    ("exceeds the context window", ContextWindow),
    // Together, and others that are built on TGI.
    ("`inputs` tokens + `max_new_tokens` must be", ContextWindow),
    ("`inputs` must have less than", ContextWindow),
    // Cohere.
    ("number of tokens in the prompt cannot exceed", ContextWindow),
    // xAI, MiniMax, Moonshot, GitHub.
    ("maximum prompt length is", ContextWindow),
    ("context window exceeds limit", ContextWindow),
    ("exceeded model token limit", ContextWindow),
    ("prompt token count of", ContextWindow),
    ("exceed context limit", ContextWindow),
    ("total length of all messages is too long", ContextWindow),
    ("credit balance is too low", Billing),
    ("insufficient balance", Billing),
    ("insufficient credits", Billing),
    ("requires more credits", Billing),
    ("exceeded your current quota", Billing),
    ("billing hard limit", Billing),
    ("billing details", Billing),
    ("balance is insufficient", Billing),
    ("available credits", Billing),
    ("any credits", Billing),
    ("not enough credits", Billing),
    ("spending limit", Billing),
    ("budget has been exceeded", Billing),
    ("specified api usage limits", Billing),
    ("in good standing", Billing),
    ("content management policy", Filtered),
    ("content filtering policy", Filtered),
    ("requires moderation", Filtered),
    ("flagged as potentially violating", Filtered),
    ("was flagged", Filtered),
    ("violates usage guidelines", Filtered),
    ("inappropriate content", Filtered),
    ("rejected by the safety system", Filtered),
    ("api key expired", Auth),
    ("api key not valid", Auth),
    ("api key is invalid", Auth),
    ("invalid api key", Auth),
    ("incorrect api key", Auth),
    ("invalid x-api-key", Auth),
    ("unregistered callers", Auth),
    ("user location is not supported", Auth),
    ("not available in your region", Auth),
    ("not available in your country", Auth),
    ("organization has been disabled", Auth),
    ("account has been disabled", Auth),
    ("failed to call a function", GenerationFailed),
    ("tool call validation failed", GenerationFailed),
    ("model did not call a tool", GenerationFailed),
    ("failed to generate json", GenerationFailed),
    ("failed to parse tool call", GenerationFailed),
    ("malformed function call", GenerationFailed),
    ("rate limit", RateLimited),
    ("too many requests", RateLimited),
    ("rate exceeded", RateLimited),
    ("request limit reached", RateLimited),
    ("overloaded", Overloaded),
    ("tier capacity exceeded", Overloaded),
    ("at capacity", Overloaded),
    ("high demand", Overloaded),
    ("server is busy", Overloaded),
    ("server busy", Overloaded),
    ("loading model", Overloaded),
    ("no available model provider", Overloaded),
    ("deadline expired", Timeout),
    ("request timed out", Timeout),
    ("unsupported parameter", Unsupported),
    ("is not supported with this model", Unsupported),
    ("does not support tools", Unsupported),
    ("does not support image", Unsupported),
    ("does not support thinking", Unsupported),
    ("is not supported for this model", Unsupported),
    ("no endpoints found that support", Unsupported),
    // llama.cpp, and vLLM, whose server was started without a flag.
    ("input is not supported", Unsupported),
    (" requires --", Unsupported),
];

/// What there was too much of, by a piece of what was said, the first that fits. Google names its
/// quotas instead of saying so.
const SCOPES: &[(&str, RateLimitScope)] = &[
    ("request too large", RequestSize),
    ("per day", Daily),
    ("per-day", Daily),
    ("per_day", Daily),
    ("perday", Daily),
    ("daily", Daily),
    ("(rpd)", Daily),
    ("(tpd)", Daily),
    ("concurren", Concurrency),
    ("parallel requests", Concurrency),
    ("input tokens per", InputTokens),
    ("inputtokens", InputTokens),
    ("input_token", InputTokens),
    ("input-tokens", InputTokens),
    ("output tokens per", OutputTokens),
    ("outputtokens", OutputTokens),
    ("output_token", OutputTokens),
    ("output-tokens", OutputTokens),
    ("tokens per min", Tokens),
    ("(tpm)", Tokens),
    ("token rate limit", Tokens),
    ("tokens rate limit", Tokens),
    ("tokens limit", Tokens),
    ("request tokens has exceeded", Tokens),
    ("tokens_per", Tokens),
    ("requests per min", Requests),
    ("(rpm)", Requests),
    ("requestsper", Requests),
    ("requests_per", Requests),
    ("requests rate limit", Requests),
    ("call rate limit", Requests),
    ("number of requests", Requests),
    ("per-min", Requests),
    ("free_tier_requests", Requests),
];

/// What is wrong with a key, by the words for programs or a piece of the message, the first that
/// fits.
const AUTH: &[(&str, AuthProblem)] = &[
    // Azure, which does not say which.
    ("access token is missing, invalid", InvalidKey),
    ("expired", ExpiredKey),
    ("unsupported_country_region_territory", Region),
    ("location is not supported", Region),
    ("not available in your region", Region),
    ("not available in your country", Region),
    ("country, region, or territory", Region),
    ("missing", MissingKey),
    ("didn't provide an api key", MissingKey),
    ("did not provide an api key", MissingKey),
    ("no auth credentials", MissingKey),
    ("no api key", MissingKey),
    ("no cookie auth", MissingKey),
    ("unregistered callers", MissingKey),
    ("header is required", MissingKey),
    ("must provide an api key", MissingKey),
    ("credentials_missing", MissingKey),
    ("permission", Forbidden),
    ("not have access", Forbidden),
    ("not allowed", Forbidden),
    ("forbidden", Forbidden),
    ("service_disabled", Forbidden),
    ("service_blocked", Forbidden),
    ("referrer_blocked", Forbidden),
    ("has not been used in project", Forbidden),
    ("deactivated", Forbidden),
    ("suspended", Forbidden),
    ("disabled", Forbidden),
    ("not_authorized", Forbidden),
    ("invalid", InvalidKey),
    ("incorrect", InvalidKey),
    ("not valid", InvalidKey),
    ("unauthenticated", InvalidKey),
    ("user not found", InvalidKey),
];

/// The kind, by what says most: a word for programs, then a message, then the status, then a word
/// that says little.
pub(super) fn kind(status: Option<u16>, said: &Said) -> ErrorKind {
    let word = |table: &[(&str, ErrorKind)]| {
        let known = |(word, _): &&(&str, _)| said.words.iter().any(|said| same(said, word));
        table.iter().find(known).map(|(_, kind)| *kind)
    };
    let phrase = || PHRASES.iter().find(|(phrase, _)| said.text.contains(phrase));
    let by_message = || phrase().map(|(_, kind)| *kind).or_else(|| by_limits(said));
    word(SPECIFIC)
        .or_else(by_message)
        .filter(|kind| fits(*kind, status))
        .or_else(|| status.map(of_status))
        .or_else(|| word(GENERAL))
        .or_else(|| is_unknown_model(said).then_some(InvalidRequest))
        .unwrap_or(ErrorKind::Other)
}

/// Whether two words for programs are the same, whatever hand wrote them: `rate_limit_error`,
/// `RateLimitError` and `com.vendor#RateLimitException`.
fn same(a: &str, b: &str) -> bool {
    core(a).eq(core(b))
}

/// The letters of a word that say what it means.
fn core(word: &str) -> impl Iterator<Item = char> {
    let name = word.rsplit(['#', '/']).next().unwrap_or_default();
    let name = name.strip_suffix("exception").unwrap_or(name);
    let name = name.strip_suffix("error").unwrap_or(name);
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' '))
}

fn by_limits(said: &Said) -> Option<ErrorKind> {
    (said.limits.is_some() || limits::read(&said.text).is_some()).then_some(ContextWindow)
}

/// A key that the status says is wrong is not made right by a message that mentions a limit, nor an
/// account paid for by a word such as Google's `RESOURCE_EXHAUSTED`.
fn fits(kind: ErrorKind, status: Option<u16>) -> bool {
    match status {
        Some(401) => kind == Auth || kind == Billing,
        Some(402) => kind == Billing,
        Some(403) => kind != ContextWindow,
        _ => true,
    }
}

fn of_status(status: u16) -> ErrorKind {
    match status {
        401 | 403 | 407 => Auth,
        402 => Billing,
        // 524 is Cloudflare's, for a server behind it that took too long.
        408 | 504 | 524 => Timeout,
        429 => RateLimited,
        // 498 is Groq's: "Flex Tier Capacity Exceeded"; 529 is Anthropic's.
        498 | 503 | 529 => Overloaded,
        501 => Unsupported,
        // OpenAI's SDKs ask again: "the server may return 409 on lock timeouts".
        // 424 is Bedrock's and TGI's, for a model that failed; 499 is Google's, for what it cancelled.
        409 | 424 | 425 | 499 | 500.. => Server,
        400.. => InvalidRequest,
        _ => Protocol,
    }
}

pub(super) fn scope(said: &Said) -> Option<RateLimitScope> {
    let told = SCOPES.iter().find(|(piece, _)| said.text.contains(piece)).map(|(_, scope)| *scope);
    told.or_else(|| {
        // The type of an error of OpenAI and Groq.
        said.words.iter().find_map(|word| match word.as_str() {
            "tokens" => Some(Tokens),
            "requests" => Some(Requests),
            _ => None,
        })
    })
}

pub(super) fn auth(said: &Said) -> Option<AuthProblem> {
    let in_words = |piece: &str| said.words.iter().any(|word| word.contains(piece));
    let told = |(piece, _): &&(&str, _)| said.text.contains(piece) || in_words(piece);
    AUTH.iter().find(told).map(|(_, problem)| *problem)
}

/// What is said of a model that the server does not have: two pieces of one sentence, in order.
const UNKNOWN_MODEL: &[(&str, &str)] = &[
    // OpenAI, Groq, xAI, vLLM, Hugging Face, Cerebras, DeepSeek; Google; Ollama, Fireworks, Cohere.
    ("model", "not exist"),
    ("model", "is not found"),
    ("model", "not found"),
    // Mistral, Perplexity, LiteLLM, LM Studio.
    ("invalid model", ""),
    // Z.ai, MiniMax, GitHub.
    ("unknown model", ""),
    // OpenRouter.
    ("valid model id", ""),
    ("no endpoints found for", ""),
    // Moonshot.
    ("not found the model", ""),
    // Together.
    ("unable to access model", ""),
    // Bedrock.
    ("model identifier is invalid", ""),
    // Hugging Face.
    ("model", "not supported by any provider"),
];

/// The same in the words for programs.
const UNKNOWN_MODEL_CODES: [&str; 5] = [
    "model_not_found",
    "model_not_available",
    "model_not_supported",
    "invalid_model",
    "unknown_model",
];

/// What of the request was wrong, where no field says so: the model, or the path that a message
/// begins with, as at Anthropic: `messages.3.content.0.text: must not be empty`.
pub(super) fn parameter(said: &Said) -> Option<String> {
    if is_unknown_model(said) {
        return Some("model".to_owned());
    }
    let (path, _) = said.message.split_once(": ")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c);
    let is_path = path.starts_with(|c: char| c.is_ascii_lowercase()) && path.chars().all(plain);
    (is_path && path != "error").then(|| path.to_owned())
}

fn is_unknown_model(said: &Said) -> bool {
    let known = |word: &String| UNKNOWN_MODEL_CODES.iter().any(|code| same(word, code));
    let told = |sentence: &str| {
        UNKNOWN_MODEL.iter().any(|(first, then)| {
            let rest = sentence.find(first).map(|at| &sentence[at..]);
            rest.is_some_and(|rest| rest.contains(then))
        })
    };
    said.words.iter().any(known) || said.text.split(". ").any(told)
}
