//! The check of a request on any wire.

use serde_json::Value;

use crate::testing::Wire;

/// Checks the body of a request to `model` as the vendor of the wire does.
///
/// The model has an effect only on Gemini's wire, where models of the third generation require a
/// thought signature on the first call of each step.
pub fn request(wire: Wire, model: &str, body: &Value) -> Vec<String> {
    (wire.profile().lint)(model, body)
}
