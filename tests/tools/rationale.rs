//! Tools whose calls state a reason: the schema that the model receives, and the reason, which is
//! visible only in the record.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use turnstream::agent::hook::{self, CallDecision};
use turnstream::event::EndReason;
use turnstream::item::ResultKind;
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::request::{Output, OutputSchema};
use turnstream::stream::TurnStreamExt;
use turnstream::tool::{
    PreparedCall, Rationale, Risk, Tool, ToolHandler, ToolSpec, ToolSpecs, ToolUpdate, Verdict,
};
use turnstream::{Agent, Event, History, Item, Outcome, Request, Toolkit};
use turnstream_testing::{Wire, lint};

use turnstream_test_support::wires::encode;

const RATIONALE_FIELD: &str =
    r#""_why":{"expected_outcome":"it is there","stop_condition":"when it is","risk":"high"}"#;

/// The arguments of each call of a tool.
type ReceivedArgs = Arc<Mutex<Vec<Value>>>;

/// A schema that accepts one text and nothing else.
fn strict_spec() -> ToolSpec {
    ToolSpec::new(
        "put",
        "",
        json!({
            "type": "object",
            "properties": { "text": { "type": "string" } },
            "required": ["text"],
            "additionalProperties": false,
        }),
    )
}

#[derive(serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct TextArgs {
    text: String,
}

fn raw_tool(given: &ReceivedArgs) -> Tool {
    let given = Arc::clone(given);
    Tool::raw(strict_spec(), move |args, _cx| {
        given.lock().unwrap().push(args);
        async { "done" }
    })
    .unwrap()
}

fn typed_tool(given: &ReceivedArgs) -> Tool {
    let given = Arc::clone(given);
    Tool::new("put", "", move |args: TextArgs, _cx| {
        given.lock().unwrap().push(serde_json::to_value(args).unwrap());
        async { "done" }
    })
}

/// A tool that accepts any arguments, whatever its schema says.
struct UncheckedTool(ToolSpec, ReceivedArgs);

impl ToolHandler for UncheckedTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, arguments: &str) -> Result<PreparedCall, String> {
        let args = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        self.1.lock().unwrap().push(args);
        Ok(PreparedCall::new(|_cx| stream::iter([ToolUpdate::output("done")]).boxed()))
    }
}

