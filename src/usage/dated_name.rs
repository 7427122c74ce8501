//! Names of models that end with a date.

/// Returns the part of a model's name before its date, if the name ends with one.
///
/// A date follows a `-` or a `@`. It is `2025-08-07`, `20250807`, four digits such as `0613` or
/// `2508` (a month and a day, or a year and a month), or the word `latest`.
pub(super) fn name_without_date(model: &str) -> Option<&str> {
    let date = model
        .char_indices()
        .rev()
        .filter(|(_, c)| matches!(c, '-' | '@'))
        .map(|(at, _)| (&model[..at], &model[at + 1..]))
        .take(3)
        .filter(|(name, date)| !name.is_empty() && is_date(date));
    // The shortest name belongs to the longest date.
    date.last().map(|(name, _)| name)
}

fn is_date(text: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    let has_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_month = |month: u32| (1..=12).contains(&month);
    let is_day = |day: u32| (1..=31).contains(&day);
    let is_year = |year: u32| (2020..2100).contains(&year);
    match text.len() {
        10 => {
            text.get(4..5) == Some("-")
                && text.get(7..8) == Some("-")
                && is_date(&text.replace('-', ""))
        }
        8 if has_digits(text) => number(text)
            .is_some_and(|it| is_year(it / 10_000) && is_month(it / 100 % 100) && is_day(it % 100)),
        4 if has_digits(text) => number(text).is_some_and(|it| {
            is_month(it / 100) && is_day(it % 100)
                || is_year(2_000 + it / 100) && is_month(it % 100)
        }),
        _ => text == "latest",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(model: &str, expected: Option<&str>) {
        assert_eq!(name_without_date(model), expected, "{model}");
    }

    #[test]
    fn only_a_date_is_cut_off() {
        check("gpt-5-2025-08-07", Some("gpt-5"));
        check("claude-sonnet-4-20250514", Some("claude-sonnet-4"));
        check("claude-sonnet-4@20250514", Some("claude-sonnet-4"));
        check("gpt-4-0613", Some("gpt-4"));
        check("codestral-2508", Some("codestral"));
        check("mistral-small-latest", Some("mistral-small"));
        for other in [
            "gpt-5-mini",
            "gpt-5",
            "gpt-4.1",
            "claude-sonnet-4-5",
            "gpt-4:free",
            "gpt-4@eu",
            "model-20259999",
            "model-2025-13-01",
            "model-9999",
            "2025-08-07",
            "-0613",
            "",
            "gpt-5-mini-",
            "ü-ü-ü",
            "llama-4096",
        ] {
            check(other, None);
        }
    }
}
