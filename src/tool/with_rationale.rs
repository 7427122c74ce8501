//! Lets a tool ask the model for a rationale for each call.

use serde_json::{Value, json};

use crate::tool::rationale::RATIONALE_FIELD;
use crate::tool::{Rationale, Tool, ToolSpec};

impl Tool {
    /// Asks the model to state its rationale for each call: the expected outcome, the stop
    /// condition and the risk.
    ///
    /// This method adds an optional `_why` property to the schema. The property is removed from a
    /// call's arguments before they are checked. The tool never sees the value of `_why`, and an
    /// invalid value does not cause the call to fail. Policies
    /// ([`ToolPolicy`](crate::tool::ToolPolicy)), hooks and approvers see the arguments including
    /// the rationale, exactly as the model wrote them and as the history stores them. To read the
    /// rationale, use [`Rationale::split_arguments`].
    ///
    /// If the tool's schema already has a `_why` property, or does not allow another property, the
    /// tool is left unchanged.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::tool::{Tool, ToolSpec};
    ///
    /// let spec = ToolSpec::new(
    ///     "delete",
    ///     "Deletes a file",
    ///     json!({ "type": "object", "properties": { "path": { "type": "string" } } }),
    /// );
    /// let delete = Tool::raw(spec, |_args, _cx| async { "deleted" })?.with_rationale();
    /// let why = &delete.spec().parameters.to_value()["properties"]["_why"];
    /// assert_eq!(why["properties"]["risk"]["enum"], json!(["low", "medium", "high"]));
    /// # Ok::<(), turnstream::Error>(())
    /// ```
    pub fn with_rationale(self) -> Self {
        self.asking_for_rationale(RationaleMode::Optional)
    }

    pub(super) fn asking_for_rationale(self, mode: RationaleMode) -> Self {
        let is_required = match mode {
            RationaleMode::None => return self,
            RationaleMode::Optional => false,
            RationaleMode::Required => true,
        };
        let Some(spec) = spec_with_rationale(self.spec(), is_required) else { return self };
        let Self { handler, settings, fingerprint, agent } = self;
        let prepare = move |_: &ToolSpec, written: &str| {
            let (why, arguments) = Rationale::split_arguments(written);
            let expected = why.expected_outcome.as_deref().unwrap_or_default();
            if is_required && expected.trim().is_empty() {
                return Err(NO_EXPECTED_OUTCOME.to_owned());
            }
            handler.prepare(&arguments)
        };
        Self { settings, fingerprint, agent, ..Self::from_prepare_fn(spec, prepare) }
    }
}

/// Whether a toolkit's tools ask for a rationale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RationaleMode {
    None,
    Optional,
    /// A call without an expected outcome receives an error result.
    Required,
}

/// The result of a call that must state its expected outcome, but does not.
const NO_EXPECTED_OUTCOME: &str =
    "`_why.expected_outcome` is missing: state what should be true when the call has ended";

/// Returns a copy of the spec with the `_why` property added, or `None` if the property cannot be
/// added.
fn spec_with_rationale(spec: &ToolSpec, is_required: bool) -> Option<ToolSpec> {
    let mut spec = spec.clone();
    let mut parameters = spec.parameters.to_value();
    let schema = parameters.as_object_mut()?;
    let required = schema.get("required").and_then(Value::as_array);
    if required.is_some_and(|names| names.iter().any(|name| name == RATIONALE_FIELD)) {
        return None;
    }
    let properties = schema.entry("properties").or_insert_with(|| json!({})).as_object_mut()?;
    if properties.contains_key(RATIONALE_FIELD) {
        return None;
    }
    let mut rationale = rationale_schema();
    if is_required {
        rationale["required"] = json!(["expected_outcome"]);
    }
    properties.insert(RATIONALE_FIELD.to_owned(), rationale);
    if is_required {
        let required = schema.entry("required").or_insert_with(|| json!([]));
        required.as_array_mut()?.push(json!(RATIONALE_FIELD));
    }
    spec.parameters = parameters.into();
    Some(spec)
}

fn rationale_schema() -> Value {
    json!({
        "type": "object",
        "description": "Why this call is made; for the record, the tool does not see it",
        "properties": {
            "expected_outcome": {
                "type": "string",
                "description": "What should be true when the call has ended",
            },
            "stop_condition": {
                "type": "string",
                "description": "What must be observed before the work can end",
            },
            "risk": {
                "type": "string",
                "enum": ["low", "medium", "high"],
                "description": "How much harm the call can do",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_a_rationale_keeps_the_tools_settings() {
        let spec = ToolSpec::new("put", "", json!({ "type": "object" }));
        let tool = Tool::raw(spec.clone(), |_, _| async { "done" }).unwrap();
        let tool = tool.exclusive().requires_approval().with_dry_run_support().with_rationale();
        assert!(tool.is_exclusive() && tool.is_approval_required() && tool.supports_dry_run());
        assert!(Tool::external(spec).unwrap().with_rationale().is_external());
    }
}
