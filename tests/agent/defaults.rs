//! The defaults in the guide are the actual ones, and each limit in the docs has a test.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use turnstream::agent::hook::{self, CallDecision};
use turnstream::agent::{Budget, Limits, Pool};
use turnstream::context::{Compaction, Compactor, Window};
use turnstream::http::Timeouts;
use turnstream::provider::openai_chat::Dialect;
use turnstream::provider::{Backoff, CircuitBreaker, Provider, Reply, Scripted};
use turnstream::request::Options;
use turnstream::stream::TurnStreamExt;
use turnstream::{Agent, Error, ErrorKind, History, Item, Tool, tool};

use turnstream_test_support::providers::user_request;
use turnstream_test_support::runs::reply_calling;
use turnstream_test_support::tools::{Counter, counted_tool, ok_tool, spec};

/// The section on limits of a page, or of the docs of a module.
fn limits_section(page: &str) -> String {
    let page = page.replace("//! ", "");
    let limits = page.split_once("# Limits\n").unwrap().1;
    let limits = limits.split_once("\n# ").map_or(limits, |(limits, _)| limits);
    limits.split_once("\n## ").map_or(limits, |(limits, _)| limits).to_owned()
}

/// The tables of the guide, and of the docs of two modules: each limit and its default.
fn documented_defaults() -> BTreeMap<String, String> {
    let pages = [
        include_str!("../../src/guide/defaults.md").to_owned(),
        limits_section(include_str!("../../src/provider/mod.rs")),
        limits_section(include_str!("../../src/ui/mod.rs")),
    ];
    let mut defaults = BTreeMap::new();
    for row in pages.iter().flat_map(|page| page.lines()) {
        if !row.starts_with("| ") || row.starts_with("| limit |") {
            continue;
        }
        let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
        let (limit, default) = (cells.next().unwrap(), cells.next().unwrap());
        assert_eq!(defaults.insert(limit, default), None, "two rows of one limit: {row}");
    }
    defaults
}

fn format_time(time: Duration) -> String {
    match (time, time.as_secs()) {
        (Timeouts::NEVER, _) => "no limit".to_owned(),
        (_, secs) if secs > 0 && secs.is_multiple_of(60) => format!("{} min", secs / 60),
        (_, secs) => format!("{secs} s"),
    }
}

fn format_bytes(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}

/// A number with a comma between each three digits.
fn format_count(count: impl std::fmt::Display) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

async fn elapsed_time(future: impl Future) -> String {
    let began = Instant::now();
    future.await;
    format_time(began.elapsed())
}

/// The number of consecutive failures that open a circuit breaker, and the time that it stays open.
async fn circuit_breaker_defaults() -> (u32, Duration) {
    let busy = || Reply::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = Scripted::from_fn(move |_, _| busy());
    let breaker = CircuitBreaker::new(model.clone());
    let mut failures = 0;
    loop {
        drop(breaker.stream_turn(user_request()).into_turn().await);
        match model.requests().len() {
            sent if sent > failures => failures = sent,
            _ => break,
        }
    }
    let opened = Instant::now();
    while model.requests().len() == failures {
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(breaker.stream_turn(user_request()).into_turn().await);
    }
    (u32::try_from(failures).unwrap(), opened.elapsed())
}

/// The time limit of a hook.
async fn hook_timeout() -> String {
    let slow = hook::before_tool(|_, _| std::future::pending::<CallDecision>());
    let model = Scripted::new([reply_calling("c", "t"), "fine".into()]);
    let agent = Agent::new(model).with_tool(ok_tool("t", &Counter::default())).with_hook(slow);
    elapsed_time(agent.run("go").outcome()).await
}

/// The time limit of a compactor.
async fn compactor_timeout() -> String {
    struct PendingCompactor;

    impl Compactor for PendingCompactor {
        fn compact(
            &self,
            _: &History,
        ) -> futures::future::BoxFuture<'static, Result<Option<Compaction>, Error>> {
            Box::pin(std::future::pending())
        }
    }

    let long = "a long text ".repeat(200);
    let agent = Agent::new(Scripted::new(["fine"]));
    let agent = agent.with_window(Window::new(100)).with_compactor(PendingCompactor);
    elapsed_time(agent.run(long).outcome()).await
}

