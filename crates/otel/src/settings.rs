//! The settings that all runs share.

use std::sync::Arc;

use opentelemetry::global::BoxedTracer;
use opentelemetry::metrics::Meter;
use turnstream::env::Clock;

use crate::content::ContentSetting;
use crate::instruments::Instruments;
use crate::names::Conventions;

/// The tracer, the instruments and the settings of a program.
#[derive(Clone)]
pub(crate) struct TelemetrySettings {
    pub(crate) tracer: Arc<BoxedTracer>,
    pub(crate) meter: Meter,
    pub(crate) instruments: Arc<Instruments>,
    pub(crate) conventions: Conventions,
    pub(crate) content: ContentSetting,
    /// Whether the time between two chunks of a response is recorded.
    pub(crate) chunk_times: bool,
    pub(crate) provider_of_model: Arc<ProviderOfModel>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Returns the conventions' name of the provider of a model.
type ProviderOfModel = dyn Fn(&str) -> String + Send + Sync;
