//! Notes that outlive a session: the folder, the tools, and the notes that requests contain.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::agent::hook;
use turnstream::context::{
    ContextInjector, ContextSelection, FileMemory, Memory, MemoryNote, Recall, memory_tools,
};
use turnstream::item::ResultKind;
use turnstream::provider::{Reply, Scripted};
use turnstream::trace::RunInputs;
use turnstream::{Agent, ErrorKind, EventStreamExt, Item, Trace};

use turnstream_test_support::temp_folder::TempFolder;

fn note(name: &str, text: &str) -> MemoryNote {
    MemoryNote::new(name, text)
}

async fn names_found(memory: &FileMemory, query: &str, limit: usize) -> Vec<String> {
    memory.search(query, limit).await.unwrap().into_iter().map(|note| note.name).collect()
}

#[tokio::test]
async fn a_note_is_kept_replaced_and_removed() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path().join("not-there-yet"));
    assert_eq!(memory.read("team").await.unwrap(), None);
    assert_eq!(memory.search("team", 5).await.unwrap(), []);
    memory.write(&note("team", "")).await.unwrap();

    memory.write(&note("team", "Ada leads.")).await.unwrap();
    memory.write(&note("team", "Grace leads.")).await.unwrap();
    let reopened = FileMemory::new(folder.path().join("not-there-yet"));
    assert_eq!(reopened.read("team").await.unwrap().as_deref(), Some("Grace leads."));

    memory.write(&note("team", "")).await.unwrap();
    assert_eq!(reopened.read("team").await.unwrap(), None);
    assert_eq!(fs::read_dir(folder.path().join("not-there-yet")).unwrap().count(), 0);
}

