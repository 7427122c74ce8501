//! Ends turns that are complete, voided or cut off.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::item::{ItemKind, StopReason, validate_json};
use crate::turn::builder::absorb_event::payload_bytes;
use crate::turn::builder::builder::{LimitExceeded, MAX_ITEMS, TurnBuilder};
use crate::turn::builder::call_index::CallIndex;
use crate::turn::{PartialTurn, Turn, TurnEvent};
use crate::usage::Usage;

impl TurnBuilder {
    /// Sets the terminal marker. `reason` states why the model stopped, and `raw` is the name of
    /// this reason in the wire format. If the marker is already set, this method has no effect.
    pub fn stop(&mut self, reason: StopReason, raw: &str) {
        if !self.is_finished && self.stop_reason.is_none() {
            // If the name in the wire format is also the name that this crate uses for a stop
            // reason, it is converted to that stop reason, as in a round trip through JSON.
            let reason = match reason {
                StopReason::Other(word) => StopReason::from(Cow::Owned(word)),
                reason => reason,
            };
            // The builder itself sets this reason, on a turn whose items are marked.
            let reason = match reason {
                StopReason::Interrupted => StopReason::Other("interrupted_by_server".to_owned()),
                reason => reason,
            };
            self.stop_reason = Some((reason, (!raw.is_empty()).then(|| raw.to_owned())));
        }
    }

    /// Clears the terminal marker because the turn continues. The turn then needs another terminal
    /// marker before it can complete.
    pub(crate) fn clear_stop(&mut self) {
        if !self.is_finished {
            self.stop_reason = None;
        }
    }

    /// Returns whether a terminal marker is set. If a response ends without one, the turn is
    /// incomplete.
    pub fn is_stopped(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// Returns whether the turn is complete. Once the turn is complete, pushing anything has no
    /// effect.
    pub fn is_complete(&self) -> bool {
        self.is_completed
    }

    /// Returns whether the turn is complete or has failed. Such a turn accepts no more input.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Voids the current attempt at the turn. Anything pushed later belongs to a new attempt.
    pub fn retract(&mut self, why: impl Into<String>) {
        if self.is_finished {
            return;
        }
        let usage = self.partial.usage;
        self.partial = PartialTurn::default();
        self.calls.clear();
        self.call_index = CallIndex::default();
        self.stop_reason = None;
        self.used_bytes = 0;
        self.events.push_back(TurnEvent::Retracted { why: why.into(), usage: usage.into() });
    }

    /// Voids a failed attempt so that another attempt can follow. The failed attempt's output and
    /// usage are [retracted](Self::retract). If the attempt produced neither output nor usage, no
    /// event is emitted.
    pub(crate) fn retract_failed_attempt(&mut self, error: &Error) {
        if self.has_started() || self.partial.usage != Usage::default() {
            self.retract(error.to_string());
        } else if !self.is_finished {
            // The next attempt reports its own model and response id.
            self.partial = PartialTurn::default();
        }
    }

    /// Emits an event that reports a retry: `attempt` is the number of failed attempts, the last of
    /// which failed with `error`, and the request will be sent again after `delay`. If this attempt
    /// has already produced output, no event is emitted, since a retry would first have to
    /// [retract](Self::retract) that output.
    pub(crate) fn report_retry(&mut self, attempt: u32, delay: Duration, error: Error) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.forward_retry(TurnEvent::Retrying { attempt, delay_ms, error: Arc::new(error) });
    }

    /// Emits a retry event from another stream, unless this attempt has already produced output.
    pub(super) fn forward_retry(&mut self, event: TurnEvent) {
        if !self.is_finished && !self.has_started() {
            self.events.push_back(event);
        }
    }

    /// Completes the turn.
    ///
    /// # Errors
    ///
    /// Returns a [`TooLarge`](ErrorKind::TooLarge) error if the turn contains more than 16,384
    /// items or more bytes than the [request](crate::Request) allows. Returns an
    /// [`IncompleteTurn`](ErrorKind::IncompleteTurn) error if no terminal marker was set. Returns a
    /// [`Protocol`](ErrorKind::Protocol) error if the model stopped normally or to call tools, but
    /// one of the calls is incomplete.
    pub fn complete(&mut self) -> Result<(), Error> {
        if self.is_completed {
            return Ok(());
        }
        if self.is_finished {
            return Err(self.fail_incomplete(None));
        }
        let Some((stop_reason, raw_stop_reason)) = self.stop_reason.take() else {
            return Err(self.fail_incomplete(None));
        };
        let stop_reason = self.stop_reason_or_truncated(stop_reason);
        let may_run = matches!(stop_reason, StopReason::Stop | StopReason::ToolCalls);
        if may_run && self.calls.iter().any(|call| !call.has_ended) {
            self.is_finished = true;
            let message = "a tool call is unfinished";
            return Err(Error::new(ErrorKind::Protocol, message));
        }
        self.end_open_calls();
        (self.is_finished, self.is_completed) = (true, true);
        let partial = std::mem::take(&mut self.partial);
        let turn = Turn {
            items: partial.blocks.into_iter().map(|block| block.item).collect(),
            stop_reason,
            raw_stop_reason,
            usage: partial.usage,
            model: partial.model,
            response_id: partial.response_id,
            billing: partial.billing.filter(|billing| !billing.is_empty()),
            logprobs: partial.logprobs,
            built: true,
        };
        self.events.push_back(TurnEvent::TurnComplete { turn: Arc::new(turn) });
        Ok(())
    }

