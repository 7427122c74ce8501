use super::*;
use crate::item::{History, Item, ItemKind, ResultKind, StopReason, ToolResult, TurnInfo};
use crate::request::Cache;
use crate::usage::Usage;

type EncodeChunks = fn(&Request) -> Result<ChunkedBytes, Error>;

const CHUNK_ENCODERS: [EncodeChunks; 2] = [
    |request| encode_body(request, "m", &Dialect::OPENAI),
    // It inserts a cache mark into bytes that are already encoded.
    |request| encode_body(request, "m", &Dialect::OPENROUTER),
];

/// Adds a question and an answer of about 3 KB to a history.
fn add_exchange(history: &mut History, n: usize) {
    history.push(Item::user(format!("question {n} {}", "q".repeat(1_000))));
    let mut answer = Item::text(format!("answer {n} {}", "a".repeat(2_000)));
    answer.turn = Some(turn_info(StopReason::Stop));
    history.push(answer);
}

fn turn_info(stop_reason: StopReason) -> Arc<TurnInfo> {
    Arc::new(TurnInfo { usage: Usage::default(), model: None, response_id: None, stop_reason })
}

/// Returns an equal history with other nodes, which has no cached encoding.
fn without_cache(history: &History) -> History {
    History::from_items("h", history.iter().cloned())
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
            let new: usize = chunks.iter().filter(is_new).map(bytes::Bytes::len).sum();
            assert!(new < 80_000, "{new} of {} bytes are new", body.len());
            assert!(chunks.len() <= 4 + body.len() / (32 * 1024), "{} chunks", chunks.len());
            earlier = chunks.iter().map(|chunk| chunk.as_ptr()).collect();
            let expected = encode(&Request::new(without_cache(&history))).unwrap();
            assert!(body.into_vec() == expected.into_vec(), "{n}");
        }
        assert!(earlier.len() > 4);
    }
}

#[test]
fn a_history_that_was_cut_back_shares_the_chunks_up_to_the_cut() {
    for (encoder, encode) in CHUNK_ENCODERS.into_iter().enumerate() {
        let mut history = History::empty("h");
        let mut cut_back = None;
        let mut chunks_at_cut = Vec::new();
        for n in 0..60 {
            add_exchange(&mut history, n);
            let body = encode(&Request::new(history.clone())).unwrap();
            if n == 40 {
                cut_back = Some(history.clone());
                chunks_at_cut = body.into_chunks();
            }
        }
        let mut cut_back = cut_back.unwrap();
        add_exchange(&mut cut_back, 1_000);
        let body = encode(&Request::new(cut_back.clone())).unwrap();
        let chunks = body.clone().into_chunks();
        let is_shared =
            |chunk: &&bytes::Bytes| chunks.iter().any(|other| other.as_ptr() == chunk.as_ptr());
        let shared: usize = chunks_at_cut.iter().filter(is_shared).map(bytes::Bytes::len).sum();
        assert!(shared > 60_000, "{encoder}: {shared} of {} bytes are shared", body.len());
        let expected = encode(&Request::new(without_cache(&cut_back))).unwrap();
        assert!(body.into_vec() == expected.into_vec());
    }
}

#[test]
fn a_cache_mark_is_inserted_into_bytes_that_other_bodies_share() {
    let encode = |history: &History| {
        let mut request = Request::new(history.clone());
        request.system.stable = "Be brief.".into();
        request.options.cache = Cache::Short;
        encode_body(&request, "m", &Dialect::OPENROUTER).unwrap()
    };
    let mark = br#""cache_control""#;
    let find_mark = |bytes: &[u8]| bytes.windows(mark.len()).rposition(|bytes| bytes == mark);
    let mut history = History::from_items("h", [Item::user("long ".repeat(10_000))]);
    let mut chunks_before_mark = Vec::new();
    for n in 0..6 {
        let body = encode(&history);
        let chunks = body.clone().into_chunks();
        let body = body.into_vec();
        assert!(body == encode(&without_cache(&history)).into_vec(), "{n}");
        assert!(find_mark(&body).unwrap() > 50_000, "the long message has the mark");
        if n > 2 {
            let at = chunks.iter().rposition(|chunk| find_mark(chunk).is_some()).unwrap();
            chunks_before_mark.push((chunks[at - 1].as_ptr(), chunks[at - 1].len()));
        }
        let mut item = Item::tool_call(format!("c{n}"), "t", "{}");
        item.turn = Some(turn_info(StopReason::ToolCalls));
        let ItemKind::ToolCall(call) = &item.kind else { unreachable!("it is a call") };
        let result = ToolResult::for_call(call, ResultKind::Ok, "ok");
        history.extend([item, Item::tool_result(result)]);
    }
    assert!(chunks_before_mark[0].1 > 50_000);
    assert!(chunks_before_mark.windows(2).all(|pair| pair[0] == pair[1]));
}
