//! The workers' agents: scripted models, and tools that record each step in the log.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use turnstream::context::{Compaction, Compactor, Window};
use turnstream::item::ItemFlag;
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error, History, Item};
use turnstream_test_support::seeded_random::Dice;

use crate::log::{COMPACTION, Log, MODEL, Phase};
use crate::task::{Position, TaskKind};

/// The window of the agent `compacting`, in tokens.
const WINDOW_TOKENS: u64 = 2_500;
/// The maximum duration of a tool, in milliseconds.
const MAX_TOOL_MILLIS: u64 = 80;

/// Builds the agents for a seed. Clones share the log.
#[derive(Clone)]
pub(crate) struct Agents {
    pub(crate) log: Log,
    pub(crate) seed: u64,
}

/// The name of the agent that runs a task.
pub(crate) fn agent_for(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Interactive => "interactive",
        TaskKind::Compaction => "compacting",
        _ => "plain",
    }
}

impl Agents {
    /// The agents with their names.
    pub(crate) fn build(&self) -> Result<[(&'static str, Agent); 3], Error> {
        let sub_agent = Agent::new(self.model()).with_tools(self.tools()?);
        let mut tools = self.tools()?;
        tools.extend([
            self.tool("alone")?.exclusive(),
            sub_agent.as_tool("hire", "Does it")?,
            // All tools that the sub-agent calls are idempotent.
            sub_agent.as_tool("research", "Finds it out")?.idempotent(),
            sub_agent.as_tool("clerk", "Asks first")?,
        ]);
        let plain = Agent::new(self.model()).with_tools(tools);
        let compacting =
            plain.clone().with_window(Window::new(WINDOW_TOKENS)).with_compactor(self.clone());
        Ok([
            ("interactive", plain.clone().interactive()),
            ("compacting", compacting),
            ("plain", plain),
        ])
    }

    /// The tools that sub-agents have as well.
    fn tools(&self) -> Result<Vec<Tool>, Error> {
        Ok(vec![
            self.tool("pay")?,
            self.tool("look")?.idempotent(),
            self.tool("ask")?.requires_approval(),
        ])
    }

    /// A model whose replies depend only on the history.
    fn model(&self) -> Scripted {
        let agents = self.clone();
        Scripted::from_fn(move |request, _| {
            let Some(position) = Position::find(&request.history) else {
                return Reply::text("Which task?");
            };
            let key = position.key();
            agents.log.append(Phase::Begin, MODEL, &key);
            position.reply(&agents.dice(&key))
        })
    }

    fn tool(&self, name: &'static str) -> Result<Tool, Error> {
        let agents = self.clone();
        let spec =
            ToolSpec::new(name, "Leaves a trace", json!({ "type": "object", "properties": {} }));
        Tool::raw(spec, move |_args, cx| {
            let agents = agents.clone();
            let key = cx.idempotency_key().to_owned();
            async move {
                agents.log.append(Phase::Begin, name, &key);
                let delay = random_millis(&agents.dice(&key), MAX_TOOL_MILLIS);
                tokio::time::sleep(delay).await;
                agents.log.append(Phase::End, name, &key);
                format!("done for {}", cx.call_id())
            }
        })
    }

    fn dice(&self, key: &str) -> Arc<Dice> {
        let mut hasher = DefaultHasher::new();
        (self.seed, key).hash(&mut hasher);
        Dice::new(hasher.finish().wrapping_add(1))
    }
}

/// Compacts everything before the newest task.
impl Compactor for Agents {
    fn compact(&self, history: &History) -> BoxFuture<'static, Result<Option<Compaction>, Error>> {
        // It may run twice before one request, the second time for a shorter history.
        let key = Position::find(history).map(|position| position.key()).unwrap_or_default();
        let key = format!("{key}.{}", history.len());
        let is_task =
            |item: &Item| item.as_user().is_some_and(|content| content.text().starts_with("Task "));
        let to = history.iter().position(is_task).map_or(0, |_| {
            let newest = history.newest_first().position(is_task).unwrap_or_default();
            history.len() - 1 - newest
        });
        let agents = self.clone();
        async move {
            agents.log.append(Phase::Begin, COMPACTION, &key);
            tokio::time::sleep(random_millis(&agents.dice(&key), MAX_TOOL_MILLIS)).await;
            agents.log.append(Phase::End, COMPACTION, &key);
            let summary = || Item::user("Much was done.").with_flag(ItemFlag::Compacted);
            Ok((to > 1).then(|| Compaction::new(0, to, vec![summary()])))
        }
        .boxed()
    }
}

/// A random duration of up to this many milliseconds.
pub(crate) fn random_millis(dice: &Dice, max: u64) -> Duration {
    Duration::from_micros(dice.roll(max * 1_000))
}