    /// Completes the turn with the part that has arrived, because it was interrupted. The items are
    /// marked as interrupted. They lack provider data and provider-specific items, as do the items
    /// of a turn that was dropped, since a provider would reject truncated data.
    ///
    /// Token counts that have not been reported are estimated; `estimate_input` estimates the
    /// request.
    pub(crate) fn interrupt(&mut self, estimate_input: impl FnOnce() -> u64) {
        if self.is_finished {
            return;
        }
        (self.is_finished, self.is_completed) = (true, true);
        let partial = std::mem::take(&mut self.partial);
        let mut items = partial.items();
        // Without their provider data, nothing of these items is left.
        items.retain(|item| match &item.kind {
            ItemKind::Text { text } | ItemKind::Reasoning { text } => !text.is_empty(),
            kind => *kind != ItemKind::Other,
        });
        for item in &mut items {
            item.provider_data = None;
        }
        let output_bytes = items.iter().map(payload_bytes).sum();
        let turn = Turn {
            items,
            stop_reason: StopReason::Interrupted,
            raw_stop_reason: None,
            usage: partial.usage.with_estimates(estimate_input, output_bytes),
            model: partial.model,
            response_id: partial.response_id,
            billing: partial.billing.filter(|billing| !billing.is_empty()),
            logprobs: partial.logprobs,
            built: true,
        };
        self.events.push_back(TurnEvent::TurnComplete { turn: Arc::new(turn) });
    }

    /// Returns [`StopReason::MaxTokens`] if the output limit cut off a call even though the server
    /// reported another reason. Otherwise, returns `reason`.
    fn stop_reason_or_truncated(&self, reason: StopReason) -> StopReason {
        let is_cut_off = || self.has_reached_output_limit() && self.has_truncated_call();
        match reason {
            StopReason::Stop | StopReason::ToolCalls | StopReason::Other(_) if is_cut_off() => {
                StopReason::MaxTokens
            }
            reason => reason,
        }
    }

    /// Returns whether the turn has used all of the output tokens that the request allows. Returns
    /// `false` if the limit or the number of tokens used is unknown.
    fn has_reached_output_limit(&self) -> bool {
        let limit = self.max_output_tokens.filter(|limit| *limit > 0);
        limit.is_some_and(|limit| self.partial.usage.output_tokens >= u64::from(limit))
    }

    fn has_truncated_call(&self) -> bool {
        self.calls.iter().any(|call| !call.has_ended)
            || self.all_arguments().any(|arguments| validate_json(arguments).is_err())
    }

    /// Returns whether the arguments of each call are JSON. Unlike the arguments of a call that has
    /// ended, empty arguments are not JSON, because the rest may be missing.
    pub(crate) fn has_json_arguments(&self) -> bool {
        let is_json = |text: &str| !text.trim().is_empty() && validate_json(text).is_ok();
        self.all_arguments().all(is_json)
    }

    /// Returns the arguments of all calls, as far as they have been received.
    fn all_arguments(&self) -> impl Iterator<Item = &str> {
        let written = self.partial.blocks.iter().filter_map(|block| block.item.as_tool_call());
        let held = self.calls.iter().filter_map(|call| call.held_call.as_ref());
        let written = written.map(|call| call.arguments.as_str());
        written.chain(held.map(|held| held.arguments.as_str()))
    }

    /// Ends a turn that has no terminal marker. The returned error contains the partial turn.
    pub fn fail_incomplete(&mut self, cause: Option<Error>) -> Error {
        self.is_finished = true;
        if let Some(excess) = self.limit_exceeded {
            let message = match excess {
                LimitExceeded::Items => format!("the turn has more than {MAX_ITEMS} items"),
                LimitExceeded::Bytes => format!(
                    "the turn has more than {} bytes of text, reasoning and arguments",
                    self.max_bytes.0
                ),
            };
            let partial = std::mem::take(&mut self.partial);
            return Error::new(ErrorKind::TooLarge, message).with_source(partial);
        }
        std::mem::take(&mut self.partial).into_error(cause)
    }

    /// Ends the turn with an error. If any part of the turn has arrived, a [`PartialTurn`] is
    /// inserted between the error and its original source, so that output that has been paid for is
    /// not lost.
    pub(crate) fn fail(&mut self, error: Error) -> Error {
        self.is_finished = true;
        let partial = std::mem::take(&mut self.partial);
        if partial.is_empty() || error.find_source::<PartialTurn>().is_some() {
            return error;
        }
        error.map_source(|cause| partial.with_cause(cause))
    }

    /// Stops accepting input if the turn contains more than [`MAX_ITEMS`] items.
    pub(super) fn check_item_limit(&mut self) {
        if self.partial.blocks.len().max(self.calls.len()) > MAX_ITEMS {
            self.exceed_item_limit();
        }
    }

    /// Counts bytes that are about to be added to the turn, or that a decoder buffers for the turn.
    /// Returns `false` if the turn accepts no more input.
    pub(crate) fn count_bytes(&mut self, bytes: usize) -> bool {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > self.max_bytes.0 {
            self.set_limit_exceeded(LimitExceeded::Bytes);
        }
        !self.is_finished
    }

    /// Stops accepting input because a decoder has buffered more items than a turn may contain.
    pub(crate) fn exceed_item_limit(&mut self) {
        self.set_limit_exceeded(LimitExceeded::Items);
    }

    pub(super) fn set_limit_exceeded(&mut self, excess: LimitExceeded) {
        if !self.is_finished {
            (self.is_finished, self.limit_exceeded) = (true, Some(excess));
        }
    }
}
