//! Repairs: which of several counts, how one fails, and what is unwrapped.

use super::*;

fn giving(given: Option<&'static str>) -> Box<dyn Hook> {
    Box::new(repair(move |_, _, _| given.map(str::to_owned)))
}

#[track_caller]
fn check_repair<const N: usize>(given: [Option<&'static str>; N], expected: Option<&str>) {
    let hooks = hooks(given.map(giving));
    let repaired = hooks.repair(&state(), &call("["), "not JSON").unwrap();
    assert_eq!(repaired.as_deref(), expected);
}

#[test]
fn the_first_text_counts() {
    check_repair([], None);
    check_repair([None, None], None);
    check_repair([None, Some("{}"), Some("{\"a\":1}")], Some("{}"));
    check_repair([Some("["), Some("{}")], Some("["));
}

#[test]
fn no_hook_behind_the_first_text_is_asked() {
    let never = Box::new(repair(|_, _, _| panic!("not asked"))) as Box<dyn Hook>;
    let hooks = hooks([giving(Some("{}")), never]);
    assert_eq!(hooks.repair(&state(), &call("["), "not JSON").unwrap().as_deref(), Some("{}"));
}

#[test]
fn a_repair_sees_the_call_as_the_model_wrote_it_and_why_it_does_not_fit() {
    let seeing = repair(|_, call, why| Some(format!("{} {} {why}", call.call_id, call.arguments)));
    assert!(seeing.name().contains("a_repair_sees_the_call"));
    let shared = Arc::new(Box::new(seeing));
    let repaired = one(shared).repair(&state(), &call("["), "not JSON").unwrap();
    assert_eq!(repaired.as_deref(), Some("c1 [ not JSON"));
}

#[test]
fn a_panic_in_a_repair_is_an_error_with_its_name() {
    let hooks = one(Named("r", repair(|_, _, _| panic!("boom"))));
    let error = hooks.repair(&state(), &call("["), "not JSON").unwrap_err();
    check_error(&error, "`r` failed in `repair`", (ErrorKind::Panic, "it panicked: boom"));
}

#[track_caller]
fn check_unwrap(arguments: &str, expected: Option<&str>) {
    let repaired = unwrap_json_string().repair(&state(), &call(arguments), "not a JSON object");
    assert_eq!(repaired.as_deref(), expected, "{arguments}");
}

#[test]
fn a_string_with_an_object_in_it_is_unwrapped_however_often_it_is_wrapped() {
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
fn nothing_else_is_unwrapped() {
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
