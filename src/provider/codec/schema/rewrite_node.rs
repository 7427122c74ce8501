//! Rewrites a single schema node whose top-level references have already been resolved.

use serde_json::{Map, Value, json};

use super::merge::types_of;
use super::refs::escape_pointer;
use super::rewrite::SchemaRewriter;
use super::schema_hints::SchemaHints;
use super::subset::{EnumValues, KeywordKind, ObjectForms, Schema};
use crate::error::Error;

impl SchemaRewriter<'_> {
    /// Rewrites a schema node and the schemas inside it.
    pub(super) fn rewrite_node(
        &mut self,
        schema: Schema,
        at: &str,
        depth: usize,
    ) -> Result<Schema, Error> {
        let open = self.subset.allows_open_objects();
        let mut hints = SchemaHints::default();
        let schema = self.rewrite_enum_values(infer_type(schema), &mut hints, at)?;
        let schema = self.rewrite_array_items(schema, at)?;
        let schema = self.rewrite_object_fields(schema, at)?;
        let mut out = Map::new();
        for (keyword, value) in &schema {
            let inside = format!("{at}/{keyword}");
            let rewritten = match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    let mut rewritten = Map::new();
                    for (name, property) in properties {
                        let at = format!("{inside}/{}", escape_pointer(name));
                        let inner = self.rewrite_inner(property, &at, depth)?;
                        let inner = self.make_nullable_if_optional(&schema, name, property, inner);
                        rewritten.insert(name.clone(), inner);
                    }
                    Value::Object(rewritten)
                }
                ("anyOf" | "prefixItems", Value::Array(several)) => {
                    let mut rewritten = Vec::with_capacity(several.len());
                    for (n, one) in several.iter().enumerate() {
                        rewritten.push(self.rewrite_inner(one, &format!("{inside}/{n}"), depth)?);
                    }
                    Value::Array(rewritten)
                }
                ("additionalProperties", Value::Bool(_)) => value.clone(),
                ("items" | "additionalProperties", value) => {
                    self.rewrite_inner(value, &inside, depth)?
                }
                ("type" | "description" | "required" | "enum" | "const", value) => value.clone(),
                (keyword, value) if (self.subset.keeps_keyword)(keyword, value) => value.clone(),
                (keyword, _)
                    if KeywordKind::of_keyword(keyword) == KeywordKind::Condition && !open =>
                {
                    return Err(self.subset.unsupported_error(&inside, &format!("`{keyword}`")));
                }
                (keyword, value) => {
                    let is = KeywordKind::of_keyword(keyword);
                    if matches!(is, KeywordKind::Narrowing | KeywordKind::Condition)
                        || keyword == "default"
                    {
                        hints.add_keyword(keyword, value);
                    }
                    continue;
                }
            };
            out.insert(keyword.clone(), rewritten);
        }
        if self.subset.objects == ObjectForms::AllRequired {
            require_all(&mut out);
        }
        hints.write_into(&mut out);
        Ok(out)
    }

    /// Converts `enum` and `const` to the forms that the wire accepts.
    fn rewrite_enum_values(
        &self,
        mut schema: Schema,
        hints: &mut SchemaHints,
        at: &str,
    ) -> Result<Schema, Error> {
        let is_simple = |value: &Value| !value.is_object() && !value.is_array();
        match self.subset.enum_values {
            EnumValues::Scalars => {
                let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
                if !listed.chain(schema.get("const")).all(is_simple) {
                    return Err(self
                        .subset
                        .unsupported_error(at, "an object or an array as a fixed value"));
                }
            }
            EnumValues::StringsAndNumbers => {
                if let Some(value) = schema.shift_remove("const") {
                    schema.insert("enum".to_owned(), json!([value]));
                }
                let Some(Value::Array(listed)) = schema.shift_remove("enum") else {
                    return Ok(schema);
                };
                let (nulls, listed): (Vec<_>, Vec<_>) =
                    listed.into_iter().partition(Value::is_null);
                let known = listed.iter().all(|value| value.is_string() || value.is_number());
                match (nulls.is_empty(), known) {
                    _ if listed.is_empty() => {
                        schema.insert("type".to_owned(), json!("null"));
                    }
                    (true, true) => {
                        schema.insert("enum".to_owned(), Value::Array(listed));
                    }
                    (_, false) => hints.add_keyword("enum", &[listed, nulls].concat().into()),
                    (false, true) => {
                        let mut outer = Map::new();
                        if let Some(description) = schema.shift_remove("description") {
                            outer.insert("description".to_owned(), description);
                        }
                        schema.shift_remove("type");
                        schema.insert("enum".to_owned(), Value::Array(listed));
                        let kinds = json!([infer_type(schema), { "type": "null" }]);
                        outer.insert("anyOf".to_owned(), kinds);
                        return Ok(outer);
                    }
                }
            }
        }
        Ok(schema)
    }

    /// Rewrites the keywords that describe an array's items. A tuple whose schemas are all equal
    /// becomes an array whose items have this schema.
    fn rewrite_array_items(&self, mut schema: Schema, at: &str) -> Result<Schema, Error> {
        if let Some(Value::Array(_)) = schema.get("items")
            && let Some(row) = schema.shift_remove("items")
        {
            // Older drafts of JSON Schema express tuples in this form.
            schema.insert("prefixItems".to_owned(), row);
        }
        if let Some(Value::Array(row)) = schema.get("prefixItems") {
            let len = json!(row.len());
            let closed =
                schema.get("items") == Some(&json!(false)) || schema.get("maxItems") == Some(&len);
            let first = row.first().filter(|first| row.iter().all(|item| item == *first)).cloned();
            if closed {
                schema.shift_remove("items");
                schema.insert("maxItems".to_owned(), len);
            }
            match first {
                Some(first) if closed && !self.subset.allows_open_objects() => {
                    schema.shift_remove("prefixItems");
                    schema.insert("items".to_owned(), first);
                }
                _ if self.subset.allows_open_objects() => {}
                _ => return Err(self.subset.unsupported_error(at, "a tuple of different types")),
            }
        }
        if self.subset.allows_open_objects() {
            return Ok(schema);
        }
        match (schema.get("type"), schema.contains_key("anyOf")) {
            (None, false) => Err(self.subset.unsupported_error(at, "a value of any type")),
            (Some(kind), _)
                if types_of(kind).contains(&"array") && !schema.contains_key("items") =>
            {
                Err(self.subset.unsupported_error(at, "an array of arbitrary values"))
            }
            _ => Ok(schema),
        }
    }

    /// Rewrites the keywords that describe an object's fields.
    fn rewrite_object_fields(&self, mut schema: Schema, at: &str) -> Result<Schema, Error> {
        let refuse = |keyword: &str, what: &str| {
            Err(self.subset.unsupported_error(&format!("{at}/{keyword}"), what))
        };
        let patterns = match schema.shift_remove("patternProperties") {
            Some(Value::Object(patterns)) => patterns.into_iter().collect(),
            _ => Vec::new(),
        };
        let rest = schema.get("additionalProperties");
        let rest_is_closed = matches!(rest, None | Some(Value::Bool(false)));
        if self.subset.allows_open_objects() {
            match <[_; 1]>::try_from(patterns) {
                Ok([(_, fields)]) if rest_is_closed => {
                    schema.insert("additionalProperties".to_owned(), fields);
                }
                Err(none) if none.is_empty() => {}
                _ => return refuse("patternProperties", "several patterns for names"),
            }
            return Ok(schema);
        }
        if !schema.get("type").is_some_and(|kind| types_of(kind).contains(&"object")) {
            return Ok(schema);
        }
        if !patterns.is_empty() {
            return refuse("patternProperties", "fields with arbitrary names");
        }
        if !rest_is_closed {
            return refuse("additionalProperties", "fields with arbitrary names");
        }
        if rest.is_none() && !schema.contains_key("properties") {
            return Err(self.subset.unsupported_error(at, "an object with arbitrary fields"));
        }
        schema.insert("additionalProperties".to_owned(), json!(false));
        schema.entry("properties").or_insert_with(|| json!({}));
        Ok(schema)
    }

    /// Makes an optional property without a default value nullable if the wire requires all
    /// properties.
    fn make_nullable_if_optional(
        &self,
        schema: &Schema,
        name: &str,
        property: &Value,
        rewritten: Value,
    ) -> Value {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            required.is_some_and(|required| required.iter().any(|field| field == name));
        let stays = self.subset.objects != ObjectForms::AllRequired
            || is_required
            || property.get("default").is_some()
            || self.accepts_null(&rewritten);
        if stays { rewritten } else { allow_null(rewritten) }
    }
}

