//! Running the calls that a history has left open.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::item::History;
use crate::request::check_names;
use crate::tool::{ToolRun, Toolkit};
use crate::turn::Turn;

impl Toolkit {
    /// Runs the calls of the last turn of `history` that have no result, and no others.
    ///
    /// They are checked again, as by [`run`](Self::run): their ids are used once, their tools are
    /// there, and their arguments fit. The [`Answered::history`](crate::tool::Answered::history) is
    /// `history` with their results.
    ///
    /// # Errors
    ///
    /// [`InvalidRequest`](ErrorKind::InvalidRequest) if two tools have one name, if no call is open, if something else than
    /// results follows the turn of the open ones, if that turn is not known to be complete (its last
    /// item carries a [`TurnInfo`](crate::item::TurnInfo)), or does not allow calls to run. The message
    /// says which.
    pub fn resume(&self, history: &History) -> Result<ToolRun, Error> {
        check_names(&self.specs())?;
        let refuse = |why: &str| Error::new(ErrorKind::InvalidRequest, why);
        let mut open = history.unanswered_calls();
        if open.is_empty() {
            return Err(refuse("no call is open"));
        }
        let turn = Turn::resumed(history).map_err(refuse)?;
        if turn.calls().veto().is_some() {
            let why = format!(
                "the turn of the open calls does not allow them to run: it stopped as `{}`",
                turn.stop_reason().as_str()
            );
            return Err(refuse(&why));
        }
        let mut queue = VecDeque::new();
        for (at, call) in turn.tool_calls().enumerate() {
            if let Some(found) = open.iter().position(|open| open == call) {
                queue.push_back((at, open.remove(found)));
            }
        }
        if !open.is_empty() {
            return Err(refuse(
                "a call of an earlier turn is open: of the items of a turn only the last one carries \
                 a `TurnInfo`",
            ));
        }
        let mut run = ToolRun::new(self, history.clone(), Arc::new(turn), queue);
        run.resumed = true;
        Ok(run)
    }
}
