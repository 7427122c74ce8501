//! Compares JSON texts as values, without losing the digits of large numbers.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::item::json_values::has_too_many_values;
use crate::item::nesting_depth;

/// The maximum nesting depth of JSON that is compared.
const MAX_DEPTH: usize = 100;

/// Returns whether two JSON texts stand for the same value: they differ at most in white space, in
/// the order of fields, and in the notation of numbers and strings. Numbers are compared digit by
/// digit. An empty text stands for an object without fields, as in a call without arguments.
///
/// Texts that differ are not the same if one of them is not JSON, repeats the name of a field, is
/// nested too deeply or has too many values.
pub(crate) fn is_same_json(a: &str, b: &str) -> bool {
    let text = |json| match str::trim(json) {
        "" => "{}",
        json => json,
    };
    let (a, b) = (text(a), text(b));
    let is_small =
        |json: &str| !has_too_many_values(json.as_bytes()) && nesting_depth(json) <= MAX_DEPTH;
    a == b || is_small(a) && is_small(b) && is_same_value(a, b)
}

fn is_same_value(a: &str, b: &str) -> bool {
    fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Option<T> {
        serde_json::from_str(json).ok()
    }
    match (a.as_bytes().first(), b.as_bytes().first()) {
        (Some(b'{'), Some(b'{')) => match (parse::<Fields<'_>>(a), parse::<Fields<'_>>(b)) {
            (Some(Fields(a)), Some(Fields(b))) => {
                let has_same = |(name, value): (&String, &&RawValue)| {
                    b.get(name).is_some_and(|other| is_same_value(value.get(), other.get()))
                };
                a.len() == b.len() && a.iter().all(has_same)
            }
            (_, _) => false,
        },
        (Some(b'['), Some(b'[')) => {
            match (parse::<Vec<&RawValue>>(a), parse::<Vec<&RawValue>>(b)) {
                (Some(a), Some(b)) => {
                    a.len() == b.len()
                        && a.iter().zip(b).all(|(a, b)| is_same_value(a.get(), b.get()))
                }
                (_, _) => false,
            }
        }
        (Some(b'"'), Some(b'"')) => {
            let (a, b) = (parse::<String>(a), parse::<String>(b));
            a.is_some() && a == b
        }
        (Some(b'-' | b'0'..=b'9'), Some(b'-' | b'0'..=b'9')) => {
            let (a, b) = (Decimal::parse(a), Decimal::parse(b));
            a.is_some() && a == b
        }
        (_, _) => a == b,
    }
}

/// The fields of an object in which each name is unique.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.insert(name, value).is_some() {
                        return Err(A::Error::custom("a field is repeated"));
                    }
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A number as its significant digits and the power of ten by which they are multiplied. The digits
/// neither start nor end with a zero, and zero has no digits.
#[derive(PartialEq)]
struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn parse(number: &str) -> Option<Self> {
        let (mantissa, exponent) = match number.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (number, 0),
        };
        let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(mantissa) => (true, mantissa),
            None => (false, mantissa),
        };
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{integer}{fraction}");
        let significant = all.trim_end_matches('0');
        let dropped = i64::try_from(all.len() - significant.len()).ok()?;
        let digits = significant.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        let shift = dropped - i64::try_from(fraction.len()).ok()?;
        Some(Self { is_negative, digits, exponent: exponent.checked_add(shift)? })
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_json;

    #[test]
    fn texts_of_the_same_value_are_the_same() {
        for (a, b) in [
            ("", "{}"),
            (r#"{"a":1,"b":{"c":[]}}"#, " { \"b\" : {\"c\": [ ]}, \"a\" : 1 } "),
            (r#"{"s":"\u00e9\/"}"#, r#"{"s":"é/"}"#),
            ("[1, 1.50, 100, 0, 0.1]", "[1.0, 15e-1, 1E2, -0.0, 1e-1]"),
            ("18446744073709551617", "1.8446744073709551617e19"),
            ("[true,false,null]", "[ true , false , null ]"),
        ] {
            assert!(is_same_json(a, b) && is_same_json(b, a), "{a} {b}");
        }
    }

    #[test]
    fn texts_of_different_values_are_different() {
        for (a, b) in [
            // As floating-point numbers, these two are equal.
            (r#"{"id":18446744073709551616}"#, r#"{"id":18446744073709551617}"#),
            ("0.1", "0.10000000000000000001"),
            ("1", "-1"),
            ("1", "10"),
            ("1", "\"1\""),
            ("[1,2]", "[2,1]"),
            ("[1]", "[1,1]"),
            (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
            (r#"{"a":null}"#, "{}"),
            // A reader may take either of the two fields.
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            ("{", "{}"),
            ("true", "false"),
            ("1e99999999999999999999", "1e99999999999999999998"),
        ] {
            assert!(!is_same_json(a, b) && !is_same_json(b, a), "{a} {b}");
        }
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(is_same_json(&nested(100), &format!("{} ", nested(100))));
        assert!(!is_same_json(&nested(101), &format!("[ {}", &nested(101)[1..])));
    }
}
