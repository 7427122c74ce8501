//! `calculate`: `+ - * / ( )`, decimals and the minus sign.

use std::iter::Peekable;
use std::str::CharIndices;

use serde::Deserialize;
use turnstream::tool::Tool;

/// Brackets and signs may stand this deep inside each other.
const DEPTH: usize = 64;

/// Up to here every whole number is exact.
const EXACT: f64 = 1e15;

#[derive(Deserialize, schemars::JsonSchema)]
struct Args {
    /// The expression, for example `(2 + 3.5) * -4 / 7`.
    expression: String,
}

pub(crate) fn calculate() -> Tool {
    let about = "Calculates an expression of numbers, `+`, `-`, `*`, `/`, and brackets.";
    Tool::new("calculate", about, |args: Args, _cx| async move { evaluate(&args.expression) })
}

/// The value as text, or what is wrong, in words for the model.
pub(crate) fn evaluate(expression: &str) -> Result<String, String> {
    if expression.len() > 10_000 {
        return Err("the expression is too long. Calculate it in parts.".to_owned());
    }
    let mut parser = Parser { chars: expression.char_indices().peekable(), text: expression };
    let value = parser.sum(DEPTH)?;
    if let Some((at, c)) = parser.peek() {
        return Err(format!(
            "`{}` at position {} does not belong there. Allowed are numbers, + - * / and ( ).",
            c.escape_debug(),
            at + 1
        ));
    }
    if !value.is_finite() {
        return Err("the result is too large".to_owned());
    }
    // A `f64` holds 15 digits; the ones behind are noise.
    let digits = format!("{value:.14e}");
    let value = digits.parse::<f64>().map_err(|error| error.to_string())?;
    Ok(match value.abs() {
        0.0 => "0".to_owned(),
        1e-6..EXACT => value.to_string(),
        _ => format!("about {value:e}"),
    })
}

struct Parser<'a> {
    chars: Peekable<CharIndices<'a>>,
    text: &'a str,
}

impl Parser<'_> {
    fn peek(&mut self) -> Option<(usize, char)> {
        while self.chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        self.chars.peek().copied()
    }

    fn take(&mut self, wanted: char) -> bool {
        match self.peek() {
            Some((_, c)) if c == wanted => self.chars.next().is_some(),
            _ => false,
        }
    }

    fn sum(&mut self, depth: usize) -> Result<f64, String> {
        let mut value = self.product(depth)?;
        loop {
            if self.take('+') {
                value += self.product(depth)?;
            } else if self.take('-') {
                value -= self.product(depth)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Result<f64, String> {
        let mut value = self.factor(depth)?;
        loop {
            if self.take('*') {
                value *= self.factor(depth)?;
            } else if self.take('/') {
                let by = self.factor(depth)?;
                if by == 0.0 {
                    return Err("a division by zero has no result".to_owned());
                }
                value /= by;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self, depth: usize) -> Result<f64, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("brackets and signs are more than {DEPTH} deep"));
        };
        if self.take('-') {
            return Ok(-self.factor(depth)?);
        }
        if self.take('+') {
            return self.factor(depth);
        }
        if self.take('(') {
            let value = self.sum(depth)?;
            return match self.take(')') {
                true => Ok(value),
                false => Err("a `)` is missing".to_owned()),
            };
        }
        self.number()
    }

    fn number(&mut self) -> Result<f64, String> {
        let Some((start, c)) = self.peek() else {
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

    fn check(expression: &str, expected: &str) {
        assert_eq!(evaluate(expression).as_deref(), Ok(expected), "{expression}");
    }

    fn check_error(expression: &str, words: &str) {
        let error = evaluate(expression).unwrap_err();
        assert!(error.contains(words), "{expression}: {error}");
    }

    #[test]
    fn operator_precedence_follows_arithmetic() {
        check("1 + 2 * 3", "7");
        check("(1 + 2) * 3", "9");
        check("8 / 4 / 2", "1");
        check("8 - 4 - 2", "2");
        check("-2 * -(3 - 5)", "-4");
        check("2--2", "4");
        check("- - 2", "2");
        check("+3", "3");
        check("-0", "0");
    }

    #[test]
    fn decimals_are_printed_without_rounding_noise() {
        check("0.1 + 0.2", "0.3");
        check(".5 * 3.", "1.5");
        check("1 / 3", "0.333333333333333");
        check("123456789012345 + 1", "123456789012346");
        check("1000000 * 1000000 * 1000000", "about 1e18");
        check("1 / 100000000", "about 1e-8");
    }

    #[test]
    fn an_invalid_expression_is_reported() {
        check_error("1 / 0", "division by zero");
        check_error("1 / (2 - 2)", "division by zero");
        check_error("", "ends where a number");
        check_error("1 +", "ends where a number");
        check_error("(1", "`)` is missing");
        check_error("1)", "`)` at position 2");
        check_error("2 ^ 3", "`^` at position 3");
        check_error("1.2.3", "`1.2.3` is not a number");
        check_error(".", "`.` is not a number");
        check_error("two", "expected a number at position 1");
        check_error("1 2", "`2` at position 3");
        check_error("\u{1b}[2J", "\\u{1b}");
        check_error(&"9".repeat(400), "too large");
        check_error(&"1+".repeat(6_000), "too long");
    }

    #[test]
    fn a_deeply_nested_expression_is_an_error_and_not_a_stack_overflow() {
        check_error(&"(".repeat(9_000), "deep");
        check_error(&"-".repeat(9_000), "deep");
        check(&format!("{}1{}", "(".repeat(60), ")".repeat(60)), "1");
        check(&format!("1{}", "+1".repeat(4_000)), "4001");
    }
}
