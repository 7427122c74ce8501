//! The recorded form of a request, and the comparison of requests.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::item::{History, Item};
use crate::replay::masker::Masker;
use crate::request::{Options, Request, System, ToolSpecs};

/// The parts of a request that the model receives. The ids of histories are excluded, because each
/// run generates new ids.
#[derive(Clone, Debug)]
pub(super) struct RecordedRequest {
    model: Option<String>,
    system: System,
    tools: ToolSpecs,
    options: Options,
    context: History,
}

/// A request on a line of a recording: only what differs from the previous request. The request
/// before the first one is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RequestLine {
    /// The model, even if it is the same as in the previous request.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<System>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<ToolSpecs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Options>,
    /// The number of items at the start of the context that are the same as in the previous
    /// request.
    #[serde(skip_serializing_if = "is_zero")]
    shared_prefix: usize,
    /// The other items in the context.
    context: Vec<Item>,
}

/// The first difference between two requests.
#[derive(Debug, PartialEq)]
pub(super) struct RequestDifference {
    /// The path to the difference, for example `context[2].content`.
    pub(super) path: String,
    pub(super) recorded: Value,
    pub(super) replayed: Value,
}

/// Compares the requests of a run in order. Items that both requests share with their predecessors
/// are compared only once.
#[derive(Default)]
pub(super) struct RequestComparison {
    recorded: RecordedRequest,
    replayed: RecordedRequest,
}

impl Default for RecordedRequest {
    fn default() -> Self {
        Self::new(&Request::new(History::empty("")))
    }
}

impl RecordedRequest {
    pub(super) fn new(request: &Request) -> Self {
        Self {
            model: request.model.clone(),
            system: request.system.clone(),
            tools: request.tools.clone(),
            options: request.options.clone(),
            context: request.context.without_caches(),
        }
    }

    /// Returns the line for the request, which follows the request `last`.
    pub(super) fn line_since(&self, last: &Self) -> RequestLine {
        fn changed<T: Clone + PartialEq>(last: &T, new: &T) -> Option<T> {
            (last != new).then(|| new.clone())
        }
        let shared_prefix = self.context.common_prefix_len(&last.context);
        RequestLine {
            model: self.model.clone(),
            system: changed(&last.system, &self.system),
            tools: changed(&last.tools, &self.tools),
            options: changed(&last.options, &self.options),
            shared_prefix,
            context: self
                .context
                .entries_after(shared_prefix)
                .map(|(_, item)| item.clone())
                .collect(),
        }
    }

    /// Reads the request that follows the request `last`.
    ///
    /// # Errors
    ///
    /// Returns an error if the line refers to more items than `last` contains.
    pub(super) fn from_line(line: RequestLine, last: &Self) -> Result<Self, String> {
        let RequestLine { model, system, tools, options, shared_prefix, context: items } = line;
        let known = last.context.len();
        if shared_prefix > known {
            return Err(format!(
                "it continues {shared_prefix} items of a request that has {known}"
            ));
        }
        let mut context = last.context.truncated(shared_prefix);
        context.extend(items);
        Ok(Self {
            model,
            system: system.unwrap_or_else(|| last.system.clone()),
            tools: tools.unwrap_or_else(|| last.tools.clone()),
            options: options.unwrap_or_else(|| last.options.clone()),
            context,
        })
    }

    /// Masks secrets as they are masked when the request is recorded.
    ///
    /// # Errors
    ///
    /// Returns an error if the masked request cannot be read.
    pub(super) fn masked(self, masker: &Masker) -> Result<Self, String> {
        if masker.is_empty() {
            return Ok(self);
        }
        let none = Self::default();
        let read = |json: String| serde_json::from_str(&masker.mask_json(json));
        let line = serde_json::to_string(&self.line_since(&none)).and_then(read);
        Self::from_line(line.map_err(|error| error.to_string())?, &none)
    }

    /// Returns whether the request contains deferred tools, which the provider itself searches.
    pub(super) fn has_deferred_tools(&self) -> bool {
        self.tools.iter().any(|tool| tool.deferred)
    }

