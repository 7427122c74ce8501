use std::sync::Arc;

use super::*;
use crate::item::{
    EffectReport, Evidence, Item, ItemFlag, RawJson, ResultKind, SideEffect, ToolCall, ToolResult,
};

/// A result as a word: its kind, its change, and its checks.
///
/// `edit`, `edit!` (failed as well), `late` (timed out), `cut` (interrupted), `denied`, `read`;
/// `a=0` is a check of the command `a` that ended with 0, `a=-` one without an exit code; a
/// trailing `!` means that the call failed; `+` joins several checks in one result.
fn result(id: usize, word: &str) -> ToolResult {
    let call = ToolCall { call_id: format!("c{id}"), name: "t".into(), arguments: "{}".into() };
    let (word, mut kind) = match word.strip_suffix('!') {
        Some(word) => (word, ResultKind::Error),
        None => (word, ResultKind::Ok),
    };
    let mut report = EffectReport::default();
    for part in word.split('+') {
        match (part, part.split_once('=')) {
            (_, Some((command, code))) => {
                let evidence = Evidence {
                    command: command.into(),
                    exit_code: code.parse().ok(),
                    stderr_snippet: None,
                };
                report.evidence.push(RawJson::new(&evidence).unwrap());
            }
            ("edit", None) => report.side_effects.push(SideEffect::of_change("f")),
            ("diff", None) => report.evidence.push(RawJson::new("a diff").unwrap()),
            ("late", None) => kind = ResultKind::Timeout,
            ("cut", None) => kind = ResultKind::Interrupted,
            ("panic", None) => kind = ResultKind::Panic,
            ("denied", None) => kind = ResultKind::Denied,
            ("read", None) => {}
            _ => panic!("{part}"),
        }
    }
    ToolResult::for_call(&call, kind, "said").with_report(report)
}

/// Parses a script: `;` separates turns, spaces separate the calls of a turn.
fn standing(script: &str) -> EvidenceLog {
    let mut standing = EvidenceLog::default();
    for batch in script.split(';') {
        let words = batch.split_whitespace().enumerate();
        standing.record_batch(&words.map(|(id, word)| result(id, word)).collect::<Vec<_>>());
    }
    standing
}

fn verdict_of(log: &EvidenceLog) -> EvidenceVerdict {
    RequireEvidence::default().verdict(log)
}

#[track_caller]
fn check(script: &str, expected: &str) {
    let verdict = match verdict_of(&standing(script)) {
        EvidenceVerdict::Proven(evidence) => format!("proven by {}", evidence.command),
        EvidenceVerdict::NothingChanged => "nothing".to_owned(),
        EvidenceVerdict::Unproven(UnprovenReason { failed_check: failed, last_change }) => {
            let failed = failed.map(|evidence| format!("{} failed", evidence.command));
            let change = last_change.map(|_| "not checked".to_owned());
            failed.into_iter().chain(change).collect::<Vec<_>>().join(", ")
        }
    };
    assert_eq!(verdict, expected, "{script}");
}

#[test]
fn a_check_counts_only_after_the_last_change() {
    check("", "nothing");
    check("read; read read", "nothing");
    check("edit; a=0", "proven by a");
    check("edit; read; a=0; read", "proven by a");
    check("a=0", "proven by a");
    check("edit", "not checked");
    check("a=0; edit", "not checked");
    check("edit; a=0; edit", "not checked");
    check("edit; a=0; edit; a=0", "proven by a");
    check("edit; a=0; b=0", "proven by b");
}

#[test]
fn in_one_batch_a_check_counts_only_in_the_result_of_the_change() {
    check("edit a=0", "not checked");
    check("a=0 edit", "not checked");
    check("edit+a=0", "proven by a");
    check("edit+a=0 edit", "not checked");
    check("edit a=0; a=0", "proven by a");
    check("edit; a=0 b=0", "proven by b");
}

#[test]
fn failed_and_timed_out_calls_keep_their_side_effects() {
    check("a=0; edit!", "not checked");
    check("a=0; edit+late", "not checked");
    check("edit!; a=0", "proven by a");
}

