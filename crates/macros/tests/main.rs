//! Tools that are written as functions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use turnstream::item::{History, Item};
use turnstream::provider::{Reply, Scripted};
use turnstream::tool::ToolContext;
use turnstream::{Agent, Tool, tool, tools};

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Celsius,
    Fahrenheit,
}

/// Returns the temperature of a place.
///
/// The temperature is that of today.
#[tool(idempotent, timeout = Duration::from_secs(5))]
async fn temperature(
    /// A city, such as `Oslo`.
    place: String,
    #[default = Unit::Celsius] unit: Unit,
    /// Days from today.
    #[schemars(range(max = 7))]
    day: Option<u32>,
    #[default("en")] language: String,
    #[default] days: Vec<u8>,
) -> String {
    format!("{place} {unit:?} {day:?} {language} {days:?}")
}

fn celsius() -> Unit {
    Unit::Celsius
}

fn english() -> String {
    "en".to_owned()
}

// The arguments of `temperature`, as they are written by hand.
#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only the schema is used")]
struct ByHand {
    /// A city, such as `Oslo`.
    place: String,
    #[serde(default = "celsius")]
    unit: Unit,
    /// Days from today.
    #[schemars(range(max = 7))]
    day: Option<u32>,
    #[serde(default = "english")]
    language: String,
    #[serde(default)]
    days: Vec<u8>,
}

/// Calls a tool, and returns its result.
async fn call(tool: Tool, arguments: Value) -> String {
    let name = tool.name().to_owned();
    let model = Scripted::new([Reply::new().call(&name, arguments), Reply::text("Done.")]);
    let outcome = Agent::new(model).with_tool(tool).run("Go.").outcome().await;
    result(&outcome.history)
}

fn result(history: &History) -> String {
    history.iter().find_map(Item::as_tool_result).expect("a result").content.text()
}

#[test]
fn the_schema_is_byte_for_byte_that_of_a_struct_written_by_hand() {
    let description = "Returns the temperature of a place.\n\nThe temperature is that of today.";
    let by_hand = Tool::new("temperature", description, |_: ByHand, _cx| async {});
    let spec = temperature_tool().spec().clone();
    assert_eq!(
        spec.parameters.to_value().to_string(),
        by_hand.spec().parameters.to_value().to_string()
    );
    assert_eq!(spec, *by_hand.spec());
}

#[tokio::test]
async fn the_function_receives_the_arguments_and_the_defaults_of_those_left_out() {
    let arguments = json!({ "place": "Oslo" });
    assert_eq!(call(temperature_tool(), arguments).await, "Oslo Celsius None en []");
    let arguments =
        json!({ "place": "Oslo", "unit": "fahrenheit", "day": 2, "language": "no", "days": [1] });
    assert_eq!(call(temperature_tool(), arguments).await, "Oslo Fahrenheit Some(2) no [1]");
    let refused = call(temperature_tool(), json!({ "unit": "celsius" })).await;
    assert!(refused.contains("place"), "{refused}");
    // The function can still be called.
    let text =
        temperature("Oslo".to_owned(), Unit::Celsius, Some(1), "de".to_owned(), vec![]).await;
    assert_eq!(text, "Oslo Celsius Some(1) de []");
}

/// Has all settings.
#[tool(
    name = "all-settings", timeout = Duration::from_secs(1), dry_run_support, exclusive, idempotent,
    pollable, rationale, requires_approval, running_sub_agents
)]
fn settings() {}

#[test]
fn each_setting_is_that_of_the_tool() {
    let tool = settings_tool();
    assert_eq!(tool.name(), "all-settings");
    assert_eq!(tool.timeout(), Some(Duration::from_secs(1)));
    assert!(tool.supports_dry_run() && tool.is_exclusive() && tool.is_idempotent());
    assert!(tool.is_pollable() && tool.is_approval_required() && tool.runs_sub_agents());
    let by_hand = Tool::new("all-settings", "Has all settings.", |(), _cx| async {});
    assert_eq!(*tool.spec(), *by_hand.with_rationale().spec());
    let plain = temperature_tool();
    assert!(!plain.supports_dry_run() && !plain.is_exclusive() && !plain.is_approval_required());
    assert!(!plain.is_pollable() && !plain.runs_sub_agents());
}

#[tokio::test]
async fn a_tool_without_arguments_has_the_schema_of_one_written_by_hand() {
    /// Returns the id of its call.
    #[tool]
    async fn r#type(cx: ToolContext) -> String {
        cx.call_id().to_owned()
    }
    let tool = type_tool();
    let by_hand = Tool::new("type", "Returns the id of its call.", |(), _cx| async {});
    assert_eq!(tool.spec(), by_hand.spec());
    assert!(!call(tool, json!({})).await.is_empty());
}

