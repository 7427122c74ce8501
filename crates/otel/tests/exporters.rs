//! A run never waits for its telemetry.

use std::sync::mpsc::{Receiver, channel};
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

/// A receiver that does not answer until the test lets it.
#[derive(Debug)]
struct Stuck(Arc<Mutex<Receiver<()>>>);

impl SpanExporter for Stuck {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        let _ = self.0.lock().unwrap().recv();
        Ok(())
    }
}

async fn run_agent(provider: &SdkTracerProvider, runs: usize) {
    let telemetry = Telemetry::new(provider.tracer("tests"), &silent_meter());
    for _ in 0..runs {
        let agent = agent(model([call("look"), answer("Done.")]));
        let run = agent.with_run_observer(telemetry.clone()).run("Go.");
        let events: Vec<_> = run.collect().await;
        assert!(events.iter().flatten().any(|event| event.outcome().is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn runs_end_while_the_receiver_of_their_spans_does_not_answer() {
    let (release, released) = channel();
    let config =
        BatchConfigBuilder::default().with_max_queue_size(16).with_max_export_batch_size(4).build();
    let exporter = Stuck(Arc::new(Mutex::new(released)));
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
    // More spans than the queue holds.
    run_agent(&provider, 50).await;
    drop(release);
    provider.shutdown().unwrap();
}

#[tokio::test(start_paused = true)]
async fn runs_end_after_their_exporter_was_shut_down() {
    let provider = SdkTracerProvider::builder().build();
    provider.shutdown().unwrap();
    run_agent(&provider, 1).await;
}
