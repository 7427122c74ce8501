//! Types and functions that both OpenAI wires share.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::item::Detail;
use crate::provider::codec::effort_names::EffortNames;
use crate::provider::codec::failure::protocol_error;
use crate::provider::codec::lenient::{LenientNumber, deserialize_string};
use crate::request::{Options, ServiceTier};

/// The details of the input or output token count. The input details and the output details each
/// contain some of these fields.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the wire defines them")]
pub(in crate::provider) struct TokenDetails {
    pub(in crate::provider) cached_tokens: LenientNumber,
    pub(in crate::provider) cache_write_tokens: LenientNumber,
    pub(in crate::provider) reasoning_tokens: LenientNumber,
    pub(in crate::provider) audio_tokens: LenientNumber,
    pub(in crate::provider) image_tokens: LenientNumber,
}

/// Returns OpenAI's name for a request's service tier,
/// <https://developers.openai.com/api/docs/guides/flex-processing>.
pub(in crate::provider) fn openai_service_tier(options: &Options) -> Option<&str> {
    Some(match options.service_tier.as_ref()? {
        ServiceTier::Standard => "default",
        tier => tier.as_str(),
    })
}

/// Returns the version of a GPT model, as a major and a minor number, or `None` for any other
/// model. The versions are in ascending order.
pub(in crate::provider) fn gpt_version(model: &str) -> Option<(u32, u32)> {
    let name = model.rsplit('/').next()?;
    let version = name.strip_prefix("ft:").unwrap_or(name).strip_prefix("gpt-")?;
    let version = version.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the names of the efforts that one of OpenAI's models accepts. A level that a model lacks
/// is replaced with the nearest one. A model with an unknown name is assumed to have all levels up
/// to `xhigh`. <https://developers.openai.com/api/docs/guides/reasoning#reasoning-effort>
pub(in crate::provider) fn openai_efforts(model: &str) -> EffortNames {
    let name = model.rsplit('/').next().unwrap_or_default();
    let is_o_series = name.starts_with('o') && name[1..].starts_with(|c: char| c.is_ascii_digit());
    let all = EffortNames::OPENAI;
    match gpt_version(model) {
        Some((5, 6..) | (6.., _)) => EffortNames { minimal: "low", max: "max", ..all },
        Some((5, 2..)) => EffortNames { minimal: "low", ..all },
        Some((5, 1)) if name.contains("codex-max") => EffortNames { minimal: "low", ..all },
        Some((5, 1)) => EffortNames::LOW_MEDIUM_HIGH,
        Some((5, 0)) => EffortNames { xhigh: "high", max: "high", ..all },
        None if is_o_series => EffortNames::LOW_MEDIUM_HIGH,
        Some(_) | None => all,
    }
}

/// Returns OpenAI's name for the detail of an image.
pub(in crate::provider) fn detail_name(detail: Detail) -> &'static str {
    match detail {
        Detail::Low => "low",
        Detail::High => "high",
        Detail::Original => "original",
    }
}

/// Returns the JSON text of a call's arguments, which OpenAI sends as a string and some other
/// servers send as an object. Returns `None` for a value of any other type, because the arguments
/// are then unknown.
pub(in crate::provider) fn arguments_text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let Some(raw) = raw else { return Some(Cow::Borrowed("")) };
    match raw.get().as_bytes().first() {
        Some(b'"') => deserialize_string(raw),
        Some(b'{') => Some(Cow::Borrowed(raw.get())),
        Some(b'n') => Some(Cow::Borrowed("")),
        _ => None,
    }
}

/// Creates the error for call arguments of the wrong type, for which [`arguments_text`] returns
/// `None`.
pub(in crate::provider) fn malformed_arguments_error() -> Error {
    protocol_error("the arguments of a tool call are neither text nor an object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Effort;

    #[test]
    fn each_model_receives_the_nearest_effort_that_it_accepts() {
        #[track_caller]
        fn check(model: &str, expected: [&str; 4]) {
            let names = openai_efforts(model);
            let levels = [Effort::Minimal, Effort::High, Effort::XHigh, Effort::Max];
            assert_eq!(levels.map(|effort| names.name_of(effort)), expected, "{model}");
        }
        check("gpt-5.6-sol", ["low", "high", "xhigh", "max"]);
        check("openai/gpt-6", ["low", "high", "xhigh", "max"]);
        check("gpt-6.1-terra", ["low", "high", "xhigh", "max"]);
        check("gpt-5.10", ["low", "high", "xhigh", "max"]);
        check("gpt-5.5-2026-04-23", ["low", "high", "xhigh", "xhigh"]);
        check("gpt-5.2", ["low", "high", "xhigh", "xhigh"]);
        check("gpt-5.1-codex-max", ["low", "high", "xhigh", "xhigh"]);
        check("gpt-5.1-codex", ["low", "high", "high", "high"]);
        check("ft:gpt-5.1:org", ["low", "high", "high", "high"]);
        check("gpt-5-mini", ["minimal", "high", "high", "high"]);
        check("o4-mini", ["low", "high", "high", "high"]);
        check("my-deployment", ["minimal", "high", "xhigh", "xhigh"]);
        check("gpt-oss-120b", ["minimal", "high", "xhigh", "xhigh"]);
        check("", ["minimal", "high", "xhigh", "xhigh"]);
    }
}
