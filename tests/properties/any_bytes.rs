//! What holds for any bytes that a server sends, whole or in any pieces; `fuzz/checks.rs` says it.
//!
//! Here the bytes are lawful streams with something done to them. The fuzz targets in `fuzz` search
//! for worse ones.

use std::fs;
use std::path::Path;

use checks::Wire;
use proptest::prelude::*;

#[path = "../../fuzz/checks.rs"]
mod checks;

/// What is done to a stream.
#[derive(Clone, Debug)]
enum Harm {
    /// Some bytes are gone.
    Gone { at: usize, len: usize },
    /// Some bytes stand there twice.
    Doubled { at: usize, len: usize },
    /// A byte is another one.
    Changed { at: usize, to: u8 },
    /// Words of JSON stand where none belong.
    Put { at: usize, what: &'static str },
    /// The stream ends.
    Cut { at: usize },
    /// Frames have changed places.
    Swapped { one: usize, other: usize },
}

const WORDS: &[&str] = &[
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

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<usize>;
    let len = 1..80_usize;
    prop_oneof![
        (at(), len.clone()).prop_map(|(at, len)| Harm::Gone { at, len }),
        (at(), len).prop_map(|(at, len)| Harm::Doubled { at, len }),
        (at(), any::<u8>()).prop_map(|(at, to)| Harm::Changed { at, to }),
        (at(), 0..WORDS.len()).prop_map(|(at, n)| Harm::Put { at, what: WORDS[n] }),
        at().prop_map(|at| Harm::Cut { at }),
        (at(), at()).prop_map(|(one, other)| Harm::Swapped { one, other }),
    ]
}

fn harmed(mut bytes: Vec<u8>, harm: &Harm) -> Vec<u8> {
    let within = |at: usize| at % (bytes.len() + 1);
    match *harm {
        Harm::Gone { at, len } => {
            let at = within(at);
            bytes.drain(at..bytes.len().min(at + len));
        }
        Harm::Doubled { at, len } => {
            let at = within(at);
            let piece = bytes[at..bytes.len().min(at + len)].to_vec();
            bytes.splice(at..at, piece);
        }
        Harm::Changed { at, to } => {
            let at = within(at);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        Harm::Put { at, what } => {
            let at = within(at);
            bytes.splice(at..at, what.bytes());
        }
        Harm::Cut { at } => bytes.truncate(within(at)),
        Harm::Swapped { one, other } => {
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

/// The streams to begin from, written by hand.
fn seeds(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(folder);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

fn folder(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "anthropic",
        Wire::OpenAiChat => "openai_chat",
        Wire::OpenAiResponses => "openai_responses",
        Wire::Gemini => "gemini",
        Wire::Ollama => "ollama",
    }
}

/// Puts a byte in front that says how the rest is cut.
fn with_seed(seed: u8, bytes: &[u8]) -> Vec<u8> {
    [&[seed], bytes].concat()
}

#[test]
fn valid_streams_uphold_the_invariants() {
    for wire in Wire::ALL {
        let seeds = seeds(folder(wire));
        assert!(seeds.len() >= 4, "{wire:?} has its seeds");
        for bytes in seeds {
            checks::decode(wire, &with_seed(1, &bytes));
        }
    }
    for bytes in seeds("sse") {
        checks::frames(&with_seed(1, &bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn arbitrarily_corrupted_streams_uphold_the_invariants(
        which in any::<usize>(),
        harms in prop::collection::vec(harm(), 1..4),
        seed in any::<u8>(),
    ) {
        for wire in Wire::ALL {
            let seeds = seeds(folder(wire));
            let bytes = seeds[which % seeds.len()].clone();
            let bytes = harms.iter().fold(bytes, harmed);
            checks::decode(wire, &with_seed(seed, &bytes));
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
        checks::frames(&with_seed(seed, text.as_bytes()));
    }
}
