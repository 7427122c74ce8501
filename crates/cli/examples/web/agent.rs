//! The page's agent.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use turnstream::Agent;
use turnstream::agent::{Budget, Limits};
use turnstream::provider::Provider;
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream::usage::Prices;

use crate::flags::Flags;
use crate::provider::{ProviderChoice, ProviderName};
use crate::tools::{self, Root};

/// The offline model's pause after each word, so that a user can watch it stream.
const PAUSE_BETWEEN_WORDS: Duration = Duration::from_millis(25);

/// Builds the agent, and describes its model for the user and for the page. No request is sent.
pub(crate) async fn build(flags: &Flags) -> Result<(Agent, String, Value), Box<dyn Error>> {
    let mut choice = ProviderChoice::from_args(&flags.agent, |name| env::var(name).ok())?;
    choice.offline_pause = flags.agent.offline_delay.unwrap_or(PAUSE_BETWEEN_WORDS);
    let (described, has_tools) = (choice.describe(), !flags.agent.no_tools);
    let is_scripted = choice.name == ProviderName::Offline;
    let about =
        json!({ "model": choice.model, "is_scripted": is_scripted, "has_tools": has_tools });
    let model = choice.build_provider().await?;
    let limits = Limits { max_turns: flags.agent.max_turns, ..Limits::default() };
    let mut agent = Agent::new(Arc::clone(&model)).with_limits(limits);
    let mut system = "Answer briefly, in Markdown.";
    if has_tools {
        system = "Answer briefly, in Markdown. Your tools read the user's working directory; use them \
            rather than guess, and cite files and line numbers. Write a file only if the user asks for it.";
        let stored = flags.agent.session_file.as_ref().map(PathBuf::from);
        let here = env::current_dir();
        let here =
            here.map_err(|error| format!("the working directory cannot be read: {error}"))?;
        let tools = tools::toolkit(Root::new(here, stored));
        let research = research_tool(Arc::clone(&model), &tools)?;
        agent = agent.with_toolkit(tools.with_tool(research));
    }
    agent = agent.with_system(flags.agent.system.as_deref().unwrap_or(system));
    if let Some(price) = flags.price {
        let prices = Prices::new().with_price(model.model(), price);
        agent = agent.with_budget(match flags.max_cost {
            Some(limit) => Budget::new().with_cost_limit(limit, prices),
            None => Budget::new().with_prices(prices),
        });
    }
    Ok((agent, described, about))
}

/// A sub-agent with read-only tools.
fn research_tool(model: Arc<dyn Provider>, tools: &Toolkit) -> Result<Tool, turnstream::Error> {
    let looks = |spec: &&ToolSpec| tools.get(&spec.name).is_some_and(Tool::is_idempotent);
    let looking: Vec<ToolSpec> = tools.specs().iter().filter(looks).cloned().collect();
    let system =
        "Use your tools to answer the question, in a few lines, and cite files and line numbers.";
    let description = "Researches a question in the working directory, in a separate conversation";
    let agent = Agent::new(model).with_system(system).with_toolkit(tools.restricted_to(&looking));
    agent.as_tool("research", description)
}
