//! What is known of the outside at one moment.

use serde::{Deserialize, Serialize};

use crate::event::Exceeded;

/// What holders of a run want, and which limits are reached.
#[expect(clippy::struct_excessive_bools, reason = "each is a field of its own in a recording")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outside {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) steered: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) follow_up: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) stopping: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exceeded: Option<Exceeded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) too_many_calls: Option<Exceeded>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) nothing_left: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) broke_off: bool,
}
