//! Counts the instructions for a token, a turn, a session entry and a recorded turn.
//!
//! ```text
//! cargo bench -p turnstream-properties --bench instructions
//! ```
//!
//! The counts are those of the tables in the performance guide. A count that is more than 3 % off
//! is an error (10 % for a store that uses a thread, since the number of times that threads wait
//! for each other varies between runs); `-- --write` rewrites the tables. The bench needs Valgrind:
//! without it nothing is measured, and the bench says so (with `-- --required` that is an error).
//!
//! After the tables, the bench checks that tasks of ten times the size cost at most twelve times as
//! many instructions.
//!
//! Counts have no noise, but they depend on the compiler and on the C library.

#[path = "measured/callgrind.rs"]
mod callgrind;
#[path = "measured/canned_model.rs"]
mod canned_model;
#[path = "measured/count_tables.rs"]
mod count_tables;
#[path = "../crates/properties/tests/growth/scenarios.rs"]
mod scenarios;

use std::convert::Infallible;
use std::path::Path;
use std::{env, fs, process, thread};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::runtime::Runtime;
use turnstream::durable::Attempt;
use turnstream::event::EndReason;
use turnstream::partial::PartialValues;
use turnstream::provider::Provider;
use turnstream::replay::Recorder;
use turnstream::session::{JsonLinesStore, MemoryStore, Store};
use turnstream::supervise::Supervisor;
use turnstream::turn::TurnEvent;
use turnstream::ui::ClientLimits;
use turnstream::ui::ag_ui::{AgUi, RunRequest};
use turnstream::ui::ai_sdk::AiSdk;
use turnstream::ui::sse::Sse;
use turnstream::{Agent, Event, Item, Request, Steps, Toolkit, TurnStreamExt, loop_stream};
use turnstream_sqlite::SqliteStore;
use turnstream_testing::Wire;
use turnstream_testing::durable_suite::MemoryEngine;

use self::callgrind::{count_instructions, find_valgrind};
use self::canned_model::{CannedModel, PROMPT, SYSTEM, add_tool, agent, start};
use self::count_tables::{Cell, Tables};
use self::scenarios::SCENARIOS;

/// The tables in the guide.
const TABLES: Tables = Tables {
    page: concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/guide/performance.md"),
    bench: "-p turnstream-properties --bench instructions",
    begin: "<!-- counts: written by the bench `instructions` -->",
    end: "<!-- end of the counts -->",
    columns: &[&READERS, &[COUNT]],
};
/// The column of the second table.
const COUNT: &str = "instructions";
/// The tolerance of a count, in percent.
const TOLERANCE: f64 = 3.0;
/// The tolerance if two threads wait for each other: how many times they spin before they sleep
/// depends on the machine.
const TOLERANCE_OF_THREADS: f64 = 10.0;
/// The maximum ratio of a scenario's instructions at 500 to its instructions at 50.
const MAX_GROWTH: u64 = 12;

/// The wires, with their names in the guide.
const WIRES: [(&str, Wire); 5] = [
    ("Chat Completions", Wire::OpenAiChat),
    ("Responses", Wire::OpenAiResponses),
    ("Anthropic Messages", Wire::Anthropic),
    ("Gemini", Wire::Gemini),
    ("Ollama", Wire::Ollama),
];
/// The ways to read a turn: the columns of the first table.
const READERS: [&str; 3] = ["bare turn", "`loop_stream`", "`Agent`"];

/// The encoders that write a token for a front end.
const ENCODERS: [(&str, &str); 4] = [
    ("a token as JSON, by `serde_json`", "json"),
    ("a token for a page, by `ui::sse`", "sse"),
    ("a token for the AI SDK, by `ui::ai_sdk`", "ai_sdk"),
    ("a token for AG-UI, by `ui::ag_ui`", "ag_ui"),
];

/// A task whose instructions are counted for one cell of a table.
#[derive(Clone, Debug)]
struct Task {
    row: String,
    column: &'static str,
    /// The arguments with which this program performs the task, and its minimum number of
    /// repetitions.
    args: [String; 3],
    base_count: u64,
    tolerance: f64,
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--growth", scenario, size] => {
            let size = size.parse().expect("a size");
            let (_, scenario) =
                SCENARIOS.into_iter().find(|(name, _)| *name == scenario).expect("a scenario");
            measured_part(&runtime(), scenario(size));
        }
        ["--task", kind, wire, reader, count] => {
            run_task(kind, wire, reader, count.parse().expect("a count"));
        }
        _ => measure_all(
            args.iter().any(|arg| arg == "--write"),
            args.iter().any(|arg| arg == "--required"),
        ),
    }
}

