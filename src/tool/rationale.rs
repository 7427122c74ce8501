//! The rationale that a model gives for a call.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr;
use serde::{Deserialize, Serialize};

use crate::item::model_json::JsonFields;

/// The name of the argument in which a model states its rationale for a call, if the tool [asks for
/// a rationale](crate::Tool::with_rationale).
pub(super) const RATIONALE_FIELD: &str = "_why";

/// The rationale that a model gives for a tool call. A rationale accompanies the call's arguments,
/// and consists of an expected outcome, a stop condition and a risk.
///
/// ```
/// use turnstream::tool::{Risk, Rationale};
///
/// let written = r#"{"path":"a.md","_why":{"expected_outcome":"a.md is there","risk":"low"}}"#;
/// let (why, arguments) = Rationale::split_arguments(written);
/// assert_eq!(why.expected_outcome.as_deref(), Some("a.md is there"));
/// assert_eq!(why.risk, Some(Risk::Low));
/// assert_eq!(arguments, r#"{"path":"a.md"}"#);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rationale {
    /// The state that the model expects after the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_outcome: Option<String>,
    /// The condition under which the model considers its work finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_condition: Option<String>,
    /// The model's estimate of how much harm the call could do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
}

/// A model's estimate of how much harm a call could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// No harm, or harm that can be undone immediately.
    Low,
    /// Harm that takes effort to undo.
    Medium,
    /// Harm that cannot be undone.
    High,
}

impl Rationale {
    /// Separates the rationale from the other arguments and returns both. The other arguments are
    /// returned as the model wrote them, with the same field order and the same digits in numbers.
    /// Parts of the rationale that cannot be parsed are omitted. If the arguments are not a JSON
    /// object, they are returned unchanged.
    pub fn split_arguments(arguments: &str) -> (Self, Cow<'_, str>) {
        match RationalizedArgs::parse(arguments) {
            Some(args) => (args.rationale(), Cow::Owned(args.into_arguments())),
            None => (Self::default(), Cow::Borrowed(arguments)),
        }
    }

    /// Like `split_arguments`, but separates the rationale only if parsing preserves all of it,
    /// that is, if the rationale is an object without unknown fields and every field can be parsed.
    pub(crate) fn split_well_formed(arguments: &str) -> (Self, Cow<'_, str>) {
        let Some(args) = RationalizedArgs::parse(arguments) else {
            return (Self::default(), Cow::Borrowed(arguments));
        };
        let rationale = args.rationale();
        let rest = match args.is_well_formed() {
            true => Cow::Owned(args.into_arguments()),
            false => Cow::Borrowed(arguments),
        };
        (rationale, rest)
    }

    /// Parses a rationale, ignoring invalid fields.
    fn from_raw_json(json: &str) -> Self {
        let Some(JsonFields(fields)) = JsonFields::parse(json) else { return Self::default() };
        let mut why = Self::default();
        for (name, value) in &fields {
            let text = || serde_json::from_str::<String>(value).ok();
            match name.as_ref() {
                "expected_outcome" => why.expected_outcome = text(),
                "stop_condition" => why.stop_condition = text(),
                "risk" => why.risk = text().and_then(|word| Risk::from_str_opt(&word)),
                _ => {}
            }
        }
        why
    }

    fn len(&self) -> usize {
        usize::from(self.expected_outcome.is_some())
            + usize::from(self.stop_condition.is_some())
            + usize::from(self.risk.is_some())
    }
}

impl Risk {
    /// Returns the risk as it is written in JSON, for example `low`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    fn from_str_opt(word: &str) -> Option<Self> {
        let word = word.trim();
        [Self::Low, Self::Medium, Self::High]
            .into_iter()
            .find(|risk| word.eq_ignore_ascii_case(risk.as_str()))
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Arguments that contain a rationale.
struct RationalizedArgs<'a>(JsonFields<'a>);

