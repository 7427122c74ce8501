use std::borrow::Cow;

use serde::Deserialize;

use super::{FrameTemplate, MAX_MISSES};
use crate::sse::Frame;

/// A frame as a decoder parses it.
#[derive(Deserialize)]
struct Parsed<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

fn remember(template: &mut FrameTemplate<u8>, data: &str) {
    let parsed: Parsed<'_> = serde_json::from_str(data).unwrap();
    template.remember(&Frame::new("message", data), &parsed.text, Some("usage"), 7);
}

fn template(data: &str) -> FrameTemplate<u8> {
    let mut template = FrameTemplate::default();
    remember(&mut template, data);
    template
}

fn read(template: &mut FrameTemplate<u8>, data: &str) -> Option<String> {
    template.read(&Frame::new("message", data)).map(|(kind, text)| {
        assert_eq!(kind, 7);
        text.into_owned()
    })
}

#[test]
fn a_frame_that_differs_only_in_its_text_bypasses_the_json_parser() {
    let mut template = template(r#"{"id":1,"text":"Hello","end":null}"#);
    for text in ["Hello", " world", "}", "{\"text\":\"", "\\", "é\n\u{1f600}", "\",\"end\":null}"]
    {
        let literal = serde_json::to_string(text).unwrap();
        let data = format!(r#"{{"id":1,"text":{literal},"end":null}}"#);
        assert_eq!(read(&mut template, &data).as_deref(), Some(text));
    }
}

#[test]
fn escapes_are_decoded_as_by_the_json_parser() {
    let mut template = template(r#"{"text":"a"}"#);
    for literal in
        [r#""\u00e9""#, r#""\ud83d\ude00""#, r#""\"\\\/\b\f\n\r\t""#, r#""\\\\""#, r#""a\\""#]
    {
        let data = format!(r#"{{"text":{literal}}}"#);
        let parsed: Parsed<'_> = serde_json::from_str(&data).unwrap();
        assert_eq!(read(&mut template, &data), Some(parsed.text.into_owned()), "{literal}");
    }
}

#[test]
fn frames_that_do_not_match_the_template_are_left_to_the_parser() {
    let mut template = template(r#"{"id":1,"text":"Hello","end":null}"#);
    for data in [
        // Some wires give an empty text a special meaning.
        r#"{"id":1,"text":"","end":null}"#,
        // The text is not exactly one literal.
        "{\"id\":1,\"text\":\"a\nb\",\"end\":null}",
        r#"{"id":1,"text":"\x","end":null}"#,
        r#"{"id":1,"text":"\ud83d","end":null}"#,
        r#"{"id":1,"text":"a\","end":null}"#,
        r#"{"id":1,"text":"a"#,
        r#"{"id":1,"text":"a\"#,
        r#"{"id":1,"text":null,"end":null}"#,
        // The frame differs outside of the text.
        r#"{"id":2,"text":"a","end":null}"#,
        r#"{"id":1,"text":"a","end":null}}"#,
        r#"{"id":1,"text":"a","end":null]"#,
        r#"{"id":1,"text":"a","end":null"#,
        "{\"id\":1,\"text\":\"a\",\"end\":null}\u{b}",
        r#"{"id":1,"text":"a", "end":null}"#,
        r#" {"id":1,"text":"a","end":null}"#,
        r#"{"id":1,"text":"a","more":1,"end":null}"#,
        r#"{"id":1,"text":"a","end":true}"#,
        r#"{"id":1,"text":"a","end":nul"#,
        r#"{"id":1,"text":"a","text":"b","end":null}"#,
        "",
    ] {
        assert_eq!(read(&mut template, data), None, "{data}");
    }
    assert!(template.read(&Frame::new("other", r#"{"id":1,"text":"a","end":null}"#)).is_none());
    template.forget();
    assert_eq!(read(&mut template, r#"{"id":1,"text":"a","end":null}"#), None);
}

#[test]
fn ignored_members_of_the_outermost_object_may_differ() {
    let mut template = template(
        r#"{"sequence_number":9,"text":"a","item":{"created":1},"created":5,"obfuscation":"xyz"}"#,
    );
    let data = |number: &str, inner: u8, padding: &str| {
        format!(
            r#"{{"sequence_number":{number},"text":"b","item":{{"created":{inner}}},"created":6,"obfuscation":{padding}}}"#
        )
    };
    assert_eq!(read(&mut template, &data("10", 1, r#""""#)).as_deref(), Some("b"));
    assert_eq!(
        read(&mut template, &data("1234567890123456789", 1, r#""é""#)).as_deref(),
        Some("b")
    );
    for (number, inner, padding) in [
        ("10", 2, r#""x""#),
        ("1.0", 1, r#""x""#),
        ("-1", 1, r#""x""#),
        ("01", 1, r#""x""#),
        ("1e9", 1, r#""x""#),
        ("12345678901234567890", 1, r#""x""#),
        ("\"1\"", 1, r#""x""#),
        ("10", 1, "null"),
        ("10", 1, r#""\n""#),
        ("10", 1, r#""x","text":"c""#),
        ("10,\"text\":\"c\"", 1, r#""x""#),
    ] {
        assert_eq!(read(&mut template, &data(number, inner, padding)), None, "{number} {padding}");
    }
}

#[test]
fn a_string_or_an_inner_key_with_an_ignored_name_is_compared() {
    let mut inside = template(r#"{"id":"created","text":"a","x":["created",1],"y":{"created":1}}"#);
    let other = r#"{"id":"created","text":"b","x":["created",2],"y":{"created":1}}"#;
    assert_eq!(read(&mut inside, other), None);
    let other = r#"{"id":"created","text":"b","x":["created",1],"y":{"created":2}}"#;
    assert_eq!(read(&mut inside, other), None);
}

#[test]
fn numbers_in_the_named_object_may_differ_and_are_read_as_counts() {
    let mut template = template(
        r#"{"text":"a","usage":{"in":3,"out":1,"deep":{"out":5},"rate":0.5},"after":{"n":1}}"#,
    );
    let data =
        r#"{"text":"b","usage":{"in":3,"out":25,"deep":{"out":5},"rate":0.5},"after":{"n":1}}"#;
    assert_eq!(read(&mut template, data).as_deref(), Some("b"));
    assert_eq!(template.counts().collect::<Vec<_>>(), [("in", 3), ("out", 25)]);
    for data in [
        r#"{"text":"b","usage":{"in":3,"out":1.5,"deep":{"out":5},"rate":0.5},"after":{"n":1}}"#,
        r#"{"text":"b","usage":{"in":3,"out":1,"deep":{"out":6},"rate":0.5},"after":{"n":1}}"#,
        r#"{"text":"b","usage":{"in":3,"out":1,"deep":{"out":5},"rate":0.7},"after":{"n":1}}"#,
        r#"{"text":"b","usage":{"in":3,"out":1,"deep":{"out":5},"rate":0.5},"after":{"n":2}}"#,
        r#"{"text":"b","usage":{"in":3,"out":null,"deep":{"out":5},"rate":0.5},"after":{"n":1}}"#,
    ] {
        assert_eq!(read(&mut template, data), None, "{data}");
    }
}

#[test]
fn a_text_that_is_not_a_literal_of_the_frame_is_not_remembered() {
    // The text has an escape, so the parser allocated a new string for it.
    let mut escaped = template(r#"{"text":"a\n"}"#);
    assert_eq!(read(&mut escaped, r#"{"text":"b"}"#), None);
    let mut part = FrameTemplate::default();
    let data = r#"{"text":"abc"}"#;
    for text in [&data[9..11], &data[10..12], &data[..0], "abc"] {
        part.remember(&Frame::new("message", data), text, None, 7);
        assert_eq!(read(&mut part, r#"{"text":"b"}"#), None, "{text}");
    }
}

#[test]
fn templates_are_disabled_if_frames_never_repeat() {
    let frame = |id: u8, text: &str| format!(r#"{{"id":{id},"text":"{text}"}}"#);
    let mut template = FrameTemplate::default();
    for id in 0..MAX_MISSES {
        template.forget();
        remember(&mut template, &frame(id, "a"));
    }
    template.forget();
    remember(&mut template, &frame(99, "a"));
    assert_eq!(read(&mut template, &frame(99, "b")), None);

    let mut used = FrameTemplate::default();
    for id in 0..2 * MAX_MISSES {
        used.forget();
        remember(&mut used, &frame(id, "a"));
        assert_eq!(read(&mut used, &frame(id, "b")).as_deref(), Some("b"));
    }
}

#[test]
fn white_space_between_the_last_brackets_may_differ() {
    let mut padded = template("{\"text\":\"a\",\"of\":[{\"x\":\"} ]\"}   ] }");
    for end in ["}]}", " } ]\t}\r\n ", "} ] }"] {
        let data = format!("{{\"text\":\"b\",\"of\":[{{\"x\":\"}} ]\"{end}");
        assert_eq!(read(&mut padded, &data).as_deref(), Some("b"), "{data}");
    }
    let data = "{\"text\":\"b\",\"of\":[{\"x\":\"}]\"}]}";
    assert_eq!(read(&mut padded, data), None, "the space was inside a string");

    let mut last = template(r#"{"id":1,"text":"a"}"#);
    assert_eq!(read(&mut last, "{\"id\":1,\"text\":\"] }\"    }").as_deref(), Some("] }"));
    assert_eq!(read(&mut last, "{\"id\":1,\"text\":\"] }    }"), None);
}

#[test]
fn ignored_values_are_recognized_after_white_space() {
    let mut template =
        template(r#"{"created": 1, "text": "a", "usage": {"out": 1, "deep": {"n": 1}}}"#);
    let data = r#"{"created": 2, "text": "b", "usage": {"out": 2, "deep": {"n": 1}}}"#;
    assert_eq!(read(&mut template, data).as_deref(), Some("b"));
    assert_eq!(template.counts().collect::<Vec<_>>(), [("out", 2)]);
}