fn measure_all(writes: bool, is_required: bool) {
    find_valgrind(is_required);
    let tasks = all_tasks();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let measured: Vec<Cell> = thread::scope(|scope| {
        let parts = tasks.chunks(tasks.len().div_ceil(threads));
        let parts =
            parts.map(|tasks| scope.spawn(|| tasks.iter().map(Task::count).collect::<Vec<_>>()));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().expect("valgrind ran")).collect()
    });
    let is_as_in_the_guide = TABLES.check(&measured, writes);
    let too_fast = growing_scenarios();
    if too_fast > 0 {
        println!("{too_fast} scenarios grow by more than {MAX_GROWTH} times");
    }
    if too_fast > 0 || !is_as_in_the_guide {
        process::exit(1);
    }
}

fn all_tasks() -> Vec<Task> {
    let cell = |row: &str, column, args: [&str; 3], base_count| Task {
        row: row.to_owned(),
        column,
        args: args.map(str::to_owned),
        base_count,
        tolerance: TOLERANCE,
    };
    let mut cells = Vec::new();
    for (name, wire) in WIRES {
        for reader in READERS {
            let row = format!("a token, {name}");
            cells.push(cell(&row, reader, ["tokens", &wire.to_string(), reader], 1000));
        }
    }
    for (name, wire) in WIRES {
        for reader in &READERS[1..] {
            let row = format!("a turn with a tool call, {name}");
            cells.push(cell(&row, reader, ["turns", &wire.to_string(), reader], 20));
        }
    }
    let chat = &*Wire::OpenAiChat.to_string();
    cells.push(cell("a turn with a tool call, recorded", COUNT, ["recorded", chat, "`Agent`"], 20));
    let durable = "a turn with a tool call, durable with an engine in memory";
    cells.push(cell(durable, COUNT, ["durable", chat, "`Agent`"], 20));
    for tools in ["100", "1,000"] {
        let row = format!("a turn with a tool call, {tools} tools listed");
        cells.push(cell(&row, COUNT, ["tools", chat, tools], 20));
    }
    for (row, encoder) in ENCODERS {
        cells.push(cell(row, COUNT, ["encode", "", encoder], 1000));
    }
    for (size, base_count) in [("1", 20), ("10", 4), ("100", 1)] {
        for times in ["once", "50 times"] {
            let row = format!("an answer of {size} KB, read while it arrives and built {times}");
            cells.push(cell(&row, COUNT, ["partial", size, times], base_count));
        }
    }
    for runs in ["10", "1,000"] {
        for (by, name) in [("select_all", "`select_all`"), ("supervisor", "a `Supervisor`")] {
            let row = format!("a token of {runs} agents, polled by {name}");
            cells.push(cell(&row, COUNT, ["supervise", by, runs], 4_000));
        }
    }
    for store in ["memory", "JSON lines", "SQLite"] {
        let tolerance = if store == "memory" { TOLERANCE } else { TOLERANCE_OF_THREADS };
        let row = format!("an entry appended to {store}");
        cells.push(Task { tolerance, ..cell(&row, COUNT, ["append", "", store], 100) });
    }
    cells
}

impl Task {
    /// Counts the instructions per repetition, computed from two runs of which the second repeats
    /// three times as often.
    fn count(&self) -> Cell {
        let [few, many] = [self.base_count, 3 * self.base_count];
        let more = self.count_all(many) - self.count_all(few);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let (more, tasks) = (more as f64, (many - few) as f64);
        let Self { row, column, tolerance, .. } = self.clone();
        Cell { row, column, tolerance, count: more / tasks }
    }

    fn count_all(&self, count: u64) -> u64 {
        let count = count.to_string();
        let [kind, wire, reader] = &self.args;
        // A store uses a thread of its own, whose instructions count as well.
        count_instructions(&["--task", kind, wire, reader, &count], kind != "append")
    }
}