/// The number of requests that a run may send.
async fn max_requests() -> usize {
    let model = Scripted::from_fn(|_, n| Reply::new().call("t", json!({ "n": n })));
    let agent = Agent::new(model.clone()).with_tool(ok_tool("t", &Counter::default()));
    agent.run("go").outcome().await;
    model.requests().len()
}

/// The number of requests that a sub-agent may send.
async fn sub_agent_max_requests() -> usize {
    let inner = Scripted::from_fn(|_, n| Reply::new().call("t", json!({ "n": n })));
    let child = Agent::new(inner.clone()).with_tool(ok_tool("t", &Counter::default()));
    let child = child.as_tool("child", "Helps").unwrap();
    let model =
        Scripted::new([Reply::new().call("child", json!({ "prompt": "go" })), "fine".into()]);
    Agent::new(model).with_tool(child).run("go").outcome().await;
    inner.requests().len()
}

/// The number of a turn's calls that run concurrently.
async fn max_concurrent_calls() -> usize {
    let counter = Counter::default();
    let waits = counted_tool("t", &counter, |_| std::future::pending());
    let calls = (0..20).fold(Reply::new(), |reply, _| reply.call("t", json!({})));
    let agent = Agent::new(Scripted::new([calls])).with_tool(waits);
    let run = agent.with_budget(Budget::new().with_time_limit(Duration::from_secs(5))).run("go");
    run.outcome().await;
    counter.started_count()
}

/// The size in bytes up to which the model receives a result untruncated.
async fn max_result_bytes() -> usize {
    let mut whole = 0;
    for bytes in 65_530..65_540 {
        let long = Tool::raw(spec("t"), move |_, _| async move { "x".repeat(bytes) }).unwrap();
        let model = Scripted::new([reply_calling("c", "t"), "fine".into()]);
        let outcome = Agent::new(model).with_tool(long).run("go").outcome().await;
        let result = outcome.new_items().iter().find_map(Item::as_tool_result).unwrap();
        if result.content.text() == "x".repeat(bytes) {
            whole = bytes;
        }
    }
    whole
}

#[tokio::test(start_paused = true)]
async fn the_guide_lists_the_actual_default_values() {
    let (backoff, limits, timeouts) = (Backoff::default(), Limits::default(), Timeouts::default());
    let millis = |time: Duration| match time.as_millis() {
        1_000 => "random, up to 1 s".to_owned(),
        millis => format!("random, up to {millis} ms"),
    };
    let (failures, rest) = circuit_breaker_defaults().await;
    let unlimited = |is_unlimited: bool| {
        assert!(is_unlimited);
        "no limit".to_owned()
    };
    let budget = Budget::new();
    let has_limits = format!("{budget:?}").contains("Some");
    let child = Agent::new(Scripted::new(["fine"])).as_tool("child", "Helps").unwrap();
    let percent = Window::new(100).threshold(&Options::default());
    let actual = BTreeMap::from([
        ("attempts per request, `Retry`", backoff.max_attempts.to_string()),
        ("delay before the second attempt", millis(backoff.base_delay)),
        ("delay before the third attempt", millis(backoff.base_delay.mul_f64(backoff.factor))),
        ("longest delay, unless the server requests one", format_time(backoff.max_delay)),
        ("longest delay that the server may request", format_time(backoff.max_retry_after)),
        (
            "consecutive incomplete turns that the agent requests again",
            limits.max_turn_retries.to_string(),
        ),
        ("consecutive failures that open a [`CircuitBreaker`]", failures.to_string()),
        ("how long an open circuit breaker rejects requests", format_time(rest)),
        ("time until the first byte of an answer", format_time(timeouts.first_byte)),
        ("time until the first output of a turn", format_time(timeouts.first_output)),
        ("time between two chunks of an answer", format_time(timeouts.idle)),
        ("time between two outputs of a turn", format_time(timeouts.idle_output)),
        ("time for a whole turn", format_time(timeouts.turn)),
        ("time for a tool call", format_time(tool::DEFAULT_TIMEOUT)),
        (
            "time for a sub-agent, an external call or an approval",
            format_time(child.timeout().unwrap()),
        ),
        ("how long a hook may take to answer", hook_timeout().await),
        ("length of a poll of a tool", format!("{} ms", Limits::default().long_poll.as_millis())),
        ("time for a compaction", compactor_timeout().await),
        ("time for a run", unlimited(!has_limits)),
        ("requests per run", max_requests().await.to_string()),
        ("requests per sub-agent run", sub_agent_max_requests().await.to_string()),
        (
            "consecutive unusable replies that the model is asked to correct",
            limits.max_corrections.to_string(),
        ),
        (
            "consecutive truncated texts that the model is asked to continue",
            limits.max_continuations.to_string(),
        ),
        (
            "consecutive turns with truncated calls that are requested again",
            limits.max_truncated_call_retries.to_string(),
        ),
        (
            "turns for which a tool choice that requires a call applies",
            limits.forced_tool_turns.to_string(),
        ),
        ("repeated turns before the model gets a message", limits.nudge_after_repeats.to_string()),
        ("repeated turns before the run ends", limits.end_after_repeats.to_string()),
        (
            "consecutive failed fixes before the run ends",
            match limits.end_after_failed_fixes {
                0 => "unlimited".to_owned(),
                limited => limited.to_string(),
            },
        ),
        ("concurrent calls per turn", max_concurrent_calls().await.to_string()),
        ("levels of nested sub-agents", limits.max_depth.to_string()),
        ("size of a turn's text, reasoning and arguments", format_bytes(limits.max_turn_bytes)),
        ("size of a result's text", format_bytes(max_result_bytes().await)),
        (
            "tokens that a pool reserves per answer if `max_output_tokens` is not set",
            format_count(Pool::new(1).tokens_per_response()),
        ),
        ("tokens, money and calls per run", unlimited(!has_limits)),
        ("part of the window at which it counts as nearly full", format!("{percent}%")),
        ("stop sequences in Chat Completions", Dialect::OPENAI.max_stop_sequences.to_string()),
    ]);
    assert_documented(actual);
}

