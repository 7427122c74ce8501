//! The fingerprint of a request, and what differs from it first.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::fnv::fnv_128;
use crate::item::Json;
use crate::request::{Output, Request};

/// The fingerprints of all that a model is told by a request, part by part. Of the context stands
/// here what is not in the context of the request before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Print {
    model: String,
    system: String,
    tools: String,
    options: String,
    /// How many entries of the context are those that the request before it begins with.
    since: usize,
    context: Vec<String>,
}

/// A request as its fingerprints, none left out.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    parts: [String; 4],
    context: Vec<String>,
}

/// What a replay did otherwise than the recorded run.
///
/// It is the source of the error that a [`Rerun`](super::Rerun) ends with. The error's message and
/// its [`parameter`](crate::Error::parameter) name the place alone, because the values may be
/// private.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayMismatch {
    /// How many events were alike before it.
    pub events: usize,
    /// What differs: `event`, or a part of a request such as `request.context[2]`.
    pub part: String,
    /// What stands there in the recording: an event, the fingerprint of a part, or `null` for
    /// nothing.
    pub recorded: Json,
    /// What stands there in the replay: an event, a part of a request, or `null` for nothing.
    pub replayed: Json,
}

impl fmt::Display for ReplayMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, part, .. } = self;
        write!(f, "the replay is not the recorded run: behind {events} events, `{part}` differs")
    }
}

impl std::error::Error for ReplayMismatch {}

impl ReplayMismatch {
    pub(super) fn new(
        events: usize,
        part: impl Into<String>,
        recorded: &(impl Serialize + ?Sized),
        replayed: &(impl Serialize + ?Sized),
    ) -> Self {
        Self { events, part: part.into(), recorded: json(recorded), replayed: json(replayed) }
    }

    pub(super) fn into_error(self) -> Error {
        Error::new(ErrorKind::ReplayMismatch, self.to_string())
            .with_parameter(self.part.clone())
            .with_source(self)
    }
}

impl Whole {
    pub(super) fn of(request: &Request) -> Self {
        let parts = parts(request).map(|(_, part)| fingerprint(part.as_str()));
        let item = |item| fingerprint(json(item).as_str());
        Self { parts, context: request.context.iter().map(item).collect() }
    }

    /// As it is written behind another.
    pub(super) fn since(&self, before: &Self) -> Print {
        let since = self.context.iter().zip(&before.context).take_while(|(a, b)| a == b).count();
        let [model, system, tools, options] = self.parts.clone();
        let context = self.context[since..].to_vec();
        Print { model, system, tools, options, since, context }
    }

    /// What was written behind another.
    pub(super) fn read(print: &Print, before: &Self) -> Self {
        let Print { model, system, tools, options, since, context } = print.clone();
        let context = before.context.iter().take(since).cloned().chain(context).collect();
        Self { parts: [model, system, tools, options], context }
    }

    /// What differs first in a request that is played.
    pub(super) fn differ(&self, request: &Request, events: usize) -> Option<ReplayMismatch> {
        let asked = Self::of(request);
        for (at, (name, part)) in parts(request).into_iter().enumerate() {
            if self.parts[at] != asked.parts[at] {
                let part_name = format!("request.{name}");
                return Some(ReplayMismatch {
                    events,
                    part: part_name,
                    recorded: json(&self.parts[at]),
                    replayed: part,
                });
            }
        }
        let longest = self.context.len().max(asked.context.len());
        let at = (0..longest).find(|at| self.context.get(*at) != asked.context.get(*at))?;
        let part = format!("request.context[{at}]");
        let item = request.context.iter().nth(at);
        Some(ReplayMismatch::new(events, part, &self.context.get(at), &item))
    }
}

/// The parts beside the context. The keys of schemas and of extra fields are sorted: recordings of
/// earlier versions have them so, and their order is not a difference.
fn parts(request: &Request) -> [(&'static str, Json); 4] {
    let (mut tools, mut options) = (request.tools.to_vec(), request.options.clone());
    for tool in &mut tools {
        tool.parameters.sort_all_objects();
    }
    options.extra.sort_keys();
    options.extra.values_mut().for_each(Value::sort_all_objects);
    if let Output::Schema(output) = &mut options.output {
        output.schema.sort_all_objects();
    }
    [
        ("model", json(&request.model)),
        ("system", json(&request.system)),
        ("tools", json(&tools)),
        ("options", json(&options)),
    ]
}

fn json(value: &(impl Serialize + ?Sized)) -> Json {
    Json::new(value).unwrap_or_else(|_| Value::Null.into())
}

fn fingerprint(text: &str) -> String {
    format!("{:032x}", fnv_128(text.bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::item::History;
    use crate::request::{OutputSchema, ToolSpec};

    #[test]
    fn a_recording_with_sorted_keys_has_the_fingerprints_of_a_request_in_declared_order() {
        let schema =
            json!({ "type": "object", "properties": { "z": { "type": "null" }, "a": {} } });
        let sorted = r#"{"properties":{"a":{},"z":{"type":"null"}},"type":"object"}"#;
        let mut request = Request::new(History::with_id("h"));
        let (name, description) = ("f".to_owned(), "d".to_owned());
        request.tools =
            [ToolSpec { name: name.clone(), description, parameters: schema.clone() }].into();
        request.options.output = Output::Schema(OutputSchema { name, schema: schema.clone() });
        request.options.extra.insert("z".to_owned(), schema);
        request.options.extra.insert("a".to_owned(), Value::Null);
        let [_, _, (_, tools), (_, options)] = parts(&request);
        let recorded = format!(r#"[{{"name":"f","description":"d","parameters":{sorted}}}]"#);
        assert_eq!(tools.as_str(), recorded);
        assert_eq!(Whole::of(&request).parts[2], fingerprint(&recorded));
        let options = options.as_str();
        assert!(options.contains(&format!(r#"{{"name":"f","schema":{sorted}}}"#)), "{options}");
        assert!(options.contains(&format!(r#""extra":{{"a":null,"z":{sorted}}}"#)), "{options}");
    }
}
