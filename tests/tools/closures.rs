//! Tools made of closures: the arguments that they receive, and the results that the model
//! receives.

use std::fmt;

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use turnstream::event::ToolEvent;
use turnstream::item::{ResultKind, ToolCall, ToolResult};
use turnstream::provider::Reply;
use turnstream::tool::{IntoToolOutput, Json, OutputStatus, Tool};
use turnstream::{ErrorKind, History, Toolkit};

use turnstream::provider::{Provider, Scripted};
use turnstream::stream::TurnStreamExt;

use turnstream_test_support::providers::user_request;
use turnstream_test_support::tools::spec;

/// The result of one call of a tool.
async fn call_tool(tool: Tool, arguments: &str) -> ToolResult {
    let name = tool.name().to_owned();
    let reply = Reply::new().call_raw("c", &name, arguments);
    let turn = Scripted::new([reply]).stream_turn(user_request()).into_turn().await.unwrap();
    let mut run = Toolkit::new([tool]).run(&History::empty("h"), &turn);
    while let Some(event) = run.next().await {
        if let ToolEvent::Output(result) = event {
            return result;
        }
    }
    panic!("no result")
}

/// The result that the model receives for an output.
fn model_output(output: impl IntoToolOutput) -> (ResultKind, String) {
    let output = output.into_tool_output();
    let kind = match output.status {
        OutputStatus::Failed => ResultKind::Error,
        _ => ResultKind::Ok,
    };
    (kind, output.content.text())
}

#[cfg(feature = "schemars")]
mod typed {
    use std::sync::{Arc, Mutex};

    use serde::Serialize;

    use super::*;

    #[derive(Deserialize, schemars::JsonSchema)]
    struct NoteArgs {
        text: String,
    }