#[test]
fn an_interrupted_call_counts_as_a_change() {
    for word in ["late", "cut", "panic"] {
        check(word, "not checked");
        check(&format!("a=0; {word}"), "not checked");
        check(&format!("{word}; a=0"), "proven by a");
    }
    // A call that never ran changed nothing.
    check("a=0; denied", "proven by a");
    check("a=0; read!", "proven by a");
}

#[test]
fn a_failed_check_is_fixed_only_by_the_same_command() {
    check("a=1", "a failed");
    check("edit; a=1", "a failed, not checked");
    check("edit; a=0; a=1", "a failed");
    check("edit; a=1; a=0", "proven by a");
    check("edit; a=1; b=0", "a failed");
    check("edit; a=1; edit; a=0", "proven by a");
    check("edit; a=1; a=0; edit; b=0", "proven by b");
    check("edit; a=1; b=1; a=0", "b failed");
    check("edit; b=0; a=-", "a failed");
    // The order within a batch is unknown; within one result it is known.
    check("edit; a=1 a=0", "a failed");
    check("edit; a=0 a=1", "a failed");
    check("edit; a=1+a=0", "proven by a");
    check("edit; a=0+a=1", "a failed");
}

#[test]
fn a_check_in_a_result_that_is_an_error_has_not_passed() {
    check("edit; a=0!", "a failed, not checked");
    check("edit; a=0!; a=0", "proven by a");
    check("edit; late+a=0", "a failed, not checked");
}

#[test]
fn evidence_that_is_not_a_check_proves_nothing() {
    check("edit; diff", "not checked");
    check("diff", "nothing");
    let mut policy = RequireEvidence::new();
    policy.evidence_parser = Arc::new(|_| Some(Evidence::from_command("diff", 0)));
    let verdict = policy.verdict(&standing("edit; diff"));
    assert_eq!(verdict, EvidenceVerdict::Proven(Evidence::from_command("diff", 0)));
}

#[test]
fn an_interrupted_read_only_tool_is_not_a_change() {
    let harmless = |name: &str| RequireEvidence {
        read_only_tools: vec![name.to_owned()],
        ..RequireEvidence::new()
    };
    let standing = standing("a=0; late");
    assert!(matches!(harmless("t").verdict(&standing), EvidenceVerdict::Proven(_)));
    assert!(matches!(harmless("other").verdict(&standing), EvidenceVerdict::Unproven(_)));
}

#[test]
fn failed_fixes_are_counted_by_the_policys_changes_and_checks() {
    let count = |script, policy: &RequireEvidence| standing(script).failed_fixes(policy);
    let default = RequireEvidence::new();
    assert_eq!(count("edit; a=1; edit; a=1", &default), 2);
    assert_eq!(count("edit; a=1; edit; a=0; edit; a=1", &default), 1);
    assert_eq!(count("a=1; a=1", &default), 0);
    // A check in a result that is an error has not passed.
    assert_eq!(count("edit; a=0!; edit; a=0!", &default), 2);
    // A result that was interrupted may be a change, unless its tool is read-only.
    let read_only = RequireEvidence { read_only_tools: vec!["t".into()], ..default.clone() };
    assert_eq!((count("late; a=1", &default), count("late; a=1", &read_only)), (1, 0));
    // The default rules know no check in this evidence.
    let mut parsing = RequireEvidence::new();
    parsing.evidence_parser = Arc::new(|_| Some(Evidence::from_command("diff", 1)));
    assert_eq!((count("edit; diff", &default), count("edit; diff", &parsing)), (0, 1));
}

#[test]
fn a_log_from_items_equals_a_log_from_results() {
    let mut items = vec![Item::user("go")];
    for (at, word) in ["edit", "a=0", "|", "b=0"].iter().enumerate() {
        items.push(match *word {
            "|" => Item::text("next"),
            word => Item::tool_result(result(at, word)),
        });
    }
    let verdict = verdict_of(&EvidenceLog::from_items(&items[..3]));
    assert!(matches!(verdict, EvidenceVerdict::Unproven(_)), "one batch");
    let verdict = verdict_of(&EvidenceLog::from_items(&items));
    assert_eq!(verdict, EvidenceVerdict::Proven(Evidence::from_command("b", 0)));
}

