//! Tests of the contract, by examples.

use bytes::Bytes;

use crate::sse::{FrameReader, FrameTooLarge, write_frame};

/// The work of a reader: bytes searched, bytes copied, and frames parsed by the library.
#[derive(Default)]
pub(super) struct Work {
    searched: usize,
    copied: usize,
    reads: usize,
}

impl Work {
    pub(super) fn search(&mut self, bytes: usize) {
        self.searched += bytes;
    }

    pub(super) fn copy(&mut self, bytes: usize) {
        self.copied += bytes;
    }

    pub(super) fn ask(&mut self) {
        self.reads += 1;
    }
}

pub(super) type Read = Result<(String, String), FrameTooLarge>;

/// Reads a complete body that arrives in these chunks.
pub(super) fn read<C: AsRef<[u8]>>(
    reader: &mut FrameReader,
    chunks: impl IntoIterator<Item = C>,
) -> Vec<Read> {
    let mut frames = Vec::new();
    for chunk in chunks {
        reader.feed(Bytes::copy_from_slice(chunk.as_ref()));
        while let Some(frame) = reader.next_frame() {
            frames.push(frame.map(|frame| (frame.event.to_owned(), frame.data.to_owned())));
        }
    }
    while let Some(frame) = reader.finish() {
        frames.push(frame.map(|frame| (frame.event.to_owned(), frame.data.to_owned())));
    }
    frames
}

/// Checks the `(event, data)` pairs of a body, both whole and split at every position.
fn check(body: impl AsRef<[u8]>, expected: &[(&str, &str)]) {
    let body = body.as_ref();
    let expected: Vec<Read> =
        expected.iter().map(|(event, data)| Ok(((*event).into(), (*data).into()))).collect();
    assert_eq!(read(&mut FrameReader::new(), [body]), expected, "whole");
    assert_eq!(read(&mut FrameReader::new(), body.chunks(1)), expected, "byte by byte");
    for cut in 1..body.len() {
        let (before, after) = body.split_at(cut);
        assert_eq!(read(&mut FrameReader::new(), [before, after]), expected, "cut at {cut}");
    }
}

#[test]
fn fields_may_come_in_any_order_and_without_the_space() {
    check("event: a\ndata: 1\n\n", &[("a", "1")]);
    check("data:1\nevent:a\n\n", &[("a", "1")]);
    check("data:  1\n\n", &[("message", " 1")]);
}

#[test]
fn a_field_named_error_is_an_event_of_that_name() {
    check("error: {\"code\":500}\n\ndata: 1\n\n", &[("error", "{\"code\":500}"), ("message", "1")]);
    check("error:\n\n", &[("error", "")]);
    check(": hm\ndata: 1\nerror: 2\nerror:error: 3\nevent: a\n\n", &[("error", "2\nerror: 3")]);
    check("event: a\nerror: 1", &[("error", "1")]);
}

#[test]
fn lines_end_in_lf_cr_or_crlf() {
    check("event: a\ndata: 1\n\ndata: 2\n\n", &[("a", "1"), ("message", "2")]);
    check("event: a\rdata: 1\r\rdata: 2\r\r", &[("a", "1"), ("message", "2")]);
    check("event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", &[("a", "1"), ("message", "2")]);
    check("event: a\rdata: 1\n\r\ndata: 2\r\n\n", &[("a", "1"), ("message", "2")]);
}

#[test]
fn crlf_cut_between_two_chunks_is_one_line_end() {
    let frames =
        read(&mut FrameReader::new(), ["event: a\r", "", "\ndata: 1\r\n\r", "\ndata: 2\n\n"]);
    assert_eq!(frames, [Ok(("a".into(), "1".into())), Ok(("message".into(), "2".into()))]);
}

#[test]
fn a_lone_cr_ends_the_frame_at_once() {
    let mut reader = FrameReader::new();
    reader.feed("data: 1\r\r".into());
    assert_eq!(reader.next_frame().unwrap().unwrap().data, "1");
}

#[test]
fn a_frame_without_data_is_skipped_but_empty_data_is_a_frame() {
    check("event: a\n\n: ping\n\n\n\ndata: 1\n\n", &[("message", "1")]);
    check("event: a\ndata:\n\ndata\n\n", &[("a", ""), ("message", "")]);
}

#[test]
fn an_event_type_does_not_outlive_its_frame() {
    check("event: a\n\ndata: 1\n\nevent:\ndata: 2\n\n", &[("message", "1"), ("message", "2")]);
}

#[test]
fn unusual_frames_do_not_affect_their_neighbours() {
    check(
        "data: 1\n\n: hi\nid: 7\nretry: 9\ndata: 2\ndata: 3\n\ndata: 4\n\n",
        &[("message", "1"), ("message", "2\n3"), ("message", "4")],
    );
}

#[test]
fn a_byte_order_mark_is_dropped_at_the_start_only() {
    check("\u{feff}data: 1\n\ndata: \u{feff}2\n\n", &[("message", "1"), ("message", "\u{feff}2")]);
    check("data: 1\n\n\u{feff}data: 2\n\ndata: 3\n\n", &[("message", "1"), ("message", "3")]);
    check("\u{feff}\u{feff}data: 1\n\ndata: 2\n\n", &[("message", "2")]);
}

#[test]
fn a_partial_byte_order_mark_is_ordinary_content() {
    check(b"\xef\xbbdata: 1\n\ndata: 2\n\n", &[("message", "2")]);
    check(b"\xef\xbb", &[]);
}