#[tokio::test]
async fn names_that_leave_the_folder_and_long_texts_are_refused() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path().join("notes"));
    let long_name = "x".repeat(65);
    for name in ["", "../team", "a/b", "a\\b", ".", "a.md", "Team", "ü", &long_name] {
        let error = memory.write(&note(name, "text")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{name}");
        assert_eq!(memory.read(name).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
    }
    let longest = "x".repeat(64 * 1024);
    memory.write(&note("long", &longest)).await.unwrap();
    let error = memory.write(&note("long", &format!("{longest}x"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(memory.read("long").await.unwrap().unwrap(), longest, "the old note is kept");
}

#[tokio::test]
async fn a_search_returns_the_best_matches_and_ignores_other_files() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path());
    for (name, text) in [
        ("deploys", "The team deploys on Tuesdays."),
        ("style", "Answer in British English."),
        ("tuesday-lunch", "Soup."),
    ] {
        memory.write(&note(name, text)).await.unwrap();
    }
    fs::write(folder.path().join("README.txt"), "deploys").unwrap();
    fs::write(folder.path().join("deploys.tmp"), "deploys").unwrap();
    fs::write(folder.path().join("Deploys Of Ada.md"), "deploys").unwrap();
    fs::create_dir(folder.path().join("deploys-folder.md")).unwrap();
    fs::write(folder.path().join("binary.md"), [0xff, 0xfe, b' ', b'z', b'q']).unwrap();
    assert_eq!(names_found(&memory, "When does the team deploy?", 1).await, ["deploys"]);
    assert_eq!(names_found(&memory, "British", 5).await, ["style"]);
    assert_eq!(names_found(&memory, "zq", 5).await, ["binary"]);
    assert_eq!(names_found(&memory, "kubernetes", 5).await, [""; 0]);
    assert_eq!(names_found(&memory, "deploys", 0).await, [""; 0]);
}

#[tokio::test]
async fn a_note_that_cannot_be_written_is_an_error_and_leaves_the_old_note() {
    let folder = TempFolder::new();
    let path = folder.path().join("notes");
    fs::write(&path, "a file, not a folder").unwrap();
    let memory = FileMemory::new(&path);
    let error = memory.write(&note("team", "Ada")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file, not a folder");
}

fn call(tool: &str, arguments: Value) -> Reply {
    Reply::new().call(tool, arguments)
}

#[tokio::test]
async fn a_model_reads_writes_and_searches_notes_and_the_trace_shows_it() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path());
    let model = Scripted::new([
        call("read_memory", json!({ "name": "team" })),
        call("write_memory", json!({ "name": "team", "text": "Ada leads the team." })),
        call("search_memory", json!({ "query": "who leads?" })),
        call("search_memory", json!({ "query": "lunch" })),
        call("read_memory", json!({ "name": "team" })),
        call("write_memory", json!({ "name": "../team", "text": "x" })),
        call("write_memory", json!({ "name": "team", "text": "" })),
        "Done.".into(),
    ]);
    let agent = Agent::new(model).with_tools(memory_tools(memory.clone()));
    let trace = agent.new_trace();
    let mut run = agent.run("Remember the team");
    let handle = run.handle();
    (&mut run).trace_to(&trace).for_each(|_| async {}).await;
    let history = handle.history();
    let results = history.iter().filter_map(Item::as_tool_result);
    let results: Vec<_> = results.map(|it| (it.kind, it.content.text())).collect();
    let expected = [
        (ResultKind::Error, "There is no note `team`. Use `search_memory` to find one."),
        (ResultKind::Ok, "Kept the note `team`."),
        (ResultKind::Ok, "# team\nAda leads the team."),
        (ResultKind::Ok, "No note matches."),
        (ResultKind::Ok, "Ada leads the team."),
        (
            ResultKind::Error,
            "Error: the name of a note has 1 to 64 lowercase letters, digits, `-` and `_`",
        ),
        (ResultKind::Ok, "Deleted the note `team`."),
    ];
    assert_eq!(results, expected.map(|(kind, text)| (kind, text.to_owned())));
    let changed = trace.events().into_iter().map(|step| step.result.changed_files);
    let changed: Vec<_> = changed.filter(|files| !files.is_empty()).collect();
    assert_eq!(changed, [["memory/team"], ["memory/team"]]);
    assert_eq!(memory.read("team").await.unwrap(), None);
}

#[tokio::test]
async fn matching_notes_are_added_to_each_request_and_recorded_in_the_selection() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path());
    memory.write(&note("deploys", "The team deploys on Tuesdays.")).await.unwrap();
    memory.write(&note("style", "Answer in British English.")).await.unwrap();
    let selections: Arc<Mutex<Vec<ContextSelection>>> = Arc::default();
    let mut injector = ContextInjector::new(1_000, |_| Vec::new());
    injector.recall = Some(Recall::new(memory, 3));
    let log = Arc::clone(&selections);
    injector.on_selection =
        Some(Arc::new(move |selection| log.lock().unwrap().push(selection.clone())));
    let model = Scripted::new(["On Tuesdays."]);
    let agent = Agent::new(model.clone()).with_hook(injector);
    let outcome = agent.run("When do we deploy?").outcome().await;

    let sent = model.requests()[0].context.last().unwrap().as_user().unwrap().text();
    assert!(sent.contains("# memory/deploys\n"), "{sent}");
    assert!(sent.contains("The team deploys on Tuesdays.") && !sent.contains("British"), "{sent}");
    let selections = selections.lock().unwrap();
    let chosen: Vec<_> = selections[0].chosen.iter().map(|chosen| &*chosen.source).collect();
    assert_eq!(chosen, ["memory/deploys"]);
    assert_eq!(outcome.history.len(), 2, "the note is not part of the history");
}