/// A call of `put` with these fields besides its text.
fn put_call(more: &str) -> Reply {
    Reply::new().call_raw("c1", "put", &format!(r#"{{{more},"text":"x"}}"#))
}

async fn run_with_rationale(tool: Tool, reply: Reply) -> Outcome {
    let model = Scripted::new([reply, Reply::text("Done.")]);
    Agent::new(model).with_toolkit(Toolkit::new([tool]).with_rationale()).run("go").outcome().await
}

fn result_kinds(outcome: &Outcome) -> Vec<ResultKind> {
    outcome.new_items().iter().filter_map(Item::as_tool_result).map(|result| result.kind).collect()
}

#[tokio::test]
async fn tools_never_see_the_rationale_and_the_history_keeps_it() {
    for make in [raw_tool, typed_tool] {
        let given = ReceivedArgs::default();
        let outcome = run_with_rationale(make(&given), put_call(RATIONALE_FIELD)).await;
        assert_eq!(*given.lock().unwrap(), [json!({ "text": "x" })]);
        assert_eq!(result_kinds(&outcome), [ResultKind::Ok]);
        let call = outcome.new_items().iter().find_map(Item::as_tool_call).unwrap();
        assert!(call.arguments.contains("it is there"));
    }
}

#[tokio::test]
async fn no_value_of_the_rationale_fails_a_call() {
    for odd in ["null", "7", r#""so""#, "[1]", "{}", r#"{"risk":9,"more":{}}"#] {
        for make in [raw_tool, typed_tool] {
            let given = ReceivedArgs::default();
            let outcome =
                run_with_rationale(make(&given), put_call(&format!("\"_why\":{odd}"))).await;
            assert_eq!(result_kinds(&outcome), [ResultKind::Ok], "{odd}");
            assert_eq!(given.lock().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn a_schema_mismatch_is_still_reported_with_a_rationale() {
    let given = ReceivedArgs::default();
    let outcome =
        run_with_rationale(raw_tool(&given), put_call(&format!(r#"{RATIONALE_FIELD},"more":1"#)))
            .await;
    assert_eq!(result_kinds(&outcome), [ResultKind::InvalidArguments]);
    assert!(given.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_toolkit_used_directly_strips_the_rationale() {
    let given = ReceivedArgs::default();
    let kit = Toolkit::new([raw_tool(&given)]).with_rationale();
    let history = History::empty("h");
    let model = Scripted::new([put_call(RATIONALE_FIELD)]);
    let turn = model.stream_turn(Request::new(history.clone())).into_turn().await.unwrap();
    let mut tools = kit.run(&history, &turn);
    while tools.next().await.is_some() {}
    assert_eq!(tools.finish().unwrap().results[0].kind, ResultKind::Ok);
    assert_eq!(*given.lock().unwrap(), [json!({ "text": "x" })]);
}

#[tokio::test]
async fn a_sub_agent_receives_only_its_prompt_without_the_rationale() {
    let child = Scripted::new(["Done."]);
    let tool = Agent::new(child.clone()).as_tool("put", "").unwrap();
    let reply =
        Reply::new().call_raw("c1", "put", &format!(r#"{{{RATIONALE_FIELD},"prompt":"go"}}"#));
    assert_eq!(result_kinds(&run_with_rationale(tool, reply).await), [ResultKind::Ok]);
    let asked = child.requests();
    assert_eq!(asked[0].history.last(), Some(&Item::user("go")));
}

#[tokio::test]
async fn an_external_executor_sees_the_rationale_and_the_schema_check_ignores_it() {
    let outcome =
        run_with_rationale(Tool::external(strict_spec()).unwrap(), put_call(RATIONALE_FIELD)).await;
    assert_eq!(outcome.reason, EndReason::Pending);
    let (why, arguments) = Rationale::split_arguments(&outcome.pending[0].arguments);
    assert_eq!(why.risk, Some(Risk::High));
    assert_eq!(arguments, r#"{"text":"x"}"#);
    let wrong = run_with_rationale(
        Tool::external(strict_spec()).unwrap(),
        put_call(r#""_why":{},"more":1"#),
    )
    .await;
    assert_eq!(result_kinds(&wrong), [ResultKind::InvalidArguments]);
}

#[tokio::test]
async fn a_policy_can_read_the_risk_and_require_approval() {
    let given = ReceivedArgs::default();
    let model = Scripted::new([put_call(RATIONALE_FIELD), Reply::text("Done.")]);
    let agent = Agent::new(model)
        .with_toolkit(Toolkit::new([raw_tool(&given)]).with_rationale())
        .with_hook(hook::before_tool(|_state, call| async move {
            match Rationale::split_arguments(&call.arguments).0.risk {
                Some(Risk::High) => CallDecision::RequireApproval,
                Some(Risk::Low | Risk::Medium) | None => CallDecision::Allow,
            }
        }));
    let waiting = agent.run("go").outcome().await;
    assert_eq!(waiting.reason, EndReason::Pending);
    let verdicts = [(waiting.pending[0].clone(), Verdict::Approve)];
    let resumed = agent.resume(waiting.history, verdicts).unwrap().outcome().await;
    assert_eq!(resumed.reason, EndReason::Completed);
    assert_eq!(*given.lock().unwrap(), [json!({ "text": "x" })]);
}

#[tokio::test]
async fn arguments_rewritten_by_a_policy_need_no_rationale() {
    let given = ReceivedArgs::default();
    let model = Scripted::new([put_call(RATIONALE_FIELD), Reply::text("Done.")]);
    let rewrite = hook::before_tool(|_state, _call| async {
        CallDecision::RewriteArguments(r#"{"text":"y"}"#.to_owned())
    });
    let agent = Agent::new(model)
        .with_toolkit(Toolkit::new([raw_tool(&given)]).with_rationale())
        .with_hook(rewrite);
    assert_eq!(result_kinds(&agent.run("go").outcome().await), [ResultKind::Ok]);
    assert_eq!(*given.lock().unwrap(), [json!({ "text": "y" })]);
}

fn first_tool_schema(kit: &Toolkit) -> Value {
    kit.specs()[0].parameters.to_value()
}

#[test]
fn the_schema_has_one_optional_rationale_property() {
    let kit = Toolkit::new([raw_tool(&ReceivedArgs::default())]).with_rationale();
    let schema_once = first_tool_schema(&kit);
    let why = &schema_once["properties"]["_why"];
    assert_eq!(why["type"], "object");
    for name in ["expected_outcome", "stop_condition", "risk"] {
        assert_eq!(why["properties"][name]["type"], "string");
    }
    assert_eq!(schema_once["required"], json!(["text"]));
    assert_eq!(schema_once["additionalProperties"], json!(false));
    assert_eq!(first_tool_schema(&kit.with_rationale()), schema_once);
}

#[tokio::test]
async fn a_tool_whose_schema_has_or_cannot_take_a_rationale_is_unchanged() {
    let own = json!({ "type": "object", "properties": { "_why": { "type": "string" } } });
    let odd = json!({ "type": "object", "properties": [] });
    let required = json!({ "type": "object", "required": ["_why"] });
    for parameters in [own, odd, required] {
        let spec = ToolSpec { parameters: parameters.clone().into(), ..strict_spec() };
        let given = ReceivedArgs::default();
        let tool = Tool::from_handler(UncheckedTool(spec, Arc::clone(&given))).with_rationale();
        assert_eq!(tool.spec().parameters.to_value(), parameters);
        let reply = Reply::new().call_raw("c1", "put", r#"{"_why":"mine"}"#);
        assert_eq!(result_kinds(&run_with_rationale(tool, reply).await), [ResultKind::Ok]);
        assert_eq!(*given.lock().unwrap(), [json!({ "_why": "mine" })]);
    }
}

#[tokio::test]
async fn only_an_agent_whose_toolkit_asks_for_a_rationale_requests_it_even_for_a_later_tool() {
    let offered = async |kit: Toolkit| {
        let model = Scripted::new(["Hi."; 3]);
        let tool = raw_tool(&ReceivedArgs::default());
        Agent::new(model.clone()).with_toolkit(kit).with_tool(tool).run("go").outcome().await;
        model.requests()[0].tools[0].parameters.to_value()["properties"].get("_why").is_some()
    };
    assert!(!offered(Toolkit::default()).await);
    assert!(offered(Toolkit::default().with_rationale()).await);
}

#[tokio::test]
async fn calls_that_differ_only_in_rationale_are_equal() {
    let model = Scripted::from_fn(|_request, n| {
        let args = format!(r#"{{"text":"x","_why":{{"expected_outcome":"try {n}"}}}}"#);
        Reply::new().call_raw("", "put", &args)
    });
    let agent = Agent::new(model)
        .with_toolkit(Toolkit::new([raw_tool(&ReceivedArgs::default())]).with_rationale());
    let limits = turnstream::agent::Limits { end_after_repeats: 3, ..Default::default() };
    let outcome = agent.with_limits(limits).run("go").outcome().await;
    assert_eq!((outcome.reason, outcome.turns), (EndReason::Repeating, 3));
}

#[test]
fn every_wire_accepts_the_schema_with_rationale_even_in_strict_mode() {
    let kit = Toolkit::new([raw_tool(&ReceivedArgs::default())]).with_rationale();
    let mut history = History::empty("h");
    history.push(Item::user("go"));
    for wire in Wire::ALL {
        let mut request = Request::new(history.clone()).with_tools(kit.specs());
        request.options.max_output_tokens = Some(100);
        let text = encode(wire, "m", &request).to_string();
        assert!(text.contains("_why") && text.contains("stop_condition"), "{wire}: {text}");
        assert_eq!(lint::request(wire, "m", &encode(wire, "m", &request)), [""; 0], "{wire}");

        request.tools = ToolSpecs::default();
        let output = OutputSchema { name: "put".to_owned(), schema: first_tool_schema(&kit) };
        request.options.output = Output::Schema(output);
        assert_eq!(lint::request(wire, "m", &encode(wire, "m", &request)), [""; 0], "{wire}");
    }
}

#[tokio::test]
async fn an_approval_shows_the_rationale() {
    let model = Scripted::new([put_call(RATIONALE_FIELD)]);
    let agent = Agent::new(model).with_toolkit(
        Toolkit::new([raw_tool(&ReceivedArgs::default()).requires_approval()]).with_rationale(),
    );
    let events: Vec<_> = agent.run("go").map(Result::unwrap).collect().await;
    let call = events.iter().find_map(Event::approval_request).unwrap();
    assert_eq!(
        Rationale::split_arguments(&call.arguments).0.expected_outcome.as_deref(),
        Some("it is there")
    );
}
