//! The lint of any wire.

use serde_json::Value;

use crate::testing::Wire;

/// What the vendor of a wire objects to in the body of a request.
pub fn request(wire: Wire, body: &Value) -> Vec<String> {
    (wire.vendor().lint)("", body)
}
