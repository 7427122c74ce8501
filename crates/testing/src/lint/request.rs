//! Checks a request in any wire format.

use serde_json::Value;

use crate::Wire;
use crate::wire::profile;

/// Checks the body of a request to `model`, and returns the errors that the vendor would report.
///
/// `model` matters only on Gemini's wire, where third-generation models require a thought signature
/// on the first call in each step.
pub fn request(wire: Wire, model: &str, body: &Value) -> Vec<String> {
    (profile(wire).lint)(model, body)
}