fn assert_documented(actual: BTreeMap<&'static str, String>) {
    let documented = documented_defaults();
    for (limit, default) in actual {
        assert_eq!(documented.get(limit), Some(&default), "{limit}");
    }
}

#[test]
fn the_guide_lists_the_actual_limits_on_clients() {
    let limits = turnstream::ui::ClientLimits::default();
    assert_documented(BTreeMap::from([
        ("size of a client's request", format_bytes(limits.max_bytes)),
        ("messages in a client's request", format_count(limits.max_messages)),
        ("parts per message", format_count(limits.max_parts)),
        ("tools that a client may add", format_count(limits.max_tools)),
        ("size of an attached file", format_bytes(limits.max_file_bytes)),
    ]));
}

/// The number of limits that no test holds. Lower it with each test that is written.
const MAX_UNTESTED_LIMITS: usize = 22;

/// A row of the guide's tables: the heading of its section, and its first cell.
type Row = (String, String);

/// The rows of the guide's tables in the order of the page.
fn documented_rows(guide: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut section = "";
    for line in guide.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        } else if let Some(row) = line.strip_prefix("| ") {
            let limit = row.split('|').next().unwrap().trim();
            if limit != "limit" {
                rows.push((section.to_owned(), limit.to_owned()));
            }
        }
    }
    rows
}

/// Whether a file contains a test with this name. A function without a `#[test]` attribute is a
/// test if the file, or the `mod.rs` next to it, also contains its name in the list of a macro.
fn has_test(root: &Path, file: &str, name: &str) -> bool {
    let read = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let source = read(Path::new(file));
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let starts = [format!("fn {name}("), format!("fn {name}<")];
    let is_start = |line: &&str| starts.iter().any(|start| line.contains(start));
    let Some(at) = lines.iter().position(is_start) else { return false };
    let mut attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
    if attributes.any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test")) {
        return true;
    }
    let is_listed = |line: &str| {
        let last_word = line.trim_end_matches(',').rsplit(' ').next();
        !line.starts_with("//") && !line.contains('(') && last_word == Some(name)
    };
    let list = read(&Path::new(file).with_file_name("mod.rs"));
    lines.iter().copied().chain(list.lines().map(str::trim)).any(is_listed)
}

