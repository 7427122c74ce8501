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

/// The number of moments at which each recording is interrupted in a run.
const RUNS_PER_RECORDING: usize = 12;

/// Encodes the history after an interrupt at every event of every recording, on every wire. At some
/// of these moments, a run is interrupted, which must leave the same history. Returns the numbers
/// of moments and of runs.
pub(super) fn check_every_moment(recordings: &[Recording]) -> (usize, usize) {
    let (mut moments, mut runs) = (0, 0);
    for recording in recordings {
        let recording = Arc::new(recording.clone());
        let events = decode_whole(&recording);
        let count = events.events().filter(|event| event.turn_complete().is_none()).count();
        let step = count.div_ceil(RUNS_PER_RECORDING).max(1);
        let mut partial = PartialTurn::default();
        for (at, event) in events.events().take(count).enumerate() {
            partial.absorb(event);
            let mut items = vec![Item::user("go")];
            items.extend(partial.items());
            items.push(Item::user("and now?"));
            if at % step == 0 {
                let left = interrupt_run(&recording, at + 1);
                assert_eq!(kinds(&left), kinds(&items), "{}, event {at}", recording.name);
                encode_on_every_wire(History::from_items("h", left));
                runs += 1;
            }
            encode_on_every_wire(History::from_items("h", items));
            moments += 1;
        }
    }
    (moments, runs)
}

fn encode_on_every_wire(history: History) {
    for wire in Wire::ALL {
        encode_and_lint(wire, &history);
    }
}

fn kinds(items: &[Item]) -> Vec<(String, bool)> {
    let shown = items.iter().map(|item| (format!("{:?}", item.kind), item.interrupted));
    shown.collect()
}

/// Interrupts a run after this number of events of the recording. Returns the items before the
/// answer to the input that follows.
fn interrupt_run(recording: &Arc<Recording>, events: usize) -> Vec<Item> {
    let model = RecordedProvider { recording: Arc::clone(recording), rest: Scripted::new(["ok"]) };
    let mut run = Agent::new(model).run("go");
    block_on(async {
        let mut seen = 0;
        while seen < events {
            let event = run.next().await.expect("the run goes on").expect("an event");
            seen += usize::from(matches!(event, Event::Turn(_)));
        }
        run.steer("and now?").expect("the run goes on");
        run.interrupt_turn();
        while let Some(Ok(event)) = run.next().await {
            if let Some(turn) = event.turn_complete() {
                assert_eq!(*turn.stop_reason(), StopReason::Interrupted);
                break;
            }
        }
        let outcome = run.outcome().await;
        outcome.new_items()[..outcome.new_items().len() - 1].to_vec()
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

    fn model(&self) -> &str {
        "recorded"
    }
}