#[test]
fn invalid_utf_8_is_replaced() {
    check(b"event: \xff\ndata: a\xf0\x9fb\n\n", &[("\u{fffd}", "a\u{fffd}b")]);
    check(
        b"data: \xff\ndata: \xe2\x82\n\ndata: 2\n\n",
        &[("message", "\u{fffd}\n\u{fffd}"), ("message", "2")],
    );
}

#[test]
fn the_pending_frame_is_yielded_at_the_end_of_the_body() {
    check("data: 1\n\nevent: a\ndata: 2", &[("message", "1"), ("a", "2")]);
    check("data: 1\n", &[("message", "1")]);
    check("data: 1\ndata: 2\nid", &[("message", "1\n2")]);
    check("event: a\n", &[]);
}

#[test]
fn a_frame_may_be_as_large_as_the_cap_but_not_larger() {
    // `data: 1\ndata: 2` is 15 bytes, or 16 with CRLF.
    for (body, size) in [
        ("data: 1\ndata: 2\n\n", 15),
        ("data: 1\rdata: 2\r\r", 15),
        ("data: 1\r\ndata: 2\r\n\r\n", 16),
        ("data: 1\ndata: 2", 15),
        ("\u{feff}data: 1\ndata: 2", 15),
    ] {
        for step in 1..=body.len() {
            let mut enough = FrameReader::limited_to_bytes(size);
            let chunks = body.as_bytes().chunks(step);
            assert_eq!(read(&mut enough, chunks.clone()), [Ok(("message".into(), "1\n2".into()))]);
            let mut short = FrameReader::limited_to_bytes(size - 1);
            assert_eq!(read(&mut short, chunks), [Err(FrameTooLarge { max: size - 1 })]);
        }
    }
}

#[test]
fn after_a_too_large_frame_no_further_frame_is_yielded() {
    let mut reader = FrameReader::limited_to_bytes(8);
    reader.feed("data: 1\n\ndata: 234\n\ndata: 5\n\n".into());
    reader.feed("data: 6\n\n".into());
    assert_eq!(reader.next_frame().unwrap().unwrap().data, "1");
    let error = reader.next_frame().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "a server-sent event is larger than 8 bytes");
    reader.feed("data: 7\n\n".into());
    assert!(reader.next_frame().is_none());
    assert!(reader.finish().is_none());
}

#[test]
fn chunks_fed_in_advance_are_read_in_order() {
    let mut reader = FrameReader::new();
    for chunk in ["data: 1\n\nda", "ta: 2\n\n", "data: 3"] {
        reader.feed(chunk.into());
    }
    for data in ["1", "2", "3"] {
        assert_eq!(reader.finish().unwrap().unwrap().data, data);
    }
    assert!(reader.finish().is_none());
}

#[test]
fn every_byte_is_searched_once_and_copied_at_most_once() {
    let long = format!("event: a\ndata: {}\r\n\r\n", "x".repeat(100_000));
    let comments = ": ping\n".repeat(10_000);
    let body = format!("{long}data: 1\n\n{comments}{long}");
    for step in [1, 2, 7, 16 << 10, body.len()] {
        let mut reader = FrameReader::new();
        assert_eq!(read(&mut reader, body.as_bytes().chunks(step)).len(), 3);
        assert!(
            reader.work_counters.searched <= body.len(),
            "{step}: {}",
            reader.work_counters.searched
        );
        assert!(
            reader.work_counters.copied <= body.len(),
            "{step}: {}",
            reader.work_counters.copied
        );
    }
}

#[test]
fn plain_frames_whole_in_their_chunk_are_not_copied() {
    let mut reader = FrameReader::new();
    read(&mut reader, ["data: 1\n\n", "event: a\r\ndata: 2\r\n\r\ndata: 3\n\n"]);
    assert_eq!(reader.work_counters.copied, 0);
}

#[test]
fn only_frames_outside_the_fast_path_are_inspected() {
    let body = b"data: 1\n\ndata: 2\nevent: a\n\n\nevent: a\n\n: ping\n\ndata\n\ndata: 3\n\n";
    for step in 1..=body.len() {
        let mut reader = FrameReader::new();
        assert_eq!(read(&mut reader, body.chunks(step)).len(), 4);
        assert_eq!(reader.work_counters.reads, 1);
    }
}

#[test]
fn comments_are_skipped_without_copying() {
    let body = ": ping\n\n:\r\n: a\r\n\r\n: a\ndata: 1\n:data: 2\n\n:\nevent: a\n:\ndata: 2\n\n:";
    check(body, &[("message", "1"), ("a", "2")]);
    let whole = body.trim_end_matches(':');
    for step in 1..=whole.len() {
        let mut reader = FrameReader::new();
        assert_eq!(read(&mut reader, whole.as_bytes().chunks(step)).len(), 2);
        assert_eq!(reader.work_counters.reads, 0, "{step}");
        assert!(step < whole.len() || reader.work_counters.copied == 0);
    }
}

#[test]
fn an_odd_frame_of_very_many_lines_takes_linear_time() {
    // Quadratic work would move terabytes here, and the test would not finish.
    let body = format!("{}data: 1\n\n", "id\n".repeat(1 << 20));
    assert_eq!(read(&mut FrameReader::new(), [body]), [Ok(("message".into(), "1".into()))]);
}

#[test]
fn an_event_name_cannot_inject_fields() {
    let mut out = Vec::new();
    write_frame(&mut out, Some("a\n\r\ndata: 0"), "1");
    check(out, &[("adata: 0", "1")]);
}
