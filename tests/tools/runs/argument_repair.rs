//! Arguments that do not fit, and a gate that repairs them.

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

use super::{Rules, nap, only_result, run, shapes, spec, turn};

const FIVE: &str = "{\"ms\":5}";

/// A call of `name` with these arguments, under its name as id.
fn raw(name: &str, arguments: &str) -> Reply {
    Reply::new().call_raw(name, name, arguments)
}

fn rules(repairs: &[(&'static str, &'static str)]) -> Rules {
    Rules::with(|book| book.repairs.extend(repairs.iter().copied()))
}

/// The result of one call of `a` under these rules.
async fn result_of(arguments: &str, rules: &Rules) -> ToolResult {
    let kit = Toolkit::new([nap("a")]);
    only_result(run(&kit, &turn(raw("a", arguments)).await).with_policy(rules.clone())).await
}

#[tokio::test(start_paused = true)]
async fn repaired_arguments_pass_the_policy_and_run_and_the_history_keeps_the_original() {
    for wrong in ["{\"ms\":", "[5]", "\"{}\"", "{\"ms\":\"5\"}", "{\"more\":1}"] {
        let rules = rules(&[(wrong, FIVE)]);
        let kit = Toolkit::new([nap("a")]);
        let mut tools = run(&kit, &turn(raw("a", wrong)).await).with_policy(rules.clone());
        assert_eq!(shapes(&mut tools).await, ["start a", "Ok a"], "{wrong}");
        assert_eq!(rules.log(), ["repair a", "before a", "after a"]);
        let ToolRunOutcome { history, results, .. } = tools.finish().unwrap();
        assert_eq!(results[0].content.text(), FIVE);
        let call = history.iter().find_map(turnstream::Item::as_tool_call).unwrap();
        assert_eq!(call.arguments, wrong);
    }
}

#[tokio::test(start_paused = true)]
async fn valid_arguments_are_not_passed_to_the_repair() {
    for fine in ["", "null", "{}", FIVE] {
        let rules = rules(&[(fine, "[]")]);
        assert_eq!(result_of(fine, &rules).await.kind, ResultKind::Ok);
        assert_eq!(rules.log(), ["before a", "after a"]);
    }
}

