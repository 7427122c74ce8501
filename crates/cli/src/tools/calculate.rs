//! `calculate`: `+ - * / ( )`, decimals and the minus sign.

use std::iter::Peekable;
use std::str::CharIndices;

use serde::Deserialize;
use turnstream::tool::Tool;

/// The maximum nesting depth of brackets and signs.
const MAX_DEPTH: usize = 64;

/// All integers up to this value are exact.
const MAX_EXACT_INTEGER: f64 = 1e15;

#[derive(Deserialize, schemars::JsonSchema)]
struct Args {
    /// The expression, for example `(2 + 3.5) * -4 / 7`.
    expression: String,
}

pub(crate) fn calculate() -> Tool {
    let about = "Calculates an expression of numbers, `+`, `-`, `*`, `/`, and brackets.";
    Tool::new("calculate", about, |args: Args, _cx| async move { evaluate(&args.expression) })
}

/// Returns the value as text, or an error message for the model.
pub(crate) fn evaluate(expression: &str) -> Result<String, String> {
    if expression.len() > 10_000 {
        return Err("the expression is too long. Calculate it in parts.".to_owned());
    }
    let mut parser = Parser { chars: expression.char_indices().peekable(), text: expression };
    let value = parser.parse_sum(MAX_DEPTH)?;
    if let Some((at, c)) = parser.peek_char() {
        return Err(format!(
            "`{}` at position {} is not expected. Use only numbers, + - * / and ( ).",
            c.escape_debug(),
            at + 1
        ));
    }
    if !value.is_finite() {
        return Err("the result is too large".to_owned());
    }
    // An `f64` has 15 significant digits; the rest is noise.
    let digits = format!("{value:.14e}");
    let value = digits.parse::<f64>().map_err(|error| error.to_string())?;
    Ok(match value.abs() {
        0.0 => "0".to_owned(),
        1e-6..MAX_EXACT_INTEGER => value.to_string(),
        _ => format!("about {value:e}"),
    })
}

struct Parser<'a> {
    chars: Peekable<CharIndices<'a>>,
    text: &'a str,
}

impl Parser<'_> {
    fn peek_char(&mut self) -> Option<(usize, char)> {
        while self.chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        self.chars.peek().copied()
    }

    fn consume_char(&mut self, wanted: char) -> bool {
        match self.peek_char() {
            Some((_, c)) if c == wanted => self.chars.next().is_some(),
            _ => false,
        }
    }

    fn parse_sum(&mut self, depth: usize) -> Result<f64, String> {
        let mut value = self.parse_product(depth)?;
        loop {
            if self.consume_char('+') {
                value += self.parse_product(depth)?;
            } else if self.consume_char('-') {
                value -= self.parse_product(depth)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn parse_product(&mut self, depth: usize) -> Result<f64, String> {
        let mut value = self.parse_factor(depth)?;
        loop {
            if self.consume_char('*') {
                value *= self.parse_factor(depth)?;
            } else if self.consume_char('/') {
                let by = self.parse_factor(depth)?;
                if by == 0.0 {
                    return Err("a division by zero has no result".to_owned());
                }
                value /= by;
            } else {
                return Ok(value);
            }
        }
    }

    fn parse_factor(&mut self, depth: usize) -> Result<f64, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("brackets and signs are nested more than {MAX_DEPTH} levels deep"));
        };
        if self.consume_char('-') {
            return Ok(-self.parse_factor(depth)?);
        }
        if self.consume_char('+') {
            return self.parse_factor(depth);
        }
        if self.consume_char('(') {
            let value = self.parse_sum(depth)?;
            return match self.consume_char(')') {
                true => Ok(value),
                false => Err("a `)` is missing".to_owned()),
            };
        }
        self.parse_number()
    }

    fn parse_number(&mut self) -> Result<f64, String> {
        let Some((start, c)) = self.peek_char() else {
            return Err("the expression ends where a number should be".to_owned());
        };
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let mut end = start;
        while let Some((at, c)) = self.chars.next_if(|(_, c)| is_part(*c)) {
            end = at + c.len_utf8();
        }
        match &self.text[start..end] {
            "" => Err(format!(
                "expected a number at position {}, found `{}`",
                start + 1,
                c.escape_debug()
            )),
            digits => digits.parse().map_err(|_| format!("`{digits}` is not a number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_value(expression: &str, expected: &str) {
        assert_eq!(evaluate(expression).as_deref(), Ok(expected), "{expression}");
    }

    fn assert_error(expression: &str, words: &str) {
        let error = evaluate(expression).unwrap_err();
        assert!(error.contains(words), "{expression}: {error}");
    }

    #[test]
    fn operator_precedence_follows_arithmetic() {
        assert_value("1 + 2 * 3", "7");
        assert_value("(1 + 2) * 3", "9");
        assert_value("8 / 4 / 2", "1");
        assert_value("8 - 4 - 2", "2");
        assert_value("-2 * -(3 - 5)", "-4");
        assert_value("2--2", "4");
        assert_value("- - 2", "2");
        assert_value("+3", "3");
        assert_value("-0", "0");
    }

    #[test]
    fn decimals_are_printed_without_rounding_noise() {
        assert_value("0.1 + 0.2", "0.3");
        assert_value(".5 * 3.", "1.5");
        assert_value("1 / 3", "0.333333333333333");
        assert_value("123456789012345 + 1", "123456789012346");
        assert_value("1000000 * 1000000 * 1000000", "about 1e18");
        assert_value("1 / 100000000", "about 1e-8");
    }

    #[test]
    fn an_invalid_expression_is_reported() {
        assert_error("1 / 0", "division by zero");
        assert_error("1 / (2 - 2)", "division by zero");
        assert_error("", "ends where a number");
        assert_error("1 +", "ends where a number");
        assert_error("(1", "`)` is missing");
        assert_error("1)", "`)` at position 2");
        assert_error("2 ^ 3", "`^` at position 3");
        assert_error("1.2.3", "`1.2.3` is not a number");
        assert_error(".", "`.` is not a number");
        assert_error("two", "expected a number at position 1");
        assert_error("1 2", "`2` at position 3");
        assert_error("\u{1b}[2J", "\\u{1b}");
        assert_error(&"9".repeat(400), "too large");
        assert_error(&"1+".repeat(6_000), "too long");
    }

    #[test]
    fn a_deeply_nested_expression_is_an_error_and_not_a_stack_overflow() {
        assert_error(&"(".repeat(9_000), "deep");
        assert_error(&"-".repeat(9_000), "deep");
        assert_value(&format!("{}1{}", "(".repeat(60), ")".repeat(60)), "1");
        assert_value(&format!("1{}", "+1".repeat(4_000)), "4001");
    }
}
