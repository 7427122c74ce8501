//! The attributes of a request's options.

use opentelemetry::{Array, KeyValue, Value};
use turnstream::request::{Effort, Options, Output, Reasoning};

use crate::chat_span::to_i64;
use crate::names::{attribute, value};

/// Returns the attributes that describe a request's options.
pub(crate) fn request_attributes(options: &Options) -> Vec<KeyValue> {
    let integers = [
        (attribute::REQUEST_MAX_TOKENS, options.max_output_tokens.map(i64::from)),
        (attribute::REQUEST_TOP_K, options.top_k.map(i64::from)),
        (attribute::REQUEST_SEED, options.seed.map(to_i64)),
    ];
    let floats = [
        (attribute::REQUEST_TEMPERATURE, options.temperature),
        (attribute::REQUEST_TOP_P, options.top_p),
        (attribute::REQUEST_FREQUENCY_PENALTY, options.frequency_penalty),
        (attribute::REQUEST_PRESENCE_PENALTY, options.presence_penalty),
    ];
    let output = match options.output {
        Output::Text => None,
        _ => Some(KeyValue::new(attribute::OUTPUT_TYPE, value::JSON)),
    };
    let level = options.reasoning.and_then(reasoning_level);
    let level = level.map(|level| KeyValue::new(attribute::REQUEST_REASONING_LEVEL, level));
    let stops = match options.stop_sequences.as_slice() {
        [] => None,
        stops => {
            let stops = stops.iter().map(|stop| stop.clone().into()).collect();
            Some(KeyValue::new(
                attribute::REQUEST_STOP_SEQUENCES,
                Value::Array(Array::String(stops)),
            ))
        }
    };
    let integers = integers.into_iter().filter_map(|(name, it)| Some(KeyValue::new(name, it?)));
    let floats = floats.into_iter().filter_map(|(name, it)| Some(KeyValue::new(name, widen(it?))));
    integers.chain(floats).chain(output).chain(level).chain(stops).collect()
}

/// Returns whether the conventions define an attribute of the options for runs as well.
pub(crate) fn is_option_of_run(name: &str) -> bool {
    !matches!(name, attribute::REQUEST_TOP_K | attribute::REQUEST_REASONING_LEVEL)
}

/// Returns the name of a reasoning level. A budget of tokens is not a level.
fn reasoning_level(reasoning: Reasoning) -> Option<&'static str> {
    match reasoning {
        Reasoning::Off => Some("none"),
        Reasoning::Effort(Effort::Minimal) => Some("minimal"),
        Reasoning::Effort(Effort::Low) => Some("low"),
        Reasoning::Effort(Effort::Medium) => Some("medium"),
        Reasoning::Effort(Effort::High) => Some("high"),
        Reasoning::Effort(Effort::XHigh) => Some("xhigh"),
        Reasoning::Effort(Effort::Max) => Some("max"),
        _ => None,
    }
}

/// Converts a number so that it has the same decimal digits, such as 0.7.
fn widen(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| number.into())
}
