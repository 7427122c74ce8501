//! Argument repair: which of several hooks wins, how a repair fails, and which arguments are
//! unwrapped.

use super::*;

fn repair_returning(given: Option<&'static str>) -> Box<dyn Hook> {
    Box::new(repair_arguments(move |_, _, _| given.map(str::to_owned)))
}

#[track_caller]
fn check_repair<const N: usize>(given: [Option<&'static str>; N], expected: Option<&str>) {
    let hooks = hooks(given.map(repair_returning));
    let repaired = hooks.repair_arguments(&state(), &call("["), "not JSON").unwrap();
    assert_eq!(repaired.as_deref(), expected);
}

#[test]
fn the_first_repair_wins() {
    check_repair([], None);
    check_repair([None, None], None);
    check_repair([None, Some("{}"), Some("{\"a\":1}")], Some("{}"));
    check_repair([Some("["), Some("{}")], Some("["));
}

#[test]
fn hooks_after_the_first_repair_are_not_called() {
    let never = Box::new(repair_arguments(|_, _, _| panic!("not asked"))) as Box<dyn Hook>;
    let hooks = hooks([repair_returning(Some("{}")), never]);
    assert_eq!(
        hooks.repair_arguments(&state(), &call("["), "not JSON").unwrap().as_deref(),
        Some("{}")
    );
}

#[test]
fn repair_gets_the_original_call_and_the_validation_error() {
    let seeing =
        repair_arguments(|_, call, why| Some(format!("{} {} {why}", call.call_id, call.arguments)));
    assert!(seeing.name().contains("repair_gets_the_original_call"));
    let shared = Arc::new(Box::new(seeing));
    let repaired = single_hook(shared).repair_arguments(&state(), &call("["), "not JSON").unwrap();
    assert_eq!(repaired.as_deref(), Some("c1 [ not JSON"));
}

#[test]
fn a_panic_in_repair_is_an_error_naming_the_hook() {
    let hooks = single_hook(NamedHook("r", repair_arguments(|_, _, _| panic!("boom"))));
    let error = hooks.repair_arguments(&state(), &call("["), "not JSON").unwrap_err();
    check_error(
        &error,
        "`r` failed in `repair_arguments`",
        (ErrorKind::Panic, "it panicked: boom"),
    );
}

#[track_caller]
fn check_unwrap(arguments: &str, expected: Option<&str>) {
    let repaired =
        unwrap_json_string().repair_arguments(&state(), &call(arguments), "not a JSON object");
    assert_eq!(repaired.as_deref(), expected, "{arguments}");
}

#[test]
fn an_object_encoded_as_a_json_string_is_unwrapped_at_any_depth() {
    let object = r#"{"a":"\"{}\""}"#;
    let mut wrapped = object.to_owned();
    for _ in 0..4 {
        wrapped = serde_json::to_string(&wrapped).unwrap();
        check_unwrap(&wrapped, Some(object));
    }
    check_unwrap(" \"{}\"\n", Some("{}"));
    check_unwrap(r#"" {\n} ""#, Some(" {\n} "));
}

#[test]
fn other_arguments_are_not_unwrapped() {
    for other in [
        "",
        "null",
        "{",
        "{}",
        "[]",
        "3",
        r#""""#,
        r#""x""#,
        r#""null""#,
        r#""[{}]""#,
        r#"["{}"]"#,
        r#""{\"a\":""#,
        r#""{} {}""#,
        r#""{}"x"#,
        r#""\ud800""#,
    ] {
        check_unwrap(other, None);
    }
}