#[tokio::test]
async fn a_function_may_have_parameters_named_like_itself_and_like_those_of_the_macro() {
    /// Joins texts.
    #[tool]
    fn join(join: String, args: String, state: &ToolContext, cx: String) -> String {
        format!("{join} {args} {cx} {}", state.call_id().is_empty())
    }
    let arguments = json!({ "join": "a", "args": "b", "cx": "c" });
    assert_eq!(call(join_tool(), arguments).await, "a b c false");
}

#[tokio::test]
async fn an_error_of_the_function_is_the_result_of_the_call() {
    /// Fails.
    #[tool]
    async fn fail() -> Result<String, std::io::Error> {
        Err(std::io::Error::other("the disk is full"))
    }
    assert!(call(fail_tool(), json!({})).await.contains("the disk is full"));
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

#[tools]
impl Notes {
    /// Keeps a note.
    #[tool(exclusive)]
    async fn keep(
        &self,
        /// The text of the note.
        text: String,
        cx: &ToolContext,
    ) -> usize {
        assert!(!cx.call_id().is_empty());
        self.push(text)
    }

    /// Returns the notes that contain a word.
    #[turnstream::tool(name = "find_notes")]
    fn find(&self, #[default] word: String) -> String {
        let notes = self.0.lock().unwrap();
        notes.iter().filter(|note| note.contains(&word)).cloned().collect::<Vec<_>>().join(", ")
    }

    /// Exists on no system.
    #[cfg(any())]
    #[tool]
    fn nowhere(&self, missing: Missing) {}

    fn push(&self, text: String) -> usize {
        let mut notes = self.0.lock().unwrap();
        notes.push(text);
        notes.len()
    }
}

#[tokio::test]
async fn tools_of_one_value_share_it() {
    let notes = Arc::new(Notes::default());
    notes.push("buy milk".to_owned());
    let tools = Arc::clone(&notes).tools();
    let names: Vec<&str> = tools.iter().map(Tool::name).collect();
    assert_eq!(names, ["keep", "find_notes"]);
    assert!(tools[0].is_exclusive());
    let text = &tools[0].spec().parameters.to_value()["properties"]["text"];
    assert_eq!(text["description"], "The text of the note.");
    let [keep, find] = <[Tool; 2]>::try_from(tools).unwrap();
    assert_eq!(call(keep, json!({ "text": "buy tea" })).await, "2");
    assert_eq!(call(find, json!({ "word": "buy" })).await, "buy milk, buy tea");
    assert_eq!(notes.find("tea".to_owned()), "buy tea");
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Arguments {
    words: Vec<String>,
}

fn default_limit() -> u32 {
    3
}

/** Counts words,
 * at most a number of them.
 */
#[tool]
fn count(arguments: Arguments, #[default = default_limit()] mut limit: u32) -> u32 {
    limit = limit.min(u32::try_from(arguments.words.len()).unwrap());
    limit
}

#[tokio::test]
async fn names_of_the_program_do_not_collide_with_those_of_the_macro() {
    assert_eq!(count_tool().spec().description, "Counts words,\nat most a number of them.");
    let arguments = json!({ "arguments": { "words": ["a", "b", "c", "d"] } });
    assert_eq!(call(count_tool(), arguments).await, "3");
}

struct Repository(String);

trait Status {
    fn status(&self) -> String {
        "of the trait".to_owned()
    }
}

impl<T> Status for T {}

#[tools]
impl Repository {
    /// Clones the repository.
    #[tool]
    async fn clone(&self, url: String) -> String {
        format!("{} of {url}", self.0)
    }

    /// Returns the state.
    #[tool]
    fn status(self: Arc<Self>) -> String {
        format!("{}: clean", self.0)
    }
}

#[tokio::test]
async fn a_method_is_called_even_if_an_arc_has_another_one_of_its_name() {
    let repository = Arc::new(Repository("clone".to_owned()));
    assert_eq!(Status::status(&repository), "of the trait");
    let tools = repository.tools();
    let [clone, status] = <[Tool; 2]>::try_from(tools).unwrap();
    assert_eq!(call(clone, json!({ "url": "here" })).await, "clone of here");
    assert_eq!(call(status, json!({})).await, "clone: clean");
}

#[tokio::test]
async fn arguments_that_are_no_object_are_refused_without_a_name_of_the_macro() {
    let result = call(count_tool(), json!([])).await;
    assert!(!result.contains("__Arguments"), "{result}");
}

#[doc = include_str!("description.txt")]
#[tool]
fn described() {}

#[test]
fn the_description_can_be_in_a_file() {
    assert_eq!(described_tool().spec().description.trim_end(), "From a file.");
}
