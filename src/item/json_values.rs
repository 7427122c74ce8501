//! Limits the number of values in JSON before a tree is built from it.

use serde::Deserialize;
use serde::de::Error as _;

/// The maximum number of values in the JSON of a model, a server or a client from which a tree is
/// built. Every array, object, string, number, boolean and `null` is a value; the names of fields
/// are not. A limit in bytes is not sufficient: a value of two bytes takes up to hundreds of bytes
/// in a tree.
pub(crate) const MAX_JSON_VALUES: usize = 200_000;

/// Returns whether JSON may contain more than [`MAX_JSON_VALUES`] values.
pub(crate) fn has_too_many_values(json: &[u8]) -> bool {
    has_more_values_than(json, MAX_JSON_VALUES)
}

/// Returns whether JSON may contain more than `max` values. Short JSON is not read, and JSON that
/// consists mainly of strings is read only once, by a vectorized search.
pub(crate) fn has_more_values_than(json: &[u8], max: usize) -> bool {
    // Every value is at least one byte long, and is followed by a comma or a bracket.
    if json.len() / 2 < max {
        return false;
    }
    // Separators in strings are counted too, so the number of values may be overestimated.
    let separators = memchr::memchr3_iter(b',', b'[', b'{', json).take(max).count();
    separators == max && count_json_values(json, max) > max
}

/// Counts the values in JSON without building a tree, and stops once there are more than `max`.
///
/// Every array, object, string, number, boolean and `null` is a value; the names of fields are not.
/// An empty array or object counts as two values. If the JSON is not valid, the count is that of
/// the valid JSON it begins with, or larger.
///
/// JSON from a server should be limited in its values before it is parsed. A limit in bytes is not
/// sufficient: a value of two bytes takes up to hundreds of bytes in a tree.
///
/// ```
/// use turnstream::item::count_json_values;
///
/// assert_eq!(count_json_values(br#"{"a":[1,2]}"#, 100), 4);
/// assert!(count_json_values(b"[0,0,0,0,0,0]", 3) > 3);
/// ```
pub fn count_json_values(json: &[u8], max: usize) -> usize {
    // The outermost value has no separator.
    let (mut count, mut rest) = (1, json);
    while count <= max
        && let Some((byte, after)) = rest.split_first()
    {
        rest = after;
        match byte {
            b',' | b'[' | b'{' => count += 1,
            b'"' => rest = skip_string(rest),
            _ => {}
        }
    }
    count
}

/// Returns the bytes after the end of a string. `json` begins after the opening quotation mark.
fn skip_string(mut json: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', json) {
        match json[at] {
            b'"' => return &json[at + 1..],
            // The escaped character cannot end the string.
            _ => json = json.get(at + 2..).unwrap_or_default(),
        }
    }
    &[]
}

/// Deserializes JSON, like `serde_json::from_str`. Fails before anything is deserialized if the
/// JSON has more than [`MAX_JSON_VALUES`] values.
pub(crate) fn from_bounded_json<'a, T: Deserialize<'a>>(
    json: &'a str,
) -> Result<T, serde_json::Error> {
    if has_too_many_values(json.as_bytes()) {
        return Err(serde_json::Error::custom(too_many_values_message()));
    }
    serde_json::from_str(json)
}

/// Returns the description of JSON with more than [`MAX_JSON_VALUES`] values.
pub(crate) fn too_many_values_message() -> String {
    format!("it has more than {MAX_JSON_VALUES} JSON values")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_docs_list_the_limit() {
        assert_eq!(MAX_JSON_VALUES, 200_000);
        let docs = [
            include_str!("../ui/mod.rs"),
            include_str!("../provider/mod.rs"),
            include_str!("../tool/mod.rs"),
        ]
        .concat();
        for what in [
            "JSON values in a call's arguments",
            "JSON values in a frame that must be repaired, and in an error's body",
            "JSON values in a call's streamed arguments (Gemini)",
            "JSON values in a client's request",
        ] {
            assert!(docs.contains(&format!("| {what} | 200,000")), "{what}");
        }
    }

    /// Counts the values in a tree, with empty arrays and objects counted twice.
    fn values_in(value: &Value) -> usize {
        match value {
            Value::Array(values) => 1 + values.iter().map(values_in).sum::<usize>().max(1),
            Value::Object(fields) => 1 + fields.values().map(values_in).sum::<usize>().max(1),
            _ => 1,
        }
    }

    #[test]
    fn values_are_counted_as_a_parser_finds_them() {
        for json in [
            "1",
            "[]",
            "{}",
            r#"{"a":1,"b":[1,{"c":null}]}"#,
            r#"["a,b","[{","\"","\\",",\\\",","é",["\u005c\"",1]]"#,
            r#" { "a,{" : [ 1 , "2" ] , "\"[": { } } "#,
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            let count = count_json_values(json.as_bytes(), 100);
            // An array that is not empty has one comma less than elements.
            assert!(count >= tree_len(&value) && count <= values_in(&value), "{json}: {count}");
        }
    }

    /// Counts the values in a tree.
    fn tree_len(value: &Value) -> usize {
        match value {
            Value::Array(values) => 1 + values.iter().map(tree_len).sum::<usize>(),
            Value::Object(fields) => 1 + fields.values().map(tree_len).sum::<usize>(),
            _ => 1,
        }
    }

    #[test]
    fn a_limit_on_values_is_exact_for_lists_of_any_value() {
        for value in ["1", "\"\"", "{\"\":0}", "[0]", "\",[{\""] {
            let per_element = tree_len(&serde_json::from_str(value).unwrap());
            let list = |len: usize| format!("[{}]", vec![value; len].join(","));
            let elements = 1_000;
            let max = 1 + elements * per_element;
            assert!(!has_more_values_than(list(elements).as_bytes(), max), "{value}");
            assert!(has_more_values_than(list(elements + 1).as_bytes(), max), "{value}");
        }
    }

    #[test]
    fn separators_in_strings_do_not_count() {
        let text = format!("\"{}\"", ",".repeat(10_000));
        assert!(!has_more_values_than(text.as_bytes(), 100));
        let unterminated = &text[..text.len() - 1];
        assert!(!has_more_values_than(unterminated.as_bytes(), 100));
        assert_eq!(count_json_values(b"\"\\", 10), 1);
    }

    #[test]
    fn nothing_is_deserialized_from_json_with_too_many_values() {
        let list = |len: usize| format!("[{}]", vec!["1"; len].join(","));
        let read = |len| from_bounded_json::<Vec<u8>>(&list(len)).map(|values| values.len());
        assert_eq!(read(MAX_JSON_VALUES - 1).unwrap(), MAX_JSON_VALUES - 1);
        let error = read(MAX_JSON_VALUES).unwrap_err();
        assert!(error.to_string().starts_with("it has more than 200000 JSON values"), "{error}");
    }
}
