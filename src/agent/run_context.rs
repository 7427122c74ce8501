//! What the body of the agent's loop works with.

use std::sync::Arc;

use futures::{future, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::agent::budget::Spent;
use crate::agent::control::{Charged, Control, When};
use crate::agent::decide::{answers_tools, broke_off};
use crate::agent::gate::RunGate;
use crate::agent::outside::Outside;
use crate::agent::prepared::Prepared;
use crate::agent::tombstone_queue::TombstoneQueue;
use crate::agent::{Agent, Decision, Facts, Next, RunHandle, State, words};
use crate::context;
use crate::error::{Error, ErrorKind};
use crate::event::{AppendedWhy, Event, Exceeded, Reason, RewrittenWhy};
use crate::item::{History, ResultKind, Tombstones};
use crate::provider::{Provider, another_could};
use crate::request::{Output, Request, ToolChoice};
use crate::stream::{Step, TurnStream, seal};
use crate::tool::{AgentsLeft, RunData, ToolRun};
use crate::turn::{PartialTurn, Turn, TurnEvent};
use crate::usage::Usage;
use crate::world::{Effects, Kind};

/// What the body of the agent's loop works with: the agent, and what the holders of its run want.
/// Cheap to clone.
///
/// Each method is one sentence of [`body`](super::body); a body of your own uses those it needs. What they ask
/// of the outside goes through the run's [world](crate::world), so that it can be recorded, replayed or kept by
/// a durable engine. [`step`](Self::step) does the same for what your body asks itself; whatever it does besides is
/// not replayed.
#[derive(Clone, Debug)]
pub struct RunContext {
    agent: Arc<Agent>,
    handle: Arc<RunHandle>,
    effects: Effects,
}

impl RunContext {
    pub(super) fn new(agent: Arc<Agent>, handle: RunHandle, effects: Effects) -> Self {
        Self { agent, handle: Arc::new(handle), effects }
    }

    /// The agent.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// What the holders of the run hold.
    pub fn handle(&self) -> &RunHandle {
        &self.handle
    }

    /// The run's own handle, which does not count as one outside the run.
    pub(super) fn shared_handle(&self) -> Arc<RunHandle> {
        Arc::clone(&self.handle)
    }

    pub(super) fn control(&self) -> &Control {
        &self.handle.control
    }

    pub(super) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// Performs a step of a body of your own, whose value is kept where the run's [world](crate::world)
    /// keeps values: a replay of the run, or its next attempt, has the same value, and the step is not
    /// performed again. Whatever a body asks of the outside in another way is asked each time.
    ///
    /// Steps of one name are told apart by their order in the iteration. The future does nothing before it
    /// is polled. Dropping it drops the step.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use turnstream::agent::{Agent, body};
    /// use turnstream::provider::Scripted;
    /// use turnstream::{History, env::SystemIds};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let agent = Agent::new(Scripted::new(["Hello!"]));
    /// let run = agent.run_by(
    ///     |cx, state| {
    ///         async_stream::try_stream! {
    ///             let weather: String = cx.step("weather", async { Ok("rain".to_owned()) }).await?;
    ///             println!("There is {weather}.");
    ///             let mut lap = Box::pin(body(cx, state));
    ///             while let Some(step) = lap.next().await {
    ///                 yield step?;
    ///             }
    ///         }
    ///     },
    ///     History::new(&SystemIds),
    ///     "Hi",
    /// );
    /// assert_eq!(run.outcome().await.text, "Hello!");
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the step fails with; [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) if a recording has no
    /// such step, and [`Store`](crate::ErrorKind::Store) if its value cannot be read.
    pub fn step<T, F>(
        &self,
        name: &str,
        step: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.effects.step(name, step)
    }

    /// What [`Run::with_data`](crate::Run::with_data) handed to the run.
    pub fn data(&self) -> RunData {
        self.control().data()
    }

    /// All that the events which the body has yielded so far tell. A snapshot: making it copies no item.
    pub fn history(&self) -> History {
        self.handle.history()
    }

    /// Draws an id.
    pub fn id(&self) -> String {
        self.effects.draw(Kind::Id, || self.agent.ids.draw())
    }

    /// What is known besides the state, which keeps the budget that is spent.
    pub fn facts(&self, state: &mut State) -> Facts {
        let budget = &self.agent.budget;
        let spent = self.spent(state);
        let outside = self.effects.draw(Kind::Facts, || Outside {
            steered: self.control().is_waiting(When::NextRequest),
            follow_up: self.control().is_waiting(When::ModelStops),
            stopping: self.control().is_stopping(),
            exceeded: self.exceeded(state, &spent),
            too_many_calls: budget.too_many_calls().filter(|_| state.limited_calls > 0),
            nothing_left: budget.has_nothing_left(&spent),
            broke_off: self.control().broke_off(),
        });
        let Outside {
            steered,
            follow_up,
            stopping,
            exceeded,
            too_many_calls,
            nothing_left,
            broke_off,
        } = outside;
        if state.wrapping_up.is_none() {
            state.exceeded = exceeded.or(too_many_calls).or(state.exceeded);
        }
        let mut limits = self.agent.limits;
        if self.agent.options.output != Output::Text || !self.agent.checks.is_empty() {
            // What is checked is one turn: half an answer and its other half are none.
            limits.continuations = 0;
        }
        Facts {
            limits,
            steered,
            follow_up,
            stopping,
            exceeded,
            too_many_calls,
            can_compact: self.agent.compactor.is_some() && !context::was_compacted(&state.history),
            fallbacks: self.agent.fallbacks.len(),
            broke_off,
            nothing_left,
            wrap_up: budget.wants_wrap_up() && !nothing_left,
        }
    }

    /// The limit that is reached. Time that is kept for a last turn counts as used up where one can
    /// follow.
    pub(super) fn exceeded(&self, state: &State, spent: &Spent) -> Option<Exceeded> {
        let budget = &self.agent.budget;
        match self.can_wrap_up(state) {
            true => budget.exceeded(spent),
            false => budget.exceeded_without_last_turn(spent),
        }
    }

    /// What the run has used. What came on top since the last time is drawn from the pool.
    pub fn spent(&self, state: &State) -> Spent {
        let charged = self.charge();
        Spent {
            usage: charged.usage,
            cost: charged.cost,
            elapsed: self.control().started().elapsed(),
            tool_calls: state.tool_calls,
        }
    }

    fn charge(&self) -> Charged {
        self.control().charge(self.handle.usage(), |more| self.agent.budget.drain(more))
    }

    /// The request is answered, or has failed: what it used is counted, and the rest of what was
    /// reserved for it is given back.
    pub(super) fn request_is_over(&self) {
        self.control().request_is_closed();
        self.charge();
        self.control().admission().settle();
    }

    /// What is done to the history before the next request: what hooks noted is said, what is to
    /// become [void](RunHandle::tombstone) does, what was steered is said, and a follow-up if it is its
    /// turn. Yield each event, and call it until it is `None`: the state's history has all of them then.
    pub fn deliver(&self, state: &mut State) -> Option<Event> {
        state.history = self.history();
        let notes = self.effects.draw(Kind::Notes, || self.control().observers().take_notes());
        if notes.is_empty()
            && let Some(voided) = self.next_voided(|queue| queue.next(&state.history))
        {
            state.room.is_void(&state.history);
            return Some(voided);
        }
        let said = match notes.is_empty() {
            true => self.effects.draw(Kind::Said, || self.said(state)),
            false => Some(Event::Appended { why: AppendedWhy::Hook, id: self.id(), items: notes }),
        };
        let Some(Event::Appended { why, id, items }) = said else {
            state.follow_up = false;
            return None;
        };
        if why == AppendedWhy::FollowUp {
            // One at a time: the next waits until the model stops again.
            state.follow_up = false;
        }
        // What is new to the model is a new chance to prove what it claims.
        if why != AppendedWhy::Hook {
            (state.sent_back, state.idle) = (false, 0);
        }
        Some(Event::Appended { why, id, items })
    }

    /// What a holder says before the next request.
    fn said(&self, state: &State) -> Option<Event> {
        let (why, said) = match self.control().take(When::NextRequest, state.model_calls + 1) {
            Some(said) => (AppendedWhy::Steer, said),
            None if state.follow_up => {
                let said = self.control().take(When::ModelStops, state.model_calls + 1)?;
                (AppendedWhy::FollowUp, said)
            }
            None => return None,
        };
        Some(Event::Appended { why, id: said.id, items: said.items })
    }

    /// What becomes void when the run is over, already observed.
    pub(super) fn void_at_end(&self) -> Option<Event> {
        let journal = &self.handle.journal;
        let event = self.next_voided(|queue| queue.next_or_close(&journal.history()))?;
        journal.observe(&event);
        Some(event)
    }

    /// The next range that becomes void, as an event.
    fn next_voided(
        &self,
        next: impl FnOnce(&TombstoneQueue) -> Option<Tombstones>,
    ) -> Option<Event> {
        let next = || next(self.control().tombstones()).map(voided);
        self.effects.draw(Kind::Tombstones, next)
    }

    /// The request of the state, as hooks want it, once the [pool](crate::agent::Pool) of the run has
    /// tokens and a slot for it. It counts as a model call.
    ///
    /// `None` says that it is not to be sent: the pool is spent, or something has come up while the
    /// run waited that is to be looked at first, such as words of a holder. It does not count then,
    /// and what comes next is looked for again, from [`facts`](Self::facts) on; the run keeps its place
    /// in the order. Dropping the future gives the place up.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if a hook fails, and
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if two tools have one name, or money is
    /// limited and the model has no price.
    pub fn request(
        &self,
        state: &mut State,
    ) -> impl Future<Output = Result<Option<Request>, Error>> + Send {
        // Boxed, so that it takes no room in the body for all of the lap, nor on the stack of the runs
        // above a sub-agent.
        Box::pin(async move {
            state.model_calls += 1;
            self.control().set_broke_off(false);
            let request = self.prepared(state).await?;
            request.check()?;
            let model = request.model.as_deref().unwrap_or(self.provider(state).model());
            let model = Arc::from(model);
            let price = self.agent.budget.price_of(&model)?;
            if !self.admit(state, &request).await? {
                state.model_calls = state.model_calls.saturating_sub(1);
                return Ok(None);
            }
            let as_ever = Arc::ptr_eq(&request.tools, &self.agent.kit.specs());
            state.offered = (!as_ever).then(|| Arc::clone(&request.tools));
            // What was used until here was the last model's.
            self.spent(state);
            self.control().set_price(price);
            state.model = model;
            Ok(Some(request))
        })
    }

    /// A request as hooks want it, or wanted it in the run that is played.
    async fn prepared(&self, state: &State) -> Result<Request, Error> {
        let mut request = self.agent.request(&state.history);
        if state.wrapping_up.is_some() && !request.tools.is_empty() {
            // The tools stay listed, so that what is cached still fits.
            request.options.tool_choice = ToolChoice::None;
        }
        if self.agent.hooks.is_empty() {
            // Nothing has to be cloned for it.
            let unchanged = future::ready(Ok(Prepared::default()));
            let prepared = self.effects.perform(Kind::Prepared, unchanged).await?;
            return Ok(prepared.request(request));
        }
        let (agent, state, plain) = (Arc::clone(&self.agent), state.clone(), request.clone());
        let prepare = async move {
            let request = Box::new(agent.hooks.request(&state, plain.clone()).await?);
            Ok(Prepared::Made { plain: Box::new(plain), request })
        };
        let prepared = self.effects.perform(Kind::Prepared, prepare).await?;
        Ok(prepared.request(request))
    }

    /// The event that tells of a request.
    pub fn turn_started(&self, state: &State) -> Event {
        Event::TurnStarted {
            turn: state.model_calls,
            model: state.model.to_string(),
            transition: state.transition,
        }
    }

    /// Sends a request when the turn is polled, and begins to tell hooks of it.
    ///
    /// In a replay a turn fails with [`ReplayMismatch`](crate::ErrorKind::ReplayMismatch) if its request is
    /// not that of the run that is played.
    pub fn ask(&self, state: &State, request: Request) -> TurnStream {
        let (cx, now) = (self.clone(), state.clone());
        let turn = self.effects.turn(request, Box::new(move |request| cx.send(&now, request)));
        if !self.agent.hooks.is_empty() {
            let state = Arc::new(state.clone());
            self.begin_to_observe(self.agent.hooks.turn_started(&state));
        }
        turn
    }

    /// Sends a request, unless the time of the run is over, which ends the run in its next poll. A
    /// provider with another after it leaves to the loop what that one handles.
    fn send(&self, state: &State, mut request: Request) -> TurnStream {
        if self.is_too_late(state) {
            return seal(&request, stream::pending::<Result<TurnEvent, Error>>());
        }
        if state.provider < self.agent.fallbacks.len() {
            let left = self.asks_again(state);
            // A generation that failed is corrected first.
            request.retries = request.retries.except(move |error| {
                let kind = error.kind();
                another_could(kind) && kind != ErrorKind::GenerationFailed && left()
            });
        }
        self.control().request_is_open();
        let max_output_tokens = request.options.max_output_tokens;
        let turn = self.provider(state).stream_turn(request);
        turn.limited(self.agent.limits.max_turn_bytes, max_output_tokens)
    }

    /// Whether the loop could ask another provider when the request of this state fails, at the time at
    /// which it is called. It holds nothing of the agent but its limits, since providers keep requests.
    fn asks_again(&self, state: &State) -> impl Fn() -> bool + Send + Sync + 'static {
        let (budget, limits) = (self.agent.budget.clone(), self.agent.limits);
        let (calls, wraps_up) = (state.model_calls, state.wrapping_up.is_some());
        let (handle, tool_calls) = (self.shared_handle(), state.tool_calls);
        move || {
            let control = &handle.control;
            let spent = control.would_have_spent(handle.usage(), tool_calls);
            !wraps_up
                && !control.is_stopping()
                && calls < limits.turns_before_wrap_up(budget.wants_wrap_up())
                && budget.exceeded(&spent).is_none()
        }
    }

    /// Whether the time for requests of this kind is over, which the next poll acts on.
    pub(super) fn is_too_late(&self, state: &State) -> bool {
        let (budget, elapsed) = (&self.agent.budget, self.control().started().elapsed());
        let is_cut = || budget.time_before_wrap_up().is_some_and(|before| elapsed >= before);
        let may_be_cut = !self.control().has_all_of_the_time() && self.can_wrap_up(state);
        budget.is_time_up(elapsed) || may_be_cut && is_cut()
    }

    /// Whether a last turn can follow what runs now.
    pub(super) fn can_wrap_up(&self, state: &State) -> bool {
        let requests = self.handle.journal.requests().max(state.model_calls);
        let was_asked = requests > 0 || state.resuming.is_some() || answers_tools(state);
        state.wrapping_up.is_none()
            && !self.control().is_stopping()
            && was_asked
            && requests < self.agent.limits.max_turns
    }

    /// Counts what a turn used that is complete, at the price of the model that answered.
    pub(super) fn turn_is_complete(&self, turn: &Turn) {
        // Another model than the one that was asked may have answered, at a price of its own.
        if let Some(answered) = turn.model()
            && let Ok(Some(price)) = self.agent.budget.price_of(answered)
        {
            self.control().set_price(Some(price));
        }
        self.request_is_over();
    }

    /// Begins to tell hooks of a turn; the run polls them from here on, and nothing waits for them.
    /// What they want said is said by [`deliver`](Self::deliver) once it is there.
    pub fn observe(&self, state: &State, turn: &Arc<Turn>) {
        if !self.agent.hooks.is_empty() {
            let state = Arc::new(state.clone());
            self.begin_to_observe(self.agent.hooks.assistant_message(&state, turn));
            self.begin_to_observe(self.agent.hooks.after_sampling(&state, turn));
        }
    }

    /// Tells hooks of a failure. Gives what takes the open turn back, if anything of it came.
    pub fn failed(&self, state: &State, error: &Error) -> Option<Event> {
        self.control().request_has_failed(error);
        self.request_is_over();
        self.control().set_broke_off(broke_off(error));
        self.agent.hooks.failure(state, error);
        let usage = PartialTurn::of(error).map_or_else(Usage::default, PartialTurn::usage);
        let why = words::taken_back(error);
        self.handle.journal.is_open().then(|| TurnEvent::Retracted { why, usage }.into())
    }

    /// The answers of a turn's calls: what runs, or what they are answered with instead.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if nothing can be resumed: without a turn, it
    /// is the calls that were pending which run.
    pub fn answers(
        &self,
        state: &State,
        turn: Option<&Arc<Turn>>,
        decision: &Decision,
    ) -> Result<ToolRun, Error> {
        drop(self.control().take_started());
        let kit = &self.agent.kit;
        let run = match (turn, &state.offered) {
            (Some(turn), Some(offered)) => kit.offering(offered).run(&state.history, turn),
            (Some(turn), None) => kit.run(&state.history, turn),
            (None, _) => kit.resume(&state.history)?,
        };
        let run = match turn.is_none_or(|turn| !turn.calls().is_empty()) {
            true => self.handing_over(run),
            false => run,
        };
        let run = match decision {
            Decision::RunTools => {
                let run = run.gated(RunGate::new(self.clone(), state.clone()));
                let budget = &self.agent.budget;
                match (budget.calls_left(&self.spent(state)), budget.too_many_calls()) {
                    (Some(left), Some(exceeded)) => {
                        let why = words::out_of_budget(&exceeded);
                        run.limited(left, ResultKind::Budget, why)
                    }
                    (Some(_) | None, _) => run,
                }
            }
            Decision::Refuse { kind, why, .. } => run.refused(*kind, why.clone()),
            Decision::Then(_) | Decision::Stop => run,
        };
        let handle = self.shared_handle();
        let run = run.told_by(move || handle.history());
        let has_calls = run.calls().next().is_some();
        Ok(if has_calls { self.effects.fan_out(run) } else { run })
    }

    /// The calls that are pending, with the verdicts that the run's [world](crate::world) has waited for;
    /// `None` if none is pending, the agent is not interactive, the world does not
    /// [suspend](crate::world::World::suspends), or a verdict is missing.
    ///
    /// # Errors
    ///
    /// What the world fails with, and [`InvalidRequest`](crate::ErrorKind::InvalidRequest) if a verdict is
    /// not one on a pending call.
    pub fn resumed(
        &self,
        state: &mut State,
    ) -> impl Future<Output = Result<Option<Box<ToolRun>>, Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            let waits = self.agent.interactive && self.effects.world().suspends();
            if !waits || state.pending.is_empty() {
                return Ok(None);
            }
            let elapsed = self.control().started().elapsed();
            let left = self.agent.budget.timer().map(|limit| limit.saturating_sub(elapsed));
            let verdicts = self.effects.suspend(state.pending.clone(), left).await?;
            let has_verdict = |call| verdicts.iter().any(|(judged, _)| judged == call);
            if !state.pending.iter().all(has_verdict) {
                return Ok(None);
            }
            let verdicts = self.agent.judged(&state.history, verdicts)?;
            self.control().keep_verdicts(verdicts.clone());
            state.resuming = Some(verdicts);
            let run = self.answers(state, None, &Decision::RunTools)?;
            state.resuming = None;
            Ok(Some(Box::new(run)))
        })
    }

    /// Calls with the data of the run, and with what is left of the depth of sub-agents.
    fn handing_over(&self, run: ToolRun) -> ToolRun {
        let data = self.data();
        let left = data.get::<AgentsLeft>().map_or(self.agent.limits.max_depth, |left| left.0);
        match left.checked_sub(1) {
            Some(left) => run.with_data(data.with(AgentsLeft(left))),
            None => run.with_data(data).refusing_agents(),
        }
    }

    /// No verdict on these calls counts any more.
    pub fn close_verdicts(&self) {
        self.control().close_verdicts();
    }

    /// The same, unless the model is to be asked again and a hook wants the run to stop here.
    ///
    /// # Errors
    ///
    /// [`Hook`](crate::ErrorKind::Hook) if one fails.
    pub fn unless_stopped(
        &self,
        state: &State,
        next: Next,
    ) -> impl Future<Output = Result<Next, Error>> + Send {
        // Boxed, as in `request`.
        Box::pin(async move {
            if !next.asks_again() {
                return Ok(next);
            }
            let (agent, state) = (Arc::clone(&self.agent), state.clone());
            let ask = async move { agent.hooks.should_stop(&state).await };
            Ok(match self.effects.perform(Kind::ShouldStop, ask).await? {
                true => Next::Finish(Reason::Stopped),
                false => next,
            })
        })
    }

    /// Counts what the last requests used, when the run is over. Gives what all of them cost, where
    /// money is limited.
    pub(super) fn over(&self, state: &State) -> Option<u64> {
        self.request_is_over();
        let spent = self.spent(state);
        self.agent.budget.limits_money().then_some(spent.cost)
    }

    /// What comes of a decision: the events that tell it, and the step. Yield them in this order.
    pub fn then(&self, state: State, next: Next) -> (Vec<Event>, Step<Event, State>) {
        State { history: self.history(), ..state }.then(next, || self.id())
    }

    /// The provider that the state is at.
    pub fn provider(&self, state: &State) -> &dyn Provider {
        let first = &self.agent.provider;
        let fallback = state.provider.checked_sub(1).and_then(|at| self.agent.fallbacks.get(at));
        &**fallback.unwrap_or(first)
    }
}

fn voided(Tombstones { from, to, items }: Tombstones) -> Event {
    Event::Rewritten { why: RewrittenWhy::Tombstoned, from, to, items, usage: Usage::default() }
}
