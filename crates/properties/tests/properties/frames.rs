//! The frame reader's contract, for any stream: it agrees with `eventsource-stream`, in any chunks.

use std::convert::Infallible;

use bytes::Bytes;
use eventsource_stream::EventStream;
use futures::{FutureExt, StreamExt, stream};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use turnstream::sse::{FrameReader, FrameTooLarge, write_frame};

type FrameResult = Result<(String, String), FrameTooLarge>;

/// The event and the data of each frame of a body that arrives in these chunks.
fn read_frames<C: AsRef<[u8]>>(
    reader: &mut FrameReader,
    chunks: impl IntoIterator<Item = C>,
) -> Vec<FrameResult> {
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

/// Pieces of streams, with a preference for unusual ones.
fn any_stream_text() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "data: x\n\n",
        "event: a\r\ndata: 1\r\n\r\n",
        "data",
        "event",
        "id",
        "retry",
        ":",
        ": ",
        " ",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "\r\n\r\n",
        "\u{feff}",
        "\0",
        "é",
        "👍",
        "x",
        "7",
    ]);
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Splits `body` into chunks of these lengths, repeatedly.
fn split_into_chunks<'a>(body: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = body;
    lengths
        .iter()
        .cycle()
        .map_while(|length| {
            let chunk;
            (chunk, rest) = rest.split_at_checked(*length).unwrap_or((rest, &[]));
            (!chunk.is_empty()).then_some(chunk)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// The two parsers differ only if `eventsource-stream` panics (a byte order mark at the start)
    /// or waits (a CR at the end).
    #[test]
    fn the_sse_parser_agrees_with_eventsource_stream(body in any_stream_text(), lengths in vec(1_usize..20, 1..8)) {
        prop_assume!(!body.starts_with('\u{feff}'));
        let body = body + "\n\n";
        let theirs: Vec<FrameResult> = EventStream::new(stream::iter([Ok::<_, Infallible>(&body)]))
            .map(|event| event.map(|event| (event.event, event.data)).unwrap())
            .map(Ok)
            .collect()
            .now_or_never()
            .unwrap();
        prop_assert_eq!(read_frames(&mut FrameReader::new(), split_into_chunks(body.as_bytes(), &lengths)), theirs);
    }

    #[test]
    fn arbitrary_bytes_in_any_chunks_yield_the_same_frames(
        text in any_stream_text(),
        junk in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        lengths in vec(1_usize..20, 1..8),
        max in 0_usize..64,
    ) {
        let mut body = text.into_bytes();
        for (at, byte) in junk {
            body.insert(at.index(body.len() + 1), byte);
        }
        for max in [max, usize::MAX] {
            let whole = read_frames(&mut FrameReader::limited_to_bytes(max), [&body]);
            let cut = read_frames(&mut FrameReader::limited_to_bytes(max), split_into_chunks(&body, &lengths));
            prop_assert_eq!(cut, whole);
        }
    }

    #[test]
    fn written_frames_are_parsed_back(event in "[^\r\n]{0,5}", data in "([a: é]|\r|\n|\r\n){0,9}") {
        let mut body = Vec::new();
        write_frame(&mut body, Some(&event), &data);
        let event = if event.is_empty() { "message".to_owned() } else { event };
        let data = data.replace("\r\n", "\n").replace('\r', "\n");
        prop_assert_eq!(read_frames(&mut FrameReader::new(), [body]), [Ok((event, data))]);
    }
}
