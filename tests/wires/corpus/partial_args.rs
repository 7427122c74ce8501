//! Gemini's SDK returns the pieces of a call as they arrived; here they are assembled in the
//! simplest way, for the comparison.

use serde_json::{Map, Value};

/// Returns one call for each name; the pieces after it belong to it.
pub(crate) fn assemble_calls(shown: Vec<Value>) -> Vec<Value> {
    let mut calls: Vec<Map<String, Value>> = Vec::new();
    for piece in shown {
        if let Some(name) = piece.get("name") {
            let mut call = Map::new();
            call.insert("name".to_owned(), name.clone());
            call.extend(piece.get("id").map(|id| ("id".to_owned(), id.clone())));
            let arguments = piece.get("arguments").cloned();
            call.insert("arguments".to_owned(), arguments.unwrap_or_else(|| Map::new().into()));
            calls.push(call);
        }
        let Some(call) = calls.last_mut() else { continue };
        let arguments = &mut call["arguments"];
        for part in piece["partial_args"].as_array().into_iter().flatten() {
            apply_partial_arg(arguments, part);
        }
    }
    calls.into_iter().map(Value::Object).collect()
}

/// Sets one value at its path; a text is appended to the existing one.
fn apply_partial_arg(root: &mut Value, part: &Value) {
    let path = part["json_path"].as_str().unwrap_or_default().trim_start_matches('$');
    let mut at = root;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        at = match step.trim_end_matches(']').parse::<usize>() {
            Ok(index) if step.ends_with(']') => {
                if !at.is_array() {
                    *at = Value::Array(Vec::new());
                }
                let all = at.as_array_mut().expect("it is one now");
                if all.len() <= index {
                    all.resize(index + 1, Value::Null);
                }
                &mut all[index]
            }
            _ => {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut().expect("it is one now").entry(step).or_insert(Value::Null)
            }
        };
    }
    let value = ["string_value", "number_value", "bool_value", "null_value"]
        .iter()
        .find_map(|name| part.get(*name));
    match (at, value) {
        (Value::String(text), Some(Value::String(more))) => text.push_str(more),
        (at, Some(value)) => *at = value.clone(),
        (_, None) => {}
    }
}
