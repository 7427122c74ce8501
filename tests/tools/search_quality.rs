//! How well the search finds tools, measured with questions about the 500 tools of 31 servers, and
//! how many tokens it saves.

use serde::Deserialize;
use serde_json::{Value, json};
use turnstream::History;
use turnstream::provider::{Reply, Scripted};
use turnstream::stream::TurnStreamExt;
use turnstream::tool::{Tool, ToolSpec, Toolkit};
use turnstream::{Provider, Request};

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "question")]
    text: String,
    tool: String,
    /// Other tools that answer the question.
    #[serde(default)]
    also: Vec<String>,
}

fn lines<T: for<'de> Deserialize<'de>>(file: &str) -> Vec<T> {
    file.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn all_specs() -> Vec<ToolSpec> {
    let tools: Vec<Value> = lines(include_str!("many_tools.jsonl"));
    let spec = |tool: Value| {
        let text = |field: &str| tool[field].as_str().unwrap().to_owned();
        ToolSpec::new(text("name"), text("description"), tool["parameters"].clone())
    };
    tools.into_iter().map(spec).collect()
}

fn kit_of_all() -> Toolkit {
    Toolkit::new(all_specs().into_iter().map(|spec| Tool::raw(spec, |_, _| async { "" }).unwrap()))
}

/// The names that the toolkit's search tool returns, in order.
async fn found_names(kit: &Toolkit, query: &str) -> Vec<String> {
    let model = Scripted::new([Reply::new().call("search_tools", json!({ "query": query }))]);
    let history = History::empty("h");
    let turn = model.stream_turn(Request::new(history.clone())).into_turn().await.unwrap();
    let mut run = kit.run(&history, &turn);
    while futures::StreamExt::next(&mut run).await.is_some() {}
    let text = run.finish().unwrap().results[0].content.text();
    let found: Value = serde_json::from_str(&text).unwrap_or_default();
    let listed = found["tools"].as_array().into_iter().flatten().map(|tool| &tool["name"]);
    let also = found["also"].as_array().into_iter().flatten();
    listed.chain(also).map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// The questions whose tool is not among the first five results.
async fn missed(questions: &str) -> Vec<String> {
    let kit = kit_of_all().searchable();
    let mut missed = Vec::new();
    for Question { text, tool, also } in lines::<Question>(questions) {
        assert!(kit.get(&tool).is_some(), "{tool}");
        let found = found_names(&kit, &text).await;
        assert!(found.len() <= 5);
        if !found.iter().any(|name| *name == tool || also.contains(name)) {
            missed.push(text);
        }
    }
    missed
}

#[tokio::test]
async fn at_least_45_of_50_questions_find_their_tool_among_the_first_five() {
    let questions = include_str!("questions.jsonl");
    assert_eq!(questions.lines().count(), 50);
    let missed = missed(questions).await;
    assert!(missed.len() <= 5, "{} were missed: {missed:#?}", missed.len());
}

/// Questions that were written after the weights and the synonyms, and had no influence on them.
#[tokio::test]
async fn at_least_85_of_100_other_questions_find_their_tool_among_the_first_five() {
    let questions = include_str!("questions_held_out.jsonl");
    assert_eq!(questions.lines().count(), 100);
    let missed = missed(questions).await;
    assert!(missed.len() <= 15, "{} were missed: {missed:#?}", missed.len());
}

#[test]
fn a_request_lists_at_most_a_fiftieth_of_the_bytes_of_all_tools() {
    let size = |kit: &Toolkit| serde_json::to_string(&kit.specs()).unwrap().len();
    let (all, searchable) = (kit_of_all(), kit_of_all().searchable());
    assert!(size(&searchable) * 50 <= size(&all), "{} of {}", size(&searchable), size(&all));
}
