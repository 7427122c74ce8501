//! What the calls of a turn came to.

use crate::error::Error;
use crate::item::{History, Item, PendingCall, ToolResult};
use crate::tool::{Tool, ToolRun};

/// What the calls of a turn came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// What the run began with, the turn, and the results in call order.
    pub history: History,
    /// The results, in call order.
    pub results: Vec<ToolResult>,
    /// The calls that wait for a verdict or a result from outside, in call order, with the arguments
    /// that would run. A call whose sub-agent was suspended is not listed itself; those that the
    /// sub-agent waits for are, each with the path to it.
    pub pending: Vec<PendingCall>,
    /// The ids of the results' calls whose tools are [pollable](crate::Tool::pollable).
    pub polls: Vec<String>,
    /// How many of the results are those of calls beyond the [limit](ToolRun::limited).
    pub limited: usize,
}

impl ToolRun {
    /// What the calls came to, after the stream has ended.
    ///
    /// If it has not, everything that runs is dropped, and what has no result is not there.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # use turnstream::{Error, History, Toolkit, Turn};
    /// # async fn f(kit: &Toolkit, history: &History, turn: &std::sync::Arc<Turn>) -> Result<(), Error> {
    /// let mut tools = kit.run(history, turn);
    /// while let Some(event) = tools.next().await {
    ///     println!("{}", event.call_id());
    /// }
    /// let answered = tools.finish()?;
    /// assert!(answered.history.is_lawful() && answered.pending.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// What the [`Gate`](crate::tool::Gate) ended it with.
    pub fn finish(self) -> Result<Answered, Error> {
        let pending = self.pending();
        let limited = match &self.played {
            Some(played) => played.limited,
            None => self.limit.as_ref().map_or(0, |limit| limit.answered),
        };
        let Self { kit, mut history, turn, resumed, mut results, suspended, error, told, .. } =
            self;
        if let Some(error) = error {
            return Err(error);
        }
        results.sort_by_key(|(at, _)| *at);
        let results: Vec<_> = results.into_iter().map(|(_, result)| result).collect();
        if let Some(told) = told {
            history = told();
        } else {
            if !resumed {
                history.extend(turn.to_history_items());
            }
            history.extend(results.iter().cloned().map(Item::tool_result));
            for call in suspended {
                call.write(&mut history);
            }
        }
        let is_poll = |name: &str| kit.get(name).is_some_and(Tool::is_pollable);
        let polls = results.iter().filter(|result| is_poll(&result.name));
        let polls = polls.map(|result| result.call_id.clone()).collect();
        Ok(Answered { history, results, pending, polls, limited })
    }

    /// The calls that stay open, in call order.
    pub(super) fn pending(&self) -> Vec<PendingCall> {
        if let Some(played) = &self.played {
            let has_result = |id: &str| self.results.iter().any(|(_, it)| it.call_id == id);
            let is_open = |call: &&PendingCall| !has_result(call.own_call_id());
            return played.pending.iter().filter(is_open).cloned().collect();
        }
        let waiting = self.waiting.iter().map(|it| (it.at, vec![PendingCall::from(&it.call)]));
        let suspended = self.suspended.iter().map(|it| (it.at, it.pending().collect()));
        let mut pending: Vec<(usize, Vec<PendingCall>)> = waiting.chain(suspended).collect();
        pending.sort_by_key(|(at, _)| *at);
        pending.into_iter().flat_map(|(_, calls)| calls).collect()
    }
}
