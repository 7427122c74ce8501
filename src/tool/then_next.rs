//! From the results of a turn's calls to the next state.

use futures::StreamExt;

use crate::event::Event;
use crate::item::{History, ToolResult};
use crate::stream::{Step, Steps};
use crate::tool::ToolRun;

impl ToolRun {
    /// Forwards the events of the tools, and goes on with the state that `next` makes of the
    /// history: by then it holds the turn and every result, in call order.
    ///
    /// Dropping the steps drops every tool that is running. If a [`Gate`](crate::tool::Gate) ends
    /// the run with an error, that is the last step; calls that it leaves pending are without a
    /// result in the history ([`finish`](Self::finish) tells which they are).
    ///
    /// ```
    /// # use turnstream::{History, Item, tool::Toolkit};
    /// # fn body(kit: &Toolkit, history: &History, turn: &std::sync::Arc<turnstream::Turn>) {
    /// let steps = kit.run(history, turn).then_next(|history| history);
    /// # drop(steps);
    /// # }
    /// ```
    pub fn then_next<S, F>(self, next: F) -> Steps<'static, S>
    where
        S: Send + 'static,
        F: FnOnce(History) -> S + Send + 'static,
    {
        self.then_steps(|history, _| Steps::next(next(history)))
    }

    /// Forwards the events of the tools, and goes on with the steps that `then` gives: it gets the
    /// history, which holds the turn and every result in call order, and the results themselves.
    ///
    /// Like [`then_next`](Self::then_next), for those who may also stop.
    pub fn then_steps<S, F>(self, then: F) -> Steps<'static, S>
    where
        S: Send + 'static,
        F: FnOnce(History, &[ToolResult]) -> Steps<'static, S> + Send + 'static,
    {
        Steps::new(async_stream::stream! {
            let mut tools = self;
            while let Some(event) = tools.next().await {
                yield Ok(Step::Value(Event::from(event)));
            }
            let answered = match tools.finish() {
                Ok(answered) => answered,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let mut steps = then(answered.history, &answered.results);
            while let Some(step) = steps.next().await {
                yield step;
            }
        })
    }
}
