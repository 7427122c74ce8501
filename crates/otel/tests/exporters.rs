//! A run never waits for its telemetry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter,
};
use turnstream_otel::Telemetry;

use crate::scenarios::{agent, answer, call, model};
use crate::trees::silent_meter;

/// A receiver that does not answer until the test lets it, and that counts the spans it receives.
#[derive(Debug)]
struct Stuck {
    released: Arc<Mutex<Receiver<()>>>,
    received: Arc<AtomicUsize>,
}

impl SpanExporter for Stuck {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        self.received.fetch_add(spans.len(), Ordering::SeqCst);
        let _ = self.released.lock().unwrap().recv();
        Ok(())
    }
}

/// A provider whose receiver answers once the returned sender is dropped.
fn stuck_provider() -> (SdkTracerProvider, Sender<()>, Arc<AtomicUsize>) {
    let (release, released) = channel();
    let config =
        BatchConfigBuilder::default().with_max_queue_size(16).with_max_export_batch_size(4).build();
    let received = Arc::new(AtomicUsize::new(0));
    let released = Arc::new(Mutex::new(released));
    let exporter = Stuck { released, received: Arc::clone(&received) };
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    (SdkTracerProvider::builder().with_span_processor(processor).build(), release, received)
}

fn telemetry(provider: &SdkTracerProvider) -> Telemetry {
    Telemetry::new(provider.tracer("tests"), &silent_meter())
}

async fn run_agent(telemetry: &Telemetry, runs: usize) {
    for _ in 0..runs {
        let agent = agent(model([call("look"), answer("Done.")]));
        let run = agent.with_run_observer(telemetry.clone()).run("Go.");
        let events: Vec<_> = run.collect().await;
        assert!(events.iter().flatten().any(|event| event.outcome().is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn runs_end_while_the_receiver_of_their_spans_does_not_answer() {
    let (provider, release, received) = stuck_provider();
    // More spans than the queue holds.
    run_agent(&telemetry(&provider), 50).await;
    drop(release);
    provider.shutdown().unwrap();
    assert!(received.load(Ordering::SeqCst) > 0);
}

#[tokio::test(start_paused = true)]
async fn runs_end_after_their_exporter_was_shut_down() {
    let (provider, release, received) = stuck_provider();
    let telemetry = telemetry(&provider);
    run_agent(&telemetry, 1).await;
    drop(release);
    provider.shutdown().unwrap();
    // The spans of the requests, of the tool and of the run.
    assert_eq!(received.load(Ordering::SeqCst), 4);
    run_agent(&telemetry, 50).await;
    assert_eq!(received.load(Ordering::SeqCst), 4);
}