/// Modifies a schema so that it also accepts null.
fn allow_null(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else { return schema };
    if let Some(Value::Array(kinds)) = schema.get_mut("anyOf") {
        kinds.push(json!({ "type": "null" }));
        return Value::Object(schema);
    }
    let kind = schema.get("type").filter(|_| !schema.contains_key("const")).cloned();
    let Some(kind) = kind else {
        let description = schema.shift_remove("description");
        let mut wrapped = Map::new();
        wrapped.extend(description.map(|outer| ("description".to_owned(), outer)));
        wrapped.insert("anyOf".to_owned(), json!([schema, { "type": "null" }]));
        return Value::Object(wrapped);
    };
    let kinds: Vec<_> = types_of(&kind).into_iter().chain(["null"]).collect();
    schema.insert("type".to_owned(), json!(kinds));
    if let Some(Value::Array(listed)) = schema.get_mut("enum") {
        listed.push(Value::Null);
    }
    Value::Object(schema)
}

/// Makes all properties in a schema required. Properties that were already required are listed
/// first.
fn require_all(schema: &mut Schema) {
    let Some(Value::Object(properties)) = schema.get("properties") else { return };
    let names: Vec<_> = properties.keys().cloned().map(Value::from).collect();
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Value::Array(required) = required {
        required.retain(|name| names.contains(name));
        let missing: Vec<_> = names.into_iter().filter(|name| !required.contains(name)).collect();
        required.extend(missing);
    }
}

