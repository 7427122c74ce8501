//! The page's agent.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use turnstream::agent::{Budget, Limits};
use turnstream::provider::Provider;
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream::usage::{Price, Prices};
use turnstream::{Agent, Error, ErrorKind};

use crate::PAUSE_BETWEEN_WORDS;
use crate::flags::Flags;
use crate::provider::{ProviderChoice, ProviderName, describe_error};
use crate::tools::{self, Root};

/// A description of the model for the user.
#[derive(Clone, Serialize)]
pub(crate) struct AboutModel {
    pub(crate) provider: &'static str,
    pub(crate) model: String,
    /// Whether the model's replies are scripted.
    pub(crate) is_scripted: bool,
    /// Whether the model can read the working directory.
    pub(crate) has_tools: bool,
    #[serde(skip)]
    pub(crate) price: Option<Price>,
}

impl AboutModel {
    pub(crate) fn describe(&self) -> String {
        match self.is_scripted {
            true => "offline (its text is scripted, the results of its tools are real)".to_owned(),
            false => format!("{} by {}", self.model, self.provider),
        }
    }
}

/// Builds the provider. No request is sent.
pub(crate) async fn choose_model(flags: &Flags) -> Result<(Arc<dyn Provider>, AboutModel), Error> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut choice = ProviderChoice::from_args(&flags.agent, variable)
        .map_err(|message| Error::new(ErrorKind::InvalidRequest, message))?;
    choice.offline_pause = flags.agent.offline_delay.unwrap_or(PAUSE_BETWEEN_WORDS);
    let is_scripted = choice.name == ProviderName::Offline;
    let (provider, key) = (choice.name.as_str(), choice.key_variable);
    let (model, has_tools) = (choice.model.clone(), !flags.agent.no_tools);
    let about = AboutModel { provider, model, is_scripted, has_tools, price: flags.price };
    let model = choice.build_provider().await;
    let model = model.map_err(|error| Error::new(error.kind(), describe_error(&error, key)))?;
    Ok((model, about))
}

/// Builds the agent.
pub(crate) fn build(
    flags: &Flags,
    model: Arc<dyn Provider>,
    about: &AboutModel,
) -> Result<Agent, Error> {
    let system = flags.agent.system.as_deref();
    let with_tools = "Answer briefly, in Markdown. Your tools read the user's working directory; use them \
         rather than guess, and cite files and line numbers. Write a file only if the user asks for it.";
    let usual = if flags.agent.no_tools { "Answer briefly, in Markdown." } else { with_tools };
    let mut agent = Agent::new(Arc::clone(&model)).with_system(system.unwrap_or(usual));
    if !flags.agent.no_tools {
        let here = env::current_dir().map_err(|error| {
            let message = format!("the working directory cannot be read: {error}");
            Error::new(ErrorKind::Other, message)
        })?;
        let root = Root::new(here, flags.session_path.as_ref().map(PathBuf::from));
        let tools = tools::toolkit(root);
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
    Ok(agent)
}

/// A sub-agent with read-only tools.
fn research_tool(model: Arc<dyn Provider>, tools: &Toolkit) -> Result<Tool, Error> {
    let looks = |spec: &&ToolSpec| tools.get(&spec.name).is_some_and(Tool::is_idempotent);
    let looking: Vec<ToolSpec> = tools.specs().iter().filter(looks).cloned().collect();
    let system =
        "Use your tools to answer the question, in a few lines, and cite files and line numbers.";
    Agent::new(model).with_system(system).with_toolkit(tools.restricted_to(&looking)).as_tool(
        "research",
        "Researches a question in the working directory, in a separate conversation",
    )
}
