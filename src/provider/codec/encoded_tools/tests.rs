use std::cell::Cell;

use serde_json::json;

use super::*;
use crate::item::{History, Item};
use crate::provider::wires::openai_chat::Dialect;
use crate::provider::{anthropic, gemini, ollama, openai_chat, openai_responses};
use crate::request::{Cache, Request};

thread_local! {
    /// The number of tools that have been encoded.
    pub(super) static DECLARED: Cell<usize> = const { Cell::new(0) };
}

type Encode = fn(&Request) -> Vec<u8>;

const WIRES: [(&str, Encode); 5] = [
    ("Chat Completions", |request| {
        openai_chat::encode(request, "m", &Dialect::OPENROUTER).unwrap()
    }),
    ("Responses", |request| openai_responses::encode(request, "m").unwrap()),
    ("Anthropic Messages", |request| anthropic::encode(request, "m").unwrap()),
    ("Gemini", |request| gemini::encode(request, "m").unwrap()),
    ("Ollama", |request| ollama::encode(request, "m", &ollama::Chat::default()).unwrap()),
];

fn spec(name: &str, deferred: bool) -> ToolSpec {
    let location = json!({ "type": "string", "format": "uri" });
    let parameters = json!({
        "type": "object",
        "properties": { "at": { "$ref": "#/$defs/location" } },
        "$defs": { "location": location },
    });
    ToolSpec::new(name, "Says \"hi\"", parameters).with_deferred(deferred)
}

fn request(tools: ToolSpecs) -> Request {
    Request::new(History::from_items("h", [Item::user("go")])).with_tools(tools)
}

/// Returns a list with the same specs, for which nothing is cached.
fn copied(tools: &ToolSpecs) -> ToolSpecs {
    tools.iter().cloned().collect()
}

/// Returns the number of tools that `f` encodes.
fn declared(f: impl FnOnce()) -> usize {
    let before = DECLARED.get();
    f();
    DECLARED.get() - before
}

#[test]
fn each_wire_encodes_a_list_of_tools_once() {
    for (wire, encode) in WIRES {
        for tools in [50, 500] {
            let list: ToolSpecs = (0..tools).map(|n| spec(&format!("t{n}"), false)).collect();
            let count = declared(|| {
                for turn in 0..20 {
                    let mut request = request(list.clone()).with_system(format!("turn {turn}"));
                    request.options.temperature = Some(0.5);
                    encode(&request);
                }
            });
            assert_eq!(count, tools, "{wire}");
        }
    }
}

#[test]
fn cached_tools_are_encoded_to_the_same_bytes() {
    let lists: [ToolSpecs; 5] = [
        [spec("a", false)].into(),
        [spec("a", false), spec("b", false)].into(),
        [spec("b", false), spec("a", false)].into(),
        [spec("a", false), spec("b", true)].into(),
        [spec("a", true), spec("b", true)].into(),
    ];
    // Every wire, list and cache option is encoded before and after all others.
    for round in 0..2 {
        for list in &lists {
            for (wire, encode) in WIRES {
                for cache in [Cache::Off, Cache::Short, Cache::Long, Cache::Short] {
                    for extra in [json!({}), json!({ "x": 1 }), json!({ "tools": [] })] {
                        let mut request = request(list.clone());
                        request.options.cache = cache;
                        request.options.extra = extra.as_object().unwrap().clone();
                        let bytes = encode(&request);
                        request.tools = copied(list);
                        let expected = encode(&request);
                        let texts = [&bytes, &expected].map(|it| String::from_utf8_lossy(it));
                        assert_eq!(texts[0], texts[1], "{wire}, round {round}, {cache:?}, {extra}");
                        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn another_list_is_encoded_again() {
    for (wire, encode) in WIRES {
        let list: ToolSpecs = [spec("a", false), spec("b", false)].into();
        encode(&request(list.clone()));
        let shorter: ToolSpecs = list.iter().take(1).cloned().collect();
        assert_eq!(declared(|| drop(encode(&request(shorter)))), 1, "{wire}");
        let mut changed = list.to_vec();
        changed[1].description = "Says nothing".to_owned();
        let bytes = encode(&request(changed.into()));
        assert!(String::from_utf8_lossy(&bytes).contains("Says nothing"), "{wire}");
    }
}

#[test]
fn a_list_keeps_the_eight_most_recently_used_encodings() {
    let list: ToolSpecs = [spec("a", false)].into();
    let encode = |extra: u32| {
        declared(|| drop(encoded_tools(&list, "w", extra, |_, tool| Ok(&tool.name)).unwrap()))
    };
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8].map(encode), [1; 8]);
    // `1` is used again, so `2` is the least recently used encoding when `9` is added.
    assert_eq!([1, 9, 1, 3, 4, 5, 6, 7, 8].map(encode), [0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encode(2), 1);
}

#[test]
fn an_error_is_not_cached() {
    let list: ToolSpecs = [spec("a", false)].into();
    let refuse = |_, _: &ToolSpec| Err::<(), _>(Error::new(crate::ErrorKind::Unsupported, "no"));
    for _ in 0..2 {
        assert!(encoded_tools(&list, "w", (), refuse).is_err());
    }
    assert!(encoded_tools(&list, "w", (), |_, tool| Ok(&tool.name)).is_ok());
}
