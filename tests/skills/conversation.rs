//! How the model receives the list of skills, and that changes keep the encoded prefix.

use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::sync::Arc;
use turnstream::context::{Compaction, Window, compactor_fn};
use turnstream::event::AppendReason;
use turnstream::provider::{Reply, Scripted, openai_chat};
use turnstream::tool::Skills;
use turnstream::trace::TraceAction;
use turnstream::{Agent, Event, EventStreamExt, History, Item, Request, Tool, Toolkit};
use turnstream_test_support::items::token_usage;
use turnstream_test_support::runs::{collect_rest, test_agent};
use turnstream_test_support::tools::spec;

use crate::{SkillsFolder, call, last_result};

/// Runs an agent, and returns the history and the messages about skills.
async fn run(agent: &Agent, history: History) -> (History, Vec<String>) {
    let mut run = agent.run_from(history, "go");
    let events = collect_rest(&mut run).await;
    let items = events.iter().filter_map(|event| match event {
        Event::Appended { why: AppendReason::Hook, items, .. } => Some(items),
        _ => None,
    });
    let notices = items.flatten().map(|item| item.as_user().unwrap().text());
    let notices = notices.collect();
    (run.history(), notices)
}

/// An agent whose first turn calls a tool that changes the folder.
fn changing_agent(
    model: &Scripted,
    folder: &Arc<SkillsFolder>,
    change: impl Fn(&SkillsFolder) + Send + Sync + 'static,
) -> Agent {
    let skills = folder.skills();
    let folder = Arc::clone(folder);
    let tool = Tool::raw(spec("change"), move |_, _| {
        change(&folder);
        async { "changed" }
    });
    test_agent(model.clone()).with_tools([tool.unwrap()]).with_tool_source(skills)
}

fn changing_model() -> Scripted {
    Scripted::from_fn(|_, n| match n % 2 {
        0 => Reply::new().call_raw(&format!("c{n}"), "change", "{}"),
        _ => Reply::text("done"),
    })
}

/// The fields of an encoded request.
#[derive(Deserialize)]
struct EncodedRequest<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(borrow)]
    tools: &'a RawValue,
}

/// Checks that each request starts with the bytes of the previous one.
#[track_caller]
fn assert_prefixes(requests: &[Request]) {
    let dialect = openai_chat::Dialect::OPENAI;
    let encode = |request: &Request| openai_chat::encode(request, "m", &dialect).unwrap();
    let bodies: Vec<Vec<u8>> = requests.iter().map(encode).collect();
    let bodies: Vec<EncodedRequest<'_>> =
        bodies.iter().map(|body| serde_json::from_slice(body).unwrap()).collect();
    for pair in bodies.windows(2) {
        assert_eq!(pair[0].tools.get(), pair[1].tools.get());
        let conversation = pair[0].messages.get().strip_suffix(']').unwrap();
        let next = pair[1].messages.get();
        assert!(next.starts_with(conversation), "{next}\ndoes not start with\n{conversation}");
    }
    assert!(bodies.len() > 1);
}

#[tokio::test]
async fn the_first_request_has_the_names_and_descriptions_after_the_input() {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    folder.add("commit", "Writes messages");
    let model = Scripted::new(["done"]);
    let agent = test_agent(model.clone()).with_tool_source(folder.skills());
    let (history, notices) = run(&agent, History::empty("h")).await;
    let list = "Available in `skills`:\n- commit: Writes messages\n- pdf: Reads PDFs";
    assert_eq!(notices, [list]);
    assert_eq!(model.requests()[0].history.last(), Some(&Item::user(list)));
    let tools = &model.requests()[0].tools;
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["load_skill", "read_skill_file", "find_skills"]);
    assert!(!serde_json::to_string(tools).unwrap().contains("Reads PDFs"));
    // A later run of the session does not repeat the list.
    assert_eq!(run(&agent, history).await.1, [""; 0]);
}