    /// Returns the first difference from the recorded request. The first `equal` items of the
    /// contexts are known to be equal. The order of keys in JSON objects is not compared.
    pub(super) fn first_difference(
        &self,
        recorded: &Self,
        equal: usize,
    ) -> Option<RequestDifference> {
        let (a, b) = (recorded, self);
        difference("model", &a.model, &b.model)
            .or_else(|| difference("system", &a.system, &b.system))
            .or_else(|| difference("tools", &a.tools, &b.tools))
            .or_else(|| difference("options", &a.options, &b.options))
            .or_else(|| {
                let mut a = a.context.entries_after(equal).map(|(_, item)| item);
                let mut b = b.context.entries_after(equal).map(|(_, item)| item);
                let longest = recorded.context.len().max(self.context.len());
                (equal..longest)
                    .find_map(|at| difference(&format!("context[{at}]"), &a.next(), &b.next()))
            })
    }
}

impl RequestComparison {
    /// Returns the first difference between the next recorded request and the next request of the
    /// replay.
    pub(super) fn first_difference(
        &mut self,
        recorded: &RecordedRequest,
        request: &Request,
    ) -> Option<RequestDifference> {
        let replayed = RecordedRequest::new(request);
        let equal = recorded
            .context
            .common_prefix_len(&self.recorded.context)
            .min(replayed.context.common_prefix_len(&self.replayed.context));
        let difference = replayed.first_difference(recorded, equal);
        *self = Self { recorded: recorded.clone(), replayed };
        difference
    }
}

fn difference<T: PartialEq + Serialize>(
    path: &str,
    recorded: &T,
    replayed: &T,
) -> Option<RequestDifference> {
    if recorded == replayed {
        return None;
    }
    difference_in_json(path.to_owned(), &to_json(recorded), &to_json(replayed))
}

