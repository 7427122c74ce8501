//! Classifies vendors' errors using tables of phrases and codes. To support a new wording, add a
//! row to a table.

use crate::error::{AuthProblem, ErrorKind, RateLimitScope};
use crate::provider::codec::failure::context_limits;
use crate::provider::codec::failure::error_body::ErrorBody;
use crate::provider::codec::failure::error_codes::{GENERAL_CODES, SPECIFIC_CODES};

use AuthProblem::{ExpiredKey, Forbidden, InvalidKey, MissingKey, Region};
use ErrorKind::{
    Auth, Billing, ContextWindow, Filtered, GenerationFailed, InvalidRequest, Overloaded, Protocol,
    RateLimited, ReasoningRefused, Server, Timeout, Unsupported,
};
use RateLimitScope::{
    Concurrency, Daily, InputTokens, OutputTokens, RequestSize, Requests, Tokens,
};

/// The phrases, all in lower case, that determine an error's kind. If several phrases occur in the
/// message, the first of these phrases in the table takes precedence. A message is searched only if
/// the error's codes do not determine the kind, since many vendors call every error an invalid
/// request.
const KIND_PHRASES: &[(ErrorKind, &[&str])] = &[
    // The wording used by Anthropic and Bedrock, with and without quotes.
    (ReasoningRefused, &["invalid `signature` in `thinking`", "invalid signature in thinking"]),
    (ReasoningRefused, &["invalid `data` in `redacted_thinking`", "thinking.signature:"]),
    (ReasoningRefused, &["invalid data in redacted_thinking"]),
    (ReasoningRefused, &["blocks in the latest assistant message cannot be modified"]),
    // The wording used by Google.
    (ReasoningRefused, &["corrupted thought signature", "invalid thought signature"]),
    (ReasoningRefused, &["thought signature is not valid"]),
    // The wording used by OpenAI, for gateways that do not pass on the code.
    (ReasoningRefused, &["encrypted content could not be decrypted", "encrypted content for item"]),
    (ReasoningRefused, &["encrypted content organization_id did not match"]),
    // The wording used by Anthropic and Bedrock.
    (ContextWindow, &["prompt is too long", "input is too long for requested model"]),
    // The wording used by OpenAI, vLLM, OpenRouter, DeepSeek and Together.
    (ContextWindow, &["maximum context length", "context window of this model"]),
    (ContextWindow, &["context length exceeded", "context_length_exceeded"]),
    (ContextWindow, &["longer than the model's context length"]),
    (ContextWindow, &["longer than the maximum model length", "max_model_len"]),
    // The wording used by Groq.
    (ContextWindow, &["please reduce the length of the messages"]),
    // The wording used by Google.
    (ContextWindow, &["exceeds the maximum number of tokens"]),
    // The wording used by llama.cpp, LM Studio and Ollama.
    (ContextWindow, &["exceeds the available context size", "is greater than the context length"]),
    (ContextWindow, &["loaded with context length of only", "max context length"]),
    (ContextWindow, &["exceeds the context length", "exceed context window"]),
    (ContextWindow, &["exceeds the context window"]),
    // The wording used by Together and by other servers built on TGI.
    (ContextWindow, &["`inputs` tokens + `max_new_tokens` must be"]),
    (ContextWindow, &["`inputs` must have less than"]),
    // The wording used by Cohere.
    (ContextWindow, &["number of tokens in the prompt cannot exceed"]),
    // The wording used by xAI, MiniMax, Moonshot and GitHub.
    (ContextWindow, &["maximum prompt length is", "context window exceeds limit"]),
    (ContextWindow, &["exceeded model token limit", "prompt token count of"]),
    (ContextWindow, &["exceed context limit", "total length of all messages is too long"]),
    (Billing, &["credit balance is too low", "insufficient balance", "insufficient credits"]),
    (Billing, &["requires more credits", "exceeded your current quota", "billing hard limit"]),
    (Billing, &["billing details", "balance is insufficient", "available credits", "any credits"]),
    (Billing, &["not enough credits", "spending limit", "budget has been exceeded"]),
    (Billing, &["specified api usage limits", "in good standing"]),
    (Filtered, &["content management policy", "content filtering policy", "requires moderation"]),
    (Filtered, &["flagged as potentially violating", "was flagged", "violates usage guidelines"]),
    (Filtered, &["inappropriate content", "rejected by the safety system"]),
    (Auth, &["api key expired", "api key not valid", "api key is invalid", "invalid api key"]),
    (Auth, &["incorrect api key", "invalid x-api-key", "unregistered callers"]),
    (Auth, &["user location is not supported", "not available in your region"]),
    (Auth, &["not available in your country", "organization has been disabled"]),
    (Auth, &["account has been disabled"]),
    (GenerationFailed, &["failed to call a function", "tool call validation failed"]),
    (GenerationFailed, &["model did not call a tool", "failed to generate json"]),
    (GenerationFailed, &["failed to parse tool call", "malformed function call"]),
    (RateLimited, &["rate limit", "too many requests", "rate exceeded", "request limit reached"]),
    (Overloaded, &["overloaded", "tier capacity exceeded", "at capacity", "high demand"]),
    (Overloaded, &["server is busy", "server busy", "loading model"]),
    (Overloaded, &["no available model provider"]),
    (Timeout, &["deadline expired", "request timed out"]),
    (Unsupported, &["unsupported parameter", "is not supported with this model"]),
    (Unsupported, &["does not support tools", "does not support image"]),
    (Unsupported, &["does not support thinking", "is not supported for this model"]),
    (Unsupported, &["no endpoints found that support"]),
    // The wording used by llama.cpp, and by vLLM servers that were started without the required
    // flag.
    (Unsupported, &["input is not supported", " requires --"]),
];