#[tokio::test]
async fn a_change_during_a_run_is_a_message_at_the_end_and_keeps_the_encoded_prefix() {
    let folder = Arc::new(SkillsFolder::new());
    folder.add("pdf", "Reads PDFs");
    folder.add("commit", "Writes messages");
    let model = changing_model();
    let agent = changing_agent(&model, &folder, |folder| {
        folder.add("docx", "Reads documents");
        // The length stays the same.
        folder.add("pdf", "Fills PDFs");
        folder.remove("commit");
    });
    let (_, notices) = run(&agent, History::empty("h")).await;
    let change = "New or changed in `skills`:\n- docx: Reads documents\n- pdf: Fills PDFs\n\
                  Not available any more in `skills`:\n- commit";
    assert_eq!(notices[1..], [change]);
    let requests = model.requests();
    assert_eq!(requests[1].history.last(), Some(&Item::user(change)));
    assert_prefixes(&requests);
}

#[tokio::test]
async fn another_process_reports_only_changes_since_the_session_started() {
    let folder = Arc::new(SkillsFolder::new());
    folder.add("pdf", "Reads PDFs");
    let model = Scripted::from_fn(|_, _| "done");
    let agent = || test_agent(model.clone()).with_tool_source(folder.skills());
    let (history, _) = run(&agent(), History::empty("h")).await;
    folder.add("commit", "Writes messages");
    let (history, notices) = run(&agent(), history).await;
    assert_eq!(notices, ["New or changed in `skills`:\n- commit: Writes messages"]);
    folder.remove("pdf");
    let (history, notices) = run(&agent(), history).await;
    assert_eq!(notices, ["Not available any more in `skills`:\n- pdf"]);
    assert_eq!(run(&agent(), history).await.1, [""; 0]);
    assert_prefixes(&model.requests());
}

#[tokio::test]
async fn a_list_that_a_compaction_removes_is_sent_again_with_the_next_request() {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    let load = || Reply::new().call("load_skill", json!({ "name": "pdf" }));
    let model = Scripted::new([
        load().usage(token_usage(90_000, 10)),
        Reply::text("done").usage(token_usage(10, 10)),
    ]);
    let compactor = compactor_fn(|history: &History| {
        Ok(Some(Compaction::new(0, history.len(), vec![Item::user("summary")])))
    });
    let agent = test_agent(model.clone())
        .with_tool_source(folder.skills())
        .with_window(Window::new(100_000))
        .with_compactor(compactor);
    let (_, notices) = run(&agent, History::empty("h")).await;
    let list = "Available in `skills`:\n- pdf: Reads PDFs";
    assert_eq!(notices, [list, list]);
    let requests = model.requests();
    assert_eq!(requests[1].history.iter().next(), Some(&Item::user("summary")));
    assert_eq!(requests[1].history.last(), Some(&Item::user(list)));
}

#[tokio::test]
async fn compactions_of_a_window_that_the_list_exceeds_do_not_repeat_forever() {
    let folder = SkillsFolder::new();
    folder.add("pdf", &"x".repeat(1_000));
    let load = || Reply::new().call("load_skill", json!({ "name": "pdf" }));
    let model = Scripted::new([
        load().usage(token_usage(900, 10)),
        Reply::text("done").usage(token_usage(10, 10)),
    ]);
    let compactor = compactor_fn(|history: &History| {
        Ok(Some(Compaction::new(0, history.len(), vec![Item::user("summary")])))
    });
    let agent = test_agent(model.clone())
        .with_tool_source(folder.skills())
        .with_window(Window::new(1_000))
        .with_compactor(compactor);
    let (_, notices) = run(&agent, History::empty("h")).await;
    assert_eq!(model.requests().len(), 2);
    assert!(notices.len() <= 4, "{}", notices.len());
}

