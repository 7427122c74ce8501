//! The settings of an agent.

use std::sync::Arc;

use crate::agent::grant_predicates::GrantPredicates;
use crate::agent::hook::Hooks;
use crate::agent::sources::tool_sources::ToolSources;
use crate::agent::validators::Validators;
use crate::agent::{Budget, Limits, RunObserver, RunStart};
use crate::context::{Ageing, Compactor, Window};
use crate::env::{Ids, SystemIds};
use crate::item::History;
use crate::provider::Provider;
use crate::request::{Options, Request, SharedText, System, ToolSpecs};
use crate::tool::Toolkit;
use crate::world::{LiveWorld, World};

/// A function that creates the world for each run.
pub(crate) type WorldFactory =
    Arc<dyn Fn(&Arc<AgentSettings>, &RunStart<'_>) -> Arc<dyn World> + Send + Sync>;

/// The settings of an agent.
#[derive(Clone)]
pub(crate) struct AgentSettings {
    /// The agent's label; empty if the agent has no label. A sub-agent without a label uses the
    /// name of its tool.
    pub(super) label: Arc<str>,
    pub(super) providers: ProviderSettings,
    pub(super) prompt: PromptSettings,
    pub(super) tools: ToolkitSettings,
    pub(super) limits: LimitSettings,
    pub(super) validators: Validators,
    pub(super) context: ContextSettings,
    pub(super) hooks: Hooks,
    pub(super) observer: Option<Arc<dyn RunObserver>>,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) world: WorldFactory,
}

/// The agent's providers.
#[derive(Clone)]
pub(super) struct ProviderSettings {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) fallbacks: Vec<Arc<dyn Provider>>,
}

/// The parts of a request that are neither history nor tools.
#[derive(Clone, Default)]
pub(super) struct PromptSettings {
    /// The system prompt that requests contain.
    pub(super) system: System,
    /// The stable part of the system prompt, without the appended instructions.
    stable_system: SharedText,
    /// Instructions that are appended to the stable part of the system prompt.
    appended_instructions: Arc<str>,
    pub(super) options: Options,
}

#[derive(Clone, Default)]
pub(super) struct ToolkitSettings {
    pub(super) toolkit: Toolkit,
    /// The sources of additional tools, which may change during a run.
    pub(super) sources: Arc<ToolSources>,
    /// The names of the tools that never change anything.
    pub(super) read_only_tools: Arc<[String]>,
    /// Whether a run waits for verdicts on calls that need approval.
    pub(super) interactive: bool,
    /// Whether an identical call after an unclear failure is held back.
    pub(super) holds_unclear_repeats: bool,
    /// The predicates to which grants refer.
    pub(super) grant_predicates: Arc<GrantPredicates>,
}

/// The settings that limit a run.
#[derive(Clone, Default)]
pub(super) struct LimitSettings {
    pub(super) limits: Limits,
    pub(super) budget: Budget,
}

/// Which compactor shortens a history that does not fit.
#[derive(Clone)]
pub(super) enum CompactorSetting {
    /// A [`Truncator`](crate::context::Truncator), which also truncates old results if the history
    /// does not fit otherwise.
    Default,
    Custom(Arc<dyn Compactor>),
    Disabled,
}

/// The settings that determine how a history is shortened.
#[derive(Clone)]
pub(super) struct ContextSettings {
    /// The rule for shortening old turns, which applies regardless of the request's size.
    pub(super) ageing: Option<Ageing>,
    pub(super) compactor: CompactorSetting,
    /// The model's context window, if one was set.
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
                compactor: CompactorSetting::Default,
                window: None,
            },
            hooks: Hooks::new(),
            observer: None,
            ids: Arc::new(SystemIds),
            world: Arc::new(|_, _| Arc::new(LiveWorld)),
        }
    }

    pub(super) fn has_compactor(&self) -> bool {
        match self.context.compactor {
            CompactorSetting::Default | CompactorSetting::Custom(_) => true,
            CompactorSetting::Disabled => false,
        }
    }

    /// Builds the request for the next turn, which offers `tools` to the model.
    pub(super) fn build_request(
        &self,
        toolkit: &Toolkit,
        tools: ToolSpecs,
        history: &History,
    ) -> Request {
        let mut request = Request {
            system: self.prompt.system.clone(),
            tools,
            options: self.prompt.options.clone(),
            max_turn_bytes: Some(self.limits.limits.max_turn_bytes),
            // The calls of an interrupted turn are void.
            ..Request::new(history.settled())
        };
        if toolkit.is_first_call_only() {
            request.options.parallel_tool_calls = Some(false);
        }
        request
    }
}

impl PromptSettings {
    pub(super) fn set_system(&mut self, system: System) {
        self.stable_system = system.stable;
        self.system.volatile = system.volatile;
        self.join_stable_system();
    }

    pub(super) fn set_appended_instructions(&mut self, instructions: Arc<str>) {
        self.appended_instructions = instructions;
        self.join_stable_system();
    }

    fn join_stable_system(&mut self) {
        let (stable, instructions) = (&self.stable_system, &self.appended_instructions);
        self.system.stable = match (stable.is_empty(), instructions.is_empty()) {
            (_, true) => stable.clone(),
            (true, false) => SharedText::from(&**instructions),
            (false, false) => format!("{stable}\n\n{instructions}").into(),
        };
    }
}

/// Returns the tools in a toolkit that are offered to the model in a request to this provider.
pub(super) fn offered_tools(toolkit: &Toolkit, provider: &dyn Provider) -> ToolSpecs {
    match provider.has_tool_search() {
        true => toolkit.deferred_specs(),
        false => toolkit.specs(),
    }
}
