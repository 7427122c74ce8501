//! What vendors say when something goes wrong, and what a caller is told: one test per wording.
//! The bodies are written after the vendors' documentation and what people report.

use std::time::{Duration, UNIX_EPOCH};

use turnstream::env::FixedClock;
use turnstream::error::AuthProblem::{self, ExpiredKey, Forbidden, InvalidKey, MissingKey, Region};
use turnstream::error::ContextLimits;
use turnstream::error::RateLimitScope::{
    self, Concurrency, Daily, InputTokens, OutputTokens, RequestSize, Requests, Tokens,
};
use turnstream::http::HttpClient;
use turnstream::provider::{Anthropic, Ollama, OpenAiChat, Provider};
use turnstream::stream::TurnStreamExt;
use turnstream::testing::http::{BodyPart, HttpResponse, LoopbackServer};
use turnstream::{Error, ErrorKind, History, Item, Request};

use ErrorKind::{
    Auth, Billing, ContextWindow, Filtered, GenerationFailed, InvalidRequest, Overloaded,
    RateLimited, Server, Timeout, Unsupported,
};

/// The time of all tests: 2026-01-01.
const NOW: u64 = 1_767_225_600;

#[derive(Clone, Copy)]
enum Wire {
    Messages,
    Chat,
    Ollama,
}

/// An answer.
struct Case {
    wire: Wire,
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    key: bool,
}

/// The lines that a body has below are one.
fn messages(status: u16, body: &str) -> Case {
    let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
    Case { wire: Wire::Messages, status, headers: Vec::new(), body, key: true }
}

fn chat(status: u16, body: &str) -> Case {
    Case { wire: Wire::Chat, ..messages(status, body) }
}

fn ollama(status: u16, body: &str) -> Case {
    Case { wire: Wire::Ollama, ..messages(status, body) }
}

/// An error as Anthropic writes it.
fn anthropic(status: u16, kind: &str, message: &str) -> Case {
    let error = serde_json::json!({ "type": kind, "message": message });
    messages(status, &serde_json::json!({ "type": "error", "error": error }).to_string())
}

/// An error as OpenAI writes it.
fn openai(status: u16, kind: &str, code: &str, message: &str) -> Case {
    let error =
        serde_json::json!({ "message": message, "type": kind, "param": null, "code": code });
    chat(status, &serde_json::json!({ "error": error }).to_string())
}

/// An error as Google writes it.
fn google(status: u16, word: &str, message: &str, details: &serde_json::Value) -> Case {
    let error = serde_json::json!(
        { "code": status, "message": message, "status": word, "details": details }
    );
    chat(status, &serde_json::json!([{ "error": error }]).to_string())
}

impl Case {
    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this body, as it is.
    fn with_body(mut self, body: String) -> Self {
        self.body = body;
        self
    }

    fn without_key(mut self) -> Self {
        self.key = false;
        self
    }

    /// The same in a stream whose status is fine.
    fn in_stream(mut self) -> Self {
        self.status = 200;
        self.body = format!("event: error\ndata: {}\n\n", self.body);
        self
    }

    async fn ask(self) -> Error {
        let (status, headers, body) = (self.status, self.headers, self.body);
        let server = LoopbackServer::start(move |_| HttpResponse {
            status,
            headers: headers.clone(),
            body: vec![BodyPart::Bytes(body.clone().into())],
        })
        .await
        .unwrap();
        let clock = FixedClock(UNIX_EPOCH + Duration::from_secs(NOW));
        let http = HttpClient::without_proxy().with_clock(clock);
        let key = if self.key { "sk-12345678" } else { "" };
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

/// All that a caller is told; what is not named is not there.
#[derive(Debug, PartialEq)]
struct Told {
    kind: ErrorKind,
    scope: Option<RateLimitScope>,
    auth: Option<AuthProblem>,
    limits: Option<ContextLimits>,
    parameter: Option<String>,
    wait: Option<Duration>,
    id: Option<String>,
    retryable: bool,
}

fn is(kind: ErrorKind) -> Told {
    let (scope, auth, limits, parameter, wait, id) = (None, None, None, None, None, None);
    Told { kind, scope, auth, limits, parameter, wait, id, retryable: kind.is_transient() }
}

impl Told {
    fn scope(mut self, scope: RateLimitScope) -> Self {
        self.scope = Some(scope);
        self.retryable = scope != RequestSize;
        self
    }

    fn auth(mut self, problem: AuthProblem) -> Self {
        self.auth = Some(problem);
        self
    }

    fn limits(mut self, limit: impl Into<Option<u64>>, requested: impl Into<Option<u64>>) -> Self {
        self.limits = Some(ContextLimits::new(limit.into(), requested.into()));
        self
    }

    fn parameter(mut self, name: &str) -> Self {
        self.parameter = Some(name.to_owned());
        self
    }

    fn wait(mut self, millis: u64) -> Self {
        self.wait = Some(Duration::from_millis(millis));
        self
    }

    fn id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }
}

async fn check(case: Case, expected: Told) {
    let status = (case.status != 200).then_some(case.status);
    let error = case.ask().await;
    let told = Told {
        kind: error.kind(),
        scope: error.rate_limit_scope(),
        auth: error.auth_problem(),
        limits: error.context_limits(),
        parameter: error.parameter().map(str::to_owned),
        wait: error.retry_after(),
        id: error.request_id().map(str::to_owned),
        retryable: error.is_retryable(),
    };
    assert_eq!(told, expected, "{error:?}");
    assert_eq!(error.status(), status, "{error:?}");
}

macro_rules! failures {
    ($($name:ident: $case:expr => $told:expr;)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                check($case, $told).await;
            }
        )*
    };
}