#[tokio::test]
async fn a_skill_that_breaks_during_a_run_is_reported_and_the_others_stay() {
    let folder = Arc::new(SkillsFolder::new());
    folder.add("pdf", "Reads PDFs");
    folder.add("commit", "Writes messages");
    let model = changing_model();
    let agent = changing_agent(&model, &folder, |folder| {
        folder.write("pdf/SKILL.md", "---\nname: pdf\ndescription: \"x\n---\n");
    });
    let (history, notices) = run(&agent, History::empty("h")).await;
    let path = folder.path().join("pdf").join("SKILL.md").display().to_string();
    let broken = format!("Left out: `pdf`: {path}:3: ");
    assert!(notices[1].contains(&broken), "{}", notices[1]);
    assert!(notices[1].ends_with("\nNot available any more in `skills`:\n- pdf"), "{}", notices[1]);
    assert_prefixes(&model.requests());
    // A later run reports the error again, since its message has another form, but only once.
    let agent = test_agent(Scripted::from_fn(|_, _| "done")).with_tool_source(folder.skills());
    let (history, notices) = run(&agent, history).await;
    assert_eq!(notices.len(), 1);
    assert!(notices[0].starts_with("Some tools of `skills` are left out: `pdf`: "), "{notices:?}");
    assert_eq!(run(&agent, history).await.1, [""; 0]);
}

#[tokio::test]
async fn a_broken_skill_of_the_first_list_is_reported_once() {
    let folder = SkillsFolder::new();
    folder.add("commit", "Writes messages");
    folder.write("pdf/SKILL.md", "no front matter");
    let agent = test_agent(Scripted::from_fn(|_, _| "done")).with_tool_source(folder.skills());
    let (history, notices) = run(&agent, History::empty("h")).await;
    let list = "\nAvailable in `skills`:\n- commit: Writes messages";
    assert!(notices[0].starts_with("Some tools of `skills` are left out: `pdf`: "));
    assert!(notices[0].ends_with(list), "{notices:?}");
    assert_eq!(run(&agent, history).await.1, [""; 0]);
}

fn folder_of(len: usize) -> SkillsFolder {
    let folder = SkillsFolder::new();
    for n in 0..len {
        folder.add(&format!("skill-{n:03}"), "Does one of many things");
    }
    folder.add("pdf-forms", "Fills the fields of PDF documents");
    folder
}

#[tokio::test]
async fn hundreds_of_skills_are_searched_instead_of_listed() {
    let folder = folder_of(400);
    let model = Scripted::new([
        Reply::new().call("find_skills", json!({ "query": "complete a PDF form" })),
        Reply::new().call("load_skill", json!({ "name": "pdf-forms" })),
        Reply::text("done"),
    ]);
    let agent = test_agent(model.clone()).with_tool_source(folder.skills());
    let (history, notices) = run(&agent, History::empty("h")).await;
    let list = "Available in `skills`: more than can be listed here. Search for what you need.";
    assert_eq!(notices, [list]);
    let found = model.requests()[1].history.last().unwrap().clone();
    let found = found.as_tool_result().unwrap().content.text();
    assert!(found.starts_with("- pdf-forms: Fills the fields of PDF documents"), "{found}");
    assert!(found.lines().count() <= 10);
    assert!(last_result(&history).contains("How to pdf-forms."));
    assert_prefixes(&model.requests());
}

#[tokio::test]
async fn a_search_finds_the_current_skills_and_nothing_for_an_empty_query() {
    let folder = folder_of(120);
    let skills = folder.skills();
    let find = async |query: &str| call(&skills, "find_skills", json!({ "query": query })).await;
    assert!(find("spreadsheet").await.starts_with("No skill matches."));
    folder.add("xlsx", "Edits spreadsheets");
    assert_eq!(find("spreadsheet").await, "- xlsx: Edits spreadsheets");
    assert_eq!(find("things").await.lines().count(), 10);
    assert_eq!(find(" ").await, "Error: `query` must have between 1 and 500 bytes");
    let long = find(&"x".repeat(501)).await;
    assert_eq!(long, "Error: `query` must have between 1 and 500 bytes");
}

