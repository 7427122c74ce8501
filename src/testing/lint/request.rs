//! The check of a request on any wire.

use serde_json::Value;

use crate::testing::Wire;

/// Checks the body of a request to `model` as the vendor of the wire does.
///
/// The model matters on Gemini's wire: those of the third generation require that the first call of a step
/// has its thought signature.
pub fn request(wire: Wire, model: &str, body: &Value) -> Vec<String> {
    (wire.profile().lint)(model, body)
}
