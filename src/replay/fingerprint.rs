//! Computes fingerprints of requests, and compares requests with recorded fingerprints.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::fnv::fnv1a_128;
use crate::item::{Item, RawJson};
use crate::request::{Output, Request};

/// The names of a request's parts, except for the context.
const REQUEST_PARTS: [&str; 4] = ["model", "system", "tools", "options"];

/// The fingerprints of those parts of a request that are sent to the model. Entries at the start of
/// the context are omitted if they are the same as in the previous request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestFingerprint {
    model: Fingerprint,
    system: Fingerprint,
    tools: Fingerprint,
    options: Fingerprint,
    /// The number of entries at the start of the context that are the same as in the previous
    /// request.
    shared_prefix: usize,
    context: Vec<Fingerprint>,
}

/// Computes the fingerprints of a run's requests. Only those parts of a request that differ from
/// the previous request are read.
#[derive(Default)]
pub(super) struct FingerprintTracker {
    last_request: Option<Request>,
    /// The fingerprints of the last request's parts, except for the context.
    part_fingerprints: [Fingerprint; 4],
    /// The fingerprints of the entries in the last request's context.
    context_fingerprints: Vec<Fingerprint>,
}

/// Compares a replay's requests with the recorded requests, in order.
#[derive(Default)]
pub(super) struct RequestComparison {
    replayed_tracker: FingerprintTracker,
    /// The fingerprints of the entries in the last recorded request's context.
    recorded_context: Vec<Fingerprint>,
}

/// A 128-bit hash, serialized as hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fingerprint(u128);

/// The first difference between a replay and the recorded run.
///
/// If a [`ReplayRun`](super::ReplayRun) differs from the recorded run, the replay ends with an
/// error whose source is a `ReplayMismatch`. The differing values may be private, so the error's
/// message and its [`parameter`](crate::Error::parameter) contain only the location of the
/// difference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayMismatch {
    /// The number of events before the difference, all of which are equal in both runs.
    pub matched_events: usize,
    /// The part that differs: `event`, or a part of a request such as `request.context[2]`.
    pub part: String,
    /// The recorded value: an event, the fingerprint of a request part, or `null` if the recording
    /// contains no value at this position.
    pub recorded: RawJson,
    /// The replayed value: an event, a part of a request, or `null` if the replay produced no value
    /// at this position.
    pub replayed: RawJson,
}

impl fmt::Display for ReplayMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matched_events: events, part, .. } = self;
        write!(f, "the replay differs from the recorded run in `{part}`, after {events} events")
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
        Self {
            matched_events: events,
            part: part.into(),
            recorded: json_or_null(recorded),
            replayed: json_or_null(replayed),
        }
    }

    pub(super) fn into_error(self) -> Error {
        Error::new(ErrorKind::ReplayMismatch, self.to_string())
            .with_parameter(self.part.clone())
            .with_source(self)
    }
}

impl FingerprintTracker {
    /// Computes the fingerprints of the next request.
    pub(super) fn fingerprint(&mut self, request: &Request) -> RequestFingerprint {
        let last = self.last_request.as_ref();
        let shared_prefix = last.map_or(0, |last| request.context.common_prefix_len(&last.context));
        self.context_fingerprints.truncate(shared_prefix);
        let new = request.context.entries_after(shared_prefix);
        self.context_fingerprints.extend(new.map(|(_, item)| Fingerprint::of_item(item)));
        for (at, print) in self.part_fingerprints.iter_mut().enumerate() {
            if !last.is_some_and(|last| is_same_part(last, request, at)) {
                *print = Fingerprint::of_json(&part_json(request, at));
            }
        }
        let context = request.context.without_caches();
        self.last_request = Some(Request { history: context.clone(), context, ..request.clone() });
        let [model, system, tools, options] = self.part_fingerprints;
        RequestFingerprint {
            model,
            system,
            tools,
            options,
            shared_prefix,
            context: self.context_fingerprints[shared_prefix..].to_vec(),
        }
    }
}