/// Prints the instructions of each growth scenario, and returns the number of scenarios that grow
/// too fast.
fn growing_scenarios() -> usize {
    let mut too_fast = 0;
    for (name, _) in SCENARIOS {
        let [small, large] = [50, 500]
            .map(|size: usize| count_instructions(&["--growth", name, &size.to_string()], true));
        too_fast += usize::from(large > MAX_GROWTH * small);
        let tenths = large * 10 / small;
        println!(
            "{name:42} {small:>12} at 50, {large:>13} at 500: {}.{} x",
            tenths / 10,
            tenths % 10
        );
    }
    too_fast
}

// The measured tasks.

/// Only instructions inside this function are counted, except for stores.
#[inline(never)]
fn measured_part(runtime: &Runtime, task: impl Future<Output = ()>) {
    runtime.block_on(task);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn run_task(kind: &str, wire: &str, reader: &str, count: usize) {
    let (runtime, by) = (runtime(), wire);
    let wire = || Wire::ALL.into_iter().find(|it| it.to_string() == wire).expect("a wire");
    let folder = env::temp_dir().join(format!("turnstream-instructions-{}", process::id()));
    match kind {
        "tokens" => {
            let model = CannedModel::new(wire(), 0, count);
            measured_part(&runtime, read(reader, &model));
        }
        "turns" => {
            let model = CannedModel::new(wire(), count, 1);
            measured_part(&runtime, read(reader, &model));
        }
        "recorded" => {
            fs::create_dir_all(&folder).expect("a folder");
            let recorder = Recorder::to_file(folder.join("run.jsonl")).expect("a recorder");
            let agent = agent(&CannedModel::new(wire(), count, 1)).with_recorder(&recorder);
            measured_part(&runtime, drain(&agent));
        }
        "durable" => {
            let agent = agent(&CannedModel::new(wire(), count, 1));
            let mut engine = MemoryEngine::new();
            measured_part(&runtime, async {
                let attempt = Attempt::run(&agent, "session", Vec::new(), PROMPT);
                let outcome = attempt.drive(&mut engine).await.expect("an outcome");
                assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
            });
        }
        "tools" => {
            let tools: usize = reader.replace(',', "").parse().expect("a number of tools");
            let agent = agent(&CannedModel::new(wire(), count, 1));
            let others = (1..tools).map(|n| add_tool(&format!("add_{n}")));
            let agent = agent.with_toolkit(Toolkit::new(others.chain([add_tool("add")])));
            measured_part(&runtime, drain(&agent));
        }
        "encode" => {
            let text = TurnEvent::TextDelta { index: 0, text: "streams ".into() };
            let events = stream::iter(vec![Event::Turn(text); count]);
            measured_part(&runtime, encode(reader, events));
        }
        "partial" => {
            let size: usize = by.parse().expect("a size");
            let builds = if reader == "once" { 1 } else { 50 };
            let values = PartialValues::of_answer().expect("the fields may be absent");
            let text = recipe(1000 * size);
            measured_part(&runtime, async { read_partials(&text, &values, builds, count) });
        }
        "supervise" => {
            let runs: usize = reader.replace(',', "").parse().expect("a number of runs");
            let agent = agent(&CannedModel::new(Wire::OpenAiChat, 0, count / runs));
            let runs = (0..runs).map(|_| agent.run_from(start(), PROMPT));
            let runs: Vec<_> = runs.collect();
            match by {
                "supervisor" => {
                    let mut supervisor = Supervisor::new();
                    for (key, run) in runs.into_iter().enumerate() {
                        let mut run = Some(run);
                        let start = move |_| run.take().expect("a run that is not restarted");
                        supervisor.insert(key, start).expect("a new key");
                    }
                    measured_part(&runtime, drain_stream(supervisor));
                }
                _ => measured_part(&runtime, drain_stream(stream::select_all(runs))),
            }
        }
        "append" => measured_part(&runtime, append(reader, count, &folder)),
        _ => panic!("there is no task {kind}"),
    }
    let _ = fs::remove_dir_all(&folder);
}

/// Reads all output of the model, and runs its calls.
async fn read(reader: &str, model: &CannedModel) {
    match reader {
        "bare turn" => {
            let mut turn = model.stream_turn(Request::new(start()).with_system(SYSTEM));
            while let Some(event) = turn.try_next().await.expect("a turn") {
                std::hint::black_box(event);
            }
        }
        "`Agent`" => drain(&agent(model)).await,
        _ => {
            let kit = Toolkit::new([add_tool("add")]);
            let mut events = std::pin::pin!(loop_stream(start(), |history| {
                let kit = &kit;
                let request =
                    Request::new(history.clone()).with_system(SYSTEM).with_tools(kit.specs());
                model.stream_turn(request).on_turn_complete(async move |turn| {
                    Ok(match turn.calls().is_empty() {
                        true => Steps::stop(),
                        false => kit.run(&history, &turn).then_next(|history| history),
                    })
                })
            }));
            while let Some(event) = events.try_next().await.expect("a loop") {
                std::hint::black_box(event);
            }
        }
    }
}

/// A list of ingredients whose values may be absent.
#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[derive(Default)]
struct Recipe {
    title: String,
    ingredients: Vec<Ingredient>,
}

#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(default)]
struct Ingredient {
    name: String,
    grams: Option<u32>,
}

/// The text of a [`Recipe`] with at least this number of bytes.
fn recipe(bytes: usize) -> String {
    let mut text = r#"{"title":"A soup for the winter","ingredients":["#.to_owned();
    while text.len() + 2 < bytes {
        text.push_str(r#"{"name":"white beans, cooked","grams":250},"#);
    }
    text.truncate(text.len() - 1);
    text + "]}"
}

/// Reads the text in tokens of four bytes, and builds the value at regular distances.
fn read_partials(text: &str, values: &PartialValues<Recipe>, builds: usize, count: usize) {
    let token = |token: &[u8]| {
        let text = std::str::from_utf8(token).expect("the text is ASCII").into();
        Event::Turn(TurnEvent::TextDelta { index: 0, text })
    };
    let events: Vec<Event> = text.as_bytes().chunks(4).map(token).collect();
    for _ in 0..count {
        let mut values = values.clone();
        for events in events.chunks(events.len().div_ceil(builds)) {
            for event in events {
                values.observe(event);
            }
            std::hint::black_box(values.next_partial().expect("it has grown"));
        }
    }
}

async fn drain_stream(items: impl Stream) {
    let mut items = std::pin::pin!(items);
    while let Some(item) = items.next().await {
        std::hint::black_box(item);
    }
}

/// Encodes the events for a front end, as the bytes that a server sends.
async fn encode(encoder: &str, events: impl Stream<Item = Event>) {
    let results = events.map(Ok);
    match encoder {
        "sse" => drain_body(Sse::new().respond(results).body).await,
        "ai_sdk" => drain_body(AiSdk::default().respond(results).body).await,
        "ag_ui" => {
            let body = br#"{"threadId":"t","runId":"r","messages":[]}"#;
            let limits = ClientLimits::default();
            let request = RunRequest::parse(Some("application/json"), body, &limits);
            drain_body(AgUi::new(&request.expect("a request")).respond(results).body).await;
        }
        _ => {
            results
                .for_each(|event: Result<Event, turnstream::Error>| {
                    std::hint::black_box(serde_json::to_vec(&event.expect("an event")).ok());
                    std::future::ready(())
                })
                .await;
        }
    }
}

async fn drain_body(body: impl Stream<Item = Result<Bytes, Infallible>>) {
    let mut body = std::pin::pin!(body);
    while let Some(bytes) = body.next().await {
        let _ = std::hint::black_box(bytes);
    }
}

async fn drain(agent: &Agent) {
    let mut run = agent.run(PROMPT);
    while let Some(event) = run.next().await {
        if let Event::Finished(outcome) = std::hint::black_box(event.expect("an event")) {
            assert_eq!(outcome.reason, EndReason::Completed, "{:?}", outcome.error);
        }
    }
}

async fn append(store: &str, count: usize, folder: &Path) {
    let store: Box<dyn Store> = match store {
        "memory" => Box::new(MemoryStore::new()),
        "JSON lines" => Box::new(JsonLinesStore::open(folder).expect("a store")),
        _ => {
            fs::create_dir_all(folder).expect("a folder");
            Box::new(SqliteStore::open(folder.join("sessions.db")).expect("a store"))
        }
    };
    for version in 0..count as u64 {
        let entry = Item::text("I read the module, to see what it exports.").into();
        store.append("session", version, vec![entry]).await.expect("an append");
    }
}
