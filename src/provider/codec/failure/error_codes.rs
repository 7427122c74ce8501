//! The error codes that vendors use, including error types and reasons, in lower case.

use crate::error::ErrorKind;

use ErrorKind::{
    Auth, Billing, ContextWindow, Filtered, GenerationFailed, InvalidRequest, Overloaded,
    RateLimited, ReasoningRefused, Server, Timeout, Unsupported,
};

/// The codes that determine an error's kind. If several codes match, the first of these codes in
/// the table takes precedence. An error may have several codes: for example, Groq also reports a
/// failed generation as an invalid request.
pub(super) const SPECIFIC_CODES: &[(ErrorKind, &[&str])] = &[
    // A code used by OpenAI.
    (ReasoningRefused, &["invalid_encrypted_content"]),
    (ContextWindow, &["context_length_exceeded", "exceed_context_size_error"]),
    (ContextWindow, &["model_context_window_exceeded", "context_window_exceeded"]),
    (GenerationFailed, &["tool_use_failed", "failed_generation", "json_validate_failed"]),
    (GenerationFailed, &["output_parse_failed"]),
    (Filtered, &["content_filter", "content_policy_violation", "responsibleaipolicyviolation"]),
    (Filtered, &["moderation_blocked", "flagged_input"]),
    // A code used by Alibaba.
    (Filtered, &["data_inspection_failed"]),
    // A code used by OpenAI for a prompt that violates the usage policy.
    (Filtered, &["invalid_prompt"]),
    (Billing, &["insufficient_quota", "billing_error", "billing_hard_limit_reached"]),
    (Billing, &["billing_not_active", "billing_disabled", "credit_balance_too_low"]),
    (Billing, &["insufficient_credits", "insufficient_balance", "payment_required"]),
    (Billing, &["budget_exceeded"]),
    // A code used by Alibaba.
    (Billing, &["arrearage"]),
    (Auth, &["unsupported_country_region_territory", "authentication_error"]),
    (Auth, &["invalid_authentication_error", "invalid_api_key", "expired_api_key"]),
    (Auth, &["api_key_invalid", "permission_error", "permission_denied", "unauthenticated"]),
    (Auth, &["unauthorized", "invalid_organization", "account_deactivated", "ip_not_authorized"]),
    (Overloaded, &["overloaded_error", "server_overloaded", "server_is_overloaded"]),
    (Overloaded, &["engine_overloaded", "engine_overloaded_error"]),
    (Overloaded, &["request_tier_capacity_exceeded", "capacity_exceeded", "unavailable"]),
    (Overloaded, &["unavailable_error", "service_unavailable", "service_unavailable_error"]),
    (Overloaded, &["slow_down"]),
    (RateLimited, &["rate_limit_error", "rate_limit_exceeded", "rate_limit_reached"]),
    (RateLimited, &["rate_limit_reached_error", "rate_limited", "ratelimitreached"]),
    (RateLimited, &["too_many_requests", "resource_exhausted", "throttling_error"]),
    (Timeout, &["timeout_error", "timeout", "deadline_exceeded", "request_timeout"]),
    (Timeout, &["vector_store_timeout"]),
    (Unsupported, &["unsupported_parameter", "unsupported_value", "not_supported_error"]),
    (Unsupported, &["unimplemented"]),
];

/// The codes that reveal little about an error and are therefore used only if the status is
/// unknown.
pub(super) const GENERAL_CODES: &[(ErrorKind, &[&str])] = &[
    (InvalidRequest, &["invalid_request_error", "invalid_argument", "failed_precondition"]),
    (InvalidRequest, &["not_found", "not_found_error", "model_not_found", "request_too_large"]),
    (InvalidRequest, &["badrequesterror", "bad_request"]),
    (Server, &["api_error", "server_error", "internal_error", "internal_server_error", "internal"]),
];
