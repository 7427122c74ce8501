//! The world that the runs of an agent are in.

use std::sync::Arc;

use futures::Stream;

use crate::agent::hook::Hooks;
use crate::agent::run::Begin;
use crate::agent::{Agent, Input, Run, RunContext, State, Verdicts};
use crate::error::Error;
use crate::event::Event;
use crate::item::{History, Item};
use crate::stream::Step;
use crate::world::{Live, World};

/// What makes the world of each run.
pub(crate) type OpenWorld = Arc<dyn Fn(&Agent, &RunStart<'_>) -> Arc<dyn World> + Send + Sync>;

/// What a run begins with.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunStart<'a> {
    /// The history, without the input.
    pub history: &'a History,
    /// What is said to it.
    pub input: &'a [Item],
    /// Whether the run goes on with calls that were left pending.
    pub resuming: bool,
}

pub(super) fn live() -> OpenWorld {
    Arc::new(|_, _| Arc::new(Live))
}

impl Agent {
    /// Sets what makes the [world](crate::world) of each run: everything that the run asks of the outside
    /// goes through it. The runs of sub-agents are in the worlds of their own agents.
    ///
    /// `open` is called when a run is made, before its first poll.
    pub fn with_world<W: World + 'static>(
        mut self,
        open: impl Fn(&Self, &RunStart<'_>) -> W + Send + Sync + 'static,
    ) -> Self {
        self.world = Arc::new(move |agent, start| Arc::new(open(agent, start)));
        self
    }

    /// Another history with the same items, under an id of its own.
    pub(crate) fn fork(&self, history: &History) -> History {
        history.fork(&*self.ids)
    }

    /// What makes the world of each run.
    pub(crate) fn world(&self) -> OpenWorld {
        Arc::clone(&self.world)
    }

    /// The same agent where nothing is performed: no hook is asked, no time counts, and what is used is
    /// taken from no pool.
    pub(crate) fn detached(&self) -> Self {
        let mut agent = self.clone();
        agent.hooks = Hooks::new();
        agent.budget = agent.budget.detached();
        agent
    }

    /// A run that was begun before, and of whose verdicts nothing is known.
    pub(crate) fn run_again<B, St>(
        self,
        body: B,
        history: History,
        input: Input,
        resuming: bool,
    ) -> Run
    where
        B: FnMut(RunContext, State) -> St + Send + 'static,
        St: Stream<Item = Result<Step<Event, State>, Error>> + Send + 'static,
    {
        let resuming = resuming.then(Verdicts::default);
        Run::new(self, Begin { history, input, resuming }, body)
    }
}
