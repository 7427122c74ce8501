//! The marker for the position up to which a vendor may cache a request.

use serde::Serialize;

use crate::request::Cache;

/// Marks a cache breakpoint: "Create a cache control breakpoint at this content block."
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "ephemeral")]
pub(in crate::provider) struct CacheControl {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    /// Returns the marker for a request's cache option, or `None` if caching is off.
    pub(in crate::provider) fn from_option(cache: Cache) -> Option<Self> {
        match cache {
            Cache::Off => None,
            Cache::Short => Some(Self { ttl: None }),
            Cache::Long => Some(Self { ttl: Some("1h") }),
        }
    }
}