/// Phrases that indicate which rate limit was exceeded; the first match determines the result.
/// Google reports the name of a quota instead of a message.
const SCOPE_PHRASES: &[(RateLimitScope, &[&str])] = &[
    (RequestSize, &["request too large"]),
    (Daily, &["per day", "per-day", "per_day", "perday", "daily", "(rpd)", "(tpd)"]),
    (Concurrency, &["concurren", "parallel requests"]),
    (InputTokens, &["input tokens per", "inputtokens", "input_token", "input-tokens"]),
    (OutputTokens, &["output tokens per", "outputtokens", "output_token", "output-tokens"]),
    (Tokens, &["tokens per min", "(tpm)", "token rate limit", "tokens rate limit", "tokens limit"]),
    (Tokens, &["request tokens has exceeded", "tokens_per"]),
    (Requests, &["requests per min", "(rpm)", "requestsper", "requests_per"]),
    (Requests, &["requests rate limit", "call rate limit", "number of requests", "per-min"]),
    (Requests, &["free_tier_requests"]),
];

/// Codes and phrases that indicate why authentication failed; the first match determines the
/// result.
const AUTH_PHRASES: &[(AuthProblem, &[&str])] = &[
    // The wording used by Azure, whose message covers several causes.
    (InvalidKey, &["access token is missing, invalid"]),
    (ExpiredKey, &["expired"]),
    (Region, &["unsupported_country_region_territory", "location is not supported"]),
    (Region, &["not available in your region", "not available in your country"]),
    (Region, &["country, region, or territory"]),
    (MissingKey, &["missing", "didn't provide an api key", "did not provide an api key"]),
    (MissingKey, &["no auth credentials", "no api key", "no cookie auth", "unregistered callers"]),
    (MissingKey, &["header is required", "must provide an api key", "credentials_missing"]),
    (Forbidden, &["permission", "not have access", "not allowed", "forbidden", "service_disabled"]),
    (Forbidden, &["service_blocked", "referrer_blocked", "has not been used in project"]),
    (Forbidden, &["deactivated", "suspended", "disabled", "not_authorized"]),
    (InvalidKey, &["invalid", "incorrect", "not valid", "unauthenticated", "user not found"]),
];

/// Determines an error's kind from the most specific evidence available: a specific code, then the
/// message, then the status, then a general code.
pub(super) fn error_kind(status: Option<u16>, error_body: &ErrorBody) -> ErrorKind {
    let word = |table| {
        first_match(table, |word| error_body.codes.iter().any(|code| is_same_code(code, word)))
    };
    let phrase = || first_match(KIND_PHRASES, |phrase| error_body.text.contains(phrase));
    let by_message = || phrase().or_else(|| kind_from_context_limits(error_body));
    word(SPECIFIC_CODES)
        .or_else(by_message)
        .filter(|kind| is_consistent_with_status(*kind, status))
        .or_else(|| status.map(kind_from_status))
        .or_else(|| word(GENERAL_CODES))
        .or_else(|| is_unknown_model(error_body).then_some(InvalidRequest))
        .unwrap_or(ErrorKind::Other)
}

/// Returns the value in the first row of the table that contains a matching word.
fn first_match<T: Copy>(table: &[(T, &[&str])], fits: impl Fn(&str) -> bool) -> Option<T> {
    table.iter().find(|(_, phrases)| phrases.iter().any(|word| fits(word))).map(|(means, _)| *means)
}

/// Returns whether two codes differ at most in their naming convention, like `rate_limit_error`,
/// `RateLimitError` and `com.vendor#RateLimitException`.
fn is_same_code(a: &str, b: &str) -> bool {
    normalize_code(a).eq(normalize_code(b))
}

/// Iterates over the characters of a code that are significant when codes are compared.
fn normalize_code(word: &str) -> impl Iterator<Item = char> {
    let name = word.rsplit(['#', '/']).next().unwrap_or_default();
    let name = name.strip_suffix("exception").unwrap_or(name);
    let name = name.strip_suffix("error").unwrap_or(name);
    name.chars().filter(|c| !matches!(c, '_' | '-' | ' '))
}