    #[tokio::test]
    async fn all_calls_of_a_tool_share_the_state_that_its_closure_captured() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let tool = || {
            let notes = Arc::clone(&notes);
            Tool::new("note", "Keeps a note", move |note: NoteArgs, cx| {
                let notes = Arc::clone(&notes);
                async move {
                    let mut notes = notes.lock().unwrap();
                    notes.push(format!("{} {}", cx.call_id(), note.text));
                    notes.len()
                }
            })
        };
        assert_eq!(call_tool(tool(), r#"{"text":"one"}"#).await.content.text(), "1");
        assert_eq!(call_tool(tool(), r#"{"text":"two"}"#).await.content.text(), "2");
        assert_eq!(*notes.lock().unwrap(), ["c one", "c two"]);
    }

    #[derive(Deserialize, schemars::JsonSchema)]
    struct UnitArgs;

    #[derive(Deserialize, schemars::JsonSchema)]
    struct EmptyArgs {}

    #[tokio::test]
    async fn a_tool_without_arguments_takes_any_object_and_nothing_else() {
        let tools: [fn() -> Tool; 3] = [
            || Tool::new("now", "Says now", |(), _| async { "now" }),
            || Tool::new("now", "Says now", |_: UnitArgs, _| async { "now" }),
            || Tool::new("now", "Says now", |_: EmptyArgs, _| async { "now" }),
        ];
        for tool in tools {
            assert_eq!(tool().spec().parameters.to_value()["type"], "object");
            for arguments in ["", "null", "{}", " { } ", r#"{"extra":[1]}"#] {
                let result = call_tool(tool(), arguments).await;
                assert_eq!(result.kind, ResultKind::Ok, "{arguments:?}: {result:?}");
            }
            for arguments in ["[]", "3", "{", r#""text""#] {
                let result = call_tool(tool(), arguments).await;
                assert_ne!(result.kind, ResultKind::Ok, "{arguments:?}: {result:?}");
            }
        }
    }

    #[derive(Deserialize, Serialize, schemars::JsonSchema)]
    struct SearchArgs {
        id: i64,
        ms: u64,
        opt: Option<u32>,
        list: Vec<i32>,
        #[serde(default)]
        limit: u32,
        #[serde(flatten)]
        shape: Shape,
    }

    #[derive(Deserialize, Serialize, schemars::JsonSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Shape {
        Circle { radius: u32 },
        Point { x: f64 },
    }

    fn search_tool() -> Tool {
        Tool::new("search", "Searches", |args: SearchArgs, _| async { Json(args) })
    }

    #[tokio::test]
    async fn integers_may_be_written_with_a_fraction() {
        for (written, read) in [
            (
                r#"{"id":14380.0,"ms":1.2e2,"opt":2.0,"list":[1.0],"limit":3.0,"kind":"circle","radius":4.0}"#,
                r#"{"id":14380,"ms":120,"opt":2,"list":[1],"limit":3,"kind":"circle","radius":4}"#,
            ),
            (
                r#"{"id":-1.0,"ms":0.0,"opt":null,"list":[],"kind":"point","x":1.0}"#,
                r#"{"id":-1,"ms":0,"opt":null,"list":[],"limit":0,"kind":"point","x":1.0}"#,
            ),
        ] {
            let result = call_tool(search_tool(), written).await;
            assert_eq!((result.kind, result.content.text().as_str()), (ResultKind::Ok, read));
        }
        let fields = r#""ms":1,"list":[],"kind":"point","x":1"#;
        for id in ["5.5", "\"5\"", "\"5.0\"", "null", "1e30"] {
            let result = call_tool(search_tool(), &format!(r#"{{"id":{id},{fields}}}"#)).await;
            assert_eq!(result.kind, ResultKind::InvalidArguments, "{id}");
        }
    }

    #[tokio::test]
    async fn null_is_accepted_for_a_field_with_a_default() {
        let written = r#"{"id":1,"ms":1,"opt":null,"list":[],"limit":null,"kind":"point","x":0}"#;
        let result = call_tool(search_tool(), written).await;
        assert_eq!(result.kind, ResultKind::Ok, "{}", result.content.text());
        let result = call_tool(search_tool(), &written.replace("\"ms\":1", "\"ms\":null")).await;
        assert_eq!(result.kind, ResultKind::InvalidArguments, "the field is required");
    }

    #[derive(Serialize)]
    struct Weather {
        degrees: i32,
        rain: bool,
    }

    #[tokio::test]
    async fn serializable_output_is_returned_as_json() {
        let tool = Tool::new("weather", "The weather", |(), _| async {
            Ok::<_, std::io::Error>(Json(Weather { degrees: 4, rain: true }))
        });
        let text = call_tool(tool, "{}").await.content.text();
        assert_eq!(text, r#"{"degrees":4,"rain":true}"#);
    }
}

#[test]
fn unserializable_output_is_an_error_result() {
    let odd = Json(std::collections::BTreeMap::from([(vec![1], 2)]));
    let (kind, text) = model_output(odd);
    assert_eq!(kind, ResultKind::Error);
    assert!(text.contains("key must be a string"), "{text}");
}

/// An error whose message has the location, and whose source has the reason.
#[derive(Debug)]
struct LineError {
    line: u32,
    source: std::num::ParseIntError,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "while reading line {}", self.line)
    }
}

impl std::error::Error for LineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[test]
fn an_error_result_includes_all_causes() {
    let failed = || LineError { line: 1, source: "x".parse::<i32>().unwrap_err() };
    let expected = "Error: while reading line 1: invalid digit found in string";
    let error = (ResultKind::Error, expected.to_owned());
    assert_eq!(model_output(Err::<(), _>(failed())), error);
    assert_eq!(
        model_output(Err::<(), Box<dyn std::error::Error + Send + Sync>>(failed().into())),
        error
    );
    let own = turnstream::Error::new(ErrorKind::Other, "oh").with_source(failed());
    let chain = "Error: oh: while reading line 1: invalid digit found in string";
    assert_eq!(model_output(Err::<(), _>(own)).1, chain);
    assert_eq!(model_output(Err::<(), _>("no such file")).1, "Error: no such file");
    assert_eq!(model_output(Err::<(), _>(String::from("no such file"))).1, "Error: no such file");
}

#[test]
fn a_cause_already_in_the_error_message_is_not_repeated() {
    #[derive(Debug)]
    struct CauseInMessageError(std::num::ParseIntError);
    impl fmt::Display for CauseInMessageError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "cannot read: {}", self.0)
        }
    }
    impl std::error::Error for CauseInMessageError {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let text = model_output(Err::<(), _>(CauseInMessageError("x".parse::<i32>().unwrap_err()))).1;
    assert_eq!(text, "Error: cannot read: invalid digit found in string");
}

#[test]
fn the_arguments_of_a_call_are_deserialized_into_a_type() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct SearchArgs {
        query: String,
        limit: Option<u32>,
    }
    let call = |arguments: &str| ToolCall {
        call_id: "c".into(),
        name: "search".into(),
        arguments: arguments.into(),
    };
    let read = call(r#"{"query":"rust"}"#).parse_arguments::<SearchArgs>().unwrap();
    assert_eq!(read, SearchArgs { query: "rust".into(), limit: None });
    call("").parse_arguments::<()>().unwrap();
    call("{}").parse_arguments::<()>().unwrap();
    assert_eq!(call(r#"{"a":1}"#).parse_arguments::<Value>().unwrap(), json!({ "a": 1 }));

    let error =
        call(r#"{"query":"rust","limit":"ten"}"#).parse_arguments::<SearchArgs>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    let message = error.to_string();
    assert!(message.contains("search") && message.contains("limit"), "{message}");
    for arguments in ["[1]", "{", "null"] {
        let error = call(arguments).parse_arguments::<SearchArgs>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{arguments}: {error}");
    }
}

#[tokio::test]
async fn a_raw_tool_receives_the_arguments_verbatim() {
    let tool = Tool::raw(spec("t"), |arguments: Value, _| async move { arguments }).unwrap();
    assert_eq!(call_tool(tool, r#"{"a":[1]}"#).await.content.text(), r#"{"a":[1]}"#);
}

#[cfg(feature = "schemars")]
mod enums {
    //! The arguments of a tool can be an enum, whatever its JSON looks like.

    #![expect(dead_code, reason = "the values are only printed")]

    use schemars::JsonSchema;
    use turnstream::{Item, Request};
    use turnstream_testing::{Wire, lint};

    use super::*;
    use turnstream_test_support::wires::encode;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum Tagged {
        Circle { radius: f64 },
        Empty,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(tag = "kind", content = "of", rename_all = "snake_case")]
    enum Adjacent {
        Circle(f64),
        Empty,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Structs {
        Circle { radius: f64 },
        Square(Side),
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    struct Side {
        side: f64,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Mixed {
        Circle { radius: f64 },
        Empty,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(untagged)]
    enum Untagged {
        Text(String),
        List(Vec<Untagged>),
    }

    /// Calls a tool whose arguments are of the type `A` with each of these arguments, and checks
    /// that vendors accept the tool.
    async fn check<A>(arguments: &[(&str, &str)])
    where
        A: serde::de::DeserializeOwned + JsonSchema + fmt::Debug + Send + 'static,
    {
        let tool = Tool::new("f", "F", |args: A, _cx| async move { format!("{args:?}") });
        for wire in Wire::ALL {
            let mut request = Request::new(History::from_items("h", [Item::user("go")]))
                .with_tools([tool.spec().clone()]);
            request.options.max_output_tokens = Some(100);
            let body = encode(wire, "m", &request);
            assert_eq!(lint::request(wire, "m", &body), [""; 0], "{wire}: {body}");
        }
        for (arguments, expected) in arguments {
            let result = call_tool(tool.clone(), arguments).await;
            assert_eq!(result.content.text(), *expected, "{}", tool.spec().parameters);
        }
    }

    #[tokio::test]
    async fn variants_that_are_objects_are_the_arguments_themselves() {
        check::<Tagged>(&[
            (r#"{"kind":"circle","radius":2}"#, "Circle { radius: 2.0 }"),
            (r#"{"kind":"empty"}"#, "Empty"),
        ])
        .await;
        check::<Adjacent>(&[
            (r#"{"kind":"circle","of":2}"#, "Circle(2.0)"),
            (r#"{"kind":"empty"}"#, "Empty"),
        ])
        .await;
        check::<Structs>(&[
            (r#"{"circle":{"radius":2}}"#, "Circle { radius: 2.0 }"),
            (r#"{"square":{"side":2}}"#, "Square(Side { side: 2.0 })"),
        ])
        .await;
    }

    #[tokio::test]
    async fn arguments_that_are_not_an_object_are_in_the_field_value() {
        let shout = Tool::new("shout", "Shouts", |text: String, _| async move { text + "!" });
        let schema = shout.spec().parameters.to_value();
        assert_eq!(schema["properties"]["value"]["type"], "string");
        assert_eq!(call_tool(shout, r#"{"value":"Hi"}"#).await.content.text(), "Hi!");
        let sum =
            Tool::new(
                "sum",
                "Adds",
                |numbers: Vec<u32>, _| async move { numbers.iter().sum::<u32>() },
            );
        assert_eq!(call_tool(sum, r#"{"value":[1,2]}"#).await.content.text(), "3");
    }

    #[tokio::test]
    async fn variants_that_are_not_objects_are_in_the_field_value() {
        check::<Mixed>(&[
            (r#"{"value":{"circle":{"radius":2}}}"#, "Circle { radius: 2.0 }"),
            (r#"{"value":"empty"}"#, "Empty"),
        ])
        .await;
        let tool = Tool::new("f", "F", |_: Untagged, _cx| async { "ok" });
        let schema = tool.spec().parameters.to_value();
        assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["value"])));
        let result = call_tool(tool, r#"{"value":["a",["b"]]}"#).await;
        assert_eq!(result.content.text(), "ok");
    }

    #[tokio::test]
    async fn any_json_object_can_be_the_arguments() {
        check::<Value>(&[(r#"{"a":1}"#, r#"Object {"a": Number(1)}"#)]).await;
    }
}

#[test]
fn a_client_tool_is_neither_deferred_nor_strict() {
    use turnstream::request::ClientTool;

    let spec = || ClientTool::Shell.spec();
    for (spec, parameter) in
        [(spec().with_deferred(true), "deferred"), (spec().with_strict(true), "strict")]
    {
        let error = Tool::raw(spec.clone(), |_, _| async { "ok" }).unwrap_err();
        assert_eq!((error.kind(), error.parameter()), (ErrorKind::InvalidRequest, Some(parameter)));
        assert!(Tool::external(spec).is_err());
    }
    assert!(Tool::external(spec()).is_ok());
}
