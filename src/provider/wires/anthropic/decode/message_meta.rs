//! Message metadata that does not belong to a content block, but that the next request or the
//! caller may need.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::opaque_block::sendable_json;
use crate::item::RawJson;
use crate::provider::codec::body::ObjectWriter;
use crate::provider::codec::lenient::{self, Lenient, LenientList, LenientNumber, LenientStr};
use crate::usage::{Billing, is_standard_tier};

/// The fields of `message_start` and `message_delta` events that contain message metadata.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MetaEvent<'a> {
    message: Lenient<MetaFields<'a>>,
    delta: Lenient<MetaFields<'a>>,
    usage: Lenient<UsageMeta<'a>>,
    /// The changes that Anthropic made to the request. This field "can arrive again on the final
    /// `message_delta`, after a server-side fallback".
    input_transformations: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MetaFields<'a> {
    container: Option<&'a RawValue>,
    stop_sequence: Option<&'a RawValue>,
    stop_details: Option<&'a RawValue>,
    input_transformations: Option<&'a RawValue>,
    usage: Lenient<UsageMeta<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct UsageMeta<'a> {
    service_tier: LenientStr<'a>,
    /// `fast`, if the request was served with the fast mode, which costs more.
    speed: LenientStr<'a>,
    /// Where the request was processed. Some places cost more than `global`.
    inference_geo: LenientStr<'a>,
    server_tool_use: Option<&'a RawValue>,
    iterations: Option<&'a RawValue>,
}

/// Message metadata that does not belong to a content block.
///
/// The metadata consists of the container in which code ran, the matched stop sequence, the details
/// of a refusal, and the changes that Anthropic made to the request. The metadata also includes
/// usage information that [`Usage`](crate::Usage) does not contain: the usage counts for server
/// tools and, if any iteration has a type other than `message`, the iterations. A later value of a
/// field replaces an earlier value.
#[derive(Debug, Default)]
pub(super) struct MessageMeta {
    container: Option<RawJson>,
    stop_sequence: Option<RawJson>,
    stop_details: Option<RawJson>,
    input_transformations: Option<RawJson>,
    usage: ExtraUsage,
}

#[derive(Debug, Default)]
struct ExtraUsage {
    server_tool_use: Option<RawJson>,
    iterations: Option<RawJson>,
    /// The values that affect the price beside the token counts.
    billing: Billing,
}

impl MessageMeta {
    /// Reads the metadata from an event's `data`. Ignores `data` unless it contains an event with
    /// metadata.
    pub(super) fn read_event(&mut self, data: &str) {
        let mut scratch = String::new();
        let Ok(event) = lenient::read_lenient::<MetaEvent<'_>>(data, &mut scratch) else { return };
        let (message, delta) = (event.message.0, event.delta.0);
        let usages =
            [message.as_ref().and_then(|message| message.usage.0.as_ref()), event.usage.0.as_ref()];
        usages.into_iter().flatten().for_each(|counts| self.usage.read_usage(counts));
        let in_words = message.as_ref().and_then(|message| message.input_transformations);
        let changed = event.input_transformations.or(in_words);
        set_field(&mut self.input_transformations, changed.filter(|raw| !is_empty_array(raw)));
        for fields in [message, delta].into_iter().flatten() {
            set_field(&mut self.container, fields.container);
            set_field(&mut self.stop_sequence, fields.stop_sequence);
            set_field(&mut self.stop_details, fields.stop_details);
        }
    }

    /// Returns the values that affect the price of the turn beside its token counts.
    pub(super) fn billing(&self) -> &Billing {
        &self.usage.billing
    }

    /// Takes all of the metadata and returns it as a single JSON object with the type `message`,
    /// which no content block has. Returns `None` if the message has no metadata.
    pub(super) fn take_json(&mut self) -> Option<RawJson> {
        let meta = std::mem::take(self);
        let usage = ObjectWriter::default()
            .set_some("server_tool_use", meta.usage.server_tool_use)
            .set_some("iterations", meta.usage.iterations);
        let fields = ObjectWriter::default()
            .set_some("container", meta.container)
            .set_some("stop_sequence", meta.stop_sequence)
            .set_some("stop_details", meta.stop_details)
            .set_some("input_transformations", meta.input_transformations)
            .set_object("usage", usage);
        match fields.is_empty() {
            true => None,
            false => ObjectWriter::default().set("type", "message").append(fields).into_json(),
        }
    }
}

impl ExtraUsage {
    /// Reads the calls of server tools, and the tier. A request for which Anthropic charges another
    /// price for its speed or its place counts as a tier of its own.
    fn read_billing(&mut self, counts: &UsageMeta<'_>) {
        let tools: HashMap<String, LenientNumber> = counts
            .server_tool_use
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for (name, calls) in tools {
            let tool = name.strip_suffix("_requests").unwrap_or(&name);
            self.billing.set_server_tool_calls(tool, calls.0.unwrap_or_default());
        }
        let tier = counts.service_tier.or_empty();
        let is_elsewhere = |geo: &&str| !matches!(*geo, "" | "global" | "not_available");
        if counts.speed.or_empty() == "fast" {
            self.billing.set_service_tier("fast");
        } else if !is_standard_tier(tier) {
            self.billing.set_service_tier(tier);
        } else if let Some(geo) = counts.inference_geo.get().filter(is_elsewhere) {
            self.billing.set_service_tier(&format!("inference_geo:{geo}"));
        }
    }

    fn read_usage(&mut self, counts: &UsageMeta<'_>) {
        let counted = |raw: &&RawValue| {
            let counts: HashMap<String, LenientNumber> =
                serde_json::from_str(raw.get()).unwrap_or_default();
            counts.values().any(|count| count.0.unwrap_or_default() > 0)
        };
        self.read_billing(counts);
        set_field(&mut self.server_tool_use, counts.server_tool_use.filter(counted));
        let others = counts.iterations.filter(|raw| self.count_other_iterations(raw));
        set_field(&mut self.iterations, others);
    }

    /// Counts the iterations that did not produce the message, such as a compaction of the history
    /// or the answer of an advisor, as calls of a server tool: their tokens are not part of the
    /// message's counts. Returns whether there are any.
    fn count_other_iterations(&mut self, iterations: &RawValue) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default, bound(deserialize = "'de: 'a"))]
        struct UsageIteration<'a> {
            r#type: LenientStr<'a>,
        }
        let all: LenientList<UsageIteration<'_>> =
            serde_json::from_str(iterations.get()).unwrap_or_default();
        let mut others: BTreeMap<&str, u64> = BTreeMap::new();
        for kind in all.0.iter().map(|iteration| iteration.r#type.or_empty()) {
            if kind != "message" {
                *others.entry(kind.strip_suffix("_message").unwrap_or(kind)).or_default() += 1;
            }
        }
        for (kind, count) in &others {
            self.billing.set_server_tool_calls(kind, *count);
        }
        !others.is_empty()
    }
}

fn is_empty_array(raw: &RawValue) -> bool {
    serde_json::from_str::<Vec<IgnoredAny>>(raw.get()).is_ok_and(|elements| elements.is_empty())
}

fn set_field(to: &mut Option<RawJson>, from: Option<&RawValue>) {
    if let Some(raw) = from {
        *to = Some(sendable_json(raw.get()));
    }
}