impl RequestComparison {
    /// Returns the first difference between the next recorded request and the replayed request.
    /// `events` is the number of events before the request.
    pub(super) fn first_difference(
        &mut self,
        recorded: &RequestFingerprint,
        request: &Request,
        events: usize,
    ) -> Option<ReplayMismatch> {
        let replayed = self.replayed_tracker.fingerprint(request);
        self.recorded_context.truncate(recorded.shared_prefix);
        // Entries that both requests share with their predecessors have already been compared.
        let alike = replayed.shared_prefix.min(self.recorded_context.len());
        self.recorded_context.extend(&recorded.context);
        for (at, (recorded, replayed)) in recorded.parts().zip(replayed.parts()).enumerate() {
            if recorded != replayed {
                let name = format!("request.{}", REQUEST_PARTS[at]);
                return Some(ReplayMismatch::new(events, name, recorded, &part_json(request, at)));
            }
        }
        let (recorded, replayed) =
            (&self.recorded_context, &self.replayed_tracker.context_fingerprints);
        let longest = recorded.len().max(replayed.len());
        let at = (alike..longest).find(|at| recorded.get(*at) != replayed.get(*at))?;
        let name = format!("request.context[{at}]");
        let item = request.context.iter().nth(at);
        Some(ReplayMismatch::new(events, name, &recorded.get(at), &item))
    }
}

impl RequestFingerprint {
    fn parts(&self) -> impl Iterator<Item = &Fingerprint> {
        [&self.model, &self.system, &self.tools, &self.options].into_iter()
    }
}

/// Returns whether a part is the same in both requests.
fn is_same_part(a: &Request, b: &Request, part: usize) -> bool {
    match REQUEST_PARTS[part] {
        "model" => a.model == b.model,
        "system" => a.system == b.system,
        "tools" => a.tools == b.tools,
        _ => a.options == b.options,
    }
}

/// Returns the part of a request at index `at` in [`REQUEST_PARTS`]. Keys in schemas and extra
/// fields are sorted, because a different key order does not count as a difference.
fn part_json(request: &Request, at: usize) -> RawJson {
    match REQUEST_PARTS[at] {
        "model" => json_or_null(&request.model),
        "system" => json_or_null(&request.system),
        "tools" => {
            let mut tools = request.tools.to_vec();
            for tool in &mut tools {
                let mut parameters = tool.parameters.to_value();
                parameters.sort_all_objects();
                tool.parameters = parameters.into();
            }
            json_or_null(&tools)
        }
        _ => {
            let mut options = request.options.clone();
            options.extra.sort_keys();
            options.extra.values_mut().for_each(Value::sort_all_objects);
            if let Output::Schema(output) = &mut options.output {
                output.schema.sort_all_objects();
            }
            json_or_null(&options)
        }
    }
}

fn json_or_null(value: &(impl Serialize + ?Sized)) -> RawJson {
    RawJson::new(value).unwrap_or_else(|_| Value::Null.into())
}

impl Fingerprint {
    fn of_json(json: &RawJson) -> Self {
        Self(fnv1a_128(json.as_str().bytes()))
    }

