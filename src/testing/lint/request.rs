//! Checks a request on any wire.

use serde_json::Value;

use crate::testing::Wire;

/// Checks the body of a request to `model` in the same way as the wire's vendor.
///
/// The model matters only on Gemini's wire, where third-generation models require a thought
/// signature on the first call of each step.
pub fn request(wire: Wire, model: &str, body: &Value) -> Vec<String> {
    (wire.profile().lint)(model, body)
}
