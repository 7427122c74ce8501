//! The remainder of content that is too long.

use proptest::prelude::*;
use turnstream::item::{Content, Part};

fn text_or_image() -> impl Strategy<Value = Part> {
    prop_oneof![
        4 => "(a|é|漢|😀){0,40}".prop_map(|text| Part::from(&*text)),
        1 => Just(Part::image("image/png", b"\0\0\0")),
    ]
}

fn any_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        "(a|é|漢|😀|\n){0,120}".prop_map(Content::from),
        proptest::collection::vec(text_or_image(), 0..6).prop_map(Content::from),
    ]
}

fn media_parts(content: &Content) -> Vec<Part> {
    let parts = content.clone().into_parts();
    parts.into_iter().filter(|part| part.as_text().is_none()).collect()
}

proptest! {
    #[test]
    fn truncation_keeps_head_and_tail_and_counts_the_removed_bytes(
        content in any_content(),
        max in 0_usize..200,
        note in proptest::option::of("[a-z ]{0,10}"),
    ) {
        let whole = content.text();
        let Some(clipped) = content.truncate_middle(max, note.as_deref()) else {
            prop_assert!(whole.len() <= max);
            return Ok(());
        };
        prop_assert!(whole.len() > max);
        let text = clipped.text();
        let from = text.find("\n[").unwrap();
        let to = from + text[from..].find("]\n").unwrap() + 2;
        let (head, marker, tail) = (&text[..from], &text[from..to], &text[to..]);
        prop_assert!(whole.starts_with(head) && whole.ends_with(tail));
        let gone: usize = marker[2..].split(' ').next().unwrap().parse().unwrap();
        prop_assert_eq!(head.len() + gone + tail.len(), whole.len());
        if let Some(note) = &note {
            prop_assert!(marker.contains(note.as_str()));
        }
        prop_assert!(text.len() <= max || text.len() == marker.len());
        // Equal halves, except for multi-byte characters that do not fit and the digits in the
        // marker.
        prop_assert!(head.len().abs_diff(tail.len()) <= 5);
        prop_assert_eq!(media_parts(&clipped), media_parts(&content));
        if text.len() <= max {
            prop_assert_eq!(clipped.truncate_middle(max, None), None);
        }
    }
}

#[test]
fn truncation_keeps_media_in_their_positions() {
    let image = || Part::image("image/png", b"\0\0\0");
    let parts = vec!["a".repeat(60).as_str().into(), image(), "b".repeat(60).as_str().into()];
    let clipped = Content::from(parts).truncate_middle(50, None).unwrap();
    let marker = "\n[102 bytes were left out here]\n";
    let head = format!("{}{marker}", "a".repeat(9));
    let expected = vec![head.as_str().into(), image(), "b".repeat(9).as_str().into()];
    let shown = clipped.text();
    assert_eq!(clipped, Content::from(expected), "{shown}");
}
