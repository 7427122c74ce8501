//! Sends the spans and metrics of a run to a server that receives OTLP over HTTP. The run has a
//! sub-agent, an approval and a retry.
//!
//! ```sh
//! cargo run -p turnstream-otel --example otlp -- http://localhost:4318
//! ```

use std::time::Duration;

use futures::StreamExt;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanExporter as _};
use serde_json::json;
use turnstream::Agent;
use turnstream::error::{Error, ErrorKind};
use turnstream::provider::{Reply, Retry, Scripted};
use turnstream::tool::{Tool, ToolSpec};
use turnstream::usage::Usage;
use turnstream_otel::Telemetry;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://localhost:4318".to_owned());
    let resource = Resource::builder().with_service_name("turnstream-example").build();

    // This short program collects its spans and sends them at the end. A server uses a batch
    // processor instead, with an exporter that has a thread of its own.
    let collected = InMemorySpanExporter::default();
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(collected.clone())
        .with_resource(resource.clone())
        .build();
    let collected_metrics = opentelemetry_sdk::metrics::InMemoryMetricExporter::default();
    let meters = SdkMeterProvider::builder()
        .with_periodic_exporter(collected_metrics.clone())
        .with_resource(resource.clone())
        .build();

    let telemetry = Telemetry::new(tracers.tracer("otlp"), &meters.meter("otlp"));
    run_agent(&telemetry).await?;

    let mut spans = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{address}/v1/traces"))
        .build()?;
    spans.set_resource(&resource);
    let finished = collected.get_finished_spans()?;
    let number = finished.len();
    spans.export(finished).await?;

    let metrics = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{address}/v1/metrics"))
        .build()?;
    meters.force_flush()?;
    println!("Sent {number} spans to {address}.");
    for batch in collected_metrics.get_finished_metrics()? {
        match metrics.export(&batch).await {
            Ok(()) => println!("Sent the metrics."),
            // Some servers receive only spans.
            Err(error) => println!("The server did not accept the metrics: {error}"),
        }
    }
    Ok(())
}

/// Runs an agent whose sub-agent deletes a file after an approval.
async fn run_agent(telemetry: &Telemetry) -> Result<(), Error> {
    let usage = Usage { input_tokens: 1_200, output_tokens: 40, ..Usage::default() };
    let cleaner = Scripted::new([
        Reply::new().usage(usage).call("delete", json!({ "path": "old.log" })),
        Reply::text("Deleted.").usage(usage).delay(Duration::from_millis(80)),
    ]);
    let cleaner = Agent::new(cleaner.with_model("claude-haiku-4-5")).with_tool(delete_tool()?);

    let busy = Reply::error(Error::new(ErrorKind::Overloaded, "the server is busy"));
    let ask = Reply::new().usage(usage).call("cleaner", json!({ "prompt": "Delete old.log." }));
    let model = Scripted::new([busy, ask, Reply::text("Done.").usage(usage)]);
    let agent = Agent::new(Retry::new(model.with_model("claude-sonnet-4-5")))
        .with_tool(cleaner.as_tool("cleaner", "Deletes files")?)
        .with_label("assistant")
        .with_run_observer(telemetry.clone())
        .interactive();

    let mut run = agent.run("Clean up.");
    while let Some(event) = run.next().await {
        if let Some(call) = event?.approval_request() {
            println!("Approving `{}`.", call.name);
            tokio::time::sleep(Duration::from_millis(200)).await;
            run.approve(call)?;
        }
    }
    Ok(())
}

fn delete_tool() -> Result<Tool, Error> {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let spec = ToolSpec::new("delete", "Deletes a file", schema);
    let delete = Tool::raw(spec, |_, cx| async move {
        // A tool's own spans and requests continue this trace.
        if let Some(context) = cx.trace_context() {
            println!("Deleting, as part of {}.", context.traceparent());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        "deleted"
    })?;
    Ok(delete.requires_approval())
}
