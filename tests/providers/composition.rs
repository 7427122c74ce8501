//! Nested providers over HTTP: every wire and every fault, in an agent with tools.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::json;
use turnstream::env::CountingIds;
use turnstream::event::EndReason;
use turnstream::provider::{CircuitBreaker, Fallback, Provider, Reply, Retry};
use turnstream::replay::{Record, Replay};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::{Agent, Error, ErrorKind, Event, History, Journal, Run, TurnEvent, Usage};
use turnstream_testing::{Answer, Fault, FaultPosition, LineEnd, ModelServer, Noise, Wire};

use crate::over_http::{self, TransportSettings};
use turnstream_test_support::buffer::SharedBuffer;
use turnstream_test_support::cases;

/// A provider that does not wait between its attempts.
fn provider(wire: Wire, url: &str, number: u32) -> Arc<dyn Provider> {
    over_http::http_provider(wire, url, number, TransportSettings::without_delay())
}

/// The faults.
fn all_faults() -> Vec<Fault> {
    let places = [
        FaultPosition::Bytes(0),
        FaultPosition::Bytes(900),
        FaultPosition::Events(3),
        FaultPosition::Events(6),
        FaultPosition::Events(1000),
    ];
    let busy = || Error::new(ErrorKind::Overloaded, "busy").with_status(529);
    let mut all = vec![
        Fault::NoTerminalMarker,
        Fault::NoDoneMarker,
        Fault::LineEnds(LineEnd::CrLf),
        Fault::LineEnds(LineEnd::Cr),
        Fault::NoFinalBlankLine,
        Fault::Gzip,
        Fault::FixedSizeChunks(1),
        Fault::RandomSizeChunks { seed: 7, max_len: 50 },
    ];
    for noise in [Noise::Comments, Noise::Pings, Noise::UnknownEvents, Noise::BlankLines] {
        all.push(Fault::InsertNoise(noise));
    }
    for place in places {
        all.extend([
            Fault::Cut(place),
            Fault::EndEarly(place),
            Fault::Reset(place),
            Fault::Error(place, busy()),
        ]);
    }
    all
}

fn usage() -> Usage {
    Usage { input_tokens: 100, output_tokens: 20, ..Usage::default() }
}

/// A server whose model calls two tools, then says that it is done. The first answer to each
/// request has the fault.
async fn faulty_server(mishap: Fault) -> ModelServer {
    let asked = Mutex::new([0, 0]);
    let server = ModelServer::start(move |request| {
        let second = usize::from(request.body.to_string().contains("it is fine"));
        let reply = match second {
            0 => Reply::new()
                .think("Two calls.")
                .say("Let me see, ☃.")
                .call("ok", json!({ "x": "é\n" }))
                .call("ok", json!({ "x": "b" })),
            _ => Reply::text("It is done, all of it."),
        };
        let n = {
            let mut asked = asked.lock().unwrap();
            asked[second] += 1;
            asked[second]
        };
        match n {
            1 => Answer::reply(reply.usage(usage())).with_fault(mishap.clone()),
            _ => Answer::reply(reply.usage(usage())),
        }
    });
    server.await.unwrap()
}

/// Wraps a provider in the layers, from the inside out.
fn wrap_in_layers(
    order: &str,
    model: Arc<dyn Provider>,
    next: &Arc<dyn Provider>,
) -> Arc<dyn Provider> {
    order.chars().fold(model, |provider, layer| match layer {
        'r' => Arc::new(
            Retry::new(provider)
                .with_retraction()
                .with_backoff(TransportSettings::without_delay().backoff),
        ),
        'f' => Arc::new(Fallback::new(provider).or(next.clone())),
        'c' => Arc::new(CircuitBreaker::new(provider)),
        _ => Arc::new(Record::to_writer(provider, io::sink())),
    })
}

fn agent(provider: Arc<dyn Provider>, ran: &Arc<AtomicUsize>) -> Agent {
    let parameters = json!({ "type": "object", "properties": { "x": { "type": "string" } } });
    let spec = ToolSpec::new("ok", "Does it", parameters);
    let ran = ran.clone();
    let tool = Tool::raw(spec, move |_, _| {
        ran.fetch_add(1, Ordering::Relaxed);
        async { "it is fine" }
    });
    Agent::new(provider).with_tools([tool.unwrap()]).with_ids(CountingIds::new("id"))
}

