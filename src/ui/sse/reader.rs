//! Encodes the items from a hub's reader as server-sent events.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use super::encode::{End, write_partials};
use crate::error::Error;
use crate::event::Event;
use crate::hub::{EventNumber, HubEvent, ShuttingDown, Snapshot, TooSlow};
use crate::item::PendingCall;
use crate::ui::error_texts::ErrorTexts;
use crate::ui::frame::{write_data, write_keep_alive, write_text};
use crate::ui::partial_sender::PartialSender;
use crate::ui::response::EncodeEvents;

/// How long a browser waits before reconnecting to a server that is restarting.
const RETRY_AFTER_SHUT_DOWN: Duration = Duration::from_secs(5);

/// Encodes events, using the hub's event numbers as ids.
#[derive(Clone, Debug)]
pub(super) struct ReaderEncoder {
    pub(super) retry: Option<Duration>,
    pub(super) error_texts: ErrorTexts,
    /// Whether the run has [finished](Event::Finished).
    pub(super) has_finished: bool,
    /// The error of a run that failed before it [finished](Event::Finished).
    pub(super) failure: Option<Error>,
    pub(super) partials: Option<PartialSender>,
}

/// Data other than the run's events.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Data<'a> {
    Snapshot {
        run: Option<&'a str>,
        starts_at: Option<u64>,
        events: Vec<Cow<'a, Event>>,
        pending: Vec<PendingCall>,
    },
    Ended {
        error: Option<Error>,
    },
}

impl ReaderEncoder {
    fn snapshot<'a>(&self, snapshot: &'a Snapshot) -> Data<'a> {
        let shown = |event: &'a Event| match self.error_texts.event(event) {
            Some(shown) => Cow::Owned(shown),
            None => Cow::Borrowed(event),
        };
        Data::Snapshot {
            run: snapshot.run(),
            starts_at: snapshot.starts_at(),
            events: snapshot.events().iter().map(|event| shown(event)).collect(),
            pending: snapshot.pending_calls(),
        }
    }
}

impl EncodeEvents<HubEvent> for ReaderEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        match self.retry {
            Some(wait) => write_text(out, format_args!("retry: {}\n\n", wait.as_millis())),
            None => self.keep_alive(out),
        }
    }

    fn encode(&mut self, event: &HubEvent, out: &mut Vec<u8>) {
        if let Some(partials) = &mut self.partials {
            let ended = match event {
                HubEvent::Snapshot { snapshot, .. } => {
                    partials.restart(snapshot.events().iter().map(|event| &**event));
                    Vec::new()
                }
                HubEvent::Event { event, .. } => partials.observe(event),
                HubEvent::Ended { .. } => partials.end_early(),
            };
            write_partials(&ended, out);
        }
        if let Some(number) = event.number() {
            write_id(out, number);
        }
        let is_last = |event: &Event| matches!(event, Event::Finished(_));
        match event {
            HubEvent::Snapshot { snapshot, .. } => {
                self.has_finished = snapshot.events().last().is_some_and(|event| is_last(event));
                write_data(out, &self.snapshot(snapshot));
            }
            HubEvent::Event { event, .. } => {
                self.has_finished |= is_last(event);
                match self.error_texts.event(event) {
                    Some(shown) => write_data(out, &shown),
                    None => write_data(out, event),
                }
            }
            HubEvent::Ended { error, .. } => {
                let error = error.as_ref().map(|error| self.error_texts.error(error));
                self.failure = error.clone().filter(|_| !self.has_finished);
                write_data(out, &Data::Ended { error });
            }
        }
    }

    fn encode_idle(&mut self, out: &mut Vec<u8>) {
        let growing = self.partials.as_mut().map(PartialSender::growing);
        write_partials(&growing.unwrap_or_default(), out);
    }

    /// Always returns `false`. When a run ends, a reader of that run ends on its own, and a reader
    /// of its session continues.
    fn is_last(&self, _event: &HubEvent) -> bool {
        false
    }

    fn may_end_without_last(&self) -> bool {
        true
    }

    fn end(&mut self, error: Option<&Error>, out: &mut Vec<u8>) {
        match error {
            Some(error) if error.find_source::<TooSlow>().is_some() => {
                out.extend_from_slice(b"event: too_slow\ndata: {}\n\n");
            }
            Some(error) if error.find_source::<ShuttingDown>().is_some() => {
                let wait = RETRY_AFTER_SHUT_DOWN.as_millis();
                write_text(
                    out,
                    format_args!("retry: {wait}\nevent: shutting_down\ndata: {{}}\n\n"),
                );
            }
            error => {
                let error = error.map(|error| self.error_texts.error(error));
                let error = error.or_else(|| self.failure.take());
                out.extend_from_slice(b"event: end\n");
                write_data(out, &End { finished: error.is_none(), error });
            }
        }
    }

    fn keep_alive(&self, out: &mut Vec<u8>) {
        write_keep_alive(out);
    }
}

/// Writes the event's id, unless the id contains a line break or a NUL character. These characters
/// are possible because the app can choose the run's id.
fn write_id(out: &mut Vec<u8>, number: &EventNumber) {
    let id = number.to_string();
    if !id.contains(['\n', '\r', '\0']) {
        write_text(out, format_args!("id: {id}\n"));
    }
}
