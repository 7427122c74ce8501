//! An agent whose model, tools, hooks and sub-agents behave at random, by seed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use turnstream::agent::hook::{self, CallDecision, StopDecision};
use turnstream::agent::{Budget, Limits, Pool, Target};
use turnstream::context::{Compaction, Compactor};
use turnstream::env::CountingIds;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolContext, ToolOutput, ToolSpec, Toolkit};
use turnstream::turn::StopReason;
use turnstream::{Agent, Error, ErrorKind, History, Item, Journal, Usage};

use crate::seeded_random::Dice;
use crate::tools;

/// A log of the tools' executions, by idempotency key.
#[derive(Default)]
pub struct ToolLog {
    pub executed_calls: Mutex<Vec<(String, String, Value)>>,
    pub running_count: AtomicUsize,
    /// The number of running tools, by the id of the history of their run.
    running_by_run: Mutex<HashMap<String, usize>>,
    /// The journal of the run's events.
    pub journal: Mutex<Option<Journal>>,
    pub violations: Mutex<Vec<String>>,
}

/// Counts a tool while it runs, however it ends.
struct RunningTool {
    log: Arc<ToolLog>,
    run_id: String,
    is_exclusive: bool,
}

impl RunningTool {
    fn check_exclusive(&self) {
        let beside = self.log.running_by_run.lock().unwrap()[&self.run_id];
        if self.is_exclusive && beside > 1 {
            self.log.violations.lock().unwrap().push(format!("{beside} beside an exclusive tool"));
        }
    }
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        self.check_exclusive();
        self.log.running_count.fetch_sub(1, Ordering::Relaxed);
        *self.log.running_by_run.lock().unwrap().get_mut(&self.run_id).unwrap() -= 1;
    }
}

fn spec(name: &str) -> ToolSpec {
    match name {
        "strict" => {
            let parameters = json!({ "type": "object", "required": ["on"] });
            ToolSpec { parameters: parameters.into(), ..tools::spec(name) }
        }
        name => tools::spec(name),
    }
}

fn tool(name: &'static str, dice: &Arc<Dice>, tools: &Arc<ToolLog>) -> Tool {
    let (dice, tools) = (Arc::clone(dice), Arc::clone(tools));
    let run = move |args: Value, cx: ToolContext| {
        let key = cx.idempotency_key().to_owned();
        let run = key.rsplit_once('/').unwrap().0.to_owned();
        tools.running_count.fetch_add(1, Ordering::Relaxed);
        *tools.running_by_run.lock().unwrap().entry(run.clone()).or_default() += 1;
        tools.executed_calls.lock().unwrap().push((key, name.to_owned(), args));
        let running =
            RunningTool { log: Arc::clone(&tools), run_id: run, is_exclusive: name == "alone" };
        let (fate, pause) = (dice.roll(10), dice.roll(120));
        async move {
            running.check_exclusive();
            cx.record_change("a thing");
            if name != "quick" {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                running.check_exclusive();
            }
            cx.record_evidence("seen");
            match fate {
                0 => panic!("the tool"),
                1 => Err("it does not work".to_owned()),
                2 => Ok("ä long result ".repeat(20)),
                n => Ok(n.to_string()),
            }
        }
    };
    Tool::raw(spec(name), run).unwrap()
}

