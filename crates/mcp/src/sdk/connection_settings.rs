//! The settings for a connection.

use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::{Era, Limits};

/// The settings for a connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSettings {
    /// The server's name, for use in messages.
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) limits: Limits,
    /// The capabilities to declare to the server, as JSON.
    pub(crate) capabilities: Value,
    /// The answer to `roots/list`, or `None` if the server may not request the folders.
    pub(crate) roots: Option<Value>,
    /// The protocol to try first.
    pub(crate) first_era: Era,
}
