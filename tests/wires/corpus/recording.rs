//! A recording, and the result of decoding it.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::executor::block_on;
use futures::{Stream, StreamExt, stream};
use serde_json::Value;
use turnstream::Error;
use turnstream::item::History;
use turnstream::provider::openai_chat::{Dialect, TurnEnd};
use turnstream::provider::{Decoding, anthropic, gemini, openai_chat, openai_responses};
use turnstream::stream::{TurnStream, seal};
use turnstream::turn::{PartialTurn, Turn, TurnEvent};

use turnstream_test_support::corpus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    OpenAiChat,
    OpenAiResponses,
    Gemini,
}

/// The folders of a corpus.
const WIRE_FOLDERS: [(&str, Wire); 4] = [
    ("anthropic", Wire::Anthropic),
    ("openai-chat", Wire::OpenAiChat),
    ("openai-responses", Wire::OpenAiResponses),
    ("gemini", Wire::Gemini),
];

#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) wire: Wire,
    pub(crate) vendor: String,
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
    /// The result of the vendor's SDK for the bytes.
    pub(crate) expected: Value,
}

impl Recording {
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }

    /// The dialect of the server, if it is known.
    fn dialect(&self) -> Dialect {
        match self.vendor.as_str() {
            "mistral" | "mistral.ai" => Dialect::MISTRAL,
            "openrouter" | "openrouter.ai" => Dialect::OPENROUTER,
            "deepseek" | "deepseek.com" => Dialect::DEEPSEEK,
            "groq" | "groq.com" => Dialect::GROQ,
            "llamacpp" => Dialect::LLAMA_CPP,
            "openai" | "openai.com" => Dialect::OPENAI,
            // Its last chunk has no finish reason, only `[DONE]`.
            vendor if vendor.ends_with(".snowflakecomputing.com") => {
                Dialect { turn_end: TurnEnd::DoneMarker, ..Dialect::MINIMAL }
            }
            _ => Dialect::MINIMAL,
        }
    }
}

/// The recordings of the corpus.
pub(crate) fn load_recordings() -> Vec<Recording> {
    let folder = corpus::corpus_folder();
    let all = WIRE_FOLDERS.into_iter().flat_map(|(api, wire)| {
        let mut folders: Vec<PathBuf> = fs::read_dir(folder.join(api))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        folders.sort();
        folders.into_iter().filter_map(move |folder| load_recording(wire, &folder))
    });
    all.collect()
}

fn load_recording(wire: Wire, folder: &Path) -> Option<Recording> {
    let bytes = fs::read(folder.join("stream.sse")).ok()?;
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let meta = read_json_file(&folder.join("meta.json"));
    let vendor = meta["vendor"].as_str().unwrap_or_default().to_owned();
    let expect = read_json_file(&folder.join("expect.json"));
    Some(Recording { wire, vendor, name, bytes: bytes.into(), expected: expect })
}

fn read_json_file(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All events of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct DecodedStream(pub(crate) Vec<Result<TurnEvent, Error>>);

impl DecodedStream {
    pub(crate) fn events(&self) -> impl Iterator<Item = &TurnEvent> {
        self.0.iter().filter_map(|event| event.as_ref().ok())
    }

    pub(crate) fn error(&self) -> Option<&Error> {
        self.0.last().and_then(|last| last.as_ref().err())
    }

    pub(crate) fn turn(&self) -> Option<&Turn> {
        match self.0.last() {
            Some(Ok(TurnEvent::TurnComplete { turn })) => Some(turn),
            _ => None,
        }
    }

    pub(crate) fn to_partial_turn(&self) -> PartialTurn {
        let mut fold = PartialTurn::default();
        self.events().for_each(|event| fold.absorb(event));
        fold
    }
}

pub(crate) fn decode_whole(recording: &Recording) -> DecodedStream {
    decode_pieces(recording, vec![recording.bytes.clone()])
}

pub(crate) fn decode_pieces(recording: &Recording, pieces: Vec<Bytes>) -> DecodedStream {
    let events = stream_pieces(recording, &History::empty("corpus"), pieces);
    DecodedStream(block_on(events.collect()))
}

/// The turn of a recording, which follows this history.
pub(crate) fn stream_pieces(
    recording: &Recording,
    history: &History,
    pieces: Vec<Bytes>,
) -> TurnStream {
    stream_body(recording, history, stream::iter(pieces.into_iter().map(Ok)))
}

/// The turn of a recording whose body arrives like this.
pub(crate) fn stream_body(
    recording: &Recording,
    history: &History,
    body: impl Stream<Item = Result<Bytes, Error>> + Send + 'static,
) -> TurnStream {
    let model = recording.expected["model"].as_str().unwrap_or_default();
    match recording.wire {
        Wire::Anthropic => seal(history, Decoding::new(body, anthropic::Decoder::new(model))),
        Wire::OpenAiChat => {
            let decoder = openai_chat::Decoder::new(model, &recording.dialect());
            seal(history, Decoding::new(body, decoder))
        }
        Wire::OpenAiResponses => {
            seal(history, Decoding::new(body, openai_responses::Decoder::new(model)))
        }
        Wire::Gemini => seal(history, Decoding::new(body, gemini::Decoder::new(model))),
    }
}
