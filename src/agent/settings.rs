//! What an agent is made of.

use std::sync::Arc;
use std::time::Duration;

use crate::agent::hook::Hooks;
use crate::agent::tool_sources::ToolSources;
use crate::agent::validators::Validators;
use crate::agent::{Budget, Limits, RunStart};
use crate::context::{Ageing, Compactor, Truncator, Window};
use crate::env::{Ids, SystemIds, TimeLimit};
use crate::item::History;
use crate::provider::Provider;
use crate::request::{Options, Request, System, ToolSpec};
use crate::tool::Toolkit;
use crate::world::{LiveWorld, World};

/// How long the compactor may take, unless set.
const DEFAULT_COMPACTOR_TIMEOUT: Duration = Duration::from_mins(2);

/// What makes the world of each run.
pub(crate) type WorldFactory =
    Arc<dyn Fn(&Arc<AgentSettings>, &RunStart<'_>) -> Arc<dyn World> + Send + Sync>;

/// What an agent is made of.
#[derive(Clone)]
pub(crate) struct AgentSettings {
    /// What tells it apart from others; empty if it is a sub-agent that is called by its tool's name.
    pub(super) label: Arc<str>,
    pub(super) providers: ProviderSettings,
    pub(super) prompt: PromptSettings,
    pub(super) tools: ToolkitSettings,
    pub(super) limits: LimitSettings,
    pub(super) validators: Validators,
    pub(super) context: ContextSettings,
    pub(super) hooks: Hooks,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) world: WorldFactory,
}

/// Who is asked.
#[derive(Clone)]
pub(super) struct ProviderSettings {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) fallbacks: Vec<Arc<dyn Provider>>,
}

/// What is sent besides the history.
#[derive(Clone, Default)]
pub(super) struct PromptSettings {
    pub(super) system: System,
    /// What follows the part of the system prompt that stays the same.
    pub(super) appended_instructions: Arc<str>,
    pub(super) options: Options,
}

#[derive(Clone, Default)]
pub(super) struct ToolkitSettings {
    pub(super) toolkit: Toolkit,
    /// Where more tools come from, which may change.
    pub(super) sources: Arc<ToolSources>,
    /// The tools that never change anything.
    pub(super) read_only_tools: Arc<[String]>,
    /// The tools are audited, also those that are added later.
    pub(super) requires_rationale: bool,
    /// Calls without a verdict are waited for.
    pub(super) interactive: bool,
}

/// What a run may use.
#[derive(Clone, Default)]
pub(super) struct LimitSettings {
    pub(super) limits: Limits,
    /// Whether the cap on turns was set.
    pub(super) is_max_turns_set: bool,
    pub(super) budget: Budget,
}

/// How a history is kept short.
#[derive(Clone)]
pub(super) struct ContextSettings {
    /// When thoughts and inputs of old turns are shortened, whatever room is left.
    pub(super) ageing: Option<Ageing>,
    pub(super) compactor: Option<Arc<dyn Compactor>>,
    pub(super) compactor_timeout: TimeLimit,
    /// What is kept free of, if its size is known.
    pub(super) window: Option<Window>,
}

impl AgentSettings {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Self {
        Self {
            label: Arc::default(),
            providers: ProviderSettings { provider, fallbacks: Vec::new() },
            prompt: PromptSettings::default(),
            tools: ToolkitSettings::default(),
            limits: LimitSettings::default(),
            validators: Validators::default(),
            context: ContextSettings {
                ageing: None,
                compactor: Some(Arc::new(Truncator::new())),
                compactor_timeout: TimeLimit::Default(DEFAULT_COMPACTOR_TIMEOUT),
                window: None,
            },
            hooks: Hooks::new(),
            ids: Arc::new(SystemIds),
            world: Arc::new(|_, _| Arc::new(LiveWorld)),
        }
    }

    /// The request that asks for the next turn, with these tools of the kit.
    pub(super) fn build_request(
        &self,
        kit: &Toolkit,
        tools: Arc<[ToolSpec]>,
        history: &History,
    ) -> Request {
        let mut request = Request {
            system: self.system_prompt(),
            tools,
            options: self.prompt.options.clone(),
            max_turn_bytes: Some(self.limits.limits.max_turn_bytes),
            ..Request::new(history.clone())
        };
        if kit.is_first_call_only() {
            request.options.parallel_tool_calls = Some(false);
        }
        request
    }

    fn system_prompt(&self) -> System {
        let PromptSettings { system, appended_instructions: instructions, .. } = &self.prompt;
        let mut system = system.clone();
        if !instructions.is_empty() {
            let apart = if system.stable.is_empty() { "" } else { "\n\n" };
            system.stable.push_str(apart);
            system.stable.push_str(instructions);
        }
        system
    }
}

/// The tools of a kit that a request to the provider offers.
pub(super) fn offered_tools(kit: &Toolkit, provider: &dyn Provider) -> Arc<[ToolSpec]> {
    match provider.has_tool_search() {
        true => kit.deferred_specs(),
        false => kit.specs(),
    }
}
