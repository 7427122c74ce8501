//! Finds the JSON in an answer.

use serde::de::IgnoredAny;

/// The tags around the reasoning that some models write at the start of their text.
const THINK_TAG: &str = "<think>";
pub(crate) const THINK_END_TAG: &str = "</think>";

const FENCE: &str = "```";

/// The first characters of objects, lists and strings.
const JSON_STARTS: [char; 3] = ['{', '[', '"'];

/// Returns the part of an answer that is meant as JSON. If it is not certain which part that is,
/// returns the whole answer, without the white space and the reasoning before it.
pub(super) fn find_json(answer: &str) -> &str {
    let text = trim(answer);
    let thought = text.strip_prefix(THINK_TAG).and_then(|text| text.split_once(THINK_END_TAG));
    let text = thought.map_or(text, |(_, rest)| trim(rest));
    let after_reasoning = || {
        // Some chat templates add the opening tag to the prompt.
        let (_, rest) = text.split_once(THINK_END_TAG)?;
        certain_json(trim(rest))
    };
    certain_json(text).or_else(after_reasoning).unwrap_or(text)
}

/// The beginning of the JSON in an answer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerStart {
    /// The JSON begins at this byte.
    Json(usize),
    /// Reasoning begins at this byte, and ends with [`THINK_END_TAG`].
    Reasoning(usize),
    /// The JSON may follow.
    Unknown,
    /// The answer contains no JSON, or it is not certain where it begins.
    None,
}

/// Finds the object, list or string that is meant as the answer, from the beginning of the answer.
/// Accepts the same forms as [`find_json`], but for reasoning without an opening tag.
pub(crate) fn find_json_start(answer: &str) -> AnswerStart {
    let offset = |rest: &str| answer.len() - rest.len();
    let text = trim_start(answer);
    if text.starts_with(JSON_STARTS) {
        return AnswerStart::Json(offset(text));
    }
    if let Some(reasoning) = text.strip_prefix(THINK_TAG) {
        return AnswerStart::Reasoning(offset(reasoning));
    }
    if let Some((before, fenced)) = text.split_once(FENCE)
        && !before.contains('{')
    {
        let Some((language, inside)) = fenced.split_once('\n') else { return AnswerStart::Unknown };
        let inside = trim_start(inside);
        return match inside.is_empty() {
            _ if !is_json_language(language) => AnswerStart::None,
            true => AnswerStart::Unknown,
            false if inside.starts_with(JSON_STARTS) => AnswerStart::Json(offset(inside)),
            false => AnswerStart::None,
        };
    }
    let Some((sentence, json)) = text.find(['{', '[']).and_then(|at| text.split_at_checked(at))
    else {
        return AnswerStart::Unknown;
    };
    let ends = |c: char| matches!(c, ':' | '.' | '!' | '?');
    let has_ended = sentence.trim_end().ends_with(ends) || sentence.ends_with('\n');
    match is_sentence(sentence) && has_ended {
        // A fence may follow a list, but not an object.
        _ if json.starts_with('[') => AnswerStart::Unknown,
        true => AnswerStart::Json(offset(json)),
        false => AnswerStart::None,
    }
}

/// Returns the part of a text that is certainly meant as JSON, even if it is invalid.
fn certain_json(text: &str) -> Option<&str> {
    let inside = strip_fence(text);
    if inside.len() < text.len() || text.starts_with(['{', '[', '"']) || is_json(text) {
        return Some(inside);
    }
    fenced_json(text).or_else(|| json_after_sentence(text))
}

/// Removes the white space and byte order marks around a text.
fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// Removes a code fence around the whole text.
fn strip_fence(text: &str) -> &str {
    let fenced = text.strip_prefix(FENCE).and_then(|inside| inside.strip_suffix(FENCE));
    match fenced.and_then(|fenced| fenced.split_once('\n')) {
        Some((language, inside)) if is_json_language(language) => trim(inside),
        Some(_) | None => text,
    }
}

/// Returns the JSON inside of the only code fence in a text, if there is no object outside of it.
fn fenced_json(text: &str) -> Option<&str> {
    let (before, rest) = text.split_once(FENCE)?;
    let (language, rest) = rest.split_once('\n')?;
    let (inside, after) = rest.rsplit_once(FENCE)?;
    let has_object = before.contains('{') || after.contains('{');
    let inside = trim(inside);
    (!has_object && is_json_language(language) && is_json(inside)).then_some(inside)
}