    fn of_item(item: &Item) -> Self {
        #[cfg(test)]
        tests::ITEMS_READ.set(tests::ITEMS_READ.get() + 1);
        Self::of_json(&json_or_null(item))
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u128::from_str_radix(&digits, 16).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::cell::Cell;

    use super::*;
    use crate::item::History;
    use crate::request::{OutputSchema, ToolSpec};

    thread_local! {
        /// The number of context entries that have been fingerprinted.
        pub(super) static ITEMS_READ: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn fingerprints_do_not_depend_on_the_order_of_json_keys() {
        let schema =
            json!({ "type": "object", "properties": { "z": { "type": "null" }, "a": {} } });
        let sorted = r#"{"properties":{"a":{},"z":{"type":"null"}},"type":"object"}"#;
        let mut request = Request::new(History::empty("h"));
        let (name, description) = ("f".to_owned(), "d".to_owned());
        request.tools = [ToolSpec::new(name.clone(), description, schema.clone())].into();
        request.options.output = Output::Schema(OutputSchema { name, schema: schema.clone() });
        request.options.extra.insert("z".to_owned(), schema);
        request.options.extra.insert("a".to_owned(), Value::Null);
        let (tools, options) = (part_json(&request, 2), part_json(&request, 3));
        let recorded = format!(r#"[{{"name":"f","description":"d","parameters":{sorted}}}]"#);
        assert_eq!(tools.as_str(), recorded);
        let print = FingerprintTracker::default().fingerprint(&request);
        assert_eq!(print.tools.0, fnv1a_128(recorded.bytes()));
        let options = options.as_str();
        assert!(options.contains(&format!(r#"{{"name":"f","schema":{sorted}}}"#)), "{options}");
        assert!(options.contains(&format!(r#""extra":{{"a":null,"z":{sorted}}}"#)), "{options}");
    }

    /// Records and replays `requests` requests, calling `next` to change the history before each
    /// request, and checks that each replayed request matches its recording. Returns the number of
    /// context entries that were fingerprinted, and the number of context fingerprints in the
    /// recording.
    fn work(requests: usize, next: impl Fn(&mut History, usize)) -> (usize, usize) {
        ITEMS_READ.set(0);
        let (mut recorded, mut played) =
            (FingerprintTracker::default(), RequestComparison::default());
        let mut history = History::empty("h");
        let mut written = 0;
        for n in 0..requests {
            next(&mut history, n);
            let request = Request::new(history.clone());
            let print = recorded.fingerprint(&request);
            written += print.context.len();
            assert_eq!(played.first_difference(&print, &request, 0), None, "request {n}");
        }
        (ITEMS_READ.get(), written)
    }

    fn grow(history: &mut History, n: usize) {
        history.extend([Item::user(format!("{n}?")), Item::text(format!("{n}!"))]);
    }

    #[test]
    fn each_history_item_is_fingerprinted_once_across_requests() {
        // Once for the recorder and once for the replay.
        assert_eq!(work(200, grow), (2 * 400, 400));
        assert_eq!(work(400, grow), (2 * 800, 800));
        // A hook may build a new context each time.
        let anew = |history: &mut History, n: usize| {
            grow(history, n);
            *history = History::from_items("h", history.iter().cloned().collect::<Vec<_>>());
        };
        assert_eq!(work(400, anew), (2 * 800, 800));
        // Entries after a changed entry are read again.
        let shortened = |history: &mut History, n: usize| {
            grow(history, n);
            if n == 300 {
                history.rewrite(0..500, [Item::user("a summary")]);
            }
        };
        let again = 1 + 602 - 500;
        assert_eq!(work(400, shortened), (2 * (798 + again), 798 + again));
    }

    #[test]
    fn the_first_differing_part_of_a_later_request_is_reported() {
        let request = |items: &[&str]| {
            let items: Vec<Item> = items.iter().map(|text| Item::user(*text)).collect();
            Request::new(History::from_items("h", items))
        };
        let check = |recorded: &[&[&str]], replayed: &[&[&str]], part: Option<&str>| {
            let (mut written, mut played) =
                (FingerprintTracker::default(), RequestComparison::default());
            let mut differ = None;
            for (recorded, replayed) in recorded.iter().zip(replayed) {
                assert_eq!(differ, None);
                let print = written.fingerprint(&request(recorded));
                let mismatch = played.first_difference(&print, &request(replayed), 0);
                differ = mismatch.map(|it| it.part);
            }
            assert_eq!(differ.as_deref(), part, "{recorded:?} {replayed:?}");
        };
        let context =
            |at: usize| Some(["[0]", "[1]", "[2]"][at]).map(|it| format!("request.context{it}"));
        check(&[&["a"], &["a", "b"]], &[&["a"], &["a", "b"]], None);
        check(&[&["a"], &["a", "b"]], &[&["a"], &["a", "x"]], context(1).as_deref());
        check(&[&["a"], &["a", "b"]], &[&["a"], &["a"]], context(1).as_deref());
        check(&[&["a", "b"], &["a"]], &[&["a", "b"], &["a", "b"]], context(1).as_deref());
        check(&[&["a"], &["x", "b"]], &[&["a"], &["a", "b"]], context(0).as_deref());
        check(&[&["a"], &["a", "b"]], &[&["a"], &["x", "b"]], context(0).as_deref());
        check(&[&["a"], &["x"], &["a"]], &[&["a"], &["x"], &["a"]], None);
    }
}