#[tokio::test]
async fn an_argument_error_quotes_only_a_short_part_of_the_arguments() {
    let long = "\u{e9}".repeat(30_000);
    let refusing: fn(&str) -> Result<(), String> =
        |arguments| Err(format!("refused: {arguments} (at `x`)"));
    let strict = ToolSpec {
        parameters: json!({ "type": "object", "properties": { "x": { "enum": ["a"] } } }),
        ..spec("strict")
    };
    let strict = Tool::raw(strict, |_, _| async { "ran" }).unwrap();
    let checking = |check: fn(&str) -> Result<(), String>| {
        Tool::from_handler(Checking { spec: spec("checking"), check })
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
        let result = only_result(run(&kit, &turn(raw(name, &arguments)).await)).await;
        let text = result.content.text();
        assert!(text.contains(part), "{}", &text[..200]);
        assert!(text.len() < 2500, "{part}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn without_a_repair_the_error_result_states_the_mismatch() {
    let plain = only_result(run(&Toolkit::new([nap("a")]), &turn(raw("a", "[]")).await)).await;
    let rules = Rules::default();
    assert_eq!(result_of("[]", &rules).await, plain);
    assert_eq!(plain.kind, ResultKind::InvalidArguments);
    assert_eq!(rules.log(), ["repair a", "after a"]);
}

#[tokio::test]
async fn an_invalid_repair_is_checked_once_and_the_error_cites_the_original_arguments() {
    for useless in ["{", "{\"ms\":\"x\"}", "[]"] {
        let rules = rules(&[("[]", useless), ("{", FIVE)]);
        let result = result_of("[]", &rules).await;
        assert_eq!(result.kind, ResultKind::InvalidArguments);
        assert!(result.content.text().contains("not a JSON object"), "{result:?}");
        assert_eq!(rules.log(), ["repair a", "after a"], "{useless}");
    }
}

#[tokio::test]
async fn only_calls_with_invalid_arguments_are_passed_to_the_repair() {
    let kit = Toolkit::new([nap("a")]).first_call_only();
    let reply = raw("nobody", "[]").call_raw("a", "a", "[]");
    let rules = rules(&[("[]", "{}")]);
    let mut tools = run(&kit, &turn(reply).await).with_policy(rules.clone());
    assert_eq!(shapes(&mut tools).await, ["UnknownTool nobody", "Skipped a"]);
    let mut tools = run(&kit, &turn(raw("a", "[]")).await)
        .with_refusal(ResultKind::Skipped, "no")
        .with_policy(rules.clone());
    assert_eq!(shapes(&mut tools).await, ["Skipped a"]);
    assert!(!rules.log().iter().any(|line| line.starts_with("repair")));
}

#[tokio::test(start_paused = true)]
async fn approval_is_requested_for_the_repaired_arguments() {
    let kit = Toolkit::new([nap("a").requires_approval()]);
    let rules = rules(&[("[]", FIVE)]);
    let mut tools = run(&kit, &turn(raw("a", "[]")).await).with_policy(rules.clone());
    let shown = Event::from(tools.next().await.unwrap()).as_approval_request().cloned().unwrap();
    assert_eq!(shown.arguments, FIVE);
    rules.book().verdicts.insert("a", Verdict::Approve);
    assert_eq!(only_result(tools).await.content.text(), FIVE);
}

#[tokio::test(start_paused = true)]
async fn a_pending_call_has_its_repaired_arguments_and_a_resume_repairs_again() {
    let kit = Toolkit::new([nap("a").requires_approval(), Tool::external(spec("out")).unwrap()]);
    let rules = rules(&[("[]", FIVE)]);
    let reply = raw("a", "[]").call_raw("out", "out", "[]");
    let mut tools = run(&kit, &turn(reply).await).with_policy(rules.clone());
    shapes(&mut tools).await;
    let ToolRunOutcome { history, pending, .. } = tools.finish().unwrap();
    assert!(pending.iter().all(|call| call.arguments == FIVE), "{pending:?}");
    assert!(history.unanswered_calls().iter().all(|call| call.arguments == "[]"));

    rules.book().log.clear();
    rules.book().verdicts.insert("a", Verdict::Approve);
    rules.book().verdicts.insert("out", Verdict::Output(ToolOutput::ok("elsewhere")));
    let mut tools = kit.resume(&history).unwrap().with_policy(rules.clone());
    shapes(&mut tools).await;
    let texts = tools.finish().unwrap().results.into_iter().map(|result| result.content.text());
    assert_eq!(texts.collect::<Vec<_>>(), [FIVE, "elsewhere"]);
    let repaired = rules.log().into_iter().filter(|line| line.starts_with("repair"));
    assert_eq!(repaired.collect::<Vec<_>>(), ["repair a", "repair out"]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_rewrite_repaired_arguments() {
    let rules = rules(&[("[]", FIVE)]);
    rules.book().permits.insert("a", Permission::allow().with_arguments("{\"ms\":6}"));
    assert_eq!(result_of("[]", &rules).await.content.text(), "{\"ms\":6}");
    rules.book().permits.insert("a", Permission::allow().with_arguments("[]"));
    let result = result_of("[]", &rules).await;
    assert_eq!(result.kind, ResultKind::Error, "a rewrite is not repaired: {result:?}");
}

#[tokio::test]
async fn a_dry_run_reports_the_repaired_arguments() {
    let kit = Toolkit::new([nap("a")]).with_dry_run(true);
    let tools = run(&kit, &turn(raw("a", "[]")).await).with_policy(rules(&[("[]", FIVE)]));
    let result = only_result(tools).await;
    assert!(result.content.text().contains(FIVE), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_or_a_panic_in_a_repair_ends_the_run() {
    let kit = Toolkit::new([nap("a"), nap("b")]);
    for panics in [false, true] {
        let rules = rules(&[]);
        let place = "repair b";
        if panics {
            rules.book().panics.insert(place);
        } else {
            rules.book().fails.insert(place);
        }
        let turn = turn(raw("a", FIVE).call_raw("b", "b", "[]")).await;
        let mut tools = run(&kit, &turn).with_policy(rules);
        assert_eq!(shapes(&mut tools).await, ["start a"], "what runs is dropped");
        let error = tools.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.message().contains(if panics { "boom" } else { place }), "{error}");
    }
}

/// Panics over any arguments but the first, which do not fit.
struct Touchy(ToolSpec, Arc<AtomicUsize>);

impl ToolHandler for Touchy {
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
        let kit = Toolkit::new([Tool::from_handler(Touchy(spec("a"), checks.clone()))]);
        let rules = rules(&[("{\"first\":1}", "{}")]);
        let tools = run(&kit, &turn(raw("a", arguments)).await).with_policy(rules);
        let result = only_result(tools).await;
        assert_eq!(result.kind, ResultKind::Panic, "{result:?}");
        assert_eq!(checks.load(Ordering::Relaxed), asked);
    }
}

/// Says what a function says of its arguments.
struct Checking {
    spec: ToolSpec,
    check: fn(&str) -> Result<(), String>,
}

impl ToolHandler for Checking {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        (self.check)(arguments).map(|()| panic!("no arguments fit"))
    }
}

/// Counts how often it reads arguments, and those calls of it that have begun.
#[derive(Clone)]
struct Counting {
    spec: ToolSpec,
    read: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
}

impl Counting {
    fn new() -> Self {
        Self { spec: spec("a"), read: Arc::default(), begun: Arc::default() }
    }

    fn counts(&self) -> [usize; 2] {
        [&self.read, &self.begun].map(|count| count.load(Ordering::Relaxed))
    }
}

impl ToolHandler for Counting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        self.read.fetch_add(1, Ordering::Relaxed);
        if arguments.contains("wrong") {
            return Err("wrong".to_owned());
        }
        let (begun, output) = (Arc::clone(&self.begun), arguments.to_owned());
        Ok(PreparedCall::new(move |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            futures::stream::iter([ToolUpdate::output(output)]).boxed()
        }))
    }
}