/// Returns the object or list with which a text ends, if only one sentence precedes it.
fn json_after_sentence(text: &str) -> Option<&str> {
    let (sentence, json) = text.split_at_checked(text.find(['{', '['])?)?;
    (is_sentence(sentence) && is_json(json)).then_some(json)
}

/// Returns whether a text is at most one sentence on one line. A short exclamation such as `Sure!`
/// may precede the sentence.
fn is_sentence(text: &str) -> bool {
    const MAX_EXCLAMATION_WORDS: usize = 3;
    let text = match text.split_once('!') {
        Some((exclamation, rest))
            if exclamation.split_whitespace().count() <= MAX_EXCLAMATION_WORDS =>
        {
            rest
        }
        _ => text,
    };
    let text = text.trim();
    let mut ends = text.char_indices().filter(|(_, c)| matches!(c, '.' | '?' | '!'));
    let is_inside = |at: usize| text[at + 1..].starts_with(char::is_whitespace);
    let has_other_structure = ["\n", FENCE, THINK_TAG].iter().any(|it| text.contains(it));
    !has_other_structure && !ends.any(|(at, _)| is_inside(at))
}

fn is_json_language(language: &str) -> bool {
    language.trim().is_empty() || language.trim().eq_ignore_ascii_case("json")
}

/// Returns whether a text is a single JSON value.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"n":1,"s":"```\n</think> {"}"#;

    #[track_caller]
    fn check(answer: &str) {
        assert_eq!(find_json(answer), JSON, "{answer}");
    }

    #[test]
    fn json_is_found_in_a_fence_with_prose_around_it() {
        for answer in [
            format!("```json\n{JSON}\n```"),
            format!("Here it is. It has one field.\n\n```json\n{JSON}\n```\n\nLet me know!"),
            format!("Of course: ```JSON\n{JSON}\n``` Is that all?"),
            format!("Done [1].\r\n```\r\n{JSON}\r\n```"),
        ] {
            check(&answer);
        }
    }

    #[test]
    fn json_is_found_after_reasoning() {
        for answer in [
            format!("<think>\nIs {{\"n\":2}} right? No.\n</think>\n\n{JSON}"),
            format!("It may be {{\"n\":2}}.\n</think>\n{JSON}"),
            format!("<think></think>Here it is:\n```json\n{JSON}\n```"),
        ] {
            check(&answer);
        }
    }

    #[test]
    fn json_is_found_after_one_sentence() {
        for answer in [
            format!("Here it is: {JSON}"),
            format!("Sure! Here is the JSON you asked for:\n\n{JSON}"),
            format!("Sure!\n{JSON}"),
            format!("The answer of version 1.5 is\n{JSON}\n"),
        ] {
            check(&answer);
        }
    }

    #[test]
    fn the_beginning_of_json_is_found_before_its_end() {
        for before in [
            "",
            "\u{feff}\n",
            "```json\n",
            "Here it is. It has one field.\n\n```json\n",
            "Done [1].\r\n```\r\n",
            "Sure! Here is the JSON you asked for:\n\n",
            "The answer of version 1.5 is\n",
        ] {
            let start = AnswerStart::Json(before.len());
            assert_eq!(find_json_start(&format!("{before}{JSON}")), start, "{before}");
            for cut in (0..before.len()).filter(|cut| before.is_char_boundary(*cut)) {
                assert_eq!(find_json_start(&before[..cut]), AnswerStart::Unknown, "{before}");
            }
        }
        assert_eq!(find_json_start(" <think>{"), AnswerStart::Reasoning(8));
        for other in ["Not {\"n\":2}, but", "```rust\n", "It depends.\nThis is one: {"] {
            assert_eq!(find_json_start(other), AnswerStart::None, "{other}");
        }
    }

    #[test]
    fn json_is_not_found_where_its_meaning_is_uncertain() {
        for answer in [
            "There is none.".to_owned(),
            format!("I cannot answer this. An example: {JSON}"),
            format!("It depends.\nThis is one:\n{JSON}"),
            format!("Either {JSON} or {JSON}"),
            format!("{JSON}{JSON}"),
            format!("{JSON} I hope it helps."),
            format!("Here it is: {JSON} I hope it helps."),
            format!("```json\n{JSON}\n```\nor\n```json\n{JSON}\n```"),
            format!("Not {{\"n\":2}}, but\n```json\n{JSON}\n```"),
            format!("```rust\n{JSON}\n```"),
            format!("```json\n{JSON}"),
            "<think>{\"n\":1}".to_owned(),
        ] {
            assert!(!is_json(find_json(&answer)), "{answer}");
        }
    }
}
