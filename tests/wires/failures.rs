//! The vendors' error responses, and the error that a caller receives: one test per wording. The
//! bodies follow the vendors' documentation and user reports.

use std::time::{Duration, UNIX_EPOCH};

use turnstream::error::AuthProblem::{self, ExpiredKey, Forbidden, InvalidKey, MissingKey, Region};
use turnstream::error::ContextLimits;
use turnstream::error::RateLimitScope::{
    self, Concurrency, Daily, InputTokens, OutputTokens, RequestSize, Requests, Tokens,
};
use turnstream::http::HttpClient;
use turnstream::provider::{Anthropic, Ollama, OpenAiChat, Provider};
use turnstream::stream::TurnStreamExt;
use turnstream::{Error, ErrorKind, History, Item, Request};
use turnstream_testing::http::{BodyPart, HttpResponse, LoopbackServer};

use ErrorKind::{
    Auth, Billing, ContextWindow, Filtered, GenerationFailed, InvalidRequest, Overloaded,
    RateLimited, ReasoningRefused, Server, Timeout, Unsupported,
};

/// The current time in all tests: 2026-01-01.
const NOW_UNIX_SECS: u64 = 1_767_225_600;

#[derive(Clone, Copy)]
enum Wire {
    Messages,
    Chat,
    Ollama,
}

/// An error response.
struct ErrorCase {
    wire: Wire,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    has_key: bool,
}

/// The lines of the body are joined to one.
fn messages_case(status: u16, body: &str) -> ErrorCase {
    let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
    ErrorCase { wire: Wire::Messages, status, headers: Vec::new(), body, has_key: true }
}

fn chat_case(status: u16, body: &str) -> ErrorCase {
    ErrorCase { wire: Wire::Chat, ..messages_case(status, body) }
}

fn ollama_case(status: u16, body: &str) -> ErrorCase {
    ErrorCase { wire: Wire::Ollama, ..messages_case(status, body) }
}

/// An error in Anthropic's format.
fn anthropic_case(status: u16, kind: &str, message: &str) -> ErrorCase {
    let error = serde_json::json!({ "type": kind, "message": message });
    messages_case(status, &serde_json::json!({ "type": "error", "error": error }).to_string())
}

/// An error in OpenAI's format.
fn openai_case(status: u16, kind: &str, code: &str, message: &str) -> ErrorCase {
    let error =
        serde_json::json!({ "message": message, "type": kind, "param": null, "code": code });
    chat_case(status, &serde_json::json!({ "error": error }).to_string())
}

/// An error in Google's format.
fn google_case(status: u16, word: &str, message: &str, details: &serde_json::Value) -> ErrorCase {
    let error = serde_json::json!(
        { "code": status, "message": message, "status": word, "details": details }
    );
    chat_case(status, &serde_json::json!([{ "error": error }]).to_string())
}

impl ErrorCase {
    fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces the body.
    fn with_body(mut self, body: String) -> Self {
        self.body = body;
        self
    }

    fn without_key(mut self) -> Self {
        self.has_key = false;
        self
    }

    /// The same error in a stream with a successful status.
    fn into_stream_case(mut self) -> Self {
        self.status = 200;
        self.body = format!("event: error\ndata: {}\n\n", self.body);
        self
    }

    async fn request_error(self) -> Error {
        let (status, headers, body) = (self.status, self.headers, self.body);
        let server = LoopbackServer::start(move |_| HttpResponse {
            status,
            headers: headers.clone(),
            body: vec![BodyPart::Bytes(body.clone().into())],
        })
        .await
        .unwrap();
        let clock = UNIX_EPOCH + Duration::from_secs(NOW_UNIX_SECS);
        let http = HttpClient::without_proxy().with_clock(clock);
        let key = if self.has_key { "sk-12345678" } else { "" };
        let request = Request::new(History::from_items("h", [Item::user("hi")]));
        let (anthropic, chat, ollama);
        let model: &dyn Provider = match self.wire {
            Wire::Messages => {
                anthropic =
                    Anthropic::new("m").with_base_url(server.url()).unwrap().without_retries();
                &anthropic.with_http_client(http).with_api_key(key)
            }
            Wire::Chat => {
                chat = OpenAiChat::new("m").with_base_url(server.url()).unwrap().without_retries();
                &chat.with_http_client(http).with_api_key(key)
            }
            Wire::Ollama => {
                ollama = Ollama::new("m").with_base_url(server.url()).unwrap().without_retries();
                &ollama.with_http_client(http).with_api_key(key)
            }
        };
        model.stream_turn(request).into_turn().await.unwrap_err()
    }
}

/// All fields of an error that a caller receives; fields that are not named must be absent.
#[derive(Debug, PartialEq)]
struct ExpectedError {
    kind: ErrorKind,
    rate_limit_scope: Option<RateLimitScope>,
    auth_problem: Option<AuthProblem>,
    context_limits: Option<ContextLimits>,
    parameter: Option<String>,
    retry_after: Option<Duration>,
    request_id: Option<String>,
    is_retryable: bool,
}

fn error_of_kind(kind: ErrorKind) -> ExpectedError {
    let (scope, auth, limits, parameter, wait, id) = (None, None, None, None, None, None);
    ExpectedError {
        kind,
        rate_limit_scope: scope,
        auth_problem: auth,
        context_limits: limits,
        parameter,
        retry_after: wait,
        request_id: id,
        is_retryable: Error::new(kind, "").is_retryable(),
    }
}

impl ExpectedError {
    fn with_scope(mut self, scope: RateLimitScope) -> Self {
        self.rate_limit_scope = Some(scope);
        self.is_retryable = scope != RequestSize;
        self
    }

    fn with_auth_problem(mut self, problem: AuthProblem) -> Self {
        self.auth_problem = Some(problem);
        self
    }

    fn with_context_limits(
        mut self,
        limit: impl Into<Option<u64>>,
        requested: impl Into<Option<u64>>,
    ) -> Self {
        self.context_limits = Some(ContextLimits::new(limit.into(), requested.into()));
        self
    }

    fn with_parameter(mut self, name: &str) -> Self {
        self.parameter = Some(name.to_owned());
        self
    }

    fn with_retry_after_ms(mut self, millis: u64) -> Self {
        self.retry_after = Some(Duration::from_millis(millis));
        self
    }

    fn with_request_id(mut self, id: &str) -> Self {
        self.request_id = Some(id.to_owned());
        self
    }

