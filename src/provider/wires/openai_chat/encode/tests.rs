use super::*;
use crate::item::{History, Item, StopReason, TurnInfo};
use crate::usage::Usage;

type EncodeChunks = fn(&Request) -> Result<ChunkedBytes, Error>;

const CHUNK_ENCODERS: [EncodeChunks; 2] = [
    |request| encode_body(request, "m", &Dialect::OPENAI),
    // Its cache marker is inserted into bytes that are already encoded.
    |request| encode_body(request, "m", &Dialect::OPENROUTER),
];

/// Adds a question and an answer of about 3 KB to a history.
fn add_exchange(history: &mut History, n: usize) {
    history.push(Item::user(format!("question {n} {}", "q".repeat(1_000))));
    let mut answer = Item::text(format!("answer {n} {}", "a".repeat(2_000)));
    answer.turn = Some(Arc::new(TurnInfo {
        usage: Usage::default(),
        model: None,
        response_id: None,
        stop_reason: StopReason::Stop,
    }));
    history.push(answer);
}

#[test]
fn a_body_shares_the_chunks_of_the_earlier_body_and_has_the_same_bytes_as_without_them() {
    for encode in CHUNK_ENCODERS {
        let mut history = History::empty("h");
        let mut earlier: Vec<*const u8> = Vec::new();
        for n in 0..100 {
            add_exchange(&mut history, n);
            let body = encode(&Request::new(history.clone())).unwrap();
            let chunks = body.clone().into_chunks();
            let is_new = |chunk: &&bytes::Bytes| !earlier.contains(&chunk.as_ptr());
            let new: usize = chunks.iter().filter(is_new).map(|chunk| chunk.len()).sum();
            assert!(new < 80_000, "{new} of {} bytes are new", body.len());
            assert!(chunks.len() <= 4 + body.len() / (32 * 1024), "{} chunks", chunks.len());
            earlier = chunks.iter().map(|chunk| chunk.as_ptr()).collect();
            // A history with other nodes has no cached encoding.
            let mut fresh = History::empty("h");
            fresh.extend(history.iter().cloned());
            let expected = encode(&Request::new(fresh)).unwrap().into_vec();
            assert!(body.into_vec() == expected, "{n}");
        }
        assert!(earlier.len() > 4);
    }
}

#[test]
fn a_history_that_was_cut_back_shares_the_chunks_up_to_the_cut() {
    for encode in CHUNK_ENCODERS {
        let mut histories = Vec::new();
        let mut history = History::empty("h");
        for n in 0..60 {
            add_exchange(&mut history, n);
            encode(&Request::new(history.clone())).unwrap();
            histories.push(history.clone());
        }
        for (at, mut history) in histories.into_iter().enumerate().step_by(7) {
            add_exchange(&mut history, 1_000 + at);
            let mut fresh = History::empty("h");
            fresh.extend(history.iter().cloned());
            let bodies = [history, fresh].map(|it| encode(&Request::new(it)).unwrap().into_vec());
            assert!(bodies[0] == bodies[1], "{at}");
        }
    }
}