/// Sets the `type` keyword if its value can be inferred from other keywords.
fn infer_type(mut schema: Schema) -> Schema {
    let nullable = schema.shift_remove("nullable") == Some(Value::Bool(true));
    let named = schema.get("type").map_or_else(|| inferred_types(&schema), types_of);
    let mut kinds: Vec<_> = named.into_iter().map(str::to_owned).collect();
    if nullable && !kinds.is_empty() && !kinds.iter().any(|kind| kind == "null") {
        kinds.push("null".to_owned());
    } else if schema.contains_key("type") {
        return schema;
    }
    match kinds.as_slice() {
        [] => {}
        [one] => drop(schema.insert("type".to_owned(), json!(one))),
        several => drop(schema.insert("type".to_owned(), json!(several))),
    }
    schema
}

fn inferred_types(schema: &Schema) -> Vec<&'static str> {
    if let Some(value) = schema.get("const") {
        return vec![json_type_of(value)];
    }
    if let Some(Value::Array(listed)) = schema.get("enum") {
        let mut kinds: Vec<_> = listed.iter().map(json_type_of).collect();
        kinds.sort_unstable();
        kinds.dedup();
        return kinds;
    }
    let has = |keywords: &[&str]| keywords.iter().any(|keyword| schema.contains_key(*keyword));
    match () {
        () if has(&["properties", "additionalProperties", "patternProperties", "required"]) => {
            vec!["object"]
        }
        () if has(&["items", "prefixItems"]) => vec!["array"],
        () => Vec::new(),
    }
}

fn json_type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
