//! Encodes events as server-sent events.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use crate::error::Error;
use crate::event::Event;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::frame::{write_data, write_keep_alive, write_text};
use crate::ui::partial_sender::{PartialSender, SentPartial};
use crate::ui::response::EncodeEvents;

/// Encodes this crate's events as JSON, unchanged.
#[derive(Clone, Debug, Default)]
pub(super) struct SseEncoder {
    pub(super) retry: Option<Duration>,
    pub(super) error_texts: ErrorTexts,
    /// The number of the most recent event, starting at 1.
    pub(super) number: u64,
    pub(super) partials: Option<PartialSender>,
}

/// The data of the last server-sent event.
#[derive(Serialize)]
pub(super) struct End {
    pub(super) finished: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
}

impl EncodeEvents for SseEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        match self.retry {
            Some(wait) => write_text(out, format_args!("retry: {}\n\n", wait.as_millis())),
            // A comment is sent immediately, so that the client receives the response's head.
            None => self.keep_alive(out),
        }
    }

    fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        if let Some(partials) = &mut self.partials {
            write_partials(&partials.observe(event), out);
        }
        self.number += 1;
        let shown = self.error_texts.event(event).map_or(Cow::Borrowed(event), Cow::Owned);
        out.extend_from_slice(b"id: ");
        // Writing to a vector does not fail.
        let _ = serde_json::to_writer(&mut *out, &self.number);
        out.push(b'\n');
        write_data(out, &*shown);
    }

    fn encode_idle(&mut self, out: &mut Vec<u8>) {
        let growing = self.partials.as_mut().map(PartialSender::growing);
        write_partials(&growing.unwrap_or_default(), out);
    }

    fn is_last(&self, event: &Event) -> bool {
        matches!(event, Event::Finished(_))
    }

    fn end(&mut self, error: Option<&Error>, out: &mut Vec<u8>) {
        if error.is_some() {
            let ended = self.partials.as_mut().map(PartialSender::end_early);
            write_partials(&ended.unwrap_or_default(), out);
        }
        let error = error.map(|error| self.error_texts.error(error));
        out.extend_from_slice(b"event: end\n");
        write_data(out, &End { finished: error.is_none(), error });
    }

    fn keep_alive(&self, out: &mut Vec<u8>) {
        write_keep_alive(out);
    }
}

/// Writes values as events of their own type. They have no id, so a browser that reconnects sends
/// the id of the last event of the run.
pub(super) fn write_partials(partials: &[SentPartial], out: &mut Vec<u8>) {
    for partial in partials {
        out.extend_from_slice(b"event: partial\n");
        write_data(out, &partial.to_json("call_id"));
    }
}