fn kind_from_context_limits(error_body: &ErrorBody) -> Option<ErrorKind> {
    (error_body.context_limits.is_some()
        || context_limits::read_context_limits(&error_body.text).is_some())
    .then_some(ContextWindow)
}

/// Returns whether an error with this status may be of this kind. For example, an error whose
/// status reports an invalid key is not reclassified merely because its message mentions a limit.
/// Likewise, a billing error is not reclassified merely because of a code such as Google's
/// `RESOURCE_EXHAUSTED`.
fn is_consistent_with_status(kind: ErrorKind, status: Option<u16>) -> bool {
    match status {
        Some(401) => kind == Auth || kind == Billing,
        Some(402) => kind == Billing,
        Some(403) => kind != ContextWindow,
        _ => true,
    }
}

fn kind_from_status(status: u16) -> ErrorKind {
    match status {
        401 | 403 | 407 => Auth,
        402 => Billing,
        // Cloudflare uses status 524 if the origin server took too long.
        408 | 504 | 524 => Timeout,
        429 => RateLimited,
        // Groq uses status 498 ("Flex Tier Capacity Exceeded"), and Anthropic uses 529.
        498 | 503 | 529 => Overloaded,
        501 => Unsupported,
        // OpenAI's SDKs retry requests after status 409: "the server may return 409 on lock
        // timeouts". Bedrock and TGI use status 424 for a failed model, and Google uses 499 for a
        // cancelled request.
        409 | 424 | 425 | 499 | 500.. => Server,
        400.. => InvalidRequest,
        _ => Protocol,
    }
}

pub(super) fn rate_limit_scope(error_body: &ErrorBody) -> Option<RateLimitScope> {
    first_match(SCOPE_PHRASES, |piece| error_body.text.contains(piece)).or_else(|| {
        // The error type that OpenAI and Groq send.
        error_body.codes.iter().find_map(|word| match word.as_str() {
            "tokens" => Some(Tokens),
            "requests" => Some(Requests),
            _ => None,
        })
    })
}

pub(super) fn auth_problem(error_body: &ErrorBody) -> Option<AuthProblem> {
    let in_words = |piece: &str| error_body.codes.iter().any(|word| word.contains(piece));
    first_match(AUTH_PHRASES, |piece| error_body.text.contains(piece) || in_words(piece))
}

/// The phrases in messages about a model that the server does not offer. Both strings of a pair
/// must occur in the same sentence, in this order.
const UNKNOWN_MODEL_PHRASES: &[(&str, &str)] = &[
    // The wording used by OpenAI, Groq, xAI, vLLM, Hugging Face, Cerebras, DeepSeek, Google,
    // Ollama, Fireworks and Cohere.
    ("model", "not exist"),
    ("model", "is not found"),
    ("model", "not found"),
    // The wording used by Mistral, Perplexity, LiteLLM and LM Studio.
    ("invalid model", ""),
    // The wording used by Z.ai, MiniMax and GitHub.
    ("unknown model", ""),
    // The wording used by OpenRouter.
    ("valid model id", ""),
    ("no endpoints found for", ""),
    // The wording used by Moonshot.
    ("not found the model", ""),
    // The wording used by Together.
    ("unable to access model", ""),
    // The wording used by Bedrock.
    ("model identifier is invalid", ""),
    // The wording used by Hugging Face.
    ("model", "not supported by any provider"),
];

/// The codes for a model that the server does not offer.
const UNKNOWN_MODEL_CODES: [&str; 5] = [
    "model_not_found",
    "model_not_available",
    "model_not_supported",
    "invalid_model",
    "unknown_model",
];

/// Returns the name of the parameter that the server rejected, derived from an error body that does
/// not name the parameter in a field of its own. The name is either `model` or the path at the
/// start of a message such as Anthropic's `messages.3.content.0.text: must not be empty`.
pub(super) fn refused_parameter(error_body: &ErrorBody) -> Option<String> {
    if is_unknown_model(error_body) {
        return Some("model".to_owned());
    }
    let (path, _) = error_body.message.split_once(": ")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c);
    let is_path = path.starts_with(|c: char| c.is_ascii_lowercase()) && path.chars().all(plain);
    (is_path && path != "error").then(|| path.to_owned())
}

fn is_unknown_model(error_body: &ErrorBody) -> bool {
    let known = |word: &String| UNKNOWN_MODEL_CODES.iter().any(|code| is_same_code(word, code));
    let matches = |sentence: &str| {
        UNKNOWN_MODEL_PHRASES.iter().any(|(first, then)| {
            let rest = sentence.find(first).map(|at| &sentence[at..]);
            rest.is_some_and(|rest| rest.contains(then))
        })
    };
    error_body.codes.iter().any(known) || error_body.text.split(". ").any(matches)
}
