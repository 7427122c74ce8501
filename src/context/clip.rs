//! A long text cut down to its head and its tail.

/// The text in at most `max` bytes: its head, a word on how much is missing, and its tail.
///
/// Cuts are made at the boundaries of characters. Where not even the word fits, only a head stays.
pub(super) fn clip(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    // What is missing is at most the whole, so that the word never gets longer than this one.
    let word = marker(text.len());
    let Some(room) = max.checked_sub(word.len()) else {
        return text[..text.floor_char_boundary(max)].to_owned();
    };
    let head = text.floor_char_boundary(room.div_ceil(2));
    let tail = text.ceil_char_boundary(text.len() - room / 2);
    format!("{}{}{}", &text[..head], marker(tail - head), &text[tail..])
}

fn marker(missing: usize) -> String {
    format!("\n[… {missing} bytes left out …]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, max: usize, expected: &str) {
        let clipped = clip(text, max);
        assert_eq!(clipped, expected);
        assert!(clipped.len() <= max);
    }

    #[test]
    fn the_head_and_the_tail_stay() {
        check("short", 5, "short");
        let long = format!("{}{}", "a".repeat(50), "z".repeat(50));
        check(&long, 40, "aaaaa\n[… 90 bytes left out …]\nzzzzz");
        check(&long, 3, "aaa");
        check(&long, 0, "");
    }

    #[test]
    fn a_character_is_not_cut() {
        check(&"ü".repeat(50), 41, "üüü\n[… 90 bytes left out …]\nüü");
        check("üü", 3, "ü");
        check("ü", 1, "");
    }
}
