use super::*;
use crate::error::ErrorKind;

#[track_caller]
fn check(pieces: &[&str], expected: Result<Option<&str>, &str>) {
    let mut arguments = PartialArguments::new();
    let pushed = pieces
        .iter()
        .try_for_each(|piece| arguments.push(&RawValue::from_string((*piece).to_owned()).unwrap()));
    match (pushed, expected) {
        (Ok(()), Ok(text)) => assert_eq!(arguments.into_complete_json().as_deref(), text),
        (Err(error), Err(end)) => assert!(error.message().ends_with(end), "{error}"),
        (pushed, _) => panic!("{pushed:?}"),
    }
}

#[test]
fn values_of_every_type_are_set_at_their_path() {
    check(
        &[
            r#"{"jsonPath":"$.text","stringValue":"a \"b\""}"#,
            r#"{"jsonPath":"$.half","numberValue":0.5}"#,
            r#"{"jsonPath":"$.whole","numberValue":50.0}"#,
            r#"{"jsonPath":"$.large","numberValue":1e300}"#,
            r#"{"jsonPath":"$.yes","boolValue":true}"#,
            r#"{"jsonPath":"$.none","nullValue":"NULL_VALUE"}"#,
            r#"{"jsonPath":"$.null","nullValue":null,"stringValue":null}"#,
        ],
        Ok(Some(
            r#"{"text":"a \"b\"","half":0.5,"whole":50,"large":1e+300,"yes":true,"none":null,"null":null}"#,
        )),
    );
    check(&[], Ok(Some("{}")));
}

#[test]
fn paths_address_nested_objects_and_lists() {
    check(
        &[
            r#"{"jsonPath":"$.a.list[0].x","numberValue":1}"#,
            r#"{"jsonPath":"$.a.list[0].y","numberValue":2}"#,
            r#"{"jsonPath":"$.a.list[1][0]","stringValue":"z"}"#,
            r#"{"jsonPath":"$['b.c'][\"d'\"]['e\\'']","boolValue":false}"#,
        ],
        Ok(Some(r#"{"a":{"list":[{"x":1,"y":2},["z"]]},"b.c":{"d'":{"e'":false}}}"#)),
    );
}

#[test]
fn interleaved_string_pieces_are_joined() {
    check(
        &[
            r#"{"jsonPath":"$.a","stringValue":"Hel","willContinue":true}"#,
            r#"{"jsonPath":"$.b","stringValue":"W","willContinue":true}"#,
            r#"{"jsonPath":"$.a","stringValue":"lo"}"#,
            r#"{"jsonPath":"$.b"}"#,
        ],
        Ok(Some(r#"{"a":"Hello","b":"W"}"#)),
    );
}

#[test]
fn an_unfinished_string_yields_no_arguments() {
    check(&[r#"{"jsonPath":"$.a","stringValue":"Hel","willContinue":true}"#], Ok(None));
}

#[test]
fn an_invalid_partial_argument_is_an_error() {
    for path in ["", "a", "$", "$.", "$..a", "$.*", "$[*]", "$[-1]", "$[0:1]", "$['a", "$[a]"] {
        let piece = serde_json::json!({ "jsonPath": path, "numberValue": 1 }).to_string();
        let mut arguments = PartialArguments::new();
        let pushed = arguments.push(&RawValue::from_string(piece).unwrap());
        assert_eq!(pushed.unwrap_err().kind(), ErrorKind::Protocol, "{path}");
    }
    let deep = format!(r#"{{"jsonPath":"${}","numberValue":1}}"#, ".a".repeat(MAX_DEPTH + 1));
    check(&[&deep], Err("empty or too deep"));
    check(&["[]"], Err("an invalid piece"));
    check(&[r#"{"numberValue":1}"#], Err("lack a path"));
    check(&[r#"{"jsonPath":"$.a"}"#], Err("lack a value"));
    check(&[r#"{"jsonPath":"$.a","numberValue":"1"}"#], Err("is not understood"));
    check(&[r#"{"jsonPath":"$.a","numberValue":1e999}"#], Err("is not understood"));
    check(&[r#"{"jsonPath":"$.a","numberValue":1,"willContinue":true}"#], Err("is not text"));
    check(&[r#"{"jsonPath":"$.a","numberValue":1,"boolValue":true}"#], Err("one value twice"));
}

#[test]
fn a_value_set_twice_is_an_error() {
    let a = r#"{"jsonPath":"$.a","numberValue":1}"#;
    check(&[a, a], Err("one value twice"));
    check(&[a, r#"{"jsonPath":"$.a.b","numberValue":1}"#], Err("one value twice"));
    check(&[a, r#"{"jsonPath":"$[0]","numberValue":1}"#], Err("one value twice"));
    let null = r#"{"jsonPath":"$.a","nullValue":null}"#;
    check(&[null, r#"{"jsonPath":"$.a","stringValue":"x"}"#], Err("one value twice"));
}

#[test]
fn a_skipped_list_element_is_an_error() {
    check(&[r#"{"jsonPath":"$.a[1]","numberValue":1}"#], Err("skip an element"));
    check(&[r#"{"jsonPath":"$.a[4294967295]","numberValue":1}"#], Err("an element"));
}

#[test]
fn arguments_with_too_many_values_are_too_large() {
    let mut arguments = PartialArguments::new();
    let error = (0..=MAX_JSON_VALUES).find_map(|n| {
        let piece = format!(r#"{{"jsonPath":"$.a{n}.b","numberValue":1}}"#);
        arguments.push(&RawValue::from_string(piece).unwrap()).err().map(|error| (n, error.kind()))
    });
    assert_eq!(error, Some((MAX_JSON_VALUES / 2, ErrorKind::TooLarge)));
}