#[tokio::test]
async fn the_inputs_in_a_trace_name_the_memory_and_the_notes_that_were_read() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path());
    memory.write(&note("deploys", "The team deploys on Tuesdays.")).await.unwrap();
    let trace = Trace::new();
    let mut injector = ContextInjector::new(1_000, |_| Vec::new());
    injector.recall = Some(Recall::new(memory, 3));
    let inputs = trace.clone();
    injector.on_selection = Some(Arc::new(move |selection| inputs.add_input(selection)));
    let agent = Agent::new(Scripted::new(["On Tuesdays."])).with_hook(injector);
    let mut audited = agent.run_inputs("When do we deploy?");
    audited.memory = Some(folder.path().display().to_string());
    trace.add_input(&audited);
    agent.run(&*audited.goal).trace_to(&trace).for_each(|_| async {}).await;

    let step = trace.last_event().unwrap();
    let [run, selection] = &step.inputs[..] else { panic!("{:?}", step.inputs) };
    assert_eq!(run.deserialize_as::<RunInputs>().unwrap(), audited);
    assert_eq!(run.to_value()["memory"], folder.path().display().to_string());
    let selection: ContextSelection = selection.deserialize_as().unwrap();
    let chosen = selection.chosen.iter().map(|chosen| (&*chosen.source, &*chosen.why));
    let chosen: Vec<_> = chosen.collect();
    assert_eq!(chosen[0].0, "memory/deploys");
    assert!(!chosen[0].1.is_empty(), "{chosen:?}");
}

#[tokio::test]
async fn a_memory_that_cannot_be_read_is_reported_and_the_run_continues_without_notes() {
    let folder = TempFolder::new();
    let path = folder.path().join("notes");
    fs::write(&path, "a file, not a folder").unwrap();
    let mut injector = ContextInjector::new(1_000, |_| Vec::new());
    injector.recall = Some(Recall::new(FileMemory::new(&path), 3));
    let selections: Arc<Mutex<Vec<ContextSelection>>> = Arc::default();
    let log = Arc::clone(&selections);
    injector.on_selection =
        Some(Arc::new(move |selection| log.lock().unwrap().push(selection.clone())));
    let failures: Arc<Mutex<Vec<ErrorKind>>> = Arc::default();
    let log = Arc::clone(&failures);
    let model = Scripted::new(["Hello.", "Hello again."]);
    let agent = Agent::new(model.clone())
        .with_hook(injector)
        .with_hook(hook::on_failure(move |_, error| log.lock().unwrap().push(error.kind())));
    let outcome = agent.run("Hi").outcome().await;
    assert_eq!((outcome.error, &*outcome.text), (None, "Hello."));
    assert_eq!(model.requests()[0].context.len(), 1);
    assert_eq!(*failures.lock().unwrap(), [ErrorKind::Store]);
    let left_out = selections.lock().unwrap()[0].left_out.clone();
    let [memory] = &left_out[..] else { panic!("{left_out:?}") };
    assert_eq!(memory.source, "memory");
    assert!(memory.why.starts_with("the folder of notes "), "{}", memory.why);

    // The notes are used once they can be read.
    fs::remove_file(&path).unwrap();
    FileMemory::new(&path).write(&note("hi", "Hi is a greeting.")).await.unwrap();
    assert_eq!(agent.run("Hi").outcome().await.text, "Hello again.");
    assert_eq!(model.requests()[1].context.len(), 2);
    assert_eq!(failures.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_search_reads_only_notes_that_have_changed() {
    let folder = TempFolder::new();
    let memory = FileMemory::new(folder.path());
    let path = folder.path().join("team.md");
    let edit = |text: &str, modified: SystemTime| {
        fs::write(&path, text).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    };
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    edit("Ada leads.", hour_ago);
    assert_eq!(names_found(&memory, "Ada", 1).await, ["team"]);
    // The length and the time are those of the note that was read, so the file is not read again.
    edit("Bob leads.", hour_ago);
    assert_eq!(names_found(&memory, "Ada", 1).await, ["team"]);
    // Each of them shows a change.
    edit("Bob leads.", hour_ago + Duration::from_secs(1));
    assert_eq!(names_found(&memory, "Ada", 1).await, [""; 0]);
    edit("Grace leads.", hour_ago + Duration::from_secs(1));
    assert_eq!(names_found(&memory, "Grace", 1).await, ["team"]);
    // A file that was just written may be written again within the same unit of time.
    edit("Linus leads.", SystemTime::now());
    assert_eq!(names_found(&memory, "Linus", 1).await, ["team"]);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    edit("Maria leads.", modified);
    assert_eq!(names_found(&memory, "Maria", 1).await, ["team"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(names_found(&memory, "Maria", 1).await, [""; 0]);
}
