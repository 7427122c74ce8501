//! The page's agent.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use turnstream::agent::{Budget, Limits};
use turnstream::provider::Provider;
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream::usage::Prices;
use turnstream::{Agent, Error, ErrorKind};

use crate::flags::Flags;
use crate::provider::{ProviderChoice, ProviderName, describe_error};
use crate::tools::{self, Root};

/// The offline model's pause after each word, so that a user can watch it stream.
const PAUSE_BETWEEN_WORDS: Duration = Duration::from_millis(25);

/// A description of the model for the user.
#[derive(Clone, Serialize)]
pub(crate) struct AboutModel {
    provider: &'static str,
    model: String,
    /// Whether the model's replies are scripted.
    is_scripted: bool,
    /// Whether the model can read the working directory.
    has_tools: bool,
}

impl AboutModel {
    pub(crate) fn describe(&self) -> String {
        match self.is_scripted {
            true => "offline (its text is scripted, the results of its tools are real)".to_owned(),
            false => format!("{} by {}", self.model, self.provider),
        }
    }
}

/// Builds the agent and its provider. No request is sent.
pub(crate) async fn build(flags: &Flags) -> Result<(Agent, AboutModel), Error> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut choice = ProviderChoice::from_args(&flags.agent, variable)
        .map_err(|message| Error::new(ErrorKind::InvalidRequest, message))?;
    choice.offline_pause = flags.agent.offline_delay.unwrap_or(PAUSE_BETWEEN_WORDS);
    let about = AboutModel {
        provider: choice.name.as_str(),
        model: choice.model.clone(),
        is_scripted: choice.name == ProviderName::Offline,
        has_tools: !flags.agent.no_tools,
    };
    let key = choice.key_variable;
    let model = choice.build_provider().await;
    let model = model.map_err(|error| Error::new(error.kind(), describe_error(&error, key)))?;
    let with_tools = "Answer briefly, in Markdown. Your tools read the user's working directory; use them \
         rather than guess, and cite files and line numbers. Write a file only if the user asks for it.";
    let usual = if about.has_tools { with_tools } else { "Answer briefly, in Markdown." };
    let system = flags.agent.system.as_deref().unwrap_or(usual);
    let mut agent = Agent::new(Arc::clone(&model)).with_system(system);
    if about.has_tools {
        let here = env::current_dir().map_err(|error| {
            let message = format!("the working directory cannot be read: {error}");
            Error::new(ErrorKind::Other, message)
        })?;
        let tools = tools::toolkit(Root::new(here, flags.session_path.as_ref().map(PathBuf::from)));
        let research = research_tool(model, &tools)?;
        agent = agent.with_toolkit(tools.with_tool(research));
    }
    agent = agent.with_limits(Limits { max_turns: flags.agent.max_turns, ..Limits::default() });
    if let Some(price) = flags.price {
        let prices = Prices::new().with_price(about.model.as_str(), price);
        agent = agent.with_budget(match flags.max_cost {
            Some(limit) => Budget::new().with_cost_limit(limit, prices),
            None => Budget::new().with_prices(prices),
        });
    }
    Ok((agent, about))
}

/// A sub-agent with read-only tools.
fn research_tool(model: Arc<dyn Provider>, tools: &Toolkit) -> Result<Tool, Error> {
    let looks = |spec: &&ToolSpec| tools.get(&spec.name).is_some_and(Tool::is_idempotent);
    let looking: Vec<ToolSpec> = tools.specs().iter().filter(looks).cloned().collect();
    let system =
        "Use your tools to answer the question, in a few lines, and cite files and line numbers.";
    let description = "Researches a question in the working directory, in a separate conversation";
    let agent = Agent::new(model).with_system(system).with_toolkit(tools.restricted_to(&looking));
    agent.as_tool("research", description)
}
