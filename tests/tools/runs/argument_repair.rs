//! Arguments that do not match the schema, and a policy that repairs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::StreamExt;
use serde_json::json;
use turnstream::item::{ResultKind, ToolResult};
use turnstream::provider::Reply;
use turnstream::tool::{
    Permission, PreparedCall, Tool, ToolHandler, ToolOutput, ToolRunOutcome, ToolSpec, ToolUpdate,
    Verdict,
};
use turnstream::{ErrorKind, Event, Toolkit};

use super::{
    ScriptedPolicy, only_result, sleep_tool, spec, start_run, summarize_remaining, turn_from_reply,
};

const FIVE_MS_ARGS: &str = "{\"ms\":5}";

/// A call of `name` with these arguments, with its name as its id.
fn call_reply(name: &str, arguments: &str) -> Reply {
    Reply::new().call_raw(name, name, arguments)
}

fn repairing_policy(repairs: &[(&'static str, &'static str)]) -> ScriptedPolicy {
    ScriptedPolicy::configured(|book| book.repairs.extend(repairs.iter().copied()))
}

/// The result of one call of `a` with this policy.
async fn result_with_policy(arguments: &str, rules: &ScriptedPolicy) -> ToolResult {
    let kit = Toolkit::new([sleep_tool("a")]);
    only_result(
        start_run(&kit, &turn_from_reply(call_reply("a", arguments)).await)
            .with_policy(rules.clone()),
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn repaired_arguments_pass_the_policy_and_run_and_the_history_keeps_the_original() {
    for wrong in ["{\"ms\":", "[5]", "\"{}\"", "{\"ms\":\"5\"}", "{\"more\":1}"] {
        let rules = repairing_policy(&[(wrong, FIVE_MS_ARGS)]);
        let kit = Toolkit::new([sleep_tool("a")]);
        let mut tools = start_run(&kit, &turn_from_reply(call_reply("a", wrong)).await)
            .with_policy(rules.clone());
        assert_eq!(summarize_remaining(&mut tools).await, ["start a", "Ok a"], "{wrong}");
        assert_eq!(rules.log(), ["repair a", "before a", "after a"]);
        let ToolRunOutcome { history, results, .. } = tools.finish().unwrap();
        assert_eq!(results[0].content.text(), FIVE_MS_ARGS);
        let call = history.iter().find_map(turnstream::Item::as_tool_call).unwrap();
        assert_eq!(call.arguments, wrong);
    }
}

#[tokio::test(start_paused = true)]
async fn valid_arguments_are_not_passed_to_the_repair() {
    for fine in ["", "null", "{}", FIVE_MS_ARGS] {
        let rules = repairing_policy(&[(fine, "[]")]);
        assert_eq!(result_with_policy(fine, &rules).await.kind, ResultKind::Ok);
        assert_eq!(rules.log(), ["before a", "after a"]);
    }
}

#[tokio::test]
async fn an_argument_error_quotes_only_a_short_part_of_the_arguments() {
    let long = "\u{e9}".repeat(30_000);
    let refusing: fn(&str) -> Result<(), String> =
        |arguments| Err(format!("refused: {arguments} (at `x`)"));
    let strict = ToolSpec {
        parameters: json!({ "type": "object", "properties": { "x": { "enum": ["a"] } } }).into(),
        ..spec("strict")
    };
    let strict = Tool::raw(strict, |_, _| async { "ran" }).unwrap();
    let checking = |check: fn(&str) -> Result<(), String>| {
        Tool::from_handler(CheckingHandler { spec: spec("checking"), check_arguments: check })
    };
    let panicking: fn(&str) -> Result<(), String> = |arguments| panic!("{arguments}");
    let arguments = json!({ "x": long }).to_string();
    let kit = |tool: Tool| Toolkit::new([tool]);
    let cases = [
        (kit(strict.clone()), "strict", arguments.clone(), "(at `x`)"),
        (kit(checking(refusing)), "checking", arguments.clone(), "(at `x`)"),
        (kit(checking(panicking)), "checking", arguments.clone(), "panicked"),
        (kit(strict.clone()), long.as_str(), "{}".to_owned(), "There is no tool"),
        (
            kit(strict).with_dry_run(true),
            "strict",
            json!({ "x": "a", "y": long }).to_string(),
            "dry run",
        ),
    ];
    for (kit, name, arguments, part) in cases {
        let result =
            only_result(start_run(&kit, &turn_from_reply(call_reply(name, &arguments)).await))
                .await;
        let text = result.content.text();
        assert!(text.contains(part), "{}", &text[..200]);
        assert!(text.len() < 2500, "{part}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn without_a_repair_the_error_result_states_the_mismatch() {
    let plain = only_result(start_run(
        &Toolkit::new([sleep_tool("a")]),
        &turn_from_reply(call_reply("a", "[]")).await,
    ))
    .await;
    let rules = ScriptedPolicy::default();
    assert_eq!(result_with_policy("[]", &rules).await, plain);
    assert_eq!(plain.kind, ResultKind::InvalidArguments);
    assert_eq!(rules.log(), ["repair a", "after a"]);
}

#[tokio::test]
async fn an_invalid_repair_is_checked_once_and_the_error_cites_the_original_arguments() {
    for useless in ["{", "{\"ms\":\"x\"}", "[]"] {
        let rules = repairing_policy(&[("[]", useless), ("{", FIVE_MS_ARGS)]);
        let result = result_with_policy("[]", &rules).await;
        assert_eq!(result.kind, ResultKind::InvalidArguments);
        assert!(result.content.text().contains("not a JSON object"), "{result:?}");
        assert_eq!(rules.log(), ["repair a", "after a"], "{useless}");
    }
}

#[tokio::test]
async fn only_calls_with_invalid_arguments_are_passed_to_the_repair() {
    let kit = Toolkit::new([sleep_tool("a")]).first_call_only();
    let reply = call_reply("nobody", "[]").call_raw("a", "a", "[]");
    let rules = repairing_policy(&[("[]", "{}")]);
    let mut tools = start_run(&kit, &turn_from_reply(reply).await).with_policy(rules.clone());
    assert_eq!(summarize_remaining(&mut tools).await, ["UnknownTool nobody", "Skipped a"]);
    let mut tools = start_run(&kit, &turn_from_reply(call_reply("a", "[]")).await)
        .with_refusal(ResultKind::Skipped, "no")
        .with_policy(rules.clone());
    assert_eq!(summarize_remaining(&mut tools).await, ["Skipped a"]);
    assert!(!rules.log().iter().any(|line| line.starts_with("repair")));
}

#[tokio::test(start_paused = true)]
async fn approval_is_requested_for_the_repaired_arguments() {
    let kit = Toolkit::new([sleep_tool("a").requires_approval()]);
    let rules = repairing_policy(&[("[]", FIVE_MS_ARGS)]);
    let mut tools =
        start_run(&kit, &turn_from_reply(call_reply("a", "[]")).await).with_policy(rules.clone());
    let shown = Event::from(tools.next().await.unwrap()).approval_request().unwrap();
    assert_eq!(shown.arguments, FIVE_MS_ARGS);
    rules.script().verdicts.insert("a", Verdict::Approve);
    assert_eq!(only_result(tools).await.content.text(), FIVE_MS_ARGS);
}

#[tokio::test(start_paused = true)]
async fn a_pending_call_has_its_repaired_arguments_and_a_resume_repairs_again() {
    let kit =
        Toolkit::new([sleep_tool("a").requires_approval(), Tool::external(spec("out")).unwrap()]);
    let rules = repairing_policy(&[("[]", FIVE_MS_ARGS)]);
    let reply = call_reply("a", "[]").call_raw("out", "out", "[]");
    let mut tools = start_run(&kit, &turn_from_reply(reply).await).with_policy(rules.clone());
    summarize_remaining(&mut tools).await;
    let ToolRunOutcome { history, pending, .. } = tools.finish().unwrap();
    assert!(pending.iter().all(|call| call.arguments == FIVE_MS_ARGS), "{pending:?}");
    assert!(history.unanswered_calls().iter().all(|call| call.arguments == "[]"));

    rules.script().log.clear();
    rules.script().verdicts.insert("a", Verdict::Approve);
    rules.script().verdicts.insert("out", Verdict::Output(ToolOutput::ok("elsewhere")));
    let mut tools = kit.resume(&history).unwrap().with_policy(rules.clone());
    summarize_remaining(&mut tools).await;
    let texts = tools.finish().unwrap().results.into_iter().map(|result| result.content.text());
    assert_eq!(texts.collect::<Vec<_>>(), [FIVE_MS_ARGS, "elsewhere"]);
    let repaired = rules.log().into_iter().filter(|line| line.starts_with("repair"));
    assert_eq!(repaired.collect::<Vec<_>>(), ["repair a", "repair out"]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_rewrite_repaired_arguments() {
    let rules = repairing_policy(&[("[]", FIVE_MS_ARGS)]);
    rules
        .script()
        .permissions
        .insert("a", Permission { arguments: Some("{\"ms\":6}".into()), ..Permission::allow() });
    assert_eq!(result_with_policy("[]", &rules).await.content.text(), "{\"ms\":6}");
    rules
        .script()
        .permissions
        .insert("a", Permission { arguments: Some("[]".into()), ..Permission::allow() });
    let result = result_with_policy("[]", &rules).await;
    assert_eq!(result.kind, ResultKind::Error, "a rewrite is not repaired: {result:?}");
}

#[tokio::test]
async fn a_dry_run_reports_the_repaired_arguments() {
    let kit = Toolkit::new([sleep_tool("a")]).with_dry_run(true);
    let tools = start_run(&kit, &turn_from_reply(call_reply("a", "[]")).await)
        .with_policy(repairing_policy(&[("[]", FIVE_MS_ARGS)]));
    let result = only_result(tools).await;
    assert!(result.content.text().contains(FIVE_MS_ARGS), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_or_a_panic_in_a_repair_ends_the_run() {
    let kit = Toolkit::new([sleep_tool("a"), sleep_tool("b")]);
    for panics in [false, true] {
        let rules = repairing_policy(&[]);
        let place = "repair b";
        if panics {
            rules.script().panicking_steps.insert(place);
        } else {
            rules.script().failing_steps.insert(place);
        }
        let turn = turn_from_reply(call_reply("a", FIVE_MS_ARGS).call_raw("b", "b", "[]")).await;
        let mut tools = start_run(&kit, &turn).with_policy(rules);
        assert_eq!(summarize_remaining(&mut tools).await, ["start a"], "what runs is dropped");
        let error = tools.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.message().contains(if panics { "boom" } else { place }), "{error}");
    }
}

/// A handler that panics on any arguments but the first, which do not match.
struct PanickingHandler(ToolSpec, Arc<AtomicUsize>);

impl ToolHandler for PanickingHandler {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        self.1.fetch_add(1, Ordering::Relaxed);
        match arguments {
            "{\"first\":1}" => Err("not this".to_owned()),
            _ => std::panic::resume_unwind(Box::new("ouch")),
        }
    }
}

#[tokio::test]
async fn a_tool_that_panics_on_arguments_is_not_called_again() {
    for (arguments, asked) in [("{}", 1), ("{\"first\":1}", 2)] {
        let checks = Arc::<AtomicUsize>::default();
        let kit = Toolkit::new([Tool::from_handler(PanickingHandler(spec("a"), checks.clone()))]);
        let rules = repairing_policy(&[("{\"first\":1}", "{}")]);
        let tools =
            start_run(&kit, &turn_from_reply(call_reply("a", arguments)).await).with_policy(rules);
        let result = only_result(tools).await;
        assert_eq!(result.kind, ResultKind::Panic, "{result:?}");
        assert_eq!(checks.load(Ordering::Relaxed), asked);
    }
}

/// A handler that validates its arguments with a function.
struct CheckingHandler {
    spec: ToolSpec,
    check_arguments: fn(&str) -> Result<(), String>,
}

impl ToolHandler for CheckingHandler {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        (self.check_arguments)(arguments).map(|()| panic!("no arguments fit"))
    }
}

/// Counts how many times it parses arguments, and how many of its calls have started.
#[derive(Clone)]
struct CountingHandler {
    spec: ToolSpec,
    prepare_count: Arc<AtomicUsize>,
    start_count: Arc<AtomicUsize>,
}

impl CountingHandler {
    fn new() -> Self {
        Self { spec: spec("a"), prepare_count: Arc::default(), start_count: Arc::default() }
    }

    fn counts(&self) -> [usize; 2] {
        [&self.prepare_count, &self.start_count].map(|count| count.load(Ordering::Relaxed))
    }
}

impl ToolHandler for CountingHandler {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        self.prepare_count.fetch_add(1, Ordering::Relaxed);
        if arguments.contains("wrong") {
            return Err("wrong".to_owned());
        }
        let (begun, output) = (Arc::clone(&self.start_count), arguments.to_owned());
        Ok(PreparedCall::new(move |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            futures::stream::iter([ToolUpdate::output(output)]).boxed()
        }))
    }
}

const MISMATCHED_ARGS: &str = "{\"wrong\":1}";

#[tokio::test(start_paused = true)]
async fn each_set_of_arguments_is_parsed_once() {
    let fitting = |permit: Permission| {
        ScriptedPolicy::configured(|book| drop(book.permissions.insert("a", permit)))
    };
    let judged =
        |verdict| ScriptedPolicy::configured(|book| drop(book.verdicts.insert("a", verdict)));
    let cases = [
        ("it runs", FIVE_MS_ARGS, ScriptedPolicy::default(), [1, 1]),
        ("it has none", "", ScriptedPolicy::default(), [1, 1]),
        ("they are no JSON", "{", ScriptedPolicy::default(), [0, 0]),
        ("they do not fit", MISMATCHED_ARGS, ScriptedPolicy::default(), [1, 0]),
        (
            "they are repaired",
            MISMATCHED_ARGS,
            repairing_policy(&[(MISMATCHED_ARGS, FIVE_MS_ARGS)]),
            [2, 1],
        ),
        (
            "they are rewritten",
            FIVE_MS_ARGS,
            fitting(Permission { arguments: Some("{}".into()), ..Permission::allow() }),
            [2, 1],
        ),
        ("it is denied", FIVE_MS_ARGS, fitting(Permission::deny("no")), [1, 0]),
        ("it waits", FIVE_MS_ARGS, fitting(Permission::require_approval()), [1, 0]),
        ("it is answered", FIVE_MS_ARGS, judged(Verdict::output("so")), [1, 1]),
    ];
    for (what, arguments, rules, counts) in cases {
        for audited in [false, true] {
            let tool = CountingHandler::new();
            let kit = Toolkit::new([Tool::from_handler(tool.clone())]);
            let kit = if audited { kit.with_rationale() } else { kit };
            let mut tools = start_run(&kit, &turn_from_reply(call_reply("a", arguments)).await)
                .with_policy(rules.clone());
            summarize_remaining(&mut tools).await;
            drop(tools);
            assert_eq!(tool.counts(), counts, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_starts_with_its_already_parsed_arguments() {
    for (verdict, begun) in [(Verdict::Approve, 1), (Verdict::deny("no"), 0)] {
        let tool = CountingHandler::new();
        let kit = Toolkit::new([Tool::from_handler(tool.clone()).requires_approval()]);
        let rules = ScriptedPolicy::configured(|book| book.waits_for_verdicts = true);
        let mut tools = start_run(&kit, &turn_from_reply(call_reply("a", FIVE_MS_ARGS)).await)
            .with_policy(rules.clone());
        assert!(Event::from(tools.next().await.unwrap()).approval_request().is_some());
        assert_eq!(tool.counts(), [1, 0]);
        rules.script().verdicts.insert("a", verdict);
        summarize_remaining(&mut tools).await;
        assert_eq!(tool.counts(), [1, begun]);
    }
}

/// Panics when a call starts, or when a call is dropped before it started.
struct PanickingCallHandler {
    spec: ToolSpec,
    panics_on_drop: bool,
}

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("dropped"));
    }
}

impl ToolHandler for PanickingCallHandler {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, _: &str) -> Result<PreparedCall, String> {
        let bomb = self.panics_on_drop.then_some(PanicOnDrop);
        Ok(PreparedCall::new(move |_| {
            let _bomb = bomb;
            std::panic::resume_unwind(Box::new("begun"))
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_when_a_call_starts_or_is_dropped_unstarted_is_contained() {
    for (when_dropped, permit, kind) in
        [(false, Permission::allow(), "Panic a"), (true, Permission::deny("no"), "Denied a")]
    {
        let tool = Tool::from_handler(PanickingCallHandler {
            spec: spec("a"),
            panics_on_drop: when_dropped,
        });
        let kit = Toolkit::new([tool, sleep_tool("b")]);
        let turn =
            turn_from_reply(call_reply("a", FIVE_MS_ARGS).call_raw("b", "b", FIVE_MS_ARGS)).await;
        let rules = ScriptedPolicy::configured(|book| drop(book.permissions.insert("a", permit)));
        let mut tools = start_run(&kit, &turn).with_policy(rules);
        assert_eq!(summarize_remaining(&mut tools).await, [kind, "start b", "Ok b"]);
    }
}
