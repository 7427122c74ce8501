//! Values that have not ended: what is yielded when, and how each value ends.

use std::collections::HashMap;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use turnstream::agent::Limits;
use turnstream::partial::{EventOrPartial, Partial, PartialState, PartialValues};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::turn::{ParseError, StopReason};
use turnstream::{
    Agent, Error, ErrorKind, Event, EventStreamExt, History, Request, Tool, TurnEvent,
};
use turnstream_test_support::tools::spec;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
struct Form {
    title: String,
    stars: u8,
    kind: Option<Kind>,
    parts: Vec<Part>,
    place: Option<(f64, f64)>,
    notes: HashMap<String, Part>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Short,
    Shorter,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
struct Part {
    name: Option<String>,
    /// The fields of the variants are required.
    shape: Option<Shape>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
enum Shape {
    Circle { radius: u8 },
    Square { side: u8 },
}

fn text_delta(text: &str) -> Event {
    TurnEvent::TextDelta { index: 0, text: text.into() }.into()
}

/// Yields the events of each group at once, and is pending for a few polls after each group.
fn in_groups(groups: Vec<Vec<Event>>) -> impl Stream<Item = Result<Event, Error>> + Unpin {
    let steps = groups.into_iter().flat_map(|group| {
        let events = group.into_iter().map(|event| Poll::Ready(Some(Ok(event))));
        events.chain((0..4).map(|_| Poll::Pending))
    });
    let mut steps = steps.collect::<Vec<_>>().into_iter();
    stream::poll_fn(move |cx| {
        let step = steps.next().unwrap_or(Poll::Ready(None));
        if step.is_pending() {
            cx.waker().wake_by_ref();
        }
        step
    })
}

/// The number of events before each value, and the values.
async fn read<T: serde::de::DeserializeOwned>(
    events: impl Stream<Item = Result<Event, Error>>,
    values: PartialValues<T>,
) -> Vec<(usize, Partial<T>)> {
    let mut steps = pin!(events.with_partials(values));
    let (mut count, mut found) = (0, Vec::new());
    while let Some(step) = steps.next().await {
        match step {
            Ok(EventOrPartial::Event(_)) => count += 1,
            Ok(EventOrPartial::Partial(partial)) => found.push((count, partial)),
            Err(_) => {}
        }
    }
    found
}

fn answer() -> PartialValues<Value> {
    PartialValues::untyped_answer(&true.into())
}

fn states(partials: Vec<(usize, Partial<Value>)>) -> Vec<(usize, PartialState<Value>)> {
    partials.into_iter().map(|(count, partial)| (count, partial.state)).collect()
}

/// The values of a form whose answer arrives character by character.
fn grow_form(text: &str) -> Vec<Form> {
    let mut values = PartialValues::<Form>::of_answer().unwrap();
    let pieces = text.split("").filter(|piece| !piece.is_empty());
    let grown = pieces.filter_map(|piece| {
        values.observe(&text_delta(piece));
        match values.next_partial()?.state {
            PartialState::Growing(form) => Some(form),
            other => panic!("{other:?}"),
        }
    });
    grown.collect()
}

#[tokio::test]
async fn deltas_that_are_ready_at_once_result_in_one_value() {
    let first = [r#"{"a":"#, r#""x"#, "y"].map(text_delta).to_vec();
    let second = ["z", r#"","b":1"#, "2"].map(text_delta).to_vec();
    let third = ["}"].map(text_delta).to_vec();
    let found = states(read(in_groups(vec![first, second, third]), answer()).await);
    let incomplete = ParseError::RunEndedEarly { reason: "incomplete".into() };
    assert_eq!(
        found,
        [
            (3, PartialState::Growing(json!({ "a": "xy" }))),
            (6, PartialState::Growing(json!({ "a": "xyz" }))),
            (7, PartialState::Growing(json!({ "a": "xyz", "b": 12 }))),
            (7, PartialState::Failed(incomplete)),
        ]
    );
}

#[tokio::test]
async fn a_value_that_has_not_changed_is_not_built_again() {
    let groups = ["{\"a\":\"x\"", " ", ",", "\"b\"", ":", "1", "2", " }"];
    let groups = groups.map(|text| vec![text_delta(text)]).to_vec();
    let found = states(read(in_groups(groups), answer()).await);
    let values: Vec<_> = found
        .iter()
        .filter_map(|(count, state)| match state {
            PartialState::Growing(value) => Some((*count, value.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(values, [(1, json!({ "a": "x" })), (8, json!({ "a": "x", "b": 12 }))]);
}

#[tokio::test]
async fn all_events_and_errors_are_passed_on_in_order_and_one_is_read_for_each_one_yielded() {
    let events = || {
        let group = |texts: &[&str]| texts.iter().map(|text| text_delta(text)).collect();
        vec![group(&["{", "\"a\":"]), group(&["\"x\"", "}"])]
    };
    let mut plain: Vec<_> = in_groups(events()).map(Result::unwrap).collect().await;
    let mut read = 0;
    let failed = stream::iter([Err(Error::new(ErrorKind::Server, "down"))]);
    let counted = in_groups(events()).chain(failed).inspect(|_| read += 1);
    let mut steps = Box::pin(counted.with_partials(answer()));
    let (mut yielded, mut passed, mut error) = (0, Vec::new(), None);
    while let Some(step) = steps.next().await {
        yielded += 1;
        match step {
            Ok(EventOrPartial::Event(event)) => passed.push(event),
            Ok(EventOrPartial::Partial(_)) => {}
            Err(failed) => error = Some(failed),
        }
    }
    drop(steps);
    assert_eq!(passed, std::mem::take(&mut plain));
    assert_eq!(error.unwrap().kind(), ErrorKind::Server);
    // The items besides events: two growing values and an end.
    assert_eq!((read, yielded), (5, 5 + 3));
}

#[tokio::test]
async fn no_event_is_read_before_it_is_pulled() {
    let mut read = 0;
    let events = stream::iter(["{", "\"a\":1", "}"].map(|text| Ok(text_delta(text))));
    let mut steps = Box::pin(events.inspect(|_| read += 1).with_partials(answer()));
    for _ in 0..2 {
        steps.next().await.unwrap().unwrap();
    }
    drop(steps);
    assert_eq!(read, 2);
}

#[tokio::test(start_paused = true)]
async fn a_retracted_turn_takes_its_value_back_and_the_next_attempt_starts_anew() {
    let wait = Duration::from_secs(1);
    let reply = Reply::text(r#"{"a":"old"#)
        .delay(wait)
        .retract("the connection was lost")
        .delay(wait)
        .say(r#"{"a":"new"#)
        .delay(wait)
        .say(r#"","b":1}"#);
    let found = states(read(Agent::new(Scripted::new([reply])).run("go"), answer()).await);
    let states: Vec<_> = found.into_iter().map(|(_, state)| state).collect();
    assert_eq!(
        states,
        [
            PartialState::Growing(json!({ "a": "old" })),
            PartialState::Retracted,
            PartialState::Growing(json!({ "a": "new" })),
            PartialState::Complete(json!({ "a": "new", "b": 1 })),
        ]
    );
}

#[tokio::test]
async fn calls_are_told_apart_by_their_ids_and_are_complete_with_their_turn() {
    let args = |call_id: &str, delta: &str| {
        let (call_id, delta) = (call_id.into(), delta.into());
        TurnEvent::ToolCallArgsDelta { call_id, delta }
    };
    let start = |call_id: &str, name: &str| {
        let (call_id, name) = (call_id.into(), name.into());
        TurnEvent::ToolCallStart { call_id, name }
    };
    let calls = Reply::new()
        .call_raw("c1", "draft", r#"{"title":"One"}"#)
        .call_raw("c2", "draft", r#"{"title":"Two"}"#)
        .call_raw("c3", "other", "{}");
    let turn = Scripted::new([calls]).stream_turn(Request::new(History::empty("h")));
    let complete = turn.map(Result::unwrap).collect::<Vec<_>>().await.pop().unwrap();
    let group = |events: Vec<TurnEvent>| events.into_iter().map(Event::from).collect();
    let events = in_groups(vec![
        group(vec![start("c1", "draft"), start("c2", "draft"), start("c3", "other")]),
        group(vec![args("c1", r#"{"title":"On"#), args("c2", r#"{"title":"T"#), args("c3", "{")]),
        group(vec![args("c1", "e\"}"), start("c4", "draft"), args("c4", "{\"title\":\"gone\"")]),
        group(vec![complete]),
    ]);
    let found = read(events, PartialValues::<Form>::of_calls("draft").unwrap()).await;
    let shown: Vec<_> = found
        .into_iter()
        .map(|(_, partial)| {
            let (state, form) = match partial.state {
                PartialState::Growing(form) => ("growing", form),
                PartialState::Complete(form) => ("complete", form),
                PartialState::Retracted => ("retracted", Form::default()),
                PartialState::Failed(error) => panic!("{error}"),
            };
            (partial.call_id.unwrap(), state, form.title)
        })
        .collect();
    let shown: Vec<_> = shown.iter().map(|(id, state, title)| (&**id, *state, &**title)).collect();
    assert_eq!(
        shown,
        [
            ("c1", "growing", "On"),
            ("c2", "growing", "T"),
            ("c1", "growing", "One"),
            ("c4", "growing", "gone"),
            ("c1", "complete", "One"),
            ("c2", "complete", "Two"),
            ("c4", "retracted", ""),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_fit_fails_and_its_correction_is_a_new_value() {
    let wait = Duration::from_secs(1);
    let model = Scripted::new([
        Reply::text(r#"{"title":"A"#).delay(wait).say(r#"","stars":"many"}"#),
        Reply::text(r#"{"title":"A"#).delay(wait).say(r#"","stars":5}"#),
    ]);
    let run = Agent::new(model).with_output::<Form>().run("go");
    let found = read(run, PartialValues::<Form>::of_answer().unwrap()).await;
    let states: Vec<_> = found.into_iter().map(|(_, partial)| partial.state).collect();
    let form = |stars| Form { title: "A".into(), stars, ..Form::default() };
    assert_eq!(states[0], PartialState::Growing(form(0)));
    assert!(
        matches!(&states[1], PartialState::Failed(ParseError::TypeMismatch { path, .. }) if path == "stars"),
        "{states:?}"
    );
    assert_eq!(states[2..], [PartialState::Growing(form(0)), PartialState::Complete(form(5))]);
}

#[tokio::test(start_paused = true)]
async fn every_value_that_has_grown_ends_once_however_the_turn_ends() {
    let wait = Duration::from_secs(1);
    let begun = || Reply::text(r#"{"a":"x"#).delay(wait);
    let limits = || Limits { max_turn_retries: 0, ..Limits::default() };
    for (reply, is_end) in [
        (begun().stop(StopReason::MaxTokens), "the answer was cut off before its end"),
        (begun().stop(StopReason::ContentFilter), "a content filter cut the answer off"),
        (begun().say("y"), "the answer is not JSON: EOF while parsing a string at line 1 column 8"),
        (
            begun().fail(Error::new(ErrorKind::Server, "down")),
            "the run ended early: provider_error",
        ),
        (begun().disconnect(), "the run ended early: incomplete"),
    ] {
        let agent = Agent::new(Scripted::new([reply])).with_limits(limits());
        let found = states(read(agent.run("go"), answer()).await);
        let [(_, PartialState::Growing(_)), (_, end)] = &found[..] else {
            panic!("{is_end}: {found:?}");
        };
        let text = match end {
            PartialState::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(text, is_end);
    }
}

#[tokio::test]
async fn text_beside_calls_is_not_an_answer_unless_it_has_grown() {
    let agent = |reply: Reply| {
        let tool = Tool::raw(spec("t"), |_, _| async { "ok" }).unwrap();
        Agent::new(Scripted::new([reply.call("t", json!({})), Reply::text("{\"a\":1}")]))
            .with_tools([tool])
    };
    let found = states(read(agent(Reply::text("Let me look.")).run("go"), answer()).await);
    let states: Vec<_> = found.into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [PartialState::Complete(json!({ "a": 1 }))]);
}

#[test]
fn strings_grow_and_everything_else_appears_once_it_has_ended() {
    let text = r#"{"title":"Fjör\u00f6d","stars":12,"kind":"shorter","parts":[{"name":"a","shape":
        {"Circle":{"radius":7}}},{"name":"b"}],"place":[1.5,2.25],"notes":{"n":{"name":"c"}}}"#;
    let grown = grow_form(text);
    let titles: Vec<_> = grown.iter().map(|form| form.title.as_str()).collect();
    assert_eq!(titles[..8], ["", "", "F", "Fj", "Fjö", "Fjör", "Fjörö", "Fjöröd"]);
    let mut stars: Vec<_> = grown.iter().map(|form| form.stars).collect();
    stars.dedup();
    assert_eq!(stars, [0, 12]);
    let mut kinds: Vec<_> = grown.iter().map(|form| form.kind.clone()).collect();
    kinds.dedup();
    assert_eq!(kinds, [None, Some(Kind::Shorter)]);
    let mut places: Vec<_> = grown.iter().map(|form| form.place).collect();
    places.dedup();
    assert_eq!(places, [None, Some((1.5, 2.25))]);
    let mut shapes: Vec<_> =
        grown.iter().filter_map(|form| form.parts.first()).map(|part| part.shape.clone()).collect();
    shapes.dedup();
    assert_eq!(shapes, [None, Some(Shape::Circle { radius: 7 })]);
    assert!(grown.iter().any(|form| form.parts.len() == 2 && form.parts[1].name.is_none()));
    assert!(grown.iter().any(|form| form.notes.get("n") == Some(&Part::default())));
    assert_eq!(grown.last(), serde_json::from_str(text).ok().as_ref());
}

/// An enum with data in each of serde's tagged representations.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
enum External {
    Note { text: Option<String>, tags: Option<Vec<String>> },
    Title(String),
    Point(u8, u8),
    Count(u8),
    Strict { name: Strict },
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Internal {
    Note { text: Option<String>, tags: Option<Vec<String>> },
    Titled { title: String, stars: Option<u8> },
    Rated { stars: u8 },
    Strict { name: Strict },
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Note { text: Option<String>, tags: Option<Vec<String>> },
    Title(String),
    Count(u8),
    Nothing,
}

/// A type that accepts no incomplete value.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
struct Strict {
    first: String,
    last: String,
}

/// The values of a list with one element, whose text arrives character by character.
fn grow_element<T>(text: &str) -> Vec<Vec<T>>
where
    T: Clone + std::fmt::Debug + PartialEq + serde::de::DeserializeOwned + JsonSchema,
{
    let text = format!("[{text}]");
    let mut values = PartialValues::<Vec<T>>::of_calls("t").unwrap();
    let (call_id, name) = ("c".to_owned(), "t".to_owned());
    values.observe(&TurnEvent::ToolCallStart { call_id, name }.into());
    let mut grown: Vec<Vec<T>> = Vec::new();
    for piece in text.split("").filter(|piece| !piece.is_empty()) {
        let (call_id, delta) = ("c".to_owned(), piece.into());
        values.observe(&TurnEvent::ToolCallArgsDelta { call_id, delta }.into());
        let Some(partial) = values.next_partial() else { continue };
        let PartialState::Growing(value) = partial.state else { panic!("{partial:?}") };
        grown.push(value);
    }
    grown.dedup();
    assert_eq!(grown.last(), serde_json::from_str(&text).ok().as_ref(), "{text}");
    grown
}

#[test]
fn an_enum_with_data_grows_once_its_tag_has_ended() {
    let external = |text: Option<&str>, tags: Option<&[&str]>| {
        let (text, tags) = (
            text.map(str::to_owned),
            tags.map(|it| it.iter().map(|it| (*it).to_owned()).collect()),
        );
        vec![External::Note { text, tags }]
    };
    assert_eq!(
        grow_element::<External>(r#"{"Note":{"text":"ab","tags":["c"]}}"#),
        [
            vec![],
            external(None, None),
            external(Some(""), None),
            external(Some("a"), None),
            external(Some("ab"), None),
            external(Some("ab"), Some(&[])),
            external(Some("ab"), Some(&[""])),
            external(Some("ab"), Some(&["c"])),
        ]
    );
    let titles: Vec<_> = ["", "a", "ab"].map(|it| vec![External::Title(it.to_owned())]).into();
    assert_eq!(grow_element::<External>(r#"{"Title":"ab"}"#), [vec![vec![]], titles].concat());
    for (text, complete) in [
        (r#"{"Point":[1,2]}"#, External::Point(1, 2)),
        (r#"{"Count":12}"#, External::Count(12)),
        (r#""Nothing""#, External::Nothing),
    ] {
        assert_eq!(grow_element::<External>(text), [vec![], vec![complete]], "{text}");
    }
    let internal =
        |text: Option<&str>| vec![Internal::Note { text: text.map(str::to_owned), tags: None }];
    assert_eq!(
        grow_element::<Internal>(r#"{"kind":"note","text":"a"}"#),
        [vec![], internal(None), internal(Some("")), internal(Some("a"))]
    );
    // The variant is not known before its tag, wherever the tag is.
    assert_eq!(
        grow_element::<Internal>(r#"{"text":"a","kind":"note"}"#),
        [vec![], internal(Some("a"))]
    );
    assert_eq!(
        grow_element::<Internal>(r#"{"kind":"nothing"}"#),
        [vec![], vec![Internal::Nothing]]
    );
    let adjacent =
        |text: Option<&str>| vec![Adjacent::Note { text: text.map(str::to_owned), tags: None }];
    assert_eq!(
        grow_element::<Adjacent>(r#"{"t":"Note","c":{"text":"a"}}"#),
        [vec![], adjacent(None), adjacent(Some("")), adjacent(Some("a"))]
    );
    assert_eq!(
        grow_element::<Adjacent>(r#"{"c":{"text":"a"},"t":"Note"}"#),
        [vec![], adjacent(Some("a"))]
    );
    for (text, complete) in [
        (r#"{"t":"Count","c":12}"#, Adjacent::Count(12)),
        (r#"{"t":"Nothing"}"#, Adjacent::Nothing),
    ] {
        assert_eq!(grow_element::<Adjacent>(text), [vec![], vec![complete]], "{text}");
    }
    let titles = ["", "a"].map(|it| vec![Adjacent::Title(it.to_owned())]);
    let grown = grow_element::<Adjacent>(r#"{"t":"Title","c":"a"}"#);
    assert_eq!(grown, [vec![vec![]], titles.into()].concat());
}

#[test]
fn a_variant_appears_once_its_required_fields_have_begun_or_else_at_its_end() {
    let titled = |title: &str, stars| Internal::Titled { title: title.to_owned(), stars };
    assert_eq!(
        grow_element::<Internal>(r#"{"kind":"titled","stars":5,"title":"a"}"#),
        [vec![], vec![titled("", Some(5))], vec![titled("a", Some(5))]]
    );
    // A number is absent until it has ended, and the name's own fields must not be absent.
    let name = || Strict { first: "a".to_owned(), last: "b".to_owned() };
    for (text, complete) in [
        (r#"{"kind":"rated","stars":12}"#, Internal::Rated { stars: 12 }),
        (r#"{"kind":"strict","name":{"first":"a","last":"b"}}"#, Internal::Strict { name: name() }),
    ] {
        assert_eq!(grow_element::<Internal>(text), [vec![], vec![complete]], "{text}");
    }
    let grown = grow_element::<External>(r#"{"Strict":{"name":{"first":"a","last":"b"}}}"#);
    assert_eq!(grown, [vec![], vec![External::Strict { name: name() }]]);
}

/// An enum whose first variant's name begins the second one's.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
enum Mixed {
    Line,
    LineString,
    Circle { radius: Option<f64> },
}

#[test]
fn the_name_of_a_variant_without_data_appears_once_it_has_ended() {
    for (text, complete) in [
        (r#""Line""#, Mixed::Line),
        (r#""LineString""#, Mixed::LineString),
        (r#"{"Circle":{"radius":1.5}}"#, Mixed::Circle { radius: Some(1.5) }),
    ] {
        let grown = grow_element::<Mixed>(text);
        let empty = Mixed::Circle { radius: None };
        let grown: Vec<_> = grown.into_iter().filter(|it| *it != [empty.clone()]).collect();
        assert_eq!(grown, [vec![], vec![complete]], "{text}");
    }
    let schema = schemars::schema_for!(Vec<Mixed>).to_value();
    let mut values = PartialValues::untyped_answer(&schema);
    values.observe(&text_delta(r#"["Line"#));
    assert_eq!(values.next_partial().unwrap().state, PartialState::Growing(json!([])));
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Wrapping {
    Plain {
        note: Option<String>,
    },
    Wrapped {
        #[serde(flatten)]
        inner: Shape,
        label: Option<String>,
    },
}

#[test]
fn a_variant_into_which_another_enum_is_flattened_appears_at_its_end() {
    let text = r#"{"kind":"wrapped","label":"a","Circle":{"radius":7}}"#;
    let (inner, label) = (Shape::Circle { radius: 7 }, Some("a".to_owned()));
    let complete = Wrapping::Wrapped { inner, label };
    assert_eq!(grow_element::<Wrapping>(text), [vec![], vec![complete]]);
    let plain = |note: Option<&str>| vec![Wrapping::Plain { note: note.map(str::to_owned) }];
    assert_eq!(
        grow_element::<Wrapping>(r#"{"kind":"plain","note":"a"}"#),
        [vec![], plain(None), plain(Some("")), plain(Some("a"))]
    );
    let schema = schemars::schema_for!(Vec<Wrapping>).to_value();
    let mut values = PartialValues::untyped_answer(&schema);
    values.observe(&text_delta(r#"[{"kind":"wrapped","label":"a"#));
    assert_eq!(values.next_partial().unwrap().state, PartialState::Growing(json!([])));
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct First {
    first: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Second {
    second: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Untagged {
    First(First),
    Second(Second),
}

#[test]
fn an_untagged_enum_does_not_appear_as_the_wrong_variant() {
    let second = Untagged::Second(Second { second: Some(12) });
    assert_eq!(grow_element::<Untagged>(r#"{"second":12}"#), [vec![], vec![second]]);
}

#[test]
fn the_variants_of_a_json_value_grow_whatever_the_schema_requires() {
    let schema = schemars::schema_for!(Vec<Internal>).to_value();
    let mut values = PartialValues::untyped_answer(&schema);
    values.observe(&text_delta(r#"[{"kind":"strict","name":{"first":"a"#));
    let PartialState::Growing(value) = values.next_partial().unwrap().state else { panic!() };
    assert_eq!(value, json!([{ "kind": "strict", "name": { "first": "a" } }]));
    let mut values = PartialValues::untyped_answer(&schema);
    values.observe(&text_delta(r#"[{"kind":"stri"#));
    let PartialState::Growing(value) = values.next_partial().unwrap().state else { panic!() };
    assert_eq!(value, json!([]), "the tag has not ended");
}

#[test]
fn values_are_read_in_the_forms_that_a_complete_answer_may_have() {
    for before in ["```json\n", "Sure! Here it is:\n", "<think>{\"title\":1}</think>\n"] {
        let grown = grow_form(&format!("{before}{{\"title\":\"A\",\"stars\":5.0,\"parts\":null}}"));
        let last = grown.last().unwrap();
        assert_eq!((&*last.title, last.stars, last.parts.len()), ("A", 5, 0), "{before}");
    }
}

#[test]
fn the_last_of_equal_fields_replaces_the_earlier_ones_as_it_grows() {
    let titles: Vec<_> = grow_form(r#"{"title":"one","stars":1,"title":"two"}"#)
        .into_iter()
        .map(|form| (form.title, form.stars))
        .skip_while(|(_, stars)| *stars == 0)
        .collect();
    let expected = [("one", 1), ("", 1), ("t", 1), ("tw", 1), ("two", 1)];
    assert_eq!(titles, expected.map(|(title, stars)| (title.to_owned(), stars)));

    // The earlier field is void, although the later one is not shown yet.
    let mut values = PartialValues::<Form>::of_answer().unwrap();
    values.observe(&text_delta(r#"{"kind":"short","kind":"shorte"#));
    assert_eq!(values.next_partial().unwrap().state, PartialState::Growing(Form::default()));
}

#[test]
fn an_answer_that_begins_late_does_not_grow() {
    let answer = |words: usize| format!("{}:\n{{\"title\":\"A\"}}", "word ".repeat(words));
    assert!(!grow_form(&answer(100)).is_empty());
    assert!(!grow_form(&answer(204)).is_empty());
    assert_eq!(grow_form(&answer(205)), []);
}

#[test]
fn a_value_that_exceeds_a_limit_grows_no_further() {
    let grown = |text: &str| {
        let mut values = answer();
        values.observe(&text_delta(text));
        match values.next_partial().unwrap().state {
            PartialState::Growing(value) => value,
            other => panic!("{other:?}"),
        }
    };
    for (depth, shown) in [(127, 127), (128, 127)] {
        let value = grown(&"[".repeat(depth));
        let mut levels = 0;
        let mut inner = Some(&value);
        while let Some(value) = inner {
            (levels, inner) = (levels + 1, value.get(0));
        }
        assert_eq!(levels, shown);
    }
    for (elements, shown) in [(199_999, 199_999), (200_010, 199_999)] {
        let value = grown(&format!("[{}]", vec!["0"; elements].join(",")));
        assert_eq!(value.as_array().unwrap().len(), shown);
    }
}

#[test]
fn an_answer_may_follow_commentary_and_be_split_into_items() {
    let mut values = answer();
    for (index, text) in [(0, "I look it up"), (2, "{\"a\":\"x"), (4, "y\"}")] {
        values.observe(&TurnEvent::TextDelta { index, text: text.into() }.into());
    }
    let partial = values.next_partial().unwrap();
    assert_eq!(partial.state, PartialState::Growing(json!({ "a": "xy" })));
}

#[test]
fn an_answer_in_a_later_item_replaces_json_of_a_commentary_that_has_ended() {
    for commentary in [r#"{"a":"draft"}"#, "[search, read]"] {
        let mut values = answer();
        for (index, text) in [(0, commentary), (2, r#"{"a":"Os"#)] {
            values.observe(&TurnEvent::TextDelta { index, text: text.into() }.into());
        }
        let partial = values.next_partial().unwrap();
        assert_eq!(partial.state, PartialState::Growing(json!({ "a": "Os" })));
    }
}

#[test]
fn a_list_after_a_sentence_is_not_mistaken_for_the_answer() {
    let mut values = answer();
    for text in ["Sources: [", "1]\n```json\n", "{\"n\":5", "}\n```"] {
        values.observe(&text_delta(text));
        if let Some(partial) = values.next_partial() {
            // The number appears once it has ended.
            let PartialState::Growing(value) = partial.state else { panic!("{partial:?}") };
            assert!(value == json!({}) || value == json!({ "n": 5 }), "{value}");
        }
    }
    assert!(values.next_partial().is_none());
}

#[test]
fn repeated_reasoning_is_not_read() {
    let mut values = answer();
    values.observe(&text_delta(&"<think></think>".repeat(50_000)));
    values.observe(&text_delta("{\"a\":1}"));
    assert!(values.next_partial().is_none());
}

#[test]
fn a_type_that_requires_a_field_at_any_depth_is_refused_with_its_path() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only the schema is used")]
    struct Inner {
        name: String,
    }
    macro_rules! check {
        ($type:ty, $path:expr) => {{
            #[derive(Deserialize, JsonSchema)]
            #[expect(dead_code, reason = "only the schema is used")]
            struct Outer {
                #[serde(default)]
                field: $type,
            }
            let error = PartialValues::<Outer>::of_answer().unwrap_err();
            let expected = format!(
                "an incomplete value cannot be read as `Outer`: the field `{}` is required; make \
                 it an `Option`, or add `#[serde(default)]`",
                $path
            );
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Unsupported, expected));
        }};
    }
    check!(Option<Inner>, "field.name");
    check!(Vec<Inner>, "field[].name");
    check!(Vec<Vec<Option<Inner>>>, "field[][].name");
    check!(HashMap<String, Inner>, "field.*.name");
    check!(HashMap<u32, Inner>, "field.*.name");
    let error = PartialValues::<Shape>::of_calls("t").unwrap_err().to_string();
    assert!(error.contains("no parts that can be shown"), "{error}");
    assert!(PartialValues::<Value>::of_calls("t").is_ok());
    assert!(PartialValues::<String>::of_answer().is_ok());
}

#[test]
fn a_type_that_contains_itself_is_checked_and_read() {
    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Tree {
        name: Option<String>,
        #[serde(default)]
        branches: Vec<Tree>,
    }
    let mut values = PartialValues::<Tree>::of_answer().unwrap();
    values.observe(&text_delta(r#"{"name":"a","branches":[{"branches":[{"name":"b"#));
    let PartialState::Growing(tree) = values.next_partial().unwrap().state else { panic!() };
    assert_eq!(tree.branches[0].branches[0].name.as_deref(), Some("b"));
}

#[test]
fn a_stream_with_partials_has_ended_after_its_last_value() {
    use futures::stream::FusedStream;

    let mut steps = pin!(in_groups(vec![vec![text_delta("{")]]).with_partials(answer()));
    let mut count = 0;
    while !steps.is_terminated() {
        count += usize::from(futures::executor::block_on(steps.next()).is_some());
    }
    assert_eq!((count, steps.next().now_or_never().flatten().is_none()), (3, true));
}