#[tokio::test]
async fn the_description_in_the_list_is_one_line_of_at_most_1024_characters() {
    let folder = SkillsFolder::new();
    let long = "é".repeat(2_000);
    folder
        .write("a/SKILL.md", format!("---\nname: a\ndescription: |\n  One\n\n  two {long}\n---\n"));
    let agent = test_agent(Scripted::new(["done"])).with_tool_source(folder.skills());
    let (_, notices) = run(&agent, History::empty("h")).await;
    let expected = format!("Available in `skills`:\n- a: One two {}…", "é".repeat(1_024 - 8));
    assert_eq!(notices, [expected]);
}

#[tokio::test]
async fn a_load_returns_the_current_text_and_a_removed_skill_is_an_error() {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    let skills = folder.skills();
    let load = async || call(&skills, "load_skill", json!({ "name": "pdf" })).await;
    assert!(load().await.ends_with("\n\nHow to pdf."));
    folder.write("pdf/SKILL.md", "---\nname: pdf\ndescription: x\n---\nAnother way.");
    assert!(load().await.ends_with("\n\nAnother way."));
    folder.remove("pdf");
    assert_eq!(load().await, "Error: there is no skill `pdf`");
}

#[tokio::test]
async fn a_searchable_toolkit_hides_the_tools_of_skills_and_calls_them() {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    let arguments = json!({ "name": "load_skill", "arguments": { "name": "pdf" } });
    let model = Scripted::new([Reply::new().call("call_tool", arguments), Reply::text("done")]);
    let agent = test_agent(model.clone())
        .with_toolkit(Toolkit::default().searchable())
        .with_tool_source(folder.skills());
    let (history, _) = run(&agent, History::empty("h")).await;
    assert!(last_result(&history).ends_with("\n\nHow to pdf."));
}

#[tokio::test]
async fn a_trace_has_the_names_of_the_loaded_skills() {
    let folder = SkillsFolder::new();
    folder.add("pdf", "Reads PDFs");
    let model = Scripted::new([
        Reply::new().call("load_skill", json!({ "name": "pdf" })),
        Reply::text("done"),
    ]);
    let agent = Agent::new(model).with_tool_source(folder.skills());
    let trace = agent.new_trace();
    agent.run("go").trace_to(&trace).for_each(|_| async {}).await;
    let steps = trace.events();
    let TraceAction::Tool { tool, args, .. } = &steps[0].action else { panic!("{steps:?}") };
    assert_eq!((&**tool, args.as_ref().unwrap().as_str()), ("load_skill", r#"{"name":"pdf"}"#));
}

#[tokio::test]
async fn allowed_tools_permit_no_call() {
    let folder = SkillsFolder::new();
    folder.write("pdf/SKILL.md", "---\nname: pdf\ndescription: x\nallowed-tools: pay\n---\nPay.");
    let pay = Tool::raw(spec("pay"), |_, _| async { "paid" }).unwrap().requires_approval();
    let model = Scripted::new([
        Reply::new().call("load_skill", json!({ "name": "pdf" })),
        Reply::new().call("pay", json!({})),
    ]);
    let agent = test_agent(model).with_tools([pay]).with_tool_source(folder.skills());
    let outcome = agent.run("go").outcome().await;
    assert_eq!(outcome.pending.len(), 1);
    assert_eq!(outcome.pending[0].name, "pay");
}

#[tokio::test]
async fn a_folder_that_disappears_keeps_the_list() {
    let folder = Arc::new(SkillsFolder::new());
    folder.add("all/pdf", "Reads PDFs");
    let skills = Skills::from_dir(folder.path().join("all"));
    let model = changing_model();
    let inner = Arc::clone(&folder);
    let tool = Tool::raw(spec("change"), move |_, _| {
        inner.remove("all");
        async { "changed" }
    });
    let agent =
        test_agent(model.clone()).with_tools([tool.unwrap()]).with_tool_source(skills.clone());
    let (_, notices) = run(&agent, History::empty("h")).await;
    assert!(notices[1].starts_with("The tools of `skills` could not be listed, and are unchanged"));
    assert_eq!(notices.len(), 2);
    assert_prefixes(&model.requests());
}