async fn collect_checked_events(mut run: Run, name: &str) -> Vec<Event> {
    let folded = Journal::new(History::empty("h"));
    let mut events = Vec::new();
    let mut counted = Usage::default();
    while let Some(event) = run.next().await {
        let event = event.unwrap();
        let line = serde_json::to_string(&event).unwrap();
        folded.observe(&serde_json::from_str(&line).unwrap());
        assert_eq!(folded.history(), run.history(), "{name}");
        assert_eq!(folded.usage(), run.usage(), "{name}");
        match &event {
            Event::Turn(TurnEvent::Retracted { usage, .. }) => counted += **usage,
            Event::Turn(TurnEvent::TurnComplete { turn }) => counted += turn.usage(),
            _ => {}
        }
        events.push(event);
    }
    let last = events.last().and_then(Event::outcome).unwrap();
    assert_eq!(events.iter().filter(|event| event.outcome().is_some()).count(), 1, "{name}");
    assert_eq!(
        (last.reason, last.text.as_str()),
        (EndReason::Completed, "It is done, all of it."),
        "{name}: {:?}",
        last.error
    );
    assert_eq!(last.usage, counted, "{name}");
    assert!(counted.output_tokens >= 40, "{name}");
    assert!(run.history().is_settled(), "{name}");
    events
}

fn event_lines(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| serde_json::to_string(event).unwrap()).collect()
}

#[tokio::test]
async fn under_any_fault_each_call_runs_once_and_a_replay_is_identical() {
    let orders = ["r", "f", "wcfr", "rfcw", "rwcf"].into_iter().cycle();
    let faults =
        Wire::ALL.into_iter().flat_map(|wire| all_faults().into_iter().map(move |it| (wire, it)));
    // Shares no factor with the number of faults of a wire.
    for ((wire, mishap), order) in faults.zip(orders).step_by(cases::sample_step(3)) {
        let name = format!("{wire} {mishap:?} {order}");
        let server = faulty_server(mishap.clone()).await;
        let model = provider(wire, &server.url(), 0);
        let next = provider(wire, &server.url(), 0);
        let (paper, ran) = (SharedBuffer::new(), Arc::default());
        // An unsupported encoding such as gzip is not a transient fault.
        let made = wrap_in_layers(order, model, &next);
        let made = match mishap {
            Fault::Gzip => Arc::new(
                Retry::new(made)
                    .with_backoff(TransportSettings::without_delay().backoff)
                    .retry_if(|_| true),
            ),
            _ => made,
        };
        let record = Arc::new(Record::to_writer(made, paper.clone()));
        let run = agent(record, &ran).run_from(History::empty("h"), "go");
        let first = collect_checked_events(run, &name).await;
        assert_eq!(ran.load(Ordering::Relaxed), 2, "{name}");
        assert_eq!(server.violations(), Vec::<String>::new(), "{name}");

        let again = SharedBuffer::new();
        let replay = Replay::from_text(&paper.text()).unwrap();
        let record = Arc::new(Record::to_writer(replay, again.clone()));
        let run = agent(record, &ran).run_from(History::empty("h"), "go");
        assert_eq!(
            event_lines(&collect_checked_events(run, &name).await),
            event_lines(&first),
            "{name}"
        );
        assert_eq!(again.text(), paper.text(), "{name}");
    }
}

/// A reply with reasoning, signed if the wire has signatures, and a call.
fn signed_call_reply(wire: Wire, x: &str) -> Reply {
    let thought = Reply::new().think("Hm.");
    let signed = if wire == Wire::Ollama { thought } else { thought.sign("c2lnbmVk") };
    signed.say("So.").call("ok", json!({ "x": x }))
}

#[tokio::test]
async fn a_history_can_move_between_wires_and_back() {
    for one in Wire::ALL {
        for other in Wire::ALL {
            // The first provider fails in the second turn, and works again in the third.
            let first = ModelServer::start(|asked| match asked.index {
                0 => Answer::reply(signed_call_reply(asked.wire, "a").usage(usage())),
                1 => Answer::error(503),
                _ => Answer::reply(Reply::text("It is done, all of it.").usage(usage())),
            });
            let second =
                ModelServer::start(|asked| signed_call_reply(asked.wire, "b").usage(usage()));
            let (first, second) = (first.await.unwrap(), second.await.unwrap());
            let model = provider(one, &first.url(), 0);
            let next = provider(other, &second.url(), 1);
            let (name, ran) = (format!("{one} to {other}"), Arc::default());
            let run =
                agent(wrap_in_layers("f", model, &next), &ran).run_from(History::empty("h"), "go");
            collect_checked_events(run, &name).await;
            let complaints = [first.violations(), second.violations()];
            assert_eq!(complaints, [Vec::<String>::new(), Vec::new()], "{name}");
            assert_eq!((first.requests().len(), second.requests().len()), (3, 1), "{name}");
            assert_eq!(ran.load(Ordering::Relaxed), 2, "{name}");
        }
    }
}