impl<'a> RationalizedArgs<'a> {
    /// Parses the arguments. Returns `None` if the arguments contain no rationale.
    fn parse(arguments: &'a str) -> Option<Self> {
        // The name of the rationale field may also be written with Unicode escapes.
        let has_escape =
            || memchr(b'\\', arguments.as_bytes()).is_some() && arguments.contains("\\u");
        if !arguments.contains(RATIONALE_FIELD) && !has_escape() {
            return None;
        }
        let fields = JsonFields::parse(arguments)?;
        fields.0.iter().any(|(name, _)| name == RATIONALE_FIELD).then_some(Self(fields))
    }

    /// Returns the rationale. If the rationale field occurs more than once, the last value is used,
    /// as is usual in JSON.
    fn rationale(&self) -> Rationale {
        let last = self.0.0.iter().rev().find(|(name, _)| name == RATIONALE_FIELD);
        last.map_or_else(Rationale::default, |(_, json)| Rationale::from_raw_json(json))
    }

    /// Returns whether [`rationale`](Self::rationale) preserves everything that the model wrote in
    /// the rationale field.
    fn is_well_formed(&self) -> bool {
        let mut rationales = self.0.0.iter().filter(|(name, _)| name == RATIONALE_FIELD);
        let (Some((_, json)), None) = (rationales.next(), rationales.next()) else { return false };
        JsonFields::parse(json)
            .is_some_and(|fields| fields.0.len() == Rationale::from_raw_json(json).len())
    }

    fn into_arguments(self) -> String {
        let Self(mut fields) = self;
        fields.0.retain(|(name, _)| name != RATIONALE_FIELD);
        fields.to_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, why: &Rationale, rest: &str) {
        let (read, arguments) = Rationale::split_arguments(written);
        assert_eq!((&read, arguments.as_ref()), (why, rest), "{written}");
    }

    fn expects(outcome: &str) -> Rationale {
        Rationale { expected_outcome: Some(outcome.to_owned()), ..Rationale::default() }
    }

    #[test]
    fn splitting_keeps_argument_order_and_number_precision() {
        let big = "123456789012345678901234567890";
        check(
            &format!(r#"{{"z":{big},"_why":{{"expected_outcome":"x"}},"a":1.50,"b":[ 1 ]}}"#),
            &expects("x"),
            &format!(r#"{{"z":{big},"a":1.50,"b":[ 1 ]}}"#),
        );
    }

    #[test]
    fn a_malformed_rationale_is_removed_too() {
        for odd in ["null", "3", r#""because""#, "[]", "{}", r#"{"risk":7}"#, r#"{"more":{}}"#] {
            check(&format!(r#"{{"_why":{odd},"a":1}}"#), &Rationale::default(), r#"{"a":1}"#);
        }
        check(
            r#"{"_why":{"risk":"HIGH","stop_condition":null,"expected_outcome":"x"}}"#,
            &Rationale { risk: Some(Risk::High), ..expects("x") },
            "{}",
        );
    }

    #[test]
    fn escaped_and_duplicate_rationale_fields_are_found() {
        check(
            r#"{"\u005fwhy":{"risk":"low"},"a":1}"#,
            &Rationale { risk: Some(Risk::Low), ..Rationale::default() },
            r#"{"a":1}"#,
        );
        check(
            r#"{"_why":{"expected_outcome":"x"},"\u0061":1,"_why":{"expected_outcome":"y"}}"#,
            &expects("y"),
            r#"{"a":1}"#,
        );
    }

    #[test]
    fn arguments_without_a_rationale_are_unchanged() {
        for same in ["", "null", "{", r#"["_why"]"#, r#"{"a":"_why"}"#, r#"{ "a" : "\u0041" }"#] {
            check(same, &Rationale::default(), same);
        }
    }

    #[test]
    fn split_well_formed_keeps_a_rationale_it_cannot_represent() {
        let rest = |written: &str| Rationale::split_well_formed(written).1.into_owned();
        assert_eq!(rest(r#"{"_why":{"risk":"low"},"a":1}"#), r#"{"a":1}"#);
        assert_eq!(rest(r#"{"_why":{},"a":1}"#), r#"{"a":1}"#);
        for unchanged in [r#"{"_why":{"risk":7}}"#, r#"{"_why":"so"}"#, r#"{"_why":{"more":1}}"#] {
            assert_eq!(rest(unchanged), unchanged);
        }
    }
}
