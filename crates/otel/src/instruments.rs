//! The instruments that record metrics.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use turnstream::usage::Usage;

use crate::names::{Conventions, attribute, buckets, metric, value};

/// The instruments for all runs.
pub(crate) struct Instruments {
    inference_duration: Histogram<f64>,
    time_to_first_chunk: Histogram<f64>,
    time_per_output_chunk: Histogram<f64>,
    usage: UsageInstruments,
    /// `None` if the conventions define no metrics of agents.
    agents: Option<AgentInstruments>,
}

/// The instruments for tools and runs.
struct AgentInstruments {
    tool_duration: Histogram<f64>,
    duration: Histogram<f64>,
    inference_calls: Histogram<u64>,
    tool_calls: Histogram<u64>,
}

/// The end of a run.
pub(crate) struct AgentRecord<'a> {
    pub(crate) duration: Duration,
    pub(crate) inference_calls: u64,
    pub(crate) tool_calls: u64,
    pub(crate) name: Option<&'a str>,
    /// The model of all requests; `None` if there were several.
    pub(crate) model: Option<&'a str>,
    pub(crate) error_type: Option<&'a str>,
}

/// The instruments for tokens, which differ between the versions of the conventions.
enum UsageInstruments {
    GenAi0_1(Box<TokenCounters>),
    General1_41 { usage: Histogram<u64> },
}

struct TokenCounters {
    input: Counter<u64>,
    output: Counter<u64>,
    cache_read_input: Counter<u64>,
    cache_write_input: Counter<u64>,
    reasoning_output: Counter<u64>,
    operation_input: Histogram<u64>,
    operation_output: Histogram<u64>,
}

impl Instruments {
    pub(crate) fn new(meter: &Meter, conventions: Conventions) -> Self {
        let seconds = |name: &'static str, boundaries: &[f64]| {
            meter.f64_histogram(name).with_unit("s").with_boundaries(boundaries.to_vec()).build()
        };
        let numbers = |name: &'static str, unit: &'static str, boundaries: &[f64]| {
            meter.u64_histogram(name).with_unit(unit).with_boundaries(boundaries.to_vec()).build()
        };
        let tokens = |name: &'static str| meter.u64_counter(name).with_unit("{token}").build();
        let (duration, first_chunk, output_chunk) = match conventions {
            Conventions::GenAi0_1 => (
                metric::INFERENCE_DURATION,
                metric::TIME_TO_FIRST_CHUNK,
                metric::TIME_PER_OUTPUT_CHUNK,
            ),
            Conventions::General1_41 => (
                metric::older::OPERATION_DURATION,
                metric::older::TIME_TO_FIRST_CHUNK,
                metric::older::TIME_PER_OUTPUT_CHUNK,
            ),
        };
        let usage = match conventions {
            Conventions::GenAi0_1 => UsageInstruments::GenAi0_1(Box::new(TokenCounters {
                input: tokens(metric::USAGE_INPUT_TOKENS),
                output: tokens(metric::USAGE_OUTPUT_TOKENS),
                cache_read_input: tokens(metric::USAGE_CACHE_READ_INPUT_TOKENS),
                cache_write_input: tokens(metric::USAGE_CACHE_WRITE_INPUT_TOKENS),
                reasoning_output: tokens(metric::USAGE_REASONING_OUTPUT_TOKENS),
                operation_input: numbers(
                    metric::OPERATION_INPUT_TOKENS,
                    "{token}",
                    &buckets::TOKENS,
                ),
                operation_output: numbers(
                    metric::OPERATION_OUTPUT_TOKENS,
                    "{token}",
                    &buckets::TOKENS,
                ),
            })),
            Conventions::General1_41 => UsageInstruments::General1_41 {
                usage: numbers(metric::older::TOKEN_USAGE, "{token}", &buckets::TOKENS),
            },
        };
        let agents = match conventions {
            Conventions::GenAi0_1 => Some(AgentInstruments {
                tool_duration: seconds(metric::TOOL_DURATION, &buckets::SECONDS),
                duration: seconds(metric::AGENT_DURATION, &buckets::AGENT_SECONDS),
                inference_calls: numbers(
                    metric::AGENT_INFERENCE_CALLS,
                    "{inference_call}",
                    &buckets::CALLS,
                ),
                tool_calls: numbers(metric::AGENT_TOOL_CALLS, "{tool_call}", &buckets::CALLS),
            }),
            Conventions::General1_41 => None,
        };
        Self {
            inference_duration: seconds(duration, &buckets::SECONDS),
            time_to_first_chunk: seconds(first_chunk, &buckets::SECONDS),
            time_per_output_chunk: seconds(output_chunk, &buckets::SECONDS),
            usage,
            agents,
        }
    }

    /// Records a request that has ended. `labels` do not include the error.
    pub(crate) fn record_inference(
        &self,
        duration: Duration,
        first_chunk: Option<Duration>,
        usage: Usage,
        labels: &[KeyValue],
        error_type: Option<&str>,
    ) {
        let with_error = with_error(labels, error_type);
        self.inference_duration.record(duration.as_secs_f64(), &with_error);
        if let Some(first_chunk) = first_chunk {
            self.time_to_first_chunk.record(first_chunk.as_secs_f64(), labels);
        }
        self.usage.record(usage, labels);
    }

    /// Records the time between two chunks of a response.
    pub(crate) fn record_chunk(&self, time: Duration, labels: &[KeyValue]) {
        self.time_per_output_chunk.record(time.as_secs_f64(), labels);
    }

    pub(crate) fn record_tool(
        &self,
        duration: Duration,
        labels: &[KeyValue],
        error_type: Option<&str>,
    ) {
        if let Some(agents) = &self.agents {
            agents.tool_duration.record(duration.as_secs_f64(), &with_error(labels, error_type));
        }
    }

    pub(crate) fn record_agent(&self, record: &AgentRecord<'_>) {
        let Some(agents) = &self.agents else { return };
        let &AgentRecord { duration, inference_calls, tool_calls, name, model, error_type } =
            record;
        let label = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
        let named: Vec<_> =
            name.map(|name| label(attribute::AGENT_NAME, name)).into_iter().collect();
        let model = model.map(|model| label(attribute::REQUEST_MODEL, model));
        let labels = with_error(&with(&named, model), error_type);
        agents.duration.record(duration.as_secs_f64(), &labels);
        agents.inference_calls.record(inference_calls, &named);
        agents.tool_calls.record(tool_calls, &named);
    }
}

