//! The latency of an event from its run to a reader on another machine, through Redis, and its
//! cost.
//!
//! It needs a server: `cargo bench -p turnstream-redis`.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use turnstream::hub::{Hub, HubEvent, RunSource};
use turnstream::turn::{Text, TurnEvent};
use turnstream::{Error, Event, History};
use turnstream_redis::RedisEvents;
use turnstream_test_support::redis;

const EVENTS: u32 = 300;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let server = redis::Server::start();
    for (runs, pause) in [(1, 5), (100, 100), (100, 0)] {
        measure(&server, runs, Duration::from_millis(pause)).await?;
    }
    Ok(())
}

/// Starts runs whose events contain the current time, and reads them in another hub.
async fn measure(server: &redis::Server, runs: u32, pause: Duration) -> Result<(), Error> {
    let connect = async || RedisEvents::connect(&server.url()).await;
    let hub = |events: RedisEvents| Hub::builder().with_backend(events.clone(), events).build();
    let (here, there) = (hub(connect().await?), hub(connect().await?));
    let zero = Instant::now();
    let mut readers = Vec::new();
    for n in 0..runs {
        let (open, gate) = futures::channel::oneshot::channel::<()>();
        let events = stream::unfold((Some(gate), 0), move |(mut gate, count)| async move {
            if let Some(gate) = gate.take() {
                let _ = gate.await;
            }
            // Spreads the runs, so that they do not emit events at the same moment.
            let offset = if count == 0 { pause * n / runs } else { Duration::ZERO };
            if pause + offset > Duration::ZERO {
                tokio::time::sleep(pause + offset).await;
            }
            let text = Text::from(format!("{} some words", micros(zero)));
            let event = Event::Turn(TurnEvent::TextDelta { index: 0, text });
            (count < EVENTS).then_some((Ok(event), (None, count + 1)))
        });
        let source = RunSource::new(History::empty("h"), events);
        let run = here.start(format!("{runs}-{pause:?}-{n}"), source).await?.detach();
        let mut reader = there.read_any_run(&run, None);
        let first = reader.next().await;
        assert!(matches!(first, Some(Ok(HubEvent::Snapshot { .. }))), "{first:?}");
        readers.push((open, reader));
    }
    let begin = Instant::now();
    let mut reading = Vec::new();
    for (open, mut reader) in readers {
        let _ = open.send(());
        reading.push(tokio::spawn(async move {
            let mut delays = Vec::new();
            while let Some(event) = reader.next().await {
                let Ok(HubEvent::Event { event, .. }) = event else { continue };
                let Some(text) = event.text_delta() else { continue };
                let sent: u64 = text.split(' ').next().unwrap().parse().unwrap();
                delays.push(micros(zero) - sent);
            }
            delays
        }));
    }
    let mut delays = Vec::new();
    for read in reading {
        delays.extend(read.await.unwrap());
    }
    let took = begin.elapsed();
    delays.sort_unstable();
    let at = |share: usize| Duration::from_micros(delays[delays.len() * share / 100]);
    println!(
        "{runs} runs, an event each {pause:?}: p50 {:?}, p95 {:?}, p99 {:?}; {:.0} events/s; {} bytes per event",
        at(50),
        at(95),
        at(99),
        f64::from(runs * EVENTS) / took.as_secs_f64(),
        bytes_per_entry(server),
    );
    Ok(())
}

/// The microseconds since a moment.
fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The memory of the longest log, divided by its number of entries.
fn bytes_per_entry(server: &redis::Server) -> u64 {
    let script = "local best = {0, 1} for _, key in ipairs(redis.call('KEYS', '*:log')) do \
        local count = redis.call('XLEN', key) if count > best[2] then \
        best = {redis.call('MEMORY', 'USAGE', key), count} end end return math.floor(best[1] / best[2])";
    let answer = server.command(&["EVAL", script, "0"]);
    answer.trim_start_matches(':').trim().parse().unwrap_or(0)
}