fn reply(dice: &Dice) -> Reply {
    const TOOL_NAMES: [&str; 9] =
        ["quick", "quick", "slow", "timed", "alone", "ask", "out", "strict", "sub"];
    let usage = Usage { input_tokens: dice.roll(50), output_tokens: 7, ..Usage::default() };
    let it = Reply::new().usage(usage);
    let calls = |mut it: Reply| {
        for _ in 0..=dice.roll(4) {
            let name = TOOL_NAMES[usize::try_from(dice.roll(9)).unwrap()];
            let id = ["", "c", "d", "e"][usize::try_from(dice.roll(4)).unwrap()];
            let arguments = match (name, dice.roll(6)) {
                ("sub", 1..) => r#"{"prompt":"look"}"#,
                ("strict", 3..) => r#"{"on":1}"#,
                (_, 0) => "",
                ("ask" | "out", 1) => r#""{}""#,
                (_, 1) => "{ no",
                _ => "{}",
            };
            it = it.call_raw(id, name, arguments);
        }
        it
    };
    let kinds = [ErrorKind::Overloaded, ErrorKind::ContextWindow, ErrorKind::GenerationFailed];
    let error = Error::new(kinds[usize::try_from(dice.roll(3)).unwrap()], "it failed");
    match dice.roll(30) {
        0..4 => it.say("An answer."),
        4 => it,
        5 => it.say("Half").stop(StopReason::MaxTokens),
        6 => calls(it).stop(StopReason::MaxTokens),
        7 => calls(it).stop(StopReason::ContextWindow),
        8 => it.say("Wait").stop(StopReason::Pause),
        9 => calls(it).stop(StopReason::Other("odd".into())),
        10 => it.call("nobody", json!({})),
        11 => calls(it).fail(error),
        12 => calls(it.say("Half a").retract("again")),
        13 => it.say("Half a").disconnect(),
        14 => calls(it.say("Late.")).delay(Duration::from_millis(30)),
        15 => it.fail(error),
        _ => calls(it),
    }
}

/// A compactor that drops the older half, or returns an invalid compaction.
struct RandomCompactor(Arc<Dice>);

impl Compactor for RandomCompactor {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        let items = vec![Item::user("in short")];
        ready(match self.0.roll(5) {
            0 => Err(Error::new(ErrorKind::Other, "it failed")),
            1 => Ok(Some(Compaction::new(5, 2, items))),
            _ => Ok(Some(Compaction::new(0, history.len() / 2, items))),
        })
        .boxed()
    }
}

/// An agent whose sub-agents are nested `depth` levels deep.
pub fn agent(dice: &Arc<Dice>, tools: &Arc<ToolLog>, pool: &Pool, depth: u32) -> Agent {
    let limits = Limits {
        max_turns: Some(if depth == 0 { 3 } else { 1 + dice.roll_u32(14) }),
        max_corrections: dice.roll_u32(4),
        max_turn_retries: dice.roll_u32(3),
        max_truncated_call_retries: dice.roll_u32(3),
        nudge_after_repeats: 2,
        ..Limits::default()
    };
    let script = || {
        let (dice, tools) = (Arc::clone(dice), Arc::clone(tools));
        Scripted::from_fn(move |request, _| {
            let told = tools.journal.lock().unwrap().as_ref().map(Journal::history);
            let is_fold = depth < 2 || told.as_ref() == Some(&request.history);
            if !is_fold || !request.history.is_settled() {
                tools.violations.lock().unwrap().push("a request that is not the fold".to_owned());
            }
            reply(&dice)
        })
    };
    let mut agent = Agent::new(script())
        .with_fallback(script())
        .with_toolkit(toolkit(dice, tools, pool, depth))
        .with_limits(limits)
        .with_budget(budget(dice, pool))
        .with_ids(CountingIds::new("id"))
        .with_compactor(RandomCompactor(Arc::clone(dice)));
    if dice.one_in(2) {
        agent = agent.interactive();
    }
    agent = with_call_hooks(agent, dice);
    with_run_hooks(agent, dice)
}

fn toolkit(dice: &Arc<Dice>, tools: &Arc<ToolLog>, pool: &Pool, depth: u32) -> Toolkit {
    let one = |name| tool(name, dice, tools);
    let mut all = vec![
        one("quick"),
        one("slow"),
        one("timed").with_timeout(Duration::from_millis(60)),
        one("alone").exclusive(),
        one("ask").requires_approval(),
        one("strict"),
        Tool::external(spec("out")).unwrap(),
    ];
    if depth > 0 {
        let mut sub = agent(dice, tools, pool, depth - 1).as_tool("sub", "It looks").unwrap();
        match dice.roll(5) {
            0 => sub = sub.requires_approval(),
            1 => sub = sub.exclusive(),
            2 => sub = sub.with_timeout(Duration::from_millis(100)),
            _ => {}
        }
        all.push(sub);
    }
    let mut toolkit = Toolkit::new(all);
    if dice.one_in(8) {
        toolkit = toolkit.first_call_only();
    }
    if dice.one_in(16) {
        toolkit = toolkit.with_dry_run(true);
    }
    if dice.one_in(4) {
        toolkit = toolkit.with_max_result_bytes(usize::try_from(dice.roll(60)).unwrap());
    }
    if dice.one_in(4) {
        toolkit = toolkit.with_max_concurrency(
            std::num::NonZero::new(1 + usize::try_from(dice.roll(2)).unwrap()).unwrap(),
        );
    }
    toolkit
}