impl UsageInstruments {
    /// Records the tokens of a request, also if it failed and its usage is not known.
    fn record(&self, usage: Usage, labels: &[KeyValue]) {
        match self {
            Self::GenAi0_1(counters) => counters.record(usage, labels),
            Self::General1_41 { .. } if usage == Usage::default() => {}
            Self::General1_41 { usage: histogram } => {
                for (direction, tokens) in
                    [(value::INPUT, usage.input_tokens), (value::OUTPUT, usage.output_tokens)]
                {
                    let kind = KeyValue::new(attribute::older::TOKEN_TYPE, direction);
                    histogram.record(tokens, &with(labels, [kind]));
                }
            }
        }
    }
}

impl TokenCounters {
    fn record(&self, usage: Usage, labels: &[KeyValue]) {
        // Providers do not report the modality of each token.
        let modality = KeyValue::new(attribute::TOKEN_MODALITY, value::UNKNOWN);
        let counted = with(labels, [modality]);
        for (counter, tokens) in [
            (&self.input, usage.input_tokens),
            (&self.output, usage.output_tokens),
            (&self.cache_read_input, usage.cache_read_input_tokens),
            (&self.cache_write_input, usage.cache_write_input_tokens),
            (&self.reasoning_output, usage.reasoning_tokens),
        ] {
            counter.add(tokens, &counted);
        }
        self.operation_input.record(usage.input_tokens, labels);
        self.operation_output.record(usage.output_tokens, labels);
    }
}

fn with(labels: &[KeyValue], more: impl IntoIterator<Item = KeyValue>) -> Vec<KeyValue> {
    labels.iter().cloned().chain(more).collect()
}

fn with_error(labels: &[KeyValue], error_type: Option<&str>) -> Vec<KeyValue> {
    let error = error_type.map(|kind| KeyValue::new(attribute::ERROR_TYPE, kind.to_owned()));
    with(labels, error)
}
