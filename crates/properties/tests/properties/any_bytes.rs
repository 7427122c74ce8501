//! Properties that hold for any bytes from a server, whole or in any pieces; `fuzz/checks.rs` lists
//! them.
//!
//! Here the bytes are mutated valid streams. The fuzz targets in `fuzz` search for worse ones.

use std::fs;
use std::path::Path;

use checks::Wire;
use proptest::prelude::*;

#[path = "../../../../fuzz/checks.rs"]
pub(crate) mod checks;

/// A mutation of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Mutation {
    /// Removes some bytes.
    Remove { at: usize, len: usize },
    /// Duplicates some bytes.
    Duplicate { at: usize, len: usize },
    /// Replaces a byte.
    Replace { at: usize, byte: u8 },
    /// Inserts JSON text at an invalid position.
    Insert { at: usize, text: &'static str },
    /// Ends the stream.
    Truncate { at: usize },
    /// Swaps two frames.
    SwapFrames { first: usize, second: usize },
}

const JSON_SNIPPETS: &[&str] = &[
    "null",
    "{}",
    "[]",
    "\"\"",
    "true",
    "-1",
    "1e999",
    "\"\\ud800\"",
    "}",
    "]",
    ",",
    "\"index\":7,",
    "\"id\":\"\",",
    "data: [DONE]\n\n",
    "\n\n",
    "\r",
    "\u{feff}",
    ":\n\n",
    "event: error\n",
];

pub(crate) fn any_mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<usize>;
    let len = 1..80_usize;
    prop_oneof![
        (at(), len.clone()).prop_map(|(at, len)| Mutation::Remove { at, len }),
        (at(), len).prop_map(|(at, len)| Mutation::Duplicate { at, len }),
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Replace { at, byte }),
        (at(), 0..JSON_SNIPPETS.len())
            .prop_map(|(at, n)| Mutation::Insert { at, text: JSON_SNIPPETS[n] }),
        at().prop_map(|at| Mutation::Truncate { at }),
        (at(), at()).prop_map(|(first, second)| Mutation::SwapFrames { first, second }),
    ]
}

pub(crate) fn mutate_bytes(mut bytes: Vec<u8>, harm: &Mutation) -> Vec<u8> {
    let within = |at: usize| at % (bytes.len() + 1);
    match *harm {
        Mutation::Remove { at, len } => {
            let at = within(at);
            bytes.drain(at..bytes.len().min(at + len));
        }
        Mutation::Duplicate { at, len } => {
            let at = within(at);
            let piece = bytes[at..bytes.len().min(at + len)].to_vec();
            bytes.splice(at..at, piece);
        }
        Mutation::Replace { at, byte: to } => {
            let at = within(at);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        Mutation::Insert { at, text: what } => {
            let at = within(at);
            bytes.splice(at..at, what.bytes());
        }
        Mutation::Truncate { at } => bytes.truncate(within(at)),
        Mutation::SwapFrames { first: one, second: other } => {
            let mut frames: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
            if !frames.is_empty() {
                let len = frames.len();
                frames.swap(one % len, other % len);
            }
            bytes = frames.concat();
        }
    }
    bytes
}

/// The hand-written streams that are mutated.
pub(crate) fn seed_streams(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(folder);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

pub(crate) fn seed_folder(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "anthropic",
        Wire::OpenAiChat => "openai_chat",
        Wire::OpenAiResponses => "openai_responses",
        Wire::Gemini => "gemini",
        Wire::Ollama => "ollama",
    }
}

/// Prepends a byte that determines how the rest is split.
fn prefix_cut_seed(seed: u8, bytes: &[u8]) -> Vec<u8> {
    [&[seed], bytes].concat()
}

#[test]
fn valid_streams_uphold_the_invariants() {
    for wire in Wire::ALL {
        let seeds = seed_streams(seed_folder(wire));
        assert!(seeds.len() >= 4, "{wire:?} has its seeds");
        for bytes in seeds {
            checks::decode(wire, &prefix_cut_seed(1, &bytes));
        }
    }
    for bytes in seed_streams("sse") {
        checks::frames(&prefix_cut_seed(1, &bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn arbitrarily_corrupted_streams_uphold_the_invariants(
        which in any::<usize>(),
        harms in prop::collection::vec(any_mutation(), 1..4),
        seed in any::<u8>(),
    ) {
        for wire in Wire::ALL {
            let seeds = seed_streams(seed_folder(wire));
            let bytes = seeds[which % seeds.len()].clone();
            let bytes = harms.iter().fold(bytes, mutate_bytes);
            checks::decode(wire, &prefix_cut_seed(seed, &bytes));
        }
    }

    #[test]
    fn frames_of_arbitrary_bytes_are_the_same_for_any_split(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        checks::frames(&bytes);
    }

    #[test]
    fn frames_of_plausible_bytes_are_the_same_for_any_split(
        text in "(data|event|id|:|: |x|\n|\r|\r\n|\u{feff}|ä){0,40}",
        seed in any::<u8>(),
    ) {
        checks::frames(&prefix_cut_seed(seed, text.as_bytes()));
    }
}