failures! {
    // Anthropic, <https://docs.claude.com/en/api/errors>.
    anthropic_invalid_key: anthropic(401, "authentication_error", "invalid x-api-key")
        => is(Auth).auth(InvalidKey);
    anthropic_missing_key: anthropic(401, "authentication_error", "x-api-key header is required")
        .without_key() => is(Auth).auth(MissingKey);
    anthropic_expired_token: anthropic(401, "authentication_error", "OAuth token has expired.")
        => is(Auth).auth(ExpiredKey);
    anthropic_forbidden: anthropic(403, "permission_error",
        "Your API key does not have permission to use the specified resource")
        => is(Auth).auth(Forbidden);
    anthropic_forbidden_region: anthropic(403, "forbidden", "Claude is not available in your region")
        => is(Auth).auth(Region);
    anthropic_credit: anthropic(400, "invalid_request_error", "Your credit balance is too low to \
        access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.")
        => is(Billing);
    anthropic_prompt_too_long: anthropic(400, "invalid_request_error",
        "prompt is too long: 210000 tokens > 200000 maximum")
        => is(ContextWindow).limits(200_000, 210_000);
    anthropic_prompt_and_answer_too_long: anthropic(400, "invalid_request_error", "input length \
        and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or \
        `max_tokens` and try again") => is(ContextWindow).limits(200_000, 242_959);
    anthropic_request_too_large: anthropic(413, "request_too_large",
        "Request exceeds the maximum size") => is(InvalidRequest);
    anthropic_wrong_parameter: anthropic(400, "invalid_request_error",
        "messages.1.content.0.text: text content blocks must be non-empty")
        => is(InvalidRequest).parameter("messages.1.content.0.text");
    anthropic_unknown_model: anthropic(404, "not_found_error", "model: claude-nope")
        => is(InvalidRequest).parameter("model");
    anthropic_filtered: anthropic(400, "invalid_request_error",
        "Output blocked by content filtering policy") => is(Filtered);
    anthropic_input_tokens: anthropic(429, "rate_limit_error", "This request would exceed the rate \
        limit for your organization (x) of 20,000 input tokens per minute. Please reduce the \
        prompt length or the maximum tokens requested, or try again later.")
        .header("retry-after", "22").header("request-id", "req_011")
        => is(RateLimited).scope(InputTokens).wait(22_000).id("req_011");
    anthropic_output_tokens: anthropic(429, "rate_limit_error", "This request would exceed your \
        organization's rate limit of 8,000 output tokens per minute.")
        => is(RateLimited).scope(OutputTokens);
    anthropic_requests: anthropic(429, "rate_limit_error", "Number of requests has exceeded your \
        per-minute rate limit") => is(RateLimited).scope(Requests);
    anthropic_concurrency: anthropic(429, "rate_limit_error", "Number of concurrent connections \
        has exceeded your rate limit.") => is(RateLimited).scope(Concurrency);
    anthropic_daily: anthropic(429, "rate_limit_error", "Number of request tokens has exceeded \
        your daily rate limit") => is(RateLimited).scope(Daily);
    anthropic_scope_and_wait_by_its_headers: anthropic(429, "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.")
        .header("anthropic-ratelimit-input-tokens-remaining", "0")
        .header("anthropic-ratelimit-input-tokens-reset", "2026-01-01T00:00:30Z")
        .header("anthropic-ratelimit-requests-remaining", "49")
        .header("anthropic-ratelimit-requests-reset", "2026-01-01T00:00:01Z")
        => is(RateLimited).scope(InputTokens).wait(30_000);
    anthropic_not_to_be_asked_again: anthropic(429, "rate_limit_error", "Extra usage is required")
        .header("x-should-retry", "false") => is(RateLimited).retryable(false);
    anthropic_overloaded: anthropic(529, "overloaded_error", "Overloaded")
        .header("x-should-retry", "true") => is(Overloaded);
    anthropic_server: anthropic(500, "api_error", "Internal server error") => is(Server);
    anthropic_timeout: anthropic(504, "timeout_error", "Request timed out") => is(Timeout);
    anthropic_id_in_the_body: messages(500, r#"{"type":"error","request_id":"req_body",
        "error":{"type":"api_error","message":"m"}}"#) => is(Server).id("req_body");
    anthropic_in_stream: anthropic(0, "overloaded_error", "Overloaded").in_stream()
        .header("request-id", "req_1") => is(Overloaded).id("req_1");
    anthropic_invalid_in_stream: anthropic(0, "invalid_request_error", "max_tokens: too many")
        .in_stream() => is(InvalidRequest).parameter("max_tokens");

    // OpenAI, <https://platform.openai.com/docs/guides/error-codes>.
    openai_invalid_key: openai(401, "invalid_request_error", "invalid_api_key",
        "Incorrect API key provided: sk-1234****5678.") => is(Auth).auth(InvalidKey);
    openai_missing_key: chat(401, r#"{"error":{"message":"You didn't provide an API key. You need to
        provide your API key in an Authorization header","type":"invalid_request_error",
        "param":null,"code":null}}"#) => is(Auth).auth(MissingKey);
    openai_no_access_to_a_model: openai(403, "invalid_request_error", "model_not_found",
        "Project `p` does not have access to model `gpt`") => is(Auth).auth(Forbidden);
    openai_region: openai(403, "request_forbidden", "unsupported_country_region_territory",
        "Country, region, or territory not supported") => is(Auth).auth(Region);
    openai_unknown_model: chat(404, r#"{"error":{"message":"The model `x` does not exist or you do
        not have access to it.","type":"invalid_request_error","param":"model",
        "code":"model_not_found"}}"#) => is(InvalidRequest).parameter("model");
    openai_quota: openai(429, "insufficient_quota", "insufficient_quota", "You exceeded your \
        current quota, please check your plan and billing details.") => is(Billing);
    openai_tokens_per_minute: openai(429, "tokens", "rate_limit_exceeded", "Rate limit reached for \
        gpt-4o in organization org on tokens per min (TPM): Limit 30000, Used 29000, Requested \
        1500. Please try again in 1.5s. Visit the site.").header("x-request-id", "req_2")
        => is(RateLimited).scope(Tokens).wait(1_500).id("req_2");
    openai_requests_per_minute: openai(429, "requests", "rate_limit_exceeded", "Rate limit reached \
        for gpt-4o on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in \
        20s.") => is(RateLimited).scope(Requests).wait(20_000);
    openai_requests_per_day: openai(429, "requests", "rate_limit_exceeded", "Rate limit reached for \
        gpt-4o on requests per day (RPD): Limit 200, Used 200, Requested 1. Please try again in \
        7m12s.") => is(RateLimited).scope(Daily).wait(432_000);
    openai_request_too_large_for_the_rate: openai(429, "tokens", "rate_limit_exceeded", "Request \
        too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 342389. The input or \
        output tokens must be reduced in order to run successfully.")
        => is(RateLimited).scope(RequestSize);
    openai_scope_and_wait_by_its_headers: openai(429, "x", "y", "slow down")
        .header("x-ratelimit-remaining-requests", "0")
        .header("x-ratelimit-reset-requests", "6m0s")
        .header("x-ratelimit-remaining-tokens", "149984")
        .header("x-ratelimit-reset-tokens", "88ms")
        => is(RateLimited).scope(Requests).wait(360_000);
    openai_longer_wait_counts: openai(429, "tokens", "rate_limit_exceeded", "try again in 9s")
        .header("retry-after-ms", "1234").header("retry-after", "2")
        => is(RateLimited).scope(Tokens).wait(2_000);
    openai_used_up_for_longer: openai(429, "tokens", "rate_limit_exceeded", "x")
        .header("retry-after", "2").header("x-ratelimit-remaining-tokens", "0")
        .header("x-ratelimit-reset-tokens", "9s").header("x-ratelimit-remaining-requests", "7")
        .header("x-ratelimit-reset-requests", "6m0s")
        => is(RateLimited).scope(Tokens).wait(9_000);
    openai_left_says_nothing: openai(429, "tokens", "rate_limit_exceeded", "x")
        .header("x-ratelimit-remaining-requests", "7").header("x-ratelimit-reset-requests", "6m0s")
        => is(RateLimited).scope(Tokens);
    chat_messages_too_long: openai(400, "invalid_request_error", "x",
        "The total length of all messages is too long") => is(ContextWindow);
    openai_retry_at_a_date: openai(503, "server_error", "x", "busy")
        .header("retry-after", "Thu, 01 Jan 2026 00:02:00 GMT") => is(Overloaded).wait(120_000);
    openai_retry_at_a_date_that_is_past: openai(503, "server_error", "x", "busy")
        .header("retry-after", "Wed Dec 31 23:59:59 2025") => is(Overloaded).wait(0);
    openai_context: chat(400, r#"{"error":{"message":"This model's maximum context length is 128000
        tokens. However, your messages resulted in 130000 tokens. Please reduce the length of the
        messages.","type":"invalid_request_error","param":"messages",
        "code":"context_length_exceeded"}}"#) => is(ContextWindow).limits(128_000, 130_000);
    openai_context_without_numbers: openai(400, "invalid_request_error", "context_length_exceeded",
        "Your input exceeds the context window of this model.") => is(ContextWindow);
    openai_parameter: chat(400, r#"{"error":{"message":"Invalid 'temperature'","type":
        "invalid_request_error","param":"temperature","code":"decimal_above_max_value"}}"#)
        => is(InvalidRequest).parameter("temperature");
    openai_unsupported: chat(400, r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not
        supported with this model.","type":"invalid_request_error","param":"max_tokens",
        "code":"unsupported_parameter"}}"#) => is(Unsupported).parameter("max_tokens");
    openai_flagged: openai(400, "invalid_request_error", "invalid_prompt", "Invalid prompt: your \
        prompt was flagged as potentially violating our usage policy.") => is(Filtered);
    openai_busy: openai(503, "server_error", "server_overloaded", "That model is currently \
        overloaded with other requests.") => is(Overloaded);
    openai_slow_down: openai(503, "slow_down", "slow_down", "Slow down") => is(Overloaded);
    openai_lock: openai(409, "conflict", "lock_timeout", "m") => is(Server);
    openai_server: openai(500, "server_error", "server_error", "The server had an error while \
        processing your request. Sorry about that!") => is(Server);
    openai_in_stream: openai(0, "server_error", "server_error", "The server had an error")
        .in_stream().header("x-request-id", "req_3") => is(Server).id("req_3");

    // Google: Gemini and Vertex, <https://ai.google.dev/gemini-api/docs/troubleshooting>.
    google_invalid_key: google(400, "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        &serde_json::json!([{ "reason": "API_KEY_INVALID" }])) => is(Auth).auth(InvalidKey);
    google_expired_key: google(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key.",
        &serde_json::json!([{ "reason": "API_KEY_INVALID" }])) => is(Auth).auth(ExpiredKey);
    google_missing_key: google(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers \
        (callers without established identity).", &serde_json::json!([])) => is(Auth).auth(MissingKey);
    google_forbidden: google(403, "PERMISSION_DENIED", "Permission denied on resource project p.",
        &serde_json::json!([{ "reason": "CONSUMER_INVALID" }])) => is(Auth).auth(Forbidden);
    google_region: google(400, "FAILED_PRECONDITION",
        "User location is not supported for the API use.", &serde_json::json!(null))
        => is(Auth).auth(Region);
    google_context: google(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the \
        maximum number of tokens allowed (1048576).", &serde_json::json!(null))
        => is(ContextWindow).limits(1_048_576, 1_200_000);
    google_field: google(400, "INVALID_ARGUMENT", "Invalid JSON payload received.",
        &serde_json::json!([{ "fieldViolations": [{ "field": "tools[0]", "description": "d" }] }]))
        => is(InvalidRequest).parameter("tools[0]");
    google_requests: google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please \
        check your plan and billing details.", &serde_json::json!([
            { "violations": [{ "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier" }] },
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s" },
        ])) => is(RateLimited).scope(Requests).wait(34_400);
    google_input_tokens: google(429, "RESOURCE_EXHAUSTED", "Quota exceeded. Please retry in 12.3s.",
        &serde_json::json!([{ "violations": [{
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count",
            "quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier",
        }] }])) => is(RateLimited).scope(InputTokens).wait(12_300);
    google_daily: google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.",
        &serde_json::json!([{ "violations": [
            { "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier" },
            { "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" },
        ] }])) => is(RateLimited).scope(Daily);
    vertex_quota: google(429, "RESOURCE_EXHAUSTED", "Quota exceeded for \
        aiplatform.googleapis.com/generate_content_requests_per_minute_per_project_per_base_model \
        with base model: gemini.", &serde_json::json!(null)) => is(RateLimited).scope(Requests);
    vertex_exhausted: google(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again \
        later.", &serde_json::json!(null)) => is(RateLimited);
    google_overloaded: google(503, "UNAVAILABLE", "The model is overloaded. Please try again later.",
        &serde_json::json!(null)) => is(Overloaded);
    google_timeout: google(504, "DEADLINE_EXCEEDED", "Deadline expired before operation could \
        complete.", &serde_json::json!(null)) => is(Timeout);
    google_server: google(500, "INTERNAL", "An internal error has occurred.",
        &serde_json::json!(null)) => is(Server);
    google_wrapped_as_text: chat(429, r#"{"error":{"message":"{\"error\":{\"code\":429,\"message\":\"Used up. Please retry in 3s\",\"status\":\"RESOURCE_EXHAUSTED\"}}","code":429,"status":"Too Many Requests"}}"#)
        => is(RateLimited).wait(3_000);

    // Azure.
    azure_invalid_key: chat(401, r#"{"error":{"code":"401","message":"Access denied due to invalid
        subscription key or wrong API endpoint."}}"#).header("apim-request-id", "apim-1")
        => is(Auth).auth(InvalidKey).id("apim-1");
    azure_token: chat(401, r#"{"statusCode":401,"message":"Unauthorized. Access token is missing,
        invalid, audience is incorrect (https://x), or have expired."}"#)
        => is(Auth).auth(InvalidKey);
    azure_tokens: chat(429, r#"{"error":{"code":"429","message":"Requests to the
        ChatCompletions_Create Operation under Azure OpenAI API version 2024-08-01-preview have
        exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 86400
        seconds."}}"#).header("x-ms-request-id", "ms-1")
        => is(RateLimited).scope(Tokens).wait(86_400_000).id("ms-1");
    azure_calls: chat(429, r#"{"error":{"code":"429","message":"Requests have exceeded call rate
        limit of your current OpenAI S0 pricing tier. Please retry after 3 seconds."}}"#)
        => is(RateLimited).scope(Requests).wait(3_000);
    azure_filter: chat(400, r#"{"error":{"message":"The response was filtered due to the prompt
        triggering Azure OpenAI's content management policy.","type":null,"param":"prompt",
        "code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation",
        "content_filter_result":{"hate":{"filtered":true}}}}}"#) => is(Filtered);
    azure_no_deployment: chat(404, r#"{"error":{"code":"DeploymentNotFound","message":"The API
        deployment for this resource does not exist."}}"#) => is(InvalidRequest);

    // OpenRouter, <https://openrouter.ai/docs/api-reference/errors>.
    openrouter_missing_key: chat(401, r#"{"error":{"message":"No auth credentials found",
        "code":401}}"#) => is(Auth).auth(MissingKey);
    openrouter_credits: chat(402, r#"{"error":{"message":"This request requires more credits, or
        fewer max_tokens.","code":402}}"#) => is(Billing);
    openrouter_moderated: chat(403, r#"{"error":{"code":403,"message":"Input was flagged",
        "metadata":{"reasons":["violence"],"flagged_input":"…","provider_name":"P"}}}"#)
        => is(Filtered);
    openrouter_daily: chat(429, r#"{"error":{"message":"Rate limit exceeded: free-models-per-day.
        Add 10 credits to unlock 1000 free model requests per day","code":429,"metadata":{
        "headers":{"X-RateLimit-Limit":"50","X-RateLimit-Remaining":"0",
        "X-RateLimit-Reset":"1767229200000"}}}}"#)
        => is(RateLimited).scope(Daily).wait(3_600_000);
    openrouter_context: chat(400, r#"{"error":{"message":"This endpoint's maximum context length is
        32768 tokens. However, you requested about 40041 tokens (40041 of text input).","code":400}}"#)
        => is(ContextWindow).limits(32_768, 40_041);
    openrouter_passes_on: chat(400, r#"{"error":{"message":"Provider returned error","code":400,
        "metadata":{"provider_name":"Anthropic","raw":"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 9 tokens > 8 maximum\"}}"}}}"#)
        => is(ContextWindow).limits(8, 9);
    openrouter_upstream_limited: chat(429, r#"{"error":{"message":"Provider returned error",
        "code":429,"metadata":{"raw":"m is temporarily rate-limited upstream","provider_name":"P"}}}"#)
        => is(RateLimited);
    openrouter_upstream_down: chat(502, r#"{"error":{"message":"Provider returned error",
        "code":502}}"#).header("cf-ray", "8828f41b9aba80aa-BOM")
        => is(Server).id("8828f41b9aba80aa-BOM");
    openrouter_nobody: chat(503, r#"{"error":{"message":"There is no available model provider that
        meets your routing requirements","code":503}}"#) => is(Overloaded);
    openrouter_in_stream: chat(0, r#"{"id":"x","object":"chat.completion.chunk","error":{"code":502,
        "message":"Upstream error"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#)
        .in_stream() => is(Server);
    openrouter_limited_in_stream: chat(0, r#"{"error":{"code":429,"message":"Slow"},"choices":[]}"#)
        .in_stream() => is(RateLimited);

    // Groq, <https://console.groq.com/docs/errors>.
    groq_size: chat(413, r#"{"error":{"message":"Request too large for model `m` in organization `o`
        service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 12328, please
        reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}"#)
        => is(RateLimited).scope(RequestSize);
    groq_tokens: chat(429, r#"{"error":{"message":"Rate limit reached for model `m` on tokens per
        minute (TPM): Limit 6000, Used 5034, Requested 1443. Please try again in 4.77s. Need more
        tokens? Upgrade","type":"tokens","code":"rate_limit_exceeded"}}"#)
        .header("retry-after", "5") => is(RateLimited).scope(Tokens).wait(5_000);
    groq_daily: chat(429, r#"{"error":{"message":"Rate limit reached for model `m` on tokens per day
        (TPD): Limit 100000. Please try again in 2m3s.","type":"tokens",
        "code":"rate_limit_exceeded"}}"#) => is(RateLimited).scope(Daily).wait(123_000);
    groq_failed_call: chat(400, r#"{"error":{"message":"Failed to call a function. Please adjust your
        prompt. See 'failed_generation' for more details.","type":"invalid_request_error",
        "code":"tool_use_failed","failed_generation":"<function=f>"}}"#) => is(GenerationFailed);
    groq_call_that_does_not_fit: openai(400, "invalid_request_error", "tool_use_failed",
        "tool call validation failed: parameters for tool f did not match schema")
        => is(GenerationFailed);
    groq_failed_json: openai(400, "invalid_request_error", "json_validate_failed",
        "Failed to generate JSON.") => is(GenerationFailed);
    groq_failed_call_in_stream: chat(0, r#"{"error":{"message":"Tool choice is required, but model
        did not call a tool","type":"invalid_request_error","code":"tool_use_failed",
        "failed_generation":"","status_code":400}}"#).in_stream() => is(GenerationFailed);
    groq_context: chat(400, r#"{"error":{"message":"Please reduce the length of the messages or
        completion.","type":"invalid_request_error","param":"messages",
        "code":"context_length_exceeded"}}"#) => is(ContextWindow);
    groq_flex: chat(498, r#"{"error":{"message":"Flex tier capacity exceeded","code":
        "capacity_exceeded"}}"#) => is(Overloaded);

    // DeepSeek, <https://api-docs.deepseek.com/quick_start/error_codes>.
    deepseek_key: openai(401, "authentication_error", "invalid_request_error",
        "Authentication Fails, Your api key: ****5678 is invalid") => is(Auth).auth(InvalidKey);
    deepseek_balance: openai(402, "unknown_error", "invalid_request_error", "Insufficient Balance")
        => is(Billing);
    deepseek_context: openai(400, "invalid_request_error", "invalid_request_error", "This model's \
        maximum context length is 65536 tokens. However, you requested 66000 tokens (62000 in the \
        messages, 4000 in the completion).") => is(ContextWindow).limits(65_536, 66_000);
    deepseek_busy: openai(503, "service_unavailable_error", "x", "Service is too busy.")
        => is(Overloaded);

    // Mistral.
    mistral_key: chat(401, r#"{"message":"Unauthorized","request_id":"body-1"}"#)
        => is(Auth).auth(InvalidKey).id("body-1");
    mistral_context: chat(400, r#"{"object":"error","message":"Prompt contains 65673 tokens and 0
        draft tokens, too large for model with 32768 maximum context length",
        "type":"invalid_request_prompt","param":null,"code":"3051"}"#)
        => is(ContextWindow).limits(32_768, 65_673);
    mistral_requests: chat(429, r#"{"message":"Requests rate limit exceeded","type":"rate_limited",
        "code":"1300"}"#).header("mistral-correlation-id", "c-1")
        => is(RateLimited).scope(Requests).id("c-1");
    mistral_capacity: chat(429, r#"{"object":"error","message":"Service tier capacity exceeded for
        this model.","type":"request_tier_capacity_exceeded","code":"3505"}"#) => is(Overloaded);
    mistral_validation: chat(422, r#"{"object":"error","message":{"detail":[{"type":
        "extra_forbidden","loc":["body","foo"],"msg":"Extra inputs are not permitted"}]},
        "type":"invalid_request_error"}"#) => is(InvalidRequest).parameter("foo");

    // Together.
    together_context: chat(422, r#"{"id":"x","error":{"message":"Input validation error: `inputs`
        tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` tokens and 4096
        `max_new_tokens`","type":"invalid_request_error","param":"max_tokens","code":null}}"#)
        => is(ContextWindow).limits(4_097, 84_221);
    together_limited: chat(429, r#"{"error":{"message":"You have reached the rate limit","type":
        "rate_limit","param":null,"code":null}}"#).header("x-ratelimit-reset", "7")
        => is(RateLimited).wait(7_000);

    // Ollama.
    ollama_no_model: chat(404, r#"{"error":{"message":"model \"x\" not found, try pulling it
        first","type":"not_found_error","param":null,"code":null}}"#)
        => is(InvalidRequest).parameter("model");
    ollama_no_tools: chat(400, r#"{"error":{"message":"registry.ollama.ai/library/x does not support
        tools","type":"invalid_request_error","param":null,"code":null}}"#) => is(Unsupported);
    ollama_no_thinking: ollama(400, r#"{"error":"\"x\" does not support thinking"}"#)
        => is(Unsupported);
    ollama_no_levels_of_thinking: ollama(400, r#"{"error":"think value \"low\" is not supported
        for this model"}"#) => is(Unsupported);
    ollama_no_model_of_its_own: ollama(404, r#"{"error":"model 'x' not found"}"#)
        => is(InvalidRequest).parameter("model");
    ollama_signed_out: ollama(401, r#"{"error":"unauthorized","signin_url":
        "https://ollama.com/connect?name=a&key=b"}"#) => is(Auth).auth(InvalidKey);
    ollama_too_many: ollama(429, r#"{"error":"you have reached your hourly usage limit"}"#)
        => is(RateLimited);
    ollama_broke_before_the_first_line: ollama(200, r#"{"error":"llama runner process has
        terminated: exit status 2"}"#) => is(Server);
    ollama_context: chat(400, r#"{"error":"prompt too long; exceeded max context length by 4
        tokens"}"#) => is(ContextWindow);
    ollama_busy: chat(503, r#"{"error":"server busy, please try again.  maximum pending requests
        exceeded"}"#) => is(Overloaded);
    ollama_broke: chat(500, r#"{"error":{"message":"llama runner process has terminated","type":
        "api_error","param":null,"code":null}}"#) => is(Server);

    // llama.cpp.
    llama_cpp_context: chat(400, r#"{"error":{"code":400,"message":"the request exceeds the
        available context size. try increasing the context size","type":
        "exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#)
        => is(ContextWindow).limits(8_192, 14_429);
    llama_cpp_context_in_a_fine_answer: chat(200, r#"{"error":{"code":400,"message":"the request
        exceeds the available context size.","type":"exceed_context_size_error",
        "n_prompt_tokens":14429,"n_ctx":8192}}"#) => is(ContextWindow).limits(8_192, 14_429);
    llama_cpp_loading: chat(503, r#"{"error":{"code":503,"message":"Loading model",
        "type":"unavailable_error"}}"#) => is(Overloaded);
    llama_cpp_key: chat(401, r#"{"error":{"code":401,"message":"Invalid API Key",
        "type":"authentication_error"}}"#).without_key() => is(Auth).auth(MissingKey);
    llama_cpp_unsupported: chat(501, r#"{"error":{"code":501,"message":"This server does not support
        embeddings.","type":"not_supported_error"}}"#) => is(Unsupported);

    // vLLM.
    vllm_context: chat(400, r#"{"object":"error","message":"This model's maximum context length is
        16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the
        completion).","type":"BadRequestError","param":null,"code":400}"#)
        => is(ContextWindow).limits(16_384, 122_946);
    vllm_context_of_input_and_output: chat(400, r#"{"error":{"message":"'max_tokens' or
        'max_completion_tokens' is too large: 2000. This model's maximum context length is 4096
        tokens and your request has 2104 input tokens (2000 > 4096 - 2104).","type":
        "BadRequestError","param":null,"code":400}}"#) => is(ContextWindow).limits(4_096, 2_104);
    vllm_validation: chat(400, r#"{"object":"error","message":"[{'type': 'missing'}]","type":
        "BadRequestError","param":null,"code":400}"#) => is(InvalidRequest);
    vllm_key: chat(401, r#"{"error":"Unauthorized"}"#).without_key() => is(Auth).auth(MissingKey);

    // LM Studio.
    lm_studio_context: chat(400, r#"{"error":"Trying to keep the first 10136 tokens when context the
        overflows. However, the model is loaded with context length of only 7866 tokens, which is
        not enough."}"#) => is(ContextWindow).limits(7_866, 10_136);
    lm_studio_context_in_stream: chat(0, r#"{"error":{"message":"The number of tokens to keep from
        the initial prompt is greater than the context length."}}"#).in_stream()
        => is(ContextWindow);

    // xAI.
    xai_key: chat(400, r#"{"code":"Client specified an invalid argument","error":"Incorrect API key
        provided: sk***78."}"#) => is(Auth).auth(InvalidKey);

    // What stands in front of servers.
    a_page_of_a_proxy: chat(502, "<html><body>Rate limit: maximum context length is 5 tokens</body></html>")
        => is(Server);
    a_page_that_tells_of_too_many_requests: chat(429, "<!DOCTYPE html><title>overloaded</title>")
        .header("retry-after", "3") => is(RateLimited).wait(3_000);
    a_proxy_that_waited_too_long: chat(524, "error code: 524") => is(Timeout);
    a_plain_text: chat(503, "upstream connect error or disconnect/reset before headers")
        => is(Overloaded);
    a_wrong_key_that_mentions_a_limit: chat(401, r#"{"error":{"message":"No such key. Keys have a
        rate limit and a maximum context length."}}"#) => is(Auth).auth(InvalidKey);
    nothing_but_a_status: chat(429, "") => is(RateLimited);
    a_redirect: chat(301, "") => is(ErrorKind::Protocol);
    a_limit_that_is_an_overflow_says_so: chat(429, r#"{"error":{"message":"prompt is too long: 9
        tokens > 8 maximum"}}"#) => is(ContextWindow).limits(8, 9);
    a_limit_that_mentions_length_is_no_overflow: chat(429, r#"{"error":{"type":"rate_limit_error",
        "message":"Too many tokens. Please reduce the prompt length."}}"#) => is(RateLimited);

    // What gateways and less known vendors make of it.
    an_exception_of_aws: chat(400, r#"{"__type":"com.amazon.coral#ThrottlingException",
        "message":"Slow"}"#) => is(RateLimited);
    an_exception_of_aws_in_stream: chat(0, r#"{"error":{"type":"ServiceUnavailableException",
        "message":"m"}}"#).in_stream() => is(Overloaded);
    a_model_that_failed_behind_a_gateway: chat(424, r#"{"message":"The model encountered an
        unexpected error during processing.","originalStatusCode":500}"#) => is(Server);
    a_request_that_the_provider_cancelled: google(499, "CANCELLED", "The operation was cancelled.",
        &serde_json::json!([])) => is(Server);
    the_exceptions_that_a_gateway_prints: openai(500, "x", "400", "litellm.BadRequestError: \
        litellm.ContextWindowExceededError: OpenAIException - m") => is(ContextWindow);
    an_exception_that_a_gateway_prints: openai(400, "x", "400",
        "litellm.AuthenticationError: AuthenticationError: OpenAIException - bad")
        => is(Auth);
    a_bill_that_is_an_exhausted_resource: google(402, "RESOURCE_EXHAUSTED", "Prepaid funds are used \
        up.", &serde_json::json!([])) => is(Billing);
    a_budget_of_a_gateway: openai(400, "budget_exceeded", "400", "Current cost: 10.1, Max: 10.0")
        => is(Billing);
    a_balance: chat(403, r#"{"code":"30001","message":"Sorry, your account balance is insufficient",
        "data":null}"#) => is(Billing);
    a_spending_limit: chat(429, r#"{"code":"Some resource has been exhausted","error":"Your team
        has either used all available credits or reached its monthly spending limit."}"#)
        => is(Billing);
    a_usage_limit_of_the_account: anthropic(400, "invalid_request_error", "You have reached your \
        specified API usage limits. You will regain access on 2026-02-01 at 00:00 UTC.")
        => is(Billing);
    a_disabled_organization: anthropic(400, "invalid_request_error",
        "This organization has been disabled.") => is(Auth).auth(Forbidden);
    a_country: google(400, "FAILED_PRECONDITION", "Gemini API free tier is not available in your \
        country. Please enable billing on your project.", &serde_json::json!([]))
        => is(Auth).auth(Region);
    a_word_for_a_filter: chat(400, r#"{"error":{"code":"DataInspectionFailed","message":"m"}}"#)
        => is(Filtered);
    a_flagged_input: chat(403, r#"{"error":{"message":"Input was flagged","code":403}}"#)
        => is(Filtered);
    usage_guidelines: chat(403, r#"{"code":"x","error":"Content violates usage guidelines."}"#)
        => is(Filtered);
    a_prompt_that_cohere_finds_too_long: chat(400, r#"{"message":"too many tokens: total number of
        tokens in the prompt cannot exceed 4081 - received 5000. Try a shorter prompt"}"#)
        => is(ContextWindow).limits(4_081, 5_000);
    inputs_that_are_too_long: chat(422, r#"{"error":"Input validation error: `inputs` must have less
        than 4096 tokens. Given: 5000","error_type":"validation"}"#)
        => is(ContextWindow).limits(4_096, 5_000);
    no_endpoint_that_has_tools: chat(404, r#"{"error":{"message":"No endpoints found that support
        tool use.","code":404}}"#) => is(Unsupported);
    a_server_without_a_flag: chat(500, r#"{"error":{"code":500,"message":"tools param requires
        --jinja flag","type":"server_error"}}"#) => is(Unsupported);
    a_message_under_another_name: chat(400, r#"{"error_code":17,"error_msg":"Open api daily request
        limit reached"}"#) => is(RateLimited).scope(Daily);
    the_words_behind_a_long_beginning: openai(400, "x", "y", &format!(
        "{} {} maximum context length is 8192 tokens", "word ".repeat(150), "x".repeat(600)))
        => is(ContextWindow).limits(8_192, None);
}

#[tokio::test]
async fn error_messages_contain_the_vendors_message() {
    let error = anthropic(401, "authentication_error", "invalid x-api-key").ask().await;
    let expected = "the provider answered with status 401: invalid x-api-key";
    assert_eq!(error.to_string(), expected);
    let error = chat(502, "<html>bad gateway</html>").ask().await;
    assert_eq!(error.to_string(), "the provider answered with status 502");
    let error = Case { body: "no healthy\nupstream".to_owned(), ..chat(503, "") }.ask().await;
    assert_eq!(error.to_string(), "the provider answered with status 503: no healthy upstream");
    let raw = r#"{"error":{"message":"Provider returned error","metadata":{"raw":"busy"}}}"#;
    let error = chat(502, raw).ask().await;
    let expected = "the provider answered with status 502: Provider returned error: busy";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_long_message_without_spaces_is_truncated_and_not_dropped() {
    let error = chat(400, &"错误".repeat(300)).ask().await;
    let words = error.message().strip_prefix("the provider answered with status 400: ").unwrap();
    assert!(words.starts_with("错误错误") && words.ends_with('…'), "{words}");
    assert!((400..=510).contains(&words.len()), "{words}");
}

#[tokio::test]
async fn an_unknown_model_error_of_any_vendor_names_the_model() {
    let openai = |kind: &str, code: &str, message: &str| openai(404, kind, code, message);
    let google = |message| google(404, "NOT_FOUND", message, &serde_json::json!([]));
    for case in [
        anthropic(404, "not_found_error", "model: claude-nope"),
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
        chat(400, r#"{"error":{"message":"x/y is not a valid model ID","code":400}}"#),
        chat(404, r#"{"error":{"message":"No endpoints found for x/y.","code":404}}"#),
        chat(400, r#"{"object":"error","message":"Invalid model: x","type":"invalid_model"}"#),
        chat(400, r#"{"error":{"message":"Model Not Exist","type":"invalid_request_error"}}"#),
        chat(
            400,
            r#"{"error":{"code":"1211","message":"Unknown Model, please check the model code."}}"#,
        ),
        chat(
            404,
            r#"{"code":"Some requested entity was not found","error":"The model x does not exist"}"#,
        ),
        chat(404, r#"{"message":"model 'x' not found, make sure the correct model ID was used"}"#),
        chat(400, r#"{"error":{"message":"Invalid model name passed in model=x","param":"None"}}"#),
        chat(400, r#"{"message":"The provided model identifier is invalid."}"#),
    ] {
        let body = case.body.clone();
        let error = case.ask().await;
        assert_eq!((error.kind(), error.parameter()), (InvalidRequest, Some("model")), "{body}");
    }
    // What else is not found, or what a model does not have, is not the model.
    for (kind, body) in [
        (InvalidRequest, r#"{"error":{"message":"Previous response with id 'r' not found."}}"#),
        (InvalidRequest, r#"{"error":{"message":"The model is fine. The file was not found."}}"#),
        (Unsupported, r#"{"error":{"message":"No endpoints found that support tool use."}}"#),
    ] {
        let error = chat(404, body).ask().await;
        assert_eq!((error.kind(), error.parameter()), (kind, None), "{body}");
    }
}

#[tokio::test]
async fn an_error_in_a_stream_field_or_as_plain_text_is_reported() {
    let full = r#"{"code":400,"message":"the request exceeds the available context size.","type":"invalid_request_error"}"#;
    let begins = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    for wire in [messages, chat] {
        let error =
            wire(200, "").with_body(format!("error: {full}\n\ndata: [DONE]\n\n")).ask().await;
        let expected = "the provider broke off: the request exceeds the available context size.";
        assert_eq!((error.kind(), error.to_string().as_str()), (ContextWindow, expected));
        for words in ["event: error\ndata: out of memory\n\n", "error: out of memory\n\n"] {
            let error = wire(200, "").with_body(words.to_owned()).ask().await;
            assert_eq!(error.to_string(), "the provider broke off: out of memory", "{words}");
            assert_eq!(error.kind(), Server);
        }
    }
    let nested = format!("{begins}error: {{\"error\": {full}}}\n\n");
    assert_eq!(chat(200, "").with_body(nested).ask().await.kind(), ContextWindow);
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
        let error = chat(429, "").with_body(body.clone()).ask().await;
        let expected = "the provider answered with status 429: slow down";
        assert_eq!((error.kind(), error.to_string().as_str()), (RateLimited, expected), "{body}");
    }
    let empty = chat(502, "").with_body(": hm\n\n".to_owned()).ask().await;
    assert_eq!(empty.kind(), Server);
}