    fn with_retryable(mut self, retryable: bool) -> Self {
        self.is_retryable = retryable;
        self
    }
}

async fn check_error(case: ErrorCase, expected: ExpectedError) {
    let status = (case.status != 200).then_some(case.status);
    let error = case.request_error().await;
    let told = ExpectedError {
        kind: error.kind(),
        rate_limit_scope: error.rate_limit_scope(),
        auth_problem: error.auth_problem(),
        context_limits: error.context_limits(),
        parameter: error.parameter().map(str::to_owned),
        retry_after: error.retry_after(),
        request_id: error.request_id().map(str::to_owned),
        is_retryable: error.is_retryable(),
    };
    assert_eq!(told, expected, "{error:?}");
    assert_eq!(error.status(), status, "{error:?}");
}

macro_rules! failures {
    ($($name:ident: $case:expr => $told:expr;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                check_error($case, $told).await;
            }
        )*
    };
}

failures! {
    // Anthropic, <https://docs.claude.com/en/api/errors>.
    anthropic_invalid_key: anthropic_case(401, "authentication_error", "invalid x-api-key")
        => error_of_kind(Auth).with_auth_problem(InvalidKey);
    anthropic_missing_key: anthropic_case(401, "authentication_error", "x-api-key header is required")
        .without_key() => error_of_kind(Auth).with_auth_problem(MissingKey);
    anthropic_expired_token: anthropic_case(401, "authentication_error", "OAuth token has expired.")
        => error_of_kind(Auth).with_auth_problem(ExpiredKey);
    anthropic_forbidden: anthropic_case(403, "permission_error",
        "Your API key does not have permission to use the specified resource")
        => error_of_kind(Auth).with_auth_problem(Forbidden);
    anthropic_forbidden_region: anthropic_case(403, "forbidden", "Claude is not available in your region")
        => error_of_kind(Auth).with_auth_problem(Region);
    anthropic_credit: anthropic_case(400, "invalid_request_error", "Your credit balance is too low to \
        access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")
        => error_of_kind(Billing);
    anthropic_prompt_too_long: anthropic_case(400, "invalid_request_error",
        "prompt is too long: 210000 tokens > 200000 maximum")
        => error_of_kind(ContextWindow).with_context_limits(200_000, 210_000);
    anthropic_prompt_and_answer_too_long: anthropic_case(400, "invalid_request_error", "input length \
        and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or \
        `max_tokens` and try again") => error_of_kind(ContextWindow).with_context_limits(200_000, 242_959);
    anthropic_request_too_large: anthropic_case(413, "request_too_large",
        "Request exceeds the maximum size") => error_of_kind(InvalidRequest);
    anthropic_wrong_parameter: anthropic_case(400, "invalid_request_error",
        "messages.1.content.0.text: text content blocks must be non-empty")
        => error_of_kind(InvalidRequest).with_parameter("messages.1.content.0.text");
    anthropic_unknown_model: anthropic_case(404, "not_found_error", "model: claude-nope")
        => error_of_kind(InvalidRequest).with_parameter("model");
    anthropic_invalid_signature: anthropic_case(400, "invalid_request_error",
        "messages.1.content.0: Invalid `signature` in `thinking` block")
        => error_of_kind(ReasoningRefused).with_parameter("messages.1.content.0");
    anthropic_invalid_redacted_thinking: anthropic_case(400, "invalid_request_error",
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block")
        => error_of_kind(ReasoningRefused).with_parameter("messages.1.content.0");
    anthropic_changed_thinking: anthropic_case(400, "invalid_request_error", "messages.1.content.0: \
        `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.")
        => error_of_kind(ReasoningRefused).with_parameter("messages.1.content.0");
    anthropic_missing_signature: anthropic_case(400, "invalid_request_error",
        "messages.1.content.0.thinking.signature: Field required")
        => error_of_kind(ReasoningRefused).with_parameter("messages.1.content.0.thinking.signature");
    anthropic_missing_thinking: anthropic_case(400, "invalid_request_error", "messages.1.content.0.type: \
        Expected `thinking` or `redacted_thinking`, but found `tool_use`.")
        => error_of_kind(InvalidRequest).with_parameter("messages.1.content.0.type");
    bedrock_invalid_signature: messages_case(400, r#"{"message":"***.***.content.0: Invalid `signature`
        in `thinking` block"}"#) => error_of_kind(ReasoningRefused);
    anthropic_filtered: anthropic_case(400, "invalid_request_error",
        "Output blocked by content filtering policy") => error_of_kind(Filtered);
    anthropic_input_tokens: anthropic_case(429, "rate_limit_error", "This request would exceed the rate \
        limit for your organization (x) of 20,000 input tokens per minute. Please reduce the \
        prompt length or the maximum tokens requested, or try again later.")
        .with_header("retry-after", "22").with_header("request-id", "req_011")
        => error_of_kind(RateLimited).with_scope(InputTokens).with_retry_after_ms(22_000).with_request_id("req_011");
    anthropic_output_tokens: anthropic_case(429, "rate_limit_error", "This request would exceed your \
        organization's rate limit of 8,000 output tokens per minute.")
        => error_of_kind(RateLimited).with_scope(OutputTokens);
    anthropic_requests: anthropic_case(429, "rate_limit_error", "Number of requests has exceeded your \
        per-minute rate limit") => error_of_kind(RateLimited).with_scope(Requests);
    anthropic_concurrency: anthropic_case(429, "rate_limit_error", "Number of concurrent connections \
        has exceeded your rate limit.") => error_of_kind(RateLimited).with_scope(Concurrency);
    anthropic_daily: anthropic_case(429, "rate_limit_error", "Number of request tokens has exceeded \
        your daily rate limit") => error_of_kind(RateLimited).with_scope(Daily);
    anthropic_scope_and_wait_by_its_headers: anthropic_case(429, "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.")
        .with_header("anthropic-ratelimit-input-tokens-remaining", "0")
        .with_header("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:30Z")
        .with_header("anthropic-ratelimit-requests-remaining", "49")
        .with_header("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:01Z")
        => error_of_kind(RateLimited).with_scope(InputTokens).with_retry_after_ms(30_000);
    anthropic_not_to_be_asked_again: anthropic_case(429, "rate_limit_error", "Extra usage is required")
        .with_header("x-should-retry", "false") => error_of_kind(RateLimited).with_retryable(false);
    anthropic_overloaded: anthropic_case(529, "overloaded_error", "Overloaded")
        .with_header("x-should-retry", "true") => error_of_kind(Overloaded);
    anthropic_server: anthropic_case(500, "api_error", "Internal server error") => error_of_kind(Server);
    anthropic_timeout: anthropic_case(504, "timeout_error", "Request timed out") => error_of_kind(Timeout);
    anthropic_id_in_the_body: messages_case(500, r#"{"type":"error","request_id":"req_body",
        "error":{"type":"api_error","message":"m"}}"#) => error_of_kind(Server).with_request_id("req_body");
    anthropic_in_stream: anthropic_case(0, "overloaded_error", "Overloaded").into_stream_case()
        .with_header("request-id", "req_1") => error_of_kind(Overloaded).with_request_id("req_1");
    anthropic_invalid_in_stream: anthropic_case(0, "invalid_request_error", "max_tokens: too many")
        .into_stream_case() => error_of_kind(InvalidRequest).with_parameter("max_tokens");

    // OpenAI, <https://platform.openai.com/docs/guides/error-codes>.
    openai_encrypted_content: openai_case(400, "invalid_request_error", "invalid_encrypted_content",
        "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could \
        not be decrypted or parsed.") => error_of_kind(ReasoningRefused);
    openai_encrypted_content_of_an_organization: openai_case(400, "invalid_request_error", "",
        "Encrypted content organization_id did not match the target organization.")
        => error_of_kind(ReasoningRefused);
    google_corrupted_signature: google_case(400, "INVALID_ARGUMENT", "Corrupted thought signature.",
        &serde_json::json!([])) => error_of_kind(ReasoningRefused);
    google_invalid_signature: google_case(400, "INVALID_ARGUMENT", "Unable to submit request because \
        Thought signature is not valid.", &serde_json::json!([])) => error_of_kind(ReasoningRefused);
    google_missing_signature: google_case(400, "INVALID_ARGUMENT", "Function call is missing a \
        thought_signature in functionCall parts.", &serde_json::json!([]))
        => error_of_kind(InvalidRequest);
    openai_invalid_key: openai_case(401, "invalid_request_error", "invalid_api_key",
        "Incorrect API key provided: sk-1234****5678.") => error_of_kind(Auth).with_auth_problem(InvalidKey);
    openai_missing_key: chat_case(401, r#"{"error":{"message":"You didn't provide an API key. You need to
        provide your API key in an Authorization header","type":"invalid_request_error",
        "param":null,"code":null}}"#) => error_of_kind(Auth).with_auth_problem(MissingKey);
    openai_no_access_to_a_model: openai_case(403, "invalid_request_error", "model_not_found",
        "Project `p` does not have access to model `gpt`") => error_of_kind(Auth).with_auth_problem(Forbidden);
    openai_region: openai_case(403, "request_forbidden", "unsupported_country_region_territory",
        "Country, region, or territory not supported") => error_of_kind(Auth).with_auth_problem(Region);
    openai_unknown_model: chat_case(404, r#"{"error":{"message":"The model `x` does not exist or you do
        not have access to it.","type":"invalid_request_error","param":"model",
        "code":"model_not_found"}}"#) => error_of_kind(InvalidRequest).with_parameter("model");
    openai_quota: openai_case(429, "insufficient_quota", "insufficient_quota", "You exceeded your \
        current quota, please check your plan and billing details.") => error_of_kind(Billing);
    openai_tokens_per_minute: openai_case(429, "tokens", "rate_limit_exceeded", "Rate limit reached for \
        gpt-4o in organization org on tokens per min (TPM): Limit 30000, Used 29000, Requested \
        1500. Please try again in 1.5s. Visit the site.").with_header("x-request-id", "req_2")
        => error_of_kind(RateLimited).with_scope(Tokens).with_retry_after_ms(1_500).with_request_id("req_2");
    openai_requests_per_minute: openai_case(429, "requests", "rate_limit_exceeded", "Rate limit reached \
        for gpt-4o on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in \
        20s.") => error_of_kind(RateLimited).with_scope(Requests).with_retry_after_ms(20_000);
    openai_requests_per_day: openai_case(429, "requests", "rate_limit_exceeded", "Rate limit reached for \
        gpt-4o on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in \
        7m12s.") => error_of_kind(RateLimited).with_scope(Daily).with_retry_after_ms(432_000);
    openai_request_too_large_for_the_rate: openai_case(429, "tokens", "rate_limit_exceeded", "Request \
        too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389. The input or \
        output tokens must be reduced in order to run successfully.")
        => error_of_kind(RateLimited).with_scope(RequestSize);
    openai_scope_and_wait_by_its_headers: openai_case(429, "x", "y", "slow down")
        .with_header("x-ratelimit-remaining-requests", "0")
        .with_header("x-ratelimit-reset-requests", "6m0s")
        .with_header("x-ratelimit-remaining-tokens", "149984")
        .with_header("x-ratelimit-reset-tokens", "88ms")
        => error_of_kind(RateLimited).with_scope(Requests).with_retry_after_ms(360_000);
    openai_longer_wait_counts: openai_case(429, "tokens", "rate_limit_exceeded", "try again in 9s")
        .with_header("retry-after-ms", "1234").with_header("retry-after", "2")
        => error_of_kind(RateLimited).with_scope(Tokens).with_retry_after_ms(2_000);
    openai_used_up_for_longer: openai_case(429, "tokens", "rate_limit_exceeded", "x")
        .with_header("retry-after", "2").with_header("x-ratelimit-remaining-tokens", "0")
        .with_header("x-ratelimit-reset-tokens", "9s").with_header("x-ratelimit-remaining-requests", "7")
        .with_header("x-ratelimit-reset-requests", "6m0s")
        => error_of_kind(RateLimited).with_scope(Tokens).with_retry_after_ms(9_000);
    openai_left_says_nothing: openai_case(429, "tokens", "rate_limit_exceeded", "x")
        .with_header("x-ratelimit-remaining-requests", "7").with_header("x-ratelimit-reset-requests", "6m0s")
        => error_of_kind(RateLimited).with_scope(Tokens);
    chat_messages_too_long: openai_case(400, "invalid_request_error", "x",
        "The total length of all messages is too long") => error_of_kind(ContextWindow);
    openai_retry_at_a_date: openai_case(503, "server_error", "x", "busy")
        .with_header("retry-after", "Thu, 01 Jan 2026 00:02:00 GMT") => error_of_kind(Overloaded).with_retry_after_ms(120_000);
    openai_retry_at_a_date_that_is_past: openai_case(503, "server_error", "x", "busy")
        .with_header("retry-after", "Wed Dec 31 23:59:59 2025") => error_of_kind(Overloaded).with_retry_after_ms(0);
    openai_context: chat_case(400, r#"{"error":{"message":"This model's maximum context length is 128000
        tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the
        messages.","type":"invalid_request_error","param":"messages",
        "code":"context_length_exceeded"}}"#) => error_of_kind(ContextWindow).with_context_limits(128_000, 130_000);
    openai_context_without_numbers: openai_case(400, "invalid_request_error", "context_length_exceeded",
        "Your input exceeds the context window of this model.") => error_of_kind(ContextWindow);
    openai_parameter: chat_case(400, r#"{"error":{"message":"Invalid 'temperature'","type":
        "invalid_request_error","param":"temperature","code":"decimal_above_max_value"}}"#)
        => error_of_kind(InvalidRequest).with_parameter("temperature");
    openai_unsupported: chat_case(400, r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not
        supported with this model.","type":"invalid_request_error","param":"max_tokens",
        "code":"unsupported_parameter"}}"#) => error_of_kind(Unsupported).with_parameter("max_tokens");
    openai_flagged: openai_case(400, "invalid_request_error", "invalid_prompt", "Invalid prompt: your \
        prompt was flagged as potentially violating our usage policy.") => error_of_kind(Filtered);
    openai_busy: openai_case(503, "server_error", "server_overloaded", "That model is currently \
        overloaded with other requests.") => error_of_kind(Overloaded);
    openai_slow_down: openai_case(503, "slow_down", "slow_down", "Slow down") => error_of_kind(Overloaded);
    openai_lock: openai_case(409, "conflict", "lock_timeout", "m") => error_of_kind(Server);
    openai_server: openai_case(500, "server_error", "server_error", "The server had an error while \
        processing your request. Sorry about that!") => error_of_kind(Server);
    openai_in_stream: openai_case(0, "server_error", "server_error", "The server had an error")
        .into_stream_case().with_header("x-request-id", "req_3") => error_of_kind(Server).with_request_id("req_3");

    // Google: Gemini and Vertex, <https://ai.google.dev/gemini-api/docs/troubleshooting>.
    google_invalid_key: google_case(400, "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        &serde_json::json!([{ "reason": "API_KEY_INVALID" }])) => error_of_kind(Auth).with_auth_problem(InvalidKey);
    google_expired_key: google_case(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.",
        &serde_json::json!([{ "reason": "API_KEY_INVALID" }])) => error_of_kind(Auth).with_auth_problem(ExpiredKey);
    google_missing_key: google_case(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers \
        (callers without established identity).", &serde_json::json!([])) => error_of_kind(Auth).with_auth_problem(MissingKey);
    google_forbidden: google_case(403, "PERMISSION_DENIED", "Permission denied on resource project p.",
        &serde_json::json!([{ "reason": "CONSUMER_INVALID" }])) => error_of_kind(Auth).with_auth_problem(Forbidden);
    google_region: google_case(400, "FAILED_PRECONDITION",
        "User location is not supported for the API use.", &serde_json::json!(null))
        => error_of_kind(Auth).with_auth_problem(Region);
    google_context: google_case(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the \
        maximum number of tokens allowed (1048576).", &serde_json::json!(null))
        => error_of_kind(ContextWindow).with_context_limits(1_048_576, 1_200_000);
    google_field: google_case(400, "INVALID_ARGUMENT", "Invalid JSON payload received.",
        &serde_json::json!([{ "fieldViolations": [{ "field": "tools[0]", "description": "d" }] }]))
        => error_of_kind(InvalidRequest).with_parameter("tools[0]");
    google_requests: google_case(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please \
        check your plan and billing details.", &serde_json::json!([
            { "violations": [{ "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier" }] },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s" },
        ])) => error_of_kind(RateLimited).with_scope(Requests).with_retry_after_ms(34_400);
    google_input_tokens: google_case(429, "RESOURCE_EXHAUSTED", "Quota exceeded. Please retry in 12.3s.",
        &serde_json::json!([{ "violations": [{
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count",
            "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
        }] }])) => error_of_kind(RateLimited).with_scope(InputTokens).with_retry_after_ms(12_300);
    google_daily: google_case(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.",
        &serde_json::json!([{ "violations": [
            { "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier" },
            { "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" },
        ] }])) => error_of_kind(RateLimited).with_scope(Daily);
    vertex_quota: google_case(429, "RESOURCE_EXHAUSTED", "Quota exceeded for \
        aiplatform.googleapis.com/generate_content_requests_per_minute_per_project_per_base_model \
        with base model: gemini.", &serde_json::json!(null)) => error_of_kind(RateLimited).with_scope(Requests);
    vertex_exhausted: google_case(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again \
        later.", &serde_json::json!(null)) => error_of_kind(RateLimited);
    google_overloaded: google_case(503, "UNAVAILABLE", "The model is overloaded. Please try again later.",
        &serde_json::json!(null)) => error_of_kind(Overloaded);
    google_timeout: google_case(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could \
        complete.", &serde_json::json!(null)) => error_of_kind(Timeout);
    google_server: google_case(500, "INTERNAL", "An internal error has occurred.",
        &serde_json::json!(null)) => error_of_kind(Server);
    google_wrapped_as_text: chat_case(429, r#"{"error":{"message":"{\"error\":{\"code\":429,\"message\":\"Used up. Please retry in 3s\",\"status\":\"RESOURCE_EXHAUSTED\"}}","code":429,"status":"Too Many Requests"}}"#)
        => error_of_kind(RateLimited).with_retry_after_ms(3_000);

    // Azure.
    azure_invalid_key: chat_case(401, r#"{"error":{"code":"401","message":"Access denied due to invalid
        subscription key or wrong API endpoint."}}"#).with_header("apim-request-id", "apim-1")
        => error_of_kind(Auth).with_auth_problem(InvalidKey).with_request_id("apim-1");
    azure_token: chat_case(401, r#"{"statusCode":401,"message":"Unauthorized. Access token is missing,
        invalid, audience is incorrect (https://x), or have expired."}"#)
        => error_of_kind(Auth).with_auth_problem(InvalidKey);
    azure_tokens: chat_case(429, r#"{"error":{"code":"429","message":"Requests to the
        ChatCompletions_Create Operation under Azure OpenAI API version 2024-08-01-preview have
        exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 86400
        seconds."}}"#).with_header("x-ms-request-id", "ms-1")
        => error_of_kind(RateLimited).with_scope(Tokens).with_retry_after_ms(86_400_000).with_request_id("ms-1");
    azure_calls: chat_case(429, r#"{"error":{"code":"429","message":"Requests have exceeded call rate
        limit of your current OpenAI S0 pricing tier. Please retry after 3 seconds."}}"#)
        => error_of_kind(RateLimited).with_scope(Requests).with_retry_after_ms(3_000);
    azure_filter: chat_case(400, r#"{"error":{"message":"The response was filtered due to the prompt
        triggering Azure OpenAI's content management policy.","type":null,"param":"prompt",
        "code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation",
        "content_filter_result":{"hate":{"filtered":true}}}}}"#) => error_of_kind(Filtered);
    azure_no_deployment: chat_case(404, r#"{"error":{"code":"DeploymentNotFound","message":"The API
        deployment for this resource does not exist."}}"#) => error_of_kind(InvalidRequest);

    // OpenRouter, <https://openrouter.ai/docs/api-reference/errors>.
    openrouter_missing_key: chat_case(401, r#"{"error":{"message":"No auth credentials found",
        "code":401}}"#) => error_of_kind(Auth).with_auth_problem(MissingKey);
    openrouter_credits: chat_case(402, r#"{"error":{"message":"This request requires more credits, or
        fewer max_tokens.","code":402}}"#) => error_of_kind(Billing);
    openrouter_moderated: chat_case(403, r#"{"error":{"code":403,"message":"Input was flagged",
        "metadata":{"reasons":["violence"],"flagged_input":"…","provider_name":"P"}}}"#)
        => error_of_kind(Filtered);
    openrouter_daily: chat_case(429, r#"{"error":{"message":"Rate limit exceeded: free-models-per-day.
        Add 10 credits to unlock 1000 free model requests per day","code":429,"metadata":{
        "headers":{"X-RateLimit-Limit":"50","X-RateLimit-Remaining":"0",
        "X-RateLimit-Reset":"1767229200000"}}}}"#)
        => error_of_kind(RateLimited).with_scope(Daily).with_retry_after_ms(3_600_000);
    openrouter_context: chat_case(400, r#"{"error":{"message":"This endpoint's maximum context length is
        32768 tokens. However, you requested about 40041 tokens (40041 of text input).","code":400}}"#)
        => error_of_kind(ContextWindow).with_context_limits(32_768, 40_041);
    openrouter_passes_on: chat_case(400, r#"{"error":{"message":"Provider returned error","code":400,
        "metadata":{"provider_name":"Anthropic","raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}"}}}"#)
        => error_of_kind(ContextWindow).with_context_limits(8, 9);
    openrouter_upstream_limited: chat_case(429, r#"{"error":{"message":"Provider returned error",
        "code":429,"metadata":{"raw":"m is temporarily rate-limited upstream","provider_name":"P"}}}"#)
        => error_of_kind(RateLimited);
    openrouter_upstream_down: chat_case(502, r#"{"error":{"message":"Provider returned error",
        "code":502}}"#).with_header("cf-ray", "8828f41b9aba80aa-BOM")
        => error_of_kind(Server).with_request_id("8828f41b9aba80aa-BOM");
    openrouter_nobody: chat_case(503, r#"{"error":{"message":"There is no available model provider that
        meets your routing requirements","code":503}}"#) => error_of_kind(Overloaded);
    openrouter_in_stream: chat_case(0, r#"{"id":"x","object":"chat.completion.chunk","error":{"code":502,
        "message":"Upstream error"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#)
        .into_stream_case() => error_of_kind(Server);
    openrouter_limited_in_stream: chat_case(0, r#"{"error":{"code":429,"message":"Slow"},"choices":[]}"#)
        .into_stream_case() => error_of_kind(RateLimited);

    // Groq, <https://console.groq.com/docs/errors>.
    groq_size: chat_case(413, r#"{"error":{"message":"Request too large for model `m` in organization `o`
        service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 12328, please
        reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#)
        => error_of_kind(RateLimited).with_scope(RequestSize);
    groq_tokens: chat_case(429, r#"{"error":{"message":"Rate limit reached for model `m` on tokens per
        minute (TPM): Limit 6000, Used 5034, Requested 1443. Please try again in 4.77s. Need more
        tokens? Upgrade","type":"tokens","code":"rate_limit_exceeded"}}"#)
        .with_header("retry-after", "5") => error_of_kind(RateLimited).with_scope(Tokens).with_retry_after_ms(5_000);
    groq_daily: chat_case(429, r#"{"error":{"message":"Rate limit reached for model `m` on tokens per day
        (TPD): Limit 100000. Please try again in 2m3s.","type":"tokens",
        "code":"rate_limit_exceeded"}}"#) => error_of_kind(RateLimited).with_scope(Daily).with_retry_after_ms(123_000);
    groq_failed_call: chat_case(400, r#"{"error":{"message":"Failed to call a function. Please adjust your
        prompt. See 'failed_generation' for more details.","type":"invalid_request_error",
        "code":"tool_use_failed","failed_generation":"<function=f>"}}"#) => error_of_kind(GenerationFailed);
    groq_call_that_does_not_fit: openai_case(400, "invalid_request_error", "tool_use_failed",
        "tool call validation failed: parameters for tool f did not match schema")
        => error_of_kind(GenerationFailed);
    groq_failed_json: openai_case(400, "invalid_request_error", "json_validate_failed",
        "Failed to generate JSON.") => error_of_kind(GenerationFailed);
    groq_failed_call_in_stream: chat_case(0, r#"{"error":{"message":"Tool choice is required, but model
        did not call a tool","type":"invalid_request_error","code":"tool_use_failed",
        "failed_generation":"","status_code":400}}"#).into_stream_case() => error_of_kind(GenerationFailed);
    groq_context: chat_case(400, r#"{"error":{"message":"Please reduce the length of the messages or
        completion.","type":"invalid_request_error","param":"messages",
        "code":"context_length_exceeded"}}"#) => error_of_kind(ContextWindow);
    groq_flex: chat_case(498, r#"{"error":{"message":"Flex tier capacity exceeded","code":
        "capacity_exceeded"}}"#) => error_of_kind(Overloaded);

    // DeepSeek, <https://api-docs.deepseek.com/quick_start/error_codes>.
    deepseek_key: openai_case(401, "authentication_error", "invalid_request_error",
        "Authentication Fails, Your api key: ****5678 is invalid") => error_of_kind(Auth).with_auth_problem(InvalidKey);
    deepseek_balance: openai_case(402, "unknown_error", "invalid_request_error", "Insufficient Balance")
        => error_of_kind(Billing);
    deepseek_context: openai_case(400, "invalid_request_error", "invalid_request_error", "This model's \
        maximum context length is 65536 tokens. However, you requested 66000 tokens (62000 in the \
        messages, 4000 in the completion).") => error_of_kind(ContextWindow).with_context_limits(65_536, 66_000);
    deepseek_busy: openai_case(503, "service_unavailable_error", "x", "Service is too busy.")
        => error_of_kind(Overloaded);

    // Mistral.
    mistral_key: chat_case(401, r#"{"message":"Unauthorized","request_id":"body-1"}"#)
        => error_of_kind(Auth).with_auth_problem(InvalidKey).with_request_id("body-1");
    mistral_context: chat_case(400, r#"{"object":"error","message":"Prompt contains 65673 tokens and 0
        draft tokens, too large for model with 32768 maximum context length",
        "type":"invalid_request_prompt","param":null,"code":"3051"}"#)
        => error_of_kind(ContextWindow).with_context_limits(32_768, 65_673);
    mistral_requests: chat_case(429, r#"{"message":"Requests rate limit exceeded","type":"rate_limited",
        "code":"1300"}"#).with_header("mistral-correlation-id", "c-1")
        => error_of_kind(RateLimited).with_scope(Requests).with_request_id("c-1");
    mistral_capacity: chat_case(429, r#"{"object":"error","message":"Service tier capacity exceeded for
        this model.","type":"request_tier_capacity_exceeded","code":"3505"}"#) => error_of_kind(Overloaded);
    mistral_validation: chat_case(422, r#"{"object":"error","message":{"detail":[{"type":
        "extra_forbidden","loc":["body","foo"],"msg":"Extra inputs are not permitted"}]},
        "type":"invalid_request_error"}"#) => error_of_kind(InvalidRequest).with_parameter("foo");

    // Together.
    together_context: chat_case(422, r#"{"id":"x","error":{"message":"Input validation error: `inputs`
        tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` tokens and 4096
        `max_new_tokens`","type":"invalid_request_error","param":"max_tokens","code":null}}"#)
        => error_of_kind(ContextWindow).with_context_limits(4_097, 84_221);
    together_limited: chat_case(429, r#"{"error":{"message":"You have reached the rate limit","type":
        "rate_limit","param":null,"code":null}}"#).with_header("x-ratelimit-reset", "7")
        => error_of_kind(RateLimited).with_retry_after_ms(7_000);

    // Ollama.
    ollama_no_model: chat_case(404, r#"{"error":{"message":"model \"x\" not found, try pulling it
        first","type":"not_found_error","param":null,"code":null}}"#)
        => error_of_kind(InvalidRequest).with_parameter("model");
    ollama_no_tools: chat_case(400, r#"{"error":{"message":"registry.ollama.ai/library/x does not support
        tools","type":"invalid_request_error","param":null,"code":null}}"#) => error_of_kind(Unsupported);
    ollama_no_thinking: ollama_case(400, r#"{"error":"\"x\" does not support thinking"}"#)
        => error_of_kind(Unsupported);
    ollama_no_levels_of_thinking: ollama_case(400, r#"{"error":"think value \"low\" is not supported
        for this model"}"#) => error_of_kind(Unsupported);
    ollama_no_model_of_its_own: ollama_case(404, r#"{"error":"model 'x' not found"}"#)
        => error_of_kind(InvalidRequest).with_parameter("model");
    ollama_signed_out: ollama_case(401, r#"{"error":"unauthorized","signin_url":
        "https://ollama.com/connect?name=a&key=b"}"#) => error_of_kind(Auth).with_auth_problem(InvalidKey);
    ollama_too_many: ollama_case(429, r#"{"error":"you have reached your hourly usage limit"}"#)
        => error_of_kind(RateLimited);
    ollama_broke_before_the_first_line: ollama_case(200, r#"{"error":"llama runner process has
        terminated: exit status 2"}"#) => error_of_kind(Server);
    ollama_context: chat_case(400, r#"{"error":"prompt too long; exceeded max context length by 4
        tokens"}"#) => error_of_kind(ContextWindow);
    ollama_busy: chat_case(503, r#"{"error":"server busy, please try again.  maximum pending requests
        exceeded"}"#) => error_of_kind(Overloaded);
    ollama_broke: chat_case(500, r#"{"error":{"message":"llama runner process has terminated","type":
        "api_error","param":null,"code":null}}"#) => error_of_kind(Server);

    // llama.cpp.
    llama_cpp_context: chat_case(400, r#"{"error":{"code":400,"message":"the request exceeds the
        available context size. try increasing the context size","type":
        "exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#)
        => error_of_kind(ContextWindow).with_context_limits(8_192, 14_429);
    llama_cpp_context_in_a_fine_answer: chat_case(200, r#"{"error":{"code":400,"message":"the request
        exceeds the available context size.","type":"exceed_context_size_error",
        "n_prompt_tokens":14429,"n_ctx":8192}}"#) => error_of_kind(ContextWindow).with_context_limits(8_192, 14_429);
    llama_cpp_loading: chat_case(503, r#"{"error":{"code":503,"message":"Loading model",
        "type":"unavailable_error"}}"#) => error_of_kind(Overloaded);
    llama_cpp_key: chat_case(401, r#"{"error":{"code":401,"message":"Invalid API Key",
        "type":"authentication_error"}}"#).without_key() => error_of_kind(Auth).with_auth_problem(MissingKey);
    llama_cpp_unsupported: chat_case(501, r#"{"error":{"code":501,"message":"This server does not support
        embeddings.","type":"not_supported_error"}}"#) => error_of_kind(Unsupported);

    // vLLM.
    vllm_context: chat_case(400, r#"{"object":"error","message":"This model's maximum context length is
        16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the
        completion).","type":"BadRequestError","param":null,"code":400}"#)
        => error_of_kind(ContextWindow).with_context_limits(16_384, 122_946);
    vllm_context_of_input_and_output: chat_case(400, r#"{"error":{"message":"'max_tokens' or
        'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096
        tokens and your request has 2104 input tokens (2000 > 4096 - 2104).","type":
        "BadRequestError","param":null,"code":400}}"#) => error_of_kind(ContextWindow).with_context_limits(4_096, 2_104);
    vllm_validation: chat_case(400, r#"{"object":"error","message":"[{'type': 'missing'}]","type":
        "BadRequestError","param":null,"code":400}"#) => error_of_kind(InvalidRequest);
    vllm_key: chat_case(401, r#"{"error":"Unauthorized"}"#).without_key() => error_of_kind(Auth).with_auth_problem(MissingKey);

    // LM Studio.
    lm_studio_context: chat_case(400, r#"{"error":"Trying to keep the first 10136 tokens when context the
        overflows. However, the model is loaded with context length of only 7866 tokens, which is
        not enough."}"#) => error_of_kind(ContextWindow).with_context_limits(7_866, 10_136);
    lm_studio_context_in_stream: chat_case(0, r#"{"error":{"message":"The number of tokens to keep from
        the initial prompt is greater than the context length."}}"#).into_stream_case()
        => error_of_kind(ContextWindow);

    // xAI.
    xai_key: chat_case(400, r#"{"code":"Client specified an invalid argument","error":"Incorrect API key
        provided: sk***78."}"#) => error_of_kind(Auth).with_auth_problem(InvalidKey);

    // Proxies in front of servers.
    a_page_of_a_proxy: chat_case(502, "<html><body>Rate limit: maximum context length is 5 tokens</body></html>")
        => error_of_kind(Server);
    a_page_that_tells_of_too_many_requests: chat_case(429, "<!DOCTYPE html><title>overloaded</title>")
        .with_header("retry-after", "3") => error_of_kind(RateLimited).with_retry_after_ms(3_000);
    a_proxy_that_waited_too_long: chat_case(524, "error code: 524") => error_of_kind(Timeout);
    a_plain_text: chat_case(503, "upstream connect error or disconnect/reset before headers")
        => error_of_kind(Overloaded);
    a_wrong_key_that_mentions_a_limit: chat_case(401, r#"{"error":{"message":"No such key. Keys have a
        rate limit and a maximum context length."}}"#) => error_of_kind(Auth).with_auth_problem(InvalidKey);
    nothing_but_a_status: chat_case(429, "") => error_of_kind(RateLimited);
    a_redirect: chat_case(301, "") => error_of_kind(ErrorKind::Protocol);
    a_limit_that_is_an_overflow_says_so: chat_case(429, r#"{"error":{"message":"prompt is too long: 9
        tokens > 8 maximum"}}"#) => error_of_kind(ContextWindow).with_context_limits(8, 9);
    a_limit_that_mentions_length_is_no_overflow: chat_case(429, r#"{"error":{"type":"rate_limit_error",
        "message":"Too many tokens. Please reduce the prompt length."}}"#) => error_of_kind(RateLimited);

    // Wordings of gateways and less common vendors.
    an_exception_of_aws: chat_case(400, r#"{"__type":"com.amazon.coral#ThrottlingException",
        "message":"Slow"}"#) => error_of_kind(RateLimited);
    an_exception_of_aws_in_stream: chat_case(0, r#"{"error":{"type":"ServiceUnavailableException",
        "message":"m"}}"#).into_stream_case() => error_of_kind(Overloaded);
    a_model_that_failed_behind_a_gateway: chat_case(424, r#"{"message":"The model encountered an
        unexpected error during processing.","originalStatusCode":500}"#) => error_of_kind(Server);
    a_request_that_the_provider_cancelled: google_case(499, "CANCELLED", "The operation was cancelled.",
        &serde_json::json!([])) => error_of_kind(Server);
    the_exceptions_that_a_gateway_prints: openai_case(500, "x", "400", "litellm.BadRequestError: \
        litellm.ContextWindowExceededError: OpenAIException - m") => error_of_kind(ContextWindow);
    an_exception_that_a_gateway_prints: openai_case(400, "x", "400",
        "litellm.AuthenticationError: AuthenticationError: OpenAIException - bad")
        => error_of_kind(Auth);
    a_bill_that_is_an_exhausted_resource: google_case(402, "RESOURCE_EXHAUSTED", "Prepaid funds are used \
        up.", &serde_json::json!([])) => error_of_kind(Billing);
    a_budget_of_a_gateway: openai_case(400, "budget_exceeded", "400", "Current cost: 10.1, Max: 10.0")
        => error_of_kind(Billing);
    a_balance: chat_case(403, r#"{"code":"30001","message":"Sorry, your account balance is insufficient",
        "data":null}"#) => error_of_kind(Billing);
    a_spending_limit: chat_case(429, r#"{"code":"Some resource has been exhausted","error":"Your team
        has either used all available credits or reached its monthly spending limit."}"#)
        => error_of_kind(Billing);
    a_usage_limit_of_the_account: anthropic_case(400, "invalid_request_error", "You have reached your \
        specified API usage limits. You will regain access on 2026-02-01 at 00:00 UTC.")
        => error_of_kind(Billing);
    a_disabled_organization: anthropic_case(400, "invalid_request_error",
        "This organization has been disabled.") => error_of_kind(Auth).with_auth_problem(Forbidden);
    a_country: google_case(400, "FAILED_PRECONDITION", "Gemini API free tier is not available in your \
        country. Please enable billing on your project.", &serde_json::json!([]))
        => error_of_kind(Auth).with_auth_problem(Region);
    a_word_for_a_filter: chat_case(400, r#"{"error":{"code":"DataInspectionFailed","message":"m"}}"#)
        => error_of_kind(Filtered);
    a_flagged_input: chat_case(403, r#"{"error":{"message":"Input was flagged","code":403}}"#)
        => error_of_kind(Filtered);
    usage_guidelines: chat_case(403, r#"{"code":"x","error":"Content violates usage guidelines."}"#)
        => error_of_kind(Filtered);
    a_prompt_that_cohere_finds_too_long: chat_case(400, r#"{"message":"too many tokens: total number of
        tokens in the prompt cannot exceed 4081 - received 5000. Try a shorter prompt"}"#)
        => error_of_kind(ContextWindow).with_context_limits(4_081, 5_000);
    inputs_that_are_too_long: chat_case(422, r#"{"error":"Input validation error: `inputs` must have less
        than 4096 tokens. Given: 5000","error_type":"validation"}"#)
        => error_of_kind(ContextWindow).with_context_limits(4_096, 5_000);
    no_endpoint_that_has_tools: chat_case(404, r#"{"error":{"message":"No endpoints found that support
        tool use.","code":404}}"#) => error_of_kind(Unsupported);
    a_server_without_a_flag: chat_case(500, r#"{"error":{"code":500,"message":"tools param requires
        --jinja flag","type":"server_error"}}"#) => error_of_kind(Unsupported);
    a_message_under_another_name: chat_case(400, r#"{"error_code":17,"error_msg":"Open api daily request
        limit reached"}"#) => error_of_kind(RateLimited).with_scope(Daily);
    the_words_behind_a_long_beginning: openai_case(400, "x", "y", &format!(
        "{} {} maximum context length is 8192 tokens", "word ".repeat(150), "x".repeat(600)))
        => error_of_kind(ContextWindow).with_context_limits(8_192, None);
}

#[tokio::test]
async fn error_messages_contain_the_vendors_message() {
    let error =
        anthropic_case(401, "authentication_error", "invalid x-api-key").request_error().await;
    let expected = "the provider answered with status 401: invalid x-api-key";
    assert_eq!(error.to_string(), expected);
    let error = chat_case(502, "<html>bad gateway</html>").request_error().await;
    assert_eq!(error.to_string(), "the provider answered with status 502");
    let error = ErrorCase { body: "no healthy\nupstream".to_owned(), ..chat_case(503, "") }
        .request_error()
        .await;
    assert_eq!(error.to_string(), "the provider answered with status 503: no healthy upstream");
    let raw = r#"{"error":{"message":"Provider returned error","metadata":{"raw":"busy"}}}"#;
    let error = chat_case(502, raw).request_error().await;
    let expected = "the provider answered with status 502: Provider returned error: busy";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_long_message_without_spaces_is_truncated_and_not_dropped() {
    let error = chat_case(400, &"错误".repeat(300)).request_error().await;
    let words = error.message().strip_prefix("the provider answered with status 400: ").unwrap();
    assert!(words.starts_with("错误错误") && words.ends_with('…'), "{words}");
    assert!((400..=510).contains(&words.len()), "{words}");
}

#[tokio::test]
async fn an_unknown_model_error_of_any_vendor_names_the_model() {
    let openai = |kind: &str, code: &str, message: &str| openai_case(404, kind, code, message);
    let google = |message| google_case(404, "NOT_FOUND", message, &serde_json::json!([]));
    for case in [
        anthropic_case(404, "not_found_error", "model: claude-nope"),
        google(
            "models/x is not found for API version v1beta, or is not supported for generateContent.",
        ),
        google("Publisher Model `projects/p/locations/l/publishers/google/models/x` was not found"),
        openai("invalid_request_error", "model_not_found", "No access to `x`."),
        openai("NotFoundError", "404", "The model `x` does not exist."),
        openai("resource_not_found_error", "", "Not found the model x or Permission denied"),
        openai("model_not_available", "", "Unable to access x."),
        openai("x", "NOT_FOUND", "Model not found, inaccessible, and/or not deployed"),
        openai(
            "x",
            "model_not_supported",
            "The requested model 'x' is not supported by any provider",
        ),
        chat_case(400, r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#),
        chat_case(404, r#"{"error":{"message":"No endpoints found for x/y.","code":404}}"#),
        chat_case(400, r#"{"object":"error","message":"Invalid model: x","type":"invalid_model"}"#),
        chat_case(400, r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#),
        chat_case(
            400,
            r#"{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}"#,
        ),
        chat_case(
            404,
            r#"{"code":"Some requested entity was not found","error":"The model x does not exist"}"#,
        ),
        chat_case(
            404,
            r#"{"message":"model 'x' not found, make sure the correct model ID was used"}"#,
        ),
        chat_case(
            400,
            r#"{"error":{"message":"Invalid model name passed in model=x","param":"None"}}"#,
        ),
        chat_case(400, r#"{"message":"The provided model identifier is invalid."}"#),
    ] {
        let body = case.body.clone();
        let error = case.request_error().await;
        assert_eq!((error.kind(), error.parameter()), (InvalidRequest, Some("model")), "{body}");
    }
    // Other missing resources and capabilities are not a missing model.
    for (kind, body) in [
        (InvalidRequest, r#"{"error":{"message":"Previous response with id 'r' not found."}}"#),
        (InvalidRequest, r#"{"error":{"message":"The model is fine. The file was not found."}}"#),
        (Unsupported, r#"{"error":{"message":"No endpoints found that support tool use."}}"#),
    ] {
        let error = chat_case(404, body).request_error().await;
        assert_eq!((error.kind(), error.parameter()), (kind, None), "{body}");
    }
}

#[tokio::test]
async fn an_error_in_a_stream_field_or_as_plain_text_is_reported() {
    let full = r#"{"code":400,"message":"the request exceeds the available context size.","type":"invalid_request_error"}"#;
    let begins = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    for wire in [messages_case, chat_case] {
        let error = wire(200, "")
            .with_body(format!("error: {full}\n\ndata: [DONE]\n\n"))
            .request_error()
            .await;
        let expected = "the provider broke off: the request exceeds the available context size.";
        assert_eq!((error.kind(), error.to_string().as_str()), (ContextWindow, expected));
        for words in ["event: error\ndata: out of memory\n\n", "error: out of memory\n\n"] {
            let error = wire(200, "").with_body(words.to_owned()).request_error().await;
            assert_eq!(error.to_string(), "the provider broke off: out of memory", "{words}");
            assert_eq!(error.kind(), Server);
        }
    }
    let nested = format!("{begins}error: {{\"error\": {full}}}\n\n");
    assert_eq!(chat_case(200, "").with_body(nested).request_error().await.kind(), ContextWindow);
}

#[tokio::test]
async fn an_error_status_with_a_stream_body_has_the_message_of_its_error_event() {
    let error = r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#;
    for body in [
        format!("data: {error}\n\n"),
        format!(": hm\n\nevent: error\ndata: {error}\n\n"),
        format!("error: {error}\n\ndata: [DONE]\n\n"),
        format!("data: {{}}\n\nevent: error\r\ndata: {error}"),
        "data: slow down\n\n".to_owned(),
    ] {
        let error = chat_case(429, "").with_body(body.clone()).request_error().await;
        let expected = "the provider answered with status 429: slow down";
        assert_eq!((error.kind(), error.to_string().as_str()), (RateLimited, expected), "{body}");
    }
    let empty = chat_case(502, "").with_body(": hm\n\n".to_owned()).request_error().await;
    assert_eq!(empty.kind(), Server);
}