/// The faults in the list of the limits' tests, and the limits that no test holds.
fn check_limit_tests(root: &Path, guide: &str, list: &str) -> (Vec<String>, Vec<Row>) {
    let (mut faults, mut untested) = (Vec::new(), Vec::new());
    let mut rows = documented_rows(guide);
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        let (&[section, limit, tests] | &[section, limit, tests, _]) = &cells[..] else {
            faults.push(format!("not three or four columns: {line}"));
            continue;
        };
        let row = (section.to_owned(), limit.to_owned());
        // Of several equal rows, each line belongs to one.
        match rows.iter().position(|other| *other == row) {
            Some(at) => drop(rows.remove(at)),
            None => faults.push(format!("{section}: the guide has no row `{limit}`")),
        }
        if tests == "-" {
            if cells.get(3).is_none_or(|reason| reason.is_empty()) {
                faults.push(format!("{section}: `{limit}` has neither a test nor a reason"));
            }
            untested.push(row);
            continue;
        }
        for test in tests.split(' ') {
            let is_test =
                test.rsplit_once(':').is_some_and(|(file, name)| has_test(root, file, name));
            if !is_test {
                faults.push(format!("{section}: `{limit}`: there is no test {test}"));
            }
        }
    }
    let missing = rows.iter();
    faults.extend(missing.map(|(section, limit)| format!("{section}: no line for `{limit}`")));
    (faults, untested)
}

#[test]
fn each_limit_of_the_guide_has_a_test_or_a_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut guide = include_str!("../../src/guide/defaults.md").to_owned();
    // Some limits are in the docs of their modules, and those of the other crates on pages of their
    // own.
    for (name, page) in [
        ("Context", "src/context/mod.rs"),
        ("Durable runs", "crates/restate/README.md"),
        ("Durable runs", "src/durable/mod.rs"),
        ("Hubs and front ends", "src/hub/mod.rs"),
        ("Hubs and front ends", "src/ui/mod.rs"),
        ("MCP servers", "crates/mcp/src/guide/mcp.md"),
        ("PostgreSQL", "crates/postgres/src/guide/postgres.md"),
        ("Redis", "crates/redis/src/lib.rs"),
        ("Runs", "src/agent/mod.rs"),
        ("Sessions", "src/session/mod.rs"),
        ("SQLite", "crates/sqlite/src/guide/sqlite.md"),
        ("Tools", "src/tool/mod.rs"),
        ("Wires", "src/provider/mod.rs"),
    ] {
        let limits = limits_section(&fs::read_to_string(root.join(page)).unwrap());
        guide = format!("{guide}\n## {name}\n{limits}");
    }
    let (faults, untested) = check_limit_tests(root, &guide, include_str!("limits.tsv"));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    println!("{} limits have no test: {untested:#?}", untested.len());
    let count = untested.len();
    assert!(count <= MAX_UNTESTED_LIMITS, "{count} limits have no test: {untested:#?}");
}

#[test]
fn a_fault_in_the_list_of_limit_tests_is_named() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide =
        "## A\n\n| limit | default |\n|---|---|\n| one | 1 |\n| one | 2 |\n## B\n| two | 3 |\n";
    let check = |lines: &[&str]| check_limit_tests(root, guide, &lines.join("\n"));
    let test = "tests/agent/defaults.rs:a_fault_in_the_list_of_limit_tests_is_named";
    let one = format!("A\tone\t{test}");
    let two = format!("B\ttwo\t{test}");
    assert_eq!(check(&["# a comment", &one, &one, &two]), (vec![], vec![]));
    let untested = vec![("B".to_owned(), "two".to_owned())];
    assert_eq!(check(&[&one, &one, "B\ttwo\t-\twhy"]), (vec![], untested));

    let faults = |lines: &[&str]| check(lines).0.join("\n");
    assert_eq!(faults(&[&one, &two]), "A: no line for `one`");
    assert_eq!(faults(&[&one, &one, &one, &two]), "A: the guide has no row `one`");
    assert_eq!(faults(&[&one, &one, "B\ttwo\t-"]), "B: `two` has neither a test nor a reason");
    assert_eq!(faults(&[&one, &one, &two, "B\ttwo"]), "not three or four columns: B\ttwo");
    for other in ["tests/agent/defaults.rs:has_test", "tests/agent/none.rs:has_test", "has_test"] {
        let line = format!("B\ttwo\t{test} {other}");
        let fault = format!("B: `two`: there is no test {other}");
        assert_eq!(faults(&[&one, &one, &line]), fault);
    }
}