fn budget(dice: &Dice, pool: &Pool) -> Budget {
    let mut budget = Budget::new().with_pool(pool.clone());
    if dice.one_in(2) {
        budget = budget.with_wrap_up();
    }
    if dice.one_in(6) {
        budget = budget.with_tool_calls(dice.roll_u32(12));
    }
    if dice.one_in(6) {
        budget = budget.with_target(Target::new(80));
    }
    if dice.one_in(6) {
        budget = budget.with_time_limit(Duration::from_millis(dice.roll(400)));
    }
    budget
}

fn with_call_hooks(mut agent: Agent, dice: &Arc<Dice>) -> Agent {
    if dice.one_in(2) {
        agent = agent.with_hook(hook::unwrap_json_string());
    }
    if dice.one_in(2) {
        let at = Arc::clone(dice);
        agent = agent.with_hook(hook::repair_arguments(move |_, _, _| match at.roll(3) {
            0 => None,
            1 => Some(r#"{"on":2,"prompt":"repaired"}"#.into()),
            _ => Some("{}".into()),
        }));
    }
    if dice.one_in(2) {
        let at = Arc::clone(dice);
        agent = agent.with_hook(hook::before_tool(move |_, _| {
            let decision = match at.roll(9) {
                0 => CallDecision::Deny("no".into()),
                1 => CallDecision::RequireApproval,
                2 => CallDecision::RewriteArguments(r#"{"on":3,"prompt":"rewritten"}"#.into()),
                3 => CallDecision::RewriteArguments("{}".into()),
                _ => CallDecision::Allow,
            };
            let pause = at.roll(2) * 20;
            async move {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                decision
            }
        }));
    }
    agent
}

fn with_run_hooks(mut agent: Agent, dice: &Arc<Dice>) -> Agent {
    if dice.one_in(3) {
        let at = Arc::clone(dice);
        agent = agent.with_hook(hook::after_tool(move |_, _, result| match at.roll(40) {
            0 => panic!("the hook"),
            1..9 => result.content = "rewritten".into(),
            _ => {}
        }));
    }
    if dice.one_in(5) {
        let at = Arc::clone(dice);
        agent = agent.with_hook(hook::prepare_request(move |_, mut request| {
            if at.one_in(3) {
                request.tools = request.tools.iter().skip(2).cloned().collect();
            }
            async move { request }
        }));
    }
    if dice.one_in(3) {
        let at = Arc::clone(dice);
        agent = agent.with_hook(hook::should_stop(move |_| {
            let stops = at.one_in(6);
            async move {
                tokio::time::sleep(Duration::from_millis(30)).await;
                stops
            }
        }));
    }
    if dice.one_in(5) {
        agent = agent.with_hook(hook::transform_context(|_, context| async move {
            let items: Vec<_> = context.iter().skip(1).cloned().collect();
            History::from_items(context.id(), items)
        }));
    }
    if dice.one_in(3) {
        agent = with_note_and_stop_hooks(agent, dice);
    }
    agent
}

/// An agent with hooks that add notes after a turn, and that prevent it from stopping.
pub fn with_note_and_stop_hooks(agent: Agent, dice: &Arc<Dice>) -> Agent {
    let (noting, stopping) = (Arc::clone(dice), Arc::clone(dice));
    agent
        .with_hook(hook::after_sampling(move |_, _| {
            let notes = match noting.roll(5) {
                0 => vec![Item::user("A note.")],
                _ => Vec::new(),
            };
            async move { notes }
        }))
        .with_hook(hook::before_stop(move |_, _| {
            let answer = match stopping.roll(4) {
                0 => StopDecision::Continue("Not yet.".into()),
                _ => StopDecision::Allow,
            };
            async move { answer }
        }))
}

/// A result of an external call.
pub fn tool_output(dice: &Dice) -> ToolOutput {
    match dice.roll(2) {
        0 => ToolOutput::ok("from elsewhere"),
        _ => ToolOutput::error("not from elsewhere"),
    }
}
