//! What every encoder begins with: the settled context, without what is never sent.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind};
use crate::item::{History, Item, ItemKind, ProviderData, ToolCall};
use crate::request::Request;

/// The settled context of a request, its leading instructions joined to the stable zone.
pub(super) struct Context {
    settled: History,
    leading: usize,
    stable: String,
    volatile: String,
}

impl Context {
    pub(super) fn of(request: &Request) -> Self {
        let settled = request.context.settled();
        let mut stable = request.system.stable.clone();
        let mut leading = 0;
        for item in &settled {
            match &item.kind {
                _ if item.tombstone => {}
                ItemKind::System { text } => {
                    if !stable.is_empty() {
                        stable.push_str("\n\n");
                    }
                    stable.push_str(text);
                }
                _ => break,
            }
            leading += 1;
        }
        Self { settled, leading, stable, volatile: request.system.volatile.clone() }
    }

    pub(super) fn stable(&self) -> &str {
        &self.stable
    }

    pub(super) fn volatile(&self) -> &str {
        &self.volatile
    }

    /// What is sent, in order.
    pub(super) fn items(&self) -> impl Iterator<Item = &Item> {
        self.settled.iter().skip(self.leading).filter(|item| !item.tombstone)
    }
}

/// Whether opaque data may go to this wire and model: only to those that wrote it.
pub(super) fn bound_data(data: &ProviderData, provider: &str, model: &str) -> bool {
    data.provider == provider && data.model == model
}

/// The arguments as an object, which is all that an API takes. What the model wrote instead is
/// wrapped, so that it can see its mistake.
pub(super) fn object_or_wrapped(call: &ToolCall) -> Box<RawValue> {
    let written = call.arguments_or_empty();
    if written.starts_with('{')
        && let Ok(raw) = serde_json::from_str::<Box<RawValue>>(written)
    {
        return raw;
    }
    let wrapped = serde_json::json!({ "INVALID_JSON": call.arguments }).to_string();
    // Law: serde_json wrote it, and an empty object is one.
    RawValue::from_string(wrapped).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

pub(super) fn to_bytes(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body).map_err(|error| {
        Error::new(ErrorKind::InvalidRequest, "the request is not JSON").with_source(error)
    })
}
