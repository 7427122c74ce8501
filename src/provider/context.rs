//! What every encoder begins with: the settled context, without what is never sent.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use crate::item::{History, Item, ItemKind, ToolCall};
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

/// The arguments as an object, which is all that an API takes. What the model wrote instead is
/// wrapped, so that it can see its mistake.
pub(super) fn object_or_wrapped(call: &ToolCall) -> Cow<'_, str> {
    let written = call.arguments_or_empty();
    if written.starts_with('{') && serde_json::from_str::<IgnoredAny>(written).is_ok() {
        // Half of a surrogate pair is JSON, and refused by every vendor.
        let halved =
            (written.contains("\\ud") || written.contains("\\uD") || written.contains("\\Ud"))
                && serde_json::from_str::<serde_json::Value>(written).is_err();
        return match halved.then(|| crate::provider::lenient::repaired(written)).flatten() {
            Some(repaired) => Cow::Owned(repaired),
            None => Cow::Borrowed(written),
        };
    }
    Cow::Owned(serde_json::json!({ "INVALID_JSON": call.arguments }).to_string())
}

/// An id as every vendor takes it: letters, digits, `_` and `-`, at most 40 of them. Another one
/// is replaced by what is left of it and a fingerprint, the same for a call and its result.
pub(super) fn wire_id(id: &str) -> Cow<'_, str> {
    if !id.is_empty() && id.len() <= 40 && id.bytes().all(is_plain) {
        return Cow::Borrowed(id);
    }
    let hash = fingerprint(id.bytes());
    let kept: String = id.bytes().filter(|b| is_plain(*b)).take(23).map(char::from).collect();
    Cow::Owned(format!("{kept}_{hash:016x}"))
}

/// FNV-1a, 64 bit: the same for the same bytes, on every machine.
pub(super) fn fingerprint(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The name of a called tool as every vendor takes it; a model may have made one up.
pub(super) fn wire_name(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= 64 && name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let plain = |byte: u8| if is_plain(byte) { char::from(byte) } else { '_' };
    Cow::Owned(if name.is_empty() {
        "_".into()
    } else {
        name.bytes().take(64).map(plain).collect()
    })
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}
