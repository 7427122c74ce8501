use std::time::Duration;

use super::*;

#[test]
fn an_error_reads_back_as_it_was_written() {
    let error = Error::new(ErrorKind::RateLimited, "slow down")
        .with_status(429)
        .with_retry_after(Duration::from_secs(1))
        .with_request_id("req_1");
    let json = serde_json::to_string(&error).unwrap();
    assert_eq!(
        json,
        r#"{"kind":"rate_limited","message":"slow down","status":429,"retry_after_ms":1000,"request_id":"req_1"}"#
    );
    assert_eq!(serde_json::from_str::<Error>(&json).unwrap(), error);
}

#[test]
fn a_kind_of_a_later_version_is_other() {
    let error: Error = serde_json::from_str(r#"{"kind":"moon_phase","message":"m"}"#).unwrap();
    assert_eq!(error.kind(), ErrorKind::Other);
}

#[test]
fn every_kind_is_named_as_it_is_serialized() {
    use ErrorKind::*;
    for kind in [
        Connect,
        Timeout,
        Auth,
        Billing,
        RateLimited,
        Overloaded,
        Server,
        ContextWindow,
        InvalidRequest,
        Unsupported,
        Filtered,
        GenerationFailed,
        IncompleteTurn,
        Malformed,
        Protocol,
        TooLarge,
        Hook,
        Panic,
        ReplayMismatch,
        Store,
        Conflict,
        Unfinished,
        Other,
    ] {
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
    }
}

#[test]
fn the_source_is_found_through_the_chain() {
    let inner = Error::new(ErrorKind::Connect, "inner");
    let middle = Error::new(ErrorKind::Other, "middle").with_source(std::fmt::Error);
    let outer = Error::new(ErrorKind::Server, "outer").with_source(middle.clone());
    assert_eq!(outer.find_source::<Error>(), Some(&middle));
    assert!(outer.find_source::<std::fmt::Error>().is_some());
    assert!(inner.find_source::<std::fmt::Error>().is_none());
}

#[test]
fn details_are_serialized_only_if_present_and_read_back() {
    let limits = ContextLimits::new(Some(200), Some(210));
    let error = Error::new(ErrorKind::ContextWindow, "too long").with_context_limits(limits);
    let json = serde_json::to_string(&error).unwrap();
    assert_eq!(
        json,
        r#"{"kind":"context_window","message":"too long","context_limits":{"limit":200,"requested":210}}"#
    );
    assert_eq!(serde_json::from_str::<Error>(&json).unwrap(), error);
    let error =
        Error::new(ErrorKind::RateLimited, "m").with_rate_limit_scope(RateLimitScope::InputTokens);
    let error = error.with_auth_problem(AuthProblem::ExpiredKey).with_retryable(false);
    let json = serde_json::to_string(&error).unwrap();
    assert!(json.ends_with(r#""scope":"input_tokens","auth":"expired_key","retryable":false}"#));
    assert_eq!(serde_json::from_str::<Error>(&json).unwrap(), error);
}

#[test]
fn details_of_a_later_version_are_read() {
    let json = r#"{"kind":"auth","message":"m","scope":"per_moon","auth":"tired_key",
        "context_limits":{"limit":5,"colour":"red"},"mood":1}"#;
    let error: Error = serde_json::from_str(json).unwrap();
    assert_eq!(error.rate_limit_scope(), Some(RateLimitScope::Other));
    assert_eq!(error.auth_problem(), Some(AuthProblem::Other));
    assert_eq!(error.context_limits(), Some(ContextLimits::new(Some(5), None)));
}

#[test]
fn transient_errors_are_retryable_unless_the_provider_overrides_it() {
    let error = |kind| Error::new(kind, "m");
    assert!(error(ErrorKind::Overloaded).is_retryable());
    assert!(!error(ErrorKind::InvalidRequest).is_retryable());
    assert!(!error(ErrorKind::Overloaded).with_retryable(false).is_retryable());
    assert!(error(ErrorKind::InvalidRequest).with_retryable(true).is_retryable());
    let limited = error(ErrorKind::RateLimited);
    assert!(limited.clone().with_rate_limit_scope(RateLimitScope::Daily).is_retryable());
    assert!(!limited.with_rate_limit_scope(RateLimitScope::RequestSize).is_retryable());
}

#[cfg(feature = "http")]
#[test]
fn error_sources_with_rewritten_text_are_replaced_and_others_kept() {
    let cause = Error::new(ErrorKind::Other, "open sesame");
    let outer = Error::new(ErrorKind::Server, "m").with_source(cause);
    let hidden = outer.clone().map_text_and_sources(|text| text.replace("sesame", "…"));
    assert!(!format!("{hidden:?} {hidden:#?}").contains("sesame"));
    assert_eq!(std::error::Error::source(&hidden).unwrap().to_string(), "open …");
    assert!(outer.map_text_and_sources(str::to_owned).find_source::<Error>().is_some());
}

#[test]
fn the_alternate_format_shows_the_whole_chain_without_repetition() {
    let disk = std::io::Error::other("the disk is full");
    let page = Error::new(ErrorKind::Other, "while writing page 3").with_source(disk);
    let outer = Error::new(ErrorKind::Store, "the book was not kept").with_source(page.clone());
    assert_eq!(outer.to_string(), "the book was not kept");
    assert_eq!(
        format!("{outer:#}"),
        "the book was not kept: while writing page 3: the disk is full"
    );
    let outer = Error::new(ErrorKind::Store, "not kept: while writing page 3").with_source(page);
    assert_eq!(format!("{outer:#}"), "not kept: while writing page 3: the disk is full");
    // The message ends with that of the deepest source, and the source between adds nothing.
    let root = Error::new(ErrorKind::Connect, "refused");
    let between = Error::new(ErrorKind::Connect, "error sending request").with_source(root);
    let whole = Error::new(ErrorKind::Connect, "could not connect: refused").with_source(between);
    assert_eq!(format!("{whole:#}"), "could not connect: refused");
}

#[test]
fn a_report_that_joins_the_messages_of_all_sources_contains_each_cause_once() {
    /// Joins the messages as the reports of common error libraries do.
    fn report(error: &dyn std::error::Error) -> String {
        let sources = std::iter::successors(Some(error), |error| error.source());
        sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }
    let disk = || std::io::Error::other("the disk is full");
    let page = Error::new(ErrorKind::Other, "while writing page 3").with_source(disk());
    let whole = Error::new(ErrorKind::Store, "not stored: the disk is full").with_source(page);
    assert_eq!(report(&whole), "not stored: the disk is full");
    assert!(whole.find_source::<std::io::Error>().is_some(), "all sources can still be found");

    let inner = Error::new(ErrorKind::Store, "not stored: the disk is full").with_source(disk());
    let outer = Error::new(ErrorKind::Other, "page 3 is lost").with_source(inner);
    assert_eq!(report(&outer), "page 3 is lost: not stored: the disk is full");
    let half = Error::new(ErrorKind::Other, "lost: page 3 is lost").with_source(outer);
    assert_eq!(report(&half), "lost: page 3 is lost: not stored: the disk is full");
}

#[test]
fn an_error_that_main_returns_is_printed_as_one_line() {
    let error = Error::new(ErrorKind::RateLimited, "slow down\r\n\tplease")
        .with_status(429)
        .with_retry_after(Duration::from_secs(3))
        .with_request_id("req_1")
        .with_source(std::io::Error::other("a\nb"));
    let line = "slow down please (rate_limited, status 429, retry after 3s, request req_1)";
    assert_eq!(format!("{error:?}"), line);
    assert!(format!("{error:#?}").contains("source: "), "with # it shows all");
}
