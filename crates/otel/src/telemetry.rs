//! The telemetry of all runs, and its settings.

use std::fmt;
use std::sync::Arc;

use opentelemetry::global::{BoxedTracer, ObjectSafeTracer};
use opentelemetry::metrics::Meter;
use turnstream::env::{Clock, SystemClock};

use crate::content::{CONTENT_VARIABLE, ContentKind, ContentSetting};
use crate::instruments::Instruments;
use crate::names::{Conventions, provider_of_model};
use crate::run_telemetry::RunTelemetry;
use crate::settings::TelemetrySettings;

/// Records the spans and metrics of runs with a tracer and a meter. Clones share the tracer, the
/// meter and the instruments.
///
/// A `Telemetry` installs no exporter and reads no global provider: the program decides where spans
/// and metrics go. The content of messages and calls is not recorded, unless it is asked for with
/// [`with_content`](Self::with_content) or with the environment variable
/// `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`.
#[derive(Clone)]
pub struct Telemetry(Arc<TelemetrySettings>);

impl Telemetry {
    /// Creates telemetry with the default settings. If the environment variable
    /// `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` is `true`, `span_only` or
    /// `span_and_event`, content is recorded.
    pub fn new(tracer: impl ObjectSafeTracer + Send + Sync + 'static, meter: &Meter) -> Self {
        let conventions = Conventions::default();
        let variable = std::env::var(CONTENT_VARIABLE).ok();
        Self(Arc::new(TelemetrySettings {
            tracer: Arc::new(BoxedTracer::new(Box::new(tracer))),
            meter: meter.clone(),
            instruments: Arc::new(Instruments::new(meter, conventions)),
            conventions,
            content: ContentSetting::from_variable(variable.as_deref()),
            chunk_times: false,
            provider_of_model: Arc::new(|model| provider_of_model(model).to_owned()),
            clock: Arc::new(SystemClock),
        }))
    }

    /// Sets whether content is recorded: the messages of requests and responses, and the arguments
    /// and results of calls. This setting overrides the environment variable.
    ///
    /// The agent's [hooks](turnstream::agent::hook::Hook) that edit results and requests, such as
    /// `after_tool` and `transform_context`, have run before. If the run's data does not contain
    /// [`RunTelemetry::contexts`](crate::RunTelemetry::contexts), the messages of its requests are
    /// those of its events instead, which `transform_context` does not change.
    pub fn with_content(self, is_recorded: bool) -> Self {
        let content = match is_recorded {
            true => ContentSetting::On(None),
            false => ContentSetting::Off,
        };
        self.update(|it| it.content = content)
    }

    /// Enables the recording of content, and calls `edit` with each piece of content before it is
    /// recorded. `edit` returns the content to record, or `None` to record nothing.
    pub fn with_content_hook(
        self,
        edit: impl Fn(ContentKind, String) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.update(|it| it.content = ContentSetting::On(Some(Arc::new(edit))))
    }

    /// Selects the names of attributes and metrics. Older names are for backends that do not know
    /// the current names yet.
    pub fn with_conventions(self, conventions: Conventions) -> Self {
        self.update(|it| {
            it.conventions = conventions;
            it.instruments = Arc::new(Instruments::new(&it.meter, conventions));
        })
    }

    /// Records the time between two chunks of a response, as a metric. This costs two readings of
    /// the clock for each chunk, and is off by default.
    pub fn with_chunk_times(self) -> Self {
        self.update(|it| it.chunk_times = true)
    }

    /// Sets the function that returns the value of `gen_ai.provider.name` for a model. By default,
    /// the provider is found by the names that vendors give to their models.
    pub fn with_provider_names(
        self,
        provider_of_model: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        self.update(|it| it.provider_of_model = Arc::new(provider_of_model))
    }

    /// Sets the clock from which all times of spans and metrics are read. The default is the system
    /// clock.
    pub fn with_clock(self, clock: impl Clock + 'static) -> Self {
        self.update(|it| it.clock = Arc::new(clock))
    }

    /// Creates the telemetry of a single run, which can be given more information about the run.
    pub fn start_run(&self) -> RunTelemetry {
        RunTelemetry::new(Arc::clone(&self.0))
    }

    fn update(mut self, change: impl FnOnce(&mut TelemetrySettings)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl From<&Telemetry> for RunTelemetry {
    fn from(telemetry: &Telemetry) -> Self {
        telemetry.start_run()
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("conventions", &self.0.conventions)
            .field("content", &self.0.content.is_on())
            .field("chunk_times", &self.0.chunk_times)
            .finish_non_exhaustive()
    }
}
