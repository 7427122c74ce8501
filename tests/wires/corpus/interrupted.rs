//! Recordings that are interrupted while they stream.

use std::sync::Arc;

use futures::StreamExt;
use futures::executor::block_on;
use turnstream::item::StopReason;
use turnstream::provider::{Provider, Scripted};
use turnstream::stream::TurnStream;
use turnstream::turn::PartialTurn;
use turnstream::{Agent, Event, History, Item, Request};
use turnstream_testing::Wire;

use super::recording::{Recording, decode_whole, stream_pieces};
use turnstream_test_support::wires::encode_and_lint;

/// Interrupts a run at every event of every recording, and encodes the history on every wire.
/// Returns the number of runs.
pub(super) fn interrupt_at_every_event(recordings: &[Recording]) -> usize {
    let mut runs = 0;
    for recording in recordings {
        let recording = Arc::new(recording.clone());
        for events in 1..=decode_whole(&recording).events().count() {
            if let Some(left) = interrupt_run(&recording, events) {
                encode_on_every_wire(&History::from_items("h", left));
                runs += 1;
            }
        }
    }
    runs
}

fn encode_on_every_wire(history: &History) {
    for wire in Wire::ALL {
        encode_and_lint(wire, history);
    }
}

fn kinds(items: &[Item]) -> Vec<(String, bool)> {
    let shown = items.iter().map(|item| (format!("{:?}", item.kind), item.interrupted));
    shown.collect()
}

/// Interrupts a run after this number of events of the recording. Returns the items before the
/// answer to the input that follows, or `None` if the turn was already complete, because its last
/// frame contains several events.
fn interrupt_run(recording: &Arc<Recording>, events: usize) -> Option<Vec<Item>> {
    let model = RecordedProvider { recording: Arc::clone(recording), rest: Scripted::new(["ok"]) };
    let mut run = Agent::new(model).run("go");
    block_on(async {
        let (mut seen, mut partial) = (0, PartialTurn::default());
        while let Some(Ok(event)) = run.next().await {
            let Event::Turn(event) = event else { continue };
            if let Some(turn) = event.turn_complete() {
                if *turn.stop_reason() != StopReason::Interrupted {
                    return None;
                }
                break;
            }
            partial.absorb(&event);
            seen += 1;
            if seen == events {
                run.steer("and now?").expect("the run goes on");
                run.interrupt_turn();
            }
        }
        let outcome = run.outcome().await;
        let left = outcome.new_items()[..outcome.new_items().len() - 1].to_vec();
        let mut items = vec![Item::user("go")];
        items.extend(partial.items());
        items.push(Item::user("and now?"));
        assert_eq!(kinds(&left), kinds(&items), "{}, event {events}", recording.name);
        Some(left)
    })
}

/// Answers the first request with a recording, and any other with a text.
struct RecordedProvider {
    recording: Arc<Recording>,
    rest: Scripted,
}

impl Provider for RecordedProvider {
    fn stream_turn(&self, request: Request) -> TurnStream {
        if request.history.len() > 1 {
            return self.rest.stream_turn(request);
        }
        let bytes = vec![self.recording.bytes.clone()];
        stream_pieces(&self.recording, &request.history, bytes)
    }

    fn model(&self) -> &'static str {
        "recorded"
    }
}