fn difference_in_json(
    path: String,
    recorded: &Value,
    replayed: &Value,
) -> Option<RequestDifference> {
    match (recorded, replayed) {
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.into_iter().find_map(|key| {
                difference_in_json(format!("{path}.{key}"), &recorded[key], &replayed[key])
            })
        }
        (Value::Array(a), Value::Array(b)) => (0..a.len().max(b.len())).find_map(|at| {
            difference_in_json(format!("{path}[{at}]"), &recorded[at], &replayed[at])
        }),
        _ => (recorded != replayed).then(|| RequestDifference {
            path,
            recorded: recorded.clone(),
            replayed: replayed.clone(),
        }),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Converts a value to JSON. JSON that is nested too deeply to be parsed is compared as a string.
fn to_json(value: &impl Serialize) -> Value {
    let json = serde_json::to_string(value).unwrap_or_default();
    serde_json::from_str(&json).unwrap_or(Value::String(json))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::{Output, OutputSchema, ToolSpec};

    #[test]
    fn the_order_of_json_keys_is_not_a_difference() {
        let request = |schema: &str| {
            let schema: Value = serde_json::from_str(schema).unwrap();
            let mut request = Request::new(History::empty("h"));
            request.tools = [ToolSpec::new("f", "d", schema.clone())].into();
            let name = "f".to_owned();
            request.options.output = Output::Schema(OutputSchema { name, schema: schema.clone() });
            request.options.extra.insert("z".to_owned(), schema);
            RecordedRequest::new(&request)
        };
        let a = request(r#"{"type":"object","properties":{"z":{"type":"null"},"a":{}}}"#);
        let b = request(r#"{"properties":{"a":{},"z":{"type":"null"}},"type":"object"}"#);
        assert_eq!(a.first_difference(&b, 0), None);
        let c = request(r#"{"properties":{"a":{},"z":{}},"type":"object"}"#);
        let difference = c.first_difference(&a, 0).unwrap();
        assert_eq!(difference.path, "tools[0].parameters.properties.z.type");
        assert_eq!((difference.recorded, difference.replayed), (json!("null"), Value::Null));
    }

    #[test]
    fn unchanged_parts_are_not_written_again_and_are_read_back() {
        let mut request = Request::new(History::from_items("h", [Item::user("a")]));
        request.model = Some("m".to_owned());
        request.system.stable = "Be brief.".into();
        let mut last = RecordedRequest::default();
        let mut check = |request: &Request, line: Value| {
            let recorded = RecordedRequest::new(request);
            let written = recorded.line_since(&last);
            assert_eq!(serde_json::to_value(&written).unwrap(), line);
            let read = serde_json::from_value(line).unwrap();
            assert_eq!(written, read);
            let read = RecordedRequest::from_line(read, &last).unwrap();
            assert_eq!(recorded.first_difference(&read, 0), None);
            last = recorded;
        };
        let item = |text: &str| json!({ "type": "user", "content": text });
        let system = json!({ "stable": "Be brief.", "volatile": "" });
        let all = json!({ "model": "m", "system": system, "context": [item("a")] });
        check(&request, all);
        request.context.push(Item::user("b"));
        check(&request, json!({ "model": "m", "shared_prefix": 1, "context": [item("b")] }));
        request.model = None;
        check(&request, json!({ "shared_prefix": 2, "context": [] }));
        let line = RequestLine { shared_prefix: 3, ..RequestLine::default() };
        let refused = RecordedRequest::from_line(line, &last).unwrap_err();
        assert_eq!(refused, "it continues 3 items of a request that has 2");
    }

    /// Records and replays `requests` requests, calling `next` to change the history before each
    /// request, and checks that each replayed request equals its recording. Returns the number of
    /// items that were written.
    fn items_written(requests: usize, next: impl Fn(&mut History, usize)) -> usize {
        let (mut written, mut read) = (RecordedRequest::default(), RecordedRequest::default());
        let mut comparison = RequestComparison::default();
        let mut history = History::empty("h");
        let mut items = 0;
        for n in 0..requests {
            next(&mut history, n);
            let request = Request::new(history.clone());
            let recorded = RecordedRequest::new(&request);
            let line = recorded.line_since(&written);
            items += line.context.len();
            written = recorded;
            read = RecordedRequest::from_line(line, &read).unwrap();
            assert_eq!(comparison.first_difference(&read, &request), None, "request {n}");
        }
        items
    }

    fn grow(history: &mut History, n: usize) {
        history.extend([Item::user(format!("{n}?")), Item::text(format!("{n}!"))]);
    }

    #[test]
    fn each_history_item_is_written_once_across_requests() {
        assert_eq!(items_written(200, grow), 400);
        assert_eq!(items_written(400, grow), 800);
        // A hook may build a new context each time.
        let anew = |history: &mut History, n: usize| {
            grow(history, n);
            *history = History::from_items("h", history.iter().cloned().collect::<Vec<_>>());
        };
        assert_eq!(items_written(400, anew), 800);
        // Items after a changed item are written again.
        let shortened = |history: &mut History, n: usize| {
            grow(history, n);
            if n == 300 {
                history.rewrite(0..500, [Item::user("a summary")]);
            }
        };
        assert_eq!(items_written(400, shortened), 798 + 1 + 602 - 500);
    }

    #[test]
    fn the_first_differing_item_of_a_later_request_is_reported() {
        let request = |items: &[&str]| {
            let items: Vec<Item> = items.iter().map(|text| Item::user(*text)).collect();
            Request::new(History::from_items("h", items))
        };
        let check = |recorded: &[&[&str]], replayed: &[&[&str]], path: Option<&str>| {
            let (mut last, mut comparison) =
                (RecordedRequest::default(), RequestComparison::default());
            let mut differ = None;
            for (recorded, replayed) in recorded.iter().zip(replayed) {
                assert_eq!(differ, None);
                let line = RecordedRequest::new(&request(recorded)).line_since(&last);
                last = RecordedRequest::from_line(line, &last).unwrap();
                let difference = comparison.first_difference(&last, &request(replayed));
                differ = difference.map(|it| it.path);
            }
            assert_eq!(differ.as_deref(), path, "{recorded:?} {replayed:?}");
        };
        check(&[&["a"], &["a", "b"]], &[&["a"], &["a", "b"]], None);
        check(&[&["a"], &["a", "b"]], &[&["a"], &["a", "x"]], Some("context[1].content"));
        check(&[&["a"], &["a", "b"]], &[&["a"], &["a"]], Some("context[1]"));
        check(&[&["a", "b"], &["a"]], &[&["a", "b"], &["a", "b"]], Some("context[1]"));
        check(&[&["a"], &["x", "b"]], &[&["a"], &["a", "b"]], Some("context[0].content"));
        check(&[&["a"], &["a", "b"]], &[&["a"], &["x", "b"]], Some("context[0].content"));
        check(&[&["a"], &["x"], &["a"]], &[&["a"], &["x"], &["a"]], None);
    }
}
