//! Rewrites a schema to use only the subset of JSON Schema that a wire accepts: first the root, and
//! then the definitions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::merge::merge_schemas;
use super::refs;
use super::subset::{RecursionForms, ReferenceForms, Schema, SchemaSubset, is_structural};
use crate::error::Error;

/// The maximum number of parts in a schema after its references have been resolved. Even a small
/// schema can expand without limit.
const MAX_PARTS: usize = 20_000;
/// The maximum nesting depth of a schema after its references have been resolved.
const MAX_DEPTH: usize = 64;

/// Rewrites a schema to use only the keywords and forms in `subset`.
pub(super) fn rewrite_for_subset<'a>(
    schema: &'a Value,
    subset: &SchemaSubset,
) -> Result<Cow<'a, Value>, Error> {
    let mut narrower =
        SchemaRewriter { root: schema, subset, needed_definitions: BTreeMap::new(), part_count: 0 };
    let mut whole = narrower.rewrite_root()?;
    let definitions = narrower.rewrite_definitions()?;
    if !definitions.is_empty() {
        whole.insert("$defs".to_owned(), Value::Object(definitions));
    }
    let whole = Value::Object(whole);
    let (cycle, what) = match subset.recursion {
        RecursionForms::Any => (None, ""),
        RecursionForms::Optional => {
            let what = "recursion other than through an optional property";
            (refs::find_cycle(&whole, false), what)
        }
        RecursionForms::None => (refs::find_cycle(&whole, true), "recursion"),
    };
    match cycle {
        Some(at) => Err(subset.unsupported_error(&at, what)),
        None if whole == *schema => Ok(Cow::Borrowed(schema)),
        None => Ok(Cow::Owned(whole)),
    }
}

/// Rewrites a schema and its definitions.
pub(super) struct SchemaRewriter<'a> {
    root: &'a Value,
    pub(super) subset: &'a SchemaSubset,
    /// The referenced definitions. A value is `None` until the definition has been rewritten.
    needed_definitions: BTreeMap<String, Option<Value>>,
    part_count: usize,
}