const WRONG: &str = "{\"wrong\":1}";

#[tokio::test(start_paused = true)]
async fn each_set_of_arguments_is_parsed_once() {
    let fitting = |permit: Permission| Rules::with(|book| drop(book.permits.insert("a", permit)));
    let judged = |verdict| Rules::with(|book| drop(book.verdicts.insert("a", verdict)));
    let cases = [
        ("it runs", FIVE, Rules::default(), [1, 1]),
        ("it has none", "", Rules::default(), [1, 1]),
        ("they are no JSON", "{", Rules::default(), [0, 0]),
        ("they do not fit", WRONG, Rules::default(), [1, 0]),
        ("they are repaired", WRONG, rules(&[(WRONG, FIVE)]), [2, 1]),
        ("they are rewritten", FIVE, fitting(Permission::allow().with_arguments("{}")), [2, 1]),
        ("it is denied", FIVE, fitting(Permission::deny("no")), [1, 0]),
        ("it waits", FIVE, fitting(Permission::require_approval()), [1, 0]),
        ("it is answered", FIVE, judged(Verdict::output("so")), [1, 1]),
    ];
    for (what, arguments, rules, counts) in cases {
        for audited in [false, true] {
            let tool = Counting::new();
            let kit = Toolkit::new([Tool::from_handler(tool.clone())]);
            let kit = if audited { kit.with_rationale() } else { kit };
            let mut tools = run(&kit, &turn(raw("a", arguments)).await).with_policy(rules.clone());
            shapes(&mut tools).await;
            drop(tools);
            assert_eq!(tool.counts(), counts, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_call_starts_with_its_already_parsed_arguments() {
    for (verdict, begun) in [(Verdict::Approve, 1), (Verdict::deny("no"), 0)] {
        let tool = Counting::new();
        let kit = Toolkit::new([Tool::from_handler(tool.clone()).requires_approval()]);
        let rules = Rules::with(|book| book.waits = true);
        let mut tools = run(&kit, &turn(raw("a", FIVE)).await).with_policy(rules.clone());
        assert!(Event::from(tools.next().await.unwrap()).as_approval_request().is_some());
        assert_eq!(tool.counts(), [1, 0]);
        rules.book().verdicts.insert("a", verdict);
        shapes(&mut tools).await;
        assert_eq!(tool.counts(), [1, begun]);
    }
}

/// Panics when a call begins, or when one is dropped that has not.
struct Explosive {
    spec: ToolSpec,
    when_dropped: bool,
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("dropped"));
    }
}

impl ToolHandler for Explosive {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, _: &str) -> Result<PreparedCall, String> {
        let bomb = self.when_dropped.then_some(Bomb);
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
        let tool = Tool::from_handler(Explosive { spec: spec("a"), when_dropped });
        let kit = Toolkit::new([tool, nap("b")]);
        let turn = turn(raw("a", FIVE).call_raw("b", "b", FIVE)).await;
        let rules = Rules::with(|book| drop(book.permits.insert("a", permit)));
        let mut tools = run(&kit, &turn).with_policy(rules);
        assert_eq!(shapes(&mut tools).await, [kind, "start b", "Ok b"]);
    }
}