#[test]
fn a_compaction_counts_as_a_change_that_a_later_check_proves() {
    let summary = || Item::user("We edited a file.").with_flag(ItemFlag::Compacted);
    let check = || Item::tool_result(result(1, "a=0"));
    assert!(matches!(
        verdict_of(&EvidenceLog::from_items(&[summary()])),
        EvidenceVerdict::Unproven(_)
    ));
    assert!(matches!(
        verdict_of(&EvidenceLog::from_items(&[check(), summary()])),
        EvidenceVerdict::Unproven(_)
    ));
    assert!(matches!(
        verdict_of(&EvidenceLog::from_items(&[summary(), check()])),
        EvidenceVerdict::Proven(_)
    ));
}

#[test]
fn the_unproven_reason_is_displayed_as_text() {
    let verdict = |script| match verdict_of(&standing(script)) {
        EvidenceVerdict::Unproven(missing) => missing.to_string(),
        EvidenceVerdict::Proven(_) | EvidenceVerdict::NothingChanged => String::new(),
    };
    assert_eq!(verdict("edit"), "no check has passed since the last change: changed `f` (by `t`)");
    assert_eq!(
        verdict("late"),
        "no check has passed since the last change: a call of `t` was interrupted and may have \
         changed something"
    );
    assert_eq!(verdict("a=101"), "`a` failed with exit code 101 and has not passed since");
    assert_eq!(verdict("a=-"), "`a` ended without an exit code and has not passed since");
    assert_eq!(verdict("a=0!"), "the call that ran `a` failed and has not passed since");
    assert_eq!(
        verdict("edit; a=2"),
        "`a` failed with exit code 2 and has not passed since, and no check has passed since the \
         last change: changed `f` (by `t`)"
    );
    assert_eq!(
        verdict("edit+edit+edit+edit+edit+edit+edit"),
        "no check has passed since the last change: changed `f`, changed `f`, changed `f`, changed \
         `f`, changed `f` and 2 more (by `t`)"
    );
    assert_eq!(UnprovenReason::default().to_string(), "no check was recorded");
}

#[test]
fn the_unresolved_evidence_gives_a_parent_the_same_verdict() {
    let left = |script, failed| {
        let evidence = standing(script).unresolved_evidence(failed);
        evidence.iter().map(RawJson::as_str).collect::<Vec<_>>().join(" ")
    };
    let (a, b) = (r#"{"command":"a","exit_code":0}"#, r#"{"command":"b","exit_code":0}"#);
    assert_eq!(left("edit; a=0; b=0", false), format!("{a} {b}"));
    assert_eq!(left("edit; a=0; edit", false), "");
    assert_eq!(left("edit; a=1; edit; a=0; edit; b=0", false), b);
    assert_eq!(left("edit; b=0; a=1", false), format!(r#"{b} {{"command":"a","exit_code":1}}"#));
    assert_eq!(left("edit; a=0!", false), r#"{"command":"a"}"#);
    assert_eq!(left("edit; a=0", true), "");
    assert_eq!(left("edit; diff; a=0", true), r#""a diff""#);
}

#[test]
fn a_blocked_claim_must_start_the_text() {
    let claim = |text| strip_blocked_prefix(text);
    assert_eq!(claim("BLOCKED: a key"), Some("a key"));
    assert_eq!(claim("\n  blocked:a key  \nand more"), Some("a key"));
    assert_eq!(claim("BLOCKED:\na key"), Some(""));
    for other in
        ["", "BLOCKED", "BLOCKED - a key", "I am BLOCKED: a key", "blöcked: a", "Unblocked:"]
    {
        assert_eq!(claim(other), None, "{other}");
    }
}