impl SchemaRewriter<'_> {
    fn rewrite_root(&mut self) -> Result<Schema, Error> {
        let schema = self.flatten_schema(self.root, "#", 0)?;
        let whole = self.rewrite_node(schema, "#", 0)?;
        if self.subset.requires_root_object && whole.get("type") != Some(&json!("object")) {
            let what = "a root that is not always an object; make it the field of one";
            return Err(self.subset.unsupported_error("#", what));
        }
        Ok(whole)
    }

    /// Rewrites the referenced definitions, including those referenced only by other definitions.
    fn rewrite_definitions(&mut self) -> Result<Map<String, Value>, Error> {
        while let Some((name, _)) = self.needed_definitions.iter().find(|(_, done)| done.is_none())
        {
            let name = name.clone();
            let root = self.root;
            let rewritten = match refs::definition(root, &name) {
                // The root may be referenced although it is not a definition.
                Some(schema) if !name.is_empty() => {
                    let at = refs::reference_to(&name);
                    let schema = self.flatten_schema(schema, &at, 0)?;
                    Value::Object(self.rewrite_node(schema, &at, 0)?)
                }
                _ => Value::Null,
            };
            self.needed_definitions.insert(name, Some(rewritten));
        }
        let needed = std::mem::take(&mut self.needed_definitions).into_iter();
        let defined = needed.filter(|(name, _)| !name.is_empty());
        Ok(defined
            .filter_map(|(name, schema)| Some((refs::definition_key(&name), schema?)))
            .collect())
    }

    /// Rewrites a schema that is nested in another schema.
    pub(super) fn rewrite_inner(
        &mut self,
        schema: &Value,
        at: &str,
        depth: usize,
    ) -> Result<Value, Error> {
        if let Some(name) = self.kept_reference(schema) {
            self.needed_definitions.entry(name.to_owned()).or_insert(None);
            return Ok(json!({ "$ref": refs::reference_to(name) }));
        }
        let schema = self.flatten_schema(schema, at, depth)?;
        self.rewrite_node(schema, at, depth + 1).map(Value::Object)
    }

    /// Returns whether a schema accepts null, directly or through a reference.
    pub(super) fn accepts_null(&self, schema: &Value) -> bool {
        self.accepts_null_within(schema, MAX_DEPTH)
    }

    fn accepts_null_within(&self, schema: &Value, steps: usize) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        let within = |schema| self.accepts_null_within(schema, steps);
        let names_null = |value: &Value| match value {
            Value::Array(several) => several.iter().any(|one| one == "null"),
            one => one == "null",
        };
        if let Some(name) =
            schema.get("$ref").and_then(Value::as_str).and_then(refs::definition_name)
        {
            return refs::definition(self.root, name).is_some_and(within);
        }
        let kinds = ["anyOf", "oneOf"].iter().find_map(|kinds| schema.get(kinds)?.as_array());
        match (kinds, schema.get("type")) {
            (Some(kinds), _) => kinds.iter().any(within),
            (None, Some(named)) => names_null(named),
            (None, None) => false,
        }
    }

    /// Returns the name of the definition to which a schema refers, if the reference can be kept. A
    /// kept reference is the only keyword in its schema, because a wire may reject other keywords
    /// next to a reference. If there are annotations next to a reference, the reference is resolved
    /// and the annotations are merged into its target. If the target is recursive, the reference is
    /// kept and the annotations are dropped.
    fn kept_reference<'s>(&self, schema: &'s Value) -> Option<&'s str> {
        let schema = schema.as_object()?;
        let name = refs::definition_name(schema.get("$ref")?.as_str()?)?;
        if self.subset.references == ReferenceForms::Inlined {
            return None;
        }
        refs::definition(self.root, name)?;
        if schema.keys().any(|keyword| keyword != "$ref" && is_structural(keyword)) {
            return None;
        }
        let has_words = ["description", "title", "default"].iter().any(|k| schema.contains_key(*k));
        (!has_words || refs::is_recursive(self.root, name)).then_some(name)
    }

    /// Eliminates `$ref` and `allOf` by merging their schemas with the keywords next to them. Moves
    /// the keywords next to an `anyOf` into its members.
    fn flatten_schema(&mut self, schema: &Value, at: &str, depth: usize) -> Result<Schema, Error> {
        if depth > MAX_DEPTH {
            let what = "this many levels once its references are inlined";
            return Err(self.subset.unsupported_error(at, what));
        }
        let mut schema = match schema {
            Value::Object(schema) => schema.clone(),
            Value::Bool(true) => Map::new(),
            _ => return Err(self.subset.unsupported_error(at, "a place that no value matches")),
        };
        self.count_part(at)?;
        while let Some(reference) = schema.shift_remove("$ref") {
            self.count_part(at)?;
            let reference = reference.as_str().unwrap_or_default();
            let Some(Value::Object(target)) = refs::resolve(self.root, reference) else {
                let what = format!("an unresolved reference, `{reference}`");
                return Err(self.subset.unsupported_error(at, &what));
            };
            schema = self.merge_schemas_at(schema, target.clone(), at)?;
        }
        for home in ["$defs", "definitions"] {
            schema.shift_remove(home);
        }
        if let Some(Value::Array(members)) = schema.shift_remove("allOf") {
            for member in &members {
                let member = self.flatten_schema(member, at, depth + 1)?;
                schema = self.merge_schemas_at(schema, member, at)?;
            }
        }
        if let Some(kinds) = schema.shift_remove("oneOf")
            && schema.insert("anyOf".to_owned(), kinds).is_some()
        {
            return Err(self.subset.unsupported_error(at, "both `anyOf` and `oneOf`"));
        }
        self.distribute_into_any_of(schema, at, depth)
    }

    /// Moves the structural keywords next to an `anyOf` into each of its members.
    fn distribute_into_any_of(
        &mut self,
        schema: Schema,
        at: &str,
        depth: usize,
    ) -> Result<Schema, Error> {
        if !matches!(schema.get("anyOf"), Some(Value::Array(_))) {
            return Ok(schema);
        }
        let (beside, mut outer): (Map<_, _>, Map<_, _>) = schema
            .into_iter()
            .partition(|(keyword, _)| keyword != "anyOf" && is_structural(keyword));
        if let Some(Value::Array(kinds)) = outer.get_mut("anyOf")
            && !beside.is_empty()
        {
            for kind in kinds {
                let joined = self.flatten_schema(kind, at, depth + 1)?;
                *kind = Value::Object(self.merge_schemas_at(joined, beside.clone(), at)?);
            }
        }
        Ok(outer)
    }

    fn merge_schemas_at(&self, first: Schema, second: Schema, at: &str) -> Result<Schema, Error> {
        merge_schemas(first, second).map_err(|keyword| {
            let what = format!("two rules for `{keyword}` in one place");
            self.subset.unsupported_error(at, &what)
        })
    }

    fn count_part(&mut self, at: &str) -> Result<(), Error> {
        self.part_count += 1;
        if self.part_count > MAX_PARTS {
            let what = "this many parts once its references are inlined";
            return Err(self.subset.unsupported_error(at, what));
        }
        Ok(())
    }
}
