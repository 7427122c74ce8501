use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::event::ToolEvent;
use turnstream::item::{PendingCall, ToolCall};
use turnstream::provider::{Provider, Reply, Scripted};
use turnstream::stream::TurnStreamExt;
use turnstream::tool::{Tool, ToolContext, ToolPolicy, Verdict};
use turnstream::{History, Request};

/// A temporary directory, deleted on drop. Files that tools must not reach are next to `work`.
struct TempProject(PathBuf);

impl TempProject {
    fn new() -> Self {
        static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("agent-example-{}-{number}", std::process::id());
        let temp = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(temp.work_dir()).unwrap();
        temp
    }

    fn work_dir(&self) -> PathBuf {
        self.0.join("work")
    }

    fn with_file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.work_dir().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    async fn call_tool(&self, name: &str, arguments: Value) -> Result<String, String> {
        run_tool_call(&self.work_dir(), name, arguments).await.0
    }

    async fn call_tool_json(&self, name: &str, arguments: Value) -> Value {
        serde_json::from_str(&self.call_tool(name, arguments).await.unwrap()).unwrap()
    }
}

impl Drop for TempProject {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the result of a call, and the number of progress reports.
async fn run_tool_call(
    root: &Path,
    name: &str,
    arguments: Value,
) -> (Result<String, String>, usize) {
    let history = History::empty("h");
    let model = Scripted::new([Reply::new().call(name, arguments)]);
    let turn = model.stream_turn(Request::new(history.clone())).into_turn().await.unwrap();
    let run = super::toolkit(super::Root::new(root.to_path_buf(), None))
        .run(&history, &Arc::clone(&turn));
    let mut run = run.with_policy(ApproveAll);
    let mut progress = 0;
    while let Some(event) = run.next().await {
        match event {
            ToolEvent::Progress { .. } => progress += 1,
            ToolEvent::Output(result) => {
                let text = result.content.text();
                return (if result.is_error() { Err(text) } else { Ok(text) }, progress);
            }
            _ => {}
        }
    }
    panic!("no result");
}

/// Approves every call.
struct ApproveAll;

impl ToolPolicy for ApproveAll {
    fn verdict(&mut self, _call: &PendingCall) -> Option<Verdict> {
        Some(Verdict::Approve)
    }
}

const TOOLS_WITH_A_PATH: [&str; 4] = ["list_directory", "read_file", "search_text", "count_lines"];

fn path_arguments(path: &str) -> Value {
    json!({ "path": path, "query": "secret" })
}

#[tokio::test]
async fn nothing_outside_the_working_directory_is_read() {
    let temp = TempProject::new().with_file("in.txt", "inside");
    fs::create_dir(temp.0.join("work-beside")).unwrap();
    fs::write(temp.0.join("work-beside/secret.txt"), "secret").unwrap();
    let absolute = temp.0.join("work-beside").display().to_string();
    for tool in TOOLS_WITH_A_PATH {
        for path in ["..", "../work-beside", "../work-beside/secret.txt", "../nothing", &absolute] {
            let error = temp.call_tool(tool, path_arguments(path)).await.unwrap_err();
            assert!(error.contains("is outside the working directory"), "{tool} {path}: {error}");
            assert!(error.contains("relative to it"), "{error}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_symbolic_link_cannot_leave_the_working_directory() {
    use std::os::unix::fs::symlink;
    let temp = TempProject::new().with_file("in.txt", "a secret inside\n");
    fs::create_dir(temp.0.join("out")).unwrap();
    fs::write(temp.0.join("out/secret.txt"), "secret\n").unwrap();
    symlink(temp.0.join("out"), temp.work_dir().join("dir")).unwrap();
    symlink("../out/secret.txt", temp.work_dir().join("file.txt")).unwrap();
    symlink("in.txt", temp.work_dir().join("fine.txt")).unwrap();
    symlink(".", temp.work_dir().join("loop")).unwrap();
    for tool in TOOLS_WITH_A_PATH {
        for path in ["dir", "dir/secret.txt", "dir/nothing", "file.txt", "loop/dir/secret.txt"] {
            let error = temp.call_tool(tool, path_arguments(path)).await.unwrap_err();
            assert!(error.contains("is outside the working directory"), "{tool} {path}: {error}");
        }
    }
    let found = temp.call_tool_json("search_text", json!({ "query": "secret" })).await;
    assert_eq!((&found["lines"], &found["hits"][0]["file"]), (&json!(1), &json!("in.txt")));
    assert_eq!(temp.call_tool_json("count_lines", json!({})).await["total"], 1);
    let read = temp.call_tool("read_file", json!({ "path": "fine.txt" })).await;
    assert_eq!(read.as_deref(), Ok("1: a secret inside\n"));
}

#[tokio::test]
async fn a_wrong_path_error_suggests_a_fix() {
    let temp = TempProject::new().with_file("src/a.rs", "x\n");
    for (tool, path, words) in [
        ("read_file", "src/b.rs", "Call `list_directory`"),
        ("read_file", "src", "is not a file. Call `list_directory`"),
        ("list_directory", "src/a.rs", "Call `read_file`"),
        ("list_directory", "nope", "there is no `nope`"),
        ("count_lines", "nope", "Call `list_directory`"),
        ("count_lines", "src/a.rs/x", "`src/a.rs/x`"),
        ("search_text", "a\u{0}b", "cannot be read"),
    ] {
        let error = temp.call_tool(tool, path_arguments(path)).await.unwrap_err();
        assert!(error.contains(words), "{tool} {path}: {error}");
    }
    let error = temp.call_tool("search_text", json!({ "query": " " })).await.unwrap_err();
    assert!(error.contains("the query is empty"), "{error}");
    fs::remove_dir_all(temp.work_dir()).unwrap();
    let error = temp.call_tool("count_lines", json!({})).await.unwrap_err();
    assert!(error.contains("the working directory cannot be read"), "{error}");
}

#[tokio::test]
async fn line_counts_include_an_unterminated_last_line_and_exclude_build_output() {
    let temp = TempProject::new()
        .with_file("Cargo.toml", "[package]\n")
        .with_file("src/a.rs", "1\n2\n3")
        .with_file("src/b.RS", "1\n2\n3\n4\n")
        .with_file("src/deep/c.rs", "1\n2\n3\n4\n")
        .with_file("src/target/d.rs", "1\n")
        .with_file("src/note.md", "1\n2\n3\n4\n5\n6\n")
        .with_file("src/empty.rs", "")
        .with_file("src/binary.rs", b"1\n\0\n")
        .with_file("src/.hidden/h.rs", "1\n")
        .with_file("target/t.rs", "1\n");
    let count = temp.call_tool("count_lines", json!({ "path": "src", "extension": ".rs" })).await;
    let expected = r#"{"path":"src","extension":"rs","total":12,"files":5,"longest_file":"src/b.RS","longest_lines":4,"skipped":1}"#;
    assert_eq!(count.as_deref(), Ok(expected));
    assert_eq!(temp.call_tool_json("count_lines", json!({})).await["total"], 19);
    let file = temp
        .call_tool_json("count_lines", json!({ "path": "src/note.md", "extension": "rs" }))
        .await;
    assert_eq!((&file["total"], &file["longest_file"]), (&json!(6), &json!("src/note.md")));
    let none =
        temp.call_tool_json("count_lines", json!({ "path": "src", "extension": "py" })).await;
    assert_eq!((&none["total"], &none["longest_file"]), (&json!(0), &Value::Null));
}

#[tokio::test]
async fn a_larger_tree_reports_progress() {
    let mut temp = TempProject::new();
    for n in 0..160 {
        temp = temp.with_file(&format!("{n}.txt"), "word\n");
    }
    let (count, progress) = run_tool_call(&temp.work_dir(), "count_lines", json!({})).await;
    assert!(count.unwrap().contains(r#""total":160,"files":160"#));
    assert_eq!(progress, 2);
    let (found, progress) =
        run_tool_call(&temp.work_dir(), "search_text", json!({ "query": "WORD" })).await;
    let found: Value = serde_json::from_str(&found.unwrap()).unwrap();
    assert_eq!(progress, 2);
    assert_eq!(
        (&found["lines"], &found["files"], &found["more"]),
        (&json!(160), &json!(160), &json!(true))
    );
    assert_eq!(found["hits"].as_array().unwrap().len(), 40);
}

#[tokio::test]
async fn a_search_returns_file_and_line_in_order() {
    let temp = TempProject::new()
        .with_file("b.rs", "fn Größe() {}\n\nlet größe;\n")
        .with_file("a/z.rs", "GRÖßE\n".repeat(9))
        .with_file("binary", b"gr\xc3\xb6\xc3\x9fe\0")
        .with_file("target/x", "größe\n")
        .with_file("large", "größe\n".repeat(400_000));
    let found = temp.call_tool_json("search_text", json!({ "query": "größe" })).await;
    let positions: Vec<_> = found["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| format!("{}:{}", hit["file"].as_str().unwrap(), hit["line"]))
        .collect();
    assert_eq!(
        positions,
        ["a/z.rs:1", "a/z.rs:2", "a/z.rs:3", "a/z.rs:4", "a/z.rs:5", "b.rs:1", "b.rs:3"]
    );
    assert_eq!(
        (&found["lines"], &found["searched"], &found["skipped"]),
        (&json!(11), &json!(2), &json!(2))
    );
}

#[tokio::test]
async fn a_file_is_read_by_line_range_and_truncated_when_long() {
    let temp = TempProject::new()
        .with_file("small.txt", "one\ntwo\nthree\n")
        .with_file("empty.txt", "")
        .with_file("long.txt", "0123456789\n".repeat(10_000))
        .with_file("wide.txt", "é".repeat(100_000))
        .with_file("wide_first.txt", format!("{}\nshort", "é".repeat(100_000)))
        .with_file("binary", b"\0");
    let read = async |path: &str, first: Value, last: Value| {
        let lines = json!({ "path": path, "first_line": first, "last_line": last });
        temp.call_tool("read_file", lines).await
    };
    let all = Value::Null;
    assert_eq!(
        read("small.txt", all.clone(), all.clone()).await.as_deref(),
        Ok("1: one\n2: two\n3: three\n")
    );
    assert_eq!(read("small.txt", json!(2), json!(2)).await.as_deref(), Ok("2: two\n"));
    assert_eq!(read("small.txt", json!(0), json!(1)).await.as_deref(), Ok("1: one\n"));
    assert!(read("small.txt", json!(4), all.clone()).await.unwrap_err().contains("has 3 lines"));
    assert!(read("small.txt", json!(3), json!(2)).await.unwrap_err().contains("has 3 lines"));
    assert!(read("empty.txt", all.clone(), all.clone()).await.unwrap().contains("is empty"));
    assert!(read("binary", all.clone(), all.clone()).await.unwrap_err().contains("binary file"));
    for (path, words) in [("long.txt", "cut off at line"), ("wide.txt", "cannot be shown")] {
        let text = read(path, all.clone(), all.clone()).await.unwrap();
        assert!(text.len() < 40_000 && text.contains(words), "{path}: {}", text.len());
    }
    // The offset that the note recommends leads on, and not to the same line again.
    let text = read("wide_first.txt", all.clone(), all.clone()).await.unwrap();
    assert!(text.contains("`first_line` 2 for more"), "{}", text.len());
    let end = read("long.txt", json!(9_999), all.clone()).await;
    assert_eq!(end.as_deref(), Ok("9999: 0123456789\n10000: 0123456789\n"));
}

#[tokio::test]
async fn a_directory_is_listed_in_order() {
    let temp =
        TempProject::new().with_file("b.txt", "12").with_file("a/x", "").with_file("c\u{1b}", "");
    let list = temp.call_tool("list_directory", json!({})).await;
    assert_eq!(list.as_deref(), Ok("a/\nb.txt (2 bytes)\nc\u{fffd} (0 bytes)"));
    assert!(
        temp.call_tool("list_directory", json!({ "path": "a" })).await.unwrap().contains("x (0")
    );
}

#[tokio::test]
async fn a_calculation_returns_its_value_or_the_reason_of_its_failure() {
    let temp = TempProject::new();
    let calculate = async |it| temp.call_tool("calculate", json!({ "expression": it })).await;
    assert_eq!(calculate("2 * 21").await.as_deref(), Ok("42"));
    assert!(calculate("1 / 0").await.unwrap_err().contains("division by zero"));
}

#[tokio::test]
async fn a_file_is_written_only_into_an_existing_directory() {
    let temp = TempProject::new().with_file("src/old.txt", "old words");
    let write = async |path: &str, text: &str| {
        temp.call_tool("write_file", json!({ "path": path, "text": text })).await
    };
    let made = write("src/new.txt", "one\ntwo\n").await;
    assert_eq!(made.as_deref(), Ok("`src/new.txt` was created; its size in bytes: 8"));
    let replaced = write("./src/../src/old.txt", "").await;
    assert_eq!(replaced.as_deref(), Ok("`src/old.txt` was replaced; its size in bytes: 0"));
    assert_eq!(fs::read_to_string(temp.work_dir().join("src/new.txt")).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(temp.work_dir().join("src/old.txt")).unwrap(), "");
    let deep = write("a/b/../c/new.txt", "x").await;
    assert!(deep.unwrap_err().contains("there is no `a/b/../c`"));
    let deep = write("a/b/new.txt", "x").await;
    assert_eq!(deep.as_deref(), Ok("`a/b/new.txt` was created; its size in bytes: 1"));
    let append = json!({ "path": "src/new.txt", "text": "three\n", "append": true });
    let longer = temp.call_tool("write_file", append).await;
    assert_eq!(longer.as_deref(), Ok("`src/new.txt` was extended; its size in bytes: 14"));
    let text = fs::read_to_string(temp.work_dir().join("src/new.txt")).unwrap();
    assert_eq!(text, "one\ntwo\nthree\n");
    for (path, words) in [
        ("src/old.txt/x", "`src/old.txt` is not a directory"),
        ("src", "not a regular file"),
        ("src/", "does not name a file"),
        ("", "does not name a file"),
        ("..", "does not name a file"),
        ("../x.txt", "outside the working directory"),
        ("src/../../x.txt", "outside the working directory"),
        ("nope/../../x.txt", "nope"),
        ("~/x.txt", "`~` is not expanded"),
        ("~", "`~` is not expanded"),
    ] {
        let error = write(path, "x").await.unwrap_err();
        assert!(error.contains(words), "{path}: {error}");
    }
    assert!(!temp.work_dir().join("~").exists());
    for name in ["~x", "x~"] {
        write(name, "x").await.unwrap();
    }
    let long = write("long.txt", &"x".repeat(1024 * 1024 + 1)).await;
    assert!(long.unwrap_err().contains("longer than"));
    assert!(!temp.0.join("x.txt").exists() && !temp.work_dir().join("long.txt").exists());
}

fn write_description(temp: &TempProject, arguments: &Value) -> Vec<String> {
    let root = super::Root::new(temp.work_dir(), None);
    let name = "write_file".to_owned();
    let call = ToolCall { call_id: "c".to_owned(), name, arguments: arguments.to_string() };
    super::describe_call(&root, &call, &[])
}

#[tokio::test]
async fn a_path_too_long_to_display_is_not_written() {
    let temp = TempProject::new();
    let hidden = format!("docs/{}.git/hooks/{}notes.txt", "a/".repeat(400), "b".repeat(300));
    let deep = format!("{}notes.txt", "a/".repeat(64));
    for (path, words) in [(&hidden, "longer than 1024 bytes"), (&deep, "more than 64 parts")] {
        let input = json!({ "path": path, "text": "x" });
        let error = temp.call_tool("write_file", input.clone()).await.unwrap_err();
        assert!(error.contains(words), "{error}");
        let shown = write_description(&temp, &input).pop().unwrap();
        assert!(shown.contains("this will fail: ") && shown.contains(words), "{shown}");
        for tool in TOOLS_WITH_A_PATH {
            let error = temp.call_tool(tool, path_arguments(path)).await.unwrap_err();
            assert!(error.contains(words), "{tool}: {error}");
        }
    }
    assert!(fs::read_dir(temp.work_dir()).unwrap().next().is_none());
    let longest = format!("{}{}", "a/".repeat(63), "b".repeat(250));
    let input = json!({ "path": longest, "text": "x" });
    assert!(write_description(&temp, &input).pop().unwrap().contains(&longest));
    temp.call_tool("write_file", input).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_is_written_through_a_symbolic_link() {
    use std::os::unix::fs::symlink;
    let temp = TempProject::new().with_file("in.txt", "inside");
    fs::create_dir(temp.0.join("out")).unwrap();
    symlink(temp.0.join("out"), temp.work_dir().join("dir")).unwrap();
    symlink("../out/new.txt", temp.work_dir().join("dangling.txt")).unwrap();
    symlink("in.txt", temp.work_dir().join("inner.txt")).unwrap();
    symlink(".", temp.work_dir().join("inside")).unwrap();
    for (path, words) in [
        ("dir/new.txt", "through a link"),
        ("inside/new.txt", "through a link"),
        ("dir/new/new.txt", "through a link"),
        ("dangling.txt", "not a regular file"),
        ("inner.txt", "not a regular file"),
    ] {
        let input = json!({ "path": path, "text": "x" });
        let error = temp.call_tool("write_file", input).await.unwrap_err();
        assert!(error.contains(words), "{path}: {error}");
    }
    assert!(fs::read_dir(temp.0.join("out")).unwrap().next().is_none());
    assert_eq!(fs::read_to_string(temp.work_dir().join("in.txt")).unwrap(), "inside");
}

/// Swaps a directory with a link to a folder outside, back and forth, until it is dropped.
#[cfg(unix)]
struct DirectorySwapper {
    stop_flag: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[cfg(unix)]
impl DirectorySwapper {
    fn start(temp: &TempProject) -> Self {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (work, out) = (temp.work_dir(), temp.0.join("out"));
        let (dir, link) = (work.join("dir"), work.join("link"));
        std::os::unix::fs::symlink(&out, &link).unwrap();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                swap_names(&dir, &link);
            }
        });
        Self { stop_flag: stop, thread: Some(thread) }
    }
}

/// Exchanges the names of two entries.
#[cfg(unix)]
fn swap_names(a: &Path, b: &Path) {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
    }
    #[cfg(not(target_os = "linux"))]
    {
        let aside = a.with_file_name("aside");
        fs::rename(a, &aside).unwrap();
        fs::rename(b, a).unwrap();
        fs::rename(&aside, b).unwrap();
    }
}

#[cfg(unix)]
impl Drop for DirectorySwapper {
    fn drop(&mut self) {
        self.stop_flag.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn no_write_escapes_while_a_directory_is_swapped_for_a_link() {
    let temp = TempProject::new().with_file("dir/old.txt", "old");
    fs::create_dir(temp.0.join("out")).unwrap();
    let swapping = DirectorySwapper::start(&temp);
    for n in 0..2_000 {
        let input = json!({ "path": format!("dir/{n}.txt"), "text": "x" });
        // If the directory is a link at that moment, nothing is written.
        let _ = temp.call_tool("write_file", input).await;
    }
    drop(swapping);
    let outside: Vec<_> = fs::read_dir(temp.0.join("out")).unwrap().collect();
    assert!(outside.is_empty(), "{} files: {outside:?}", outside.len());
}

#[cfg(unix)]
#[tokio::test]
async fn no_read_escapes_while_a_directory_is_swapped_for_a_link() {
    let temp = TempProject::new().with_file("dir/file.txt", "inside\n");
    fs::create_dir(temp.0.join("out")).unwrap();
    fs::write(temp.0.join("out/file.txt"), "a secret\n").unwrap();
    let swapping = DirectorySwapper::start(&temp);
    for n in 0..2_000 {
        let (tool, path) = match n % 4 {
            0 => ("search_text", "."),
            1 => ("search_text", "dir"),
            _ => ("read_file", "dir/file.txt"),
        };
        let found = temp.call_tool(tool, path_arguments(path)).await;
        assert!(!found.as_ref().is_ok_and(|found| found.contains("a secret")), "{found:?}");
    }
    drop(swapping);
}

#[cfg(unix)]
#[tokio::test]
async fn a_write_replaces_the_file_under_this_name_only_and_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let temp = TempProject::new().with_file("in.txt", "old");
    fs::hard_link(temp.work_dir().join("in.txt"), temp.0.join("outside.txt")).unwrap();
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(temp.work_dir().join("in.txt"), mode).unwrap();
    let input = json!({ "path": "in.txt", "text": "new" });
    temp.call_tool("write_file", input).await.unwrap();
    assert_eq!(fs::read_to_string(temp.0.join("outside.txt")).unwrap(), "old");
    let meta = fs::metadata(temp.work_dir().join("in.txt")).unwrap();
    assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (3, 0o640));
    assert_eq!(fs::read_dir(temp.work_dir()).unwrap().count(), 1, "nothing is left beside it");
}

#[cfg(unix)]
#[tokio::test]
async fn a_leftover_temporary_file_does_not_prevent_a_write() {
    let temp = TempProject::new();
    // Other tests in this process may increment the counter meanwhile.
    for number in 0..10_000 {
        let left = format!(".turnstream-{}-{number}.new", std::process::id());
        fs::write(temp.work_dir().join(left), "left").unwrap();
    }
    temp.call_tool("write_file", json!({ "path": "in.txt", "text": "new" })).await.unwrap();
    assert_eq!(fs::read_to_string(temp.work_dir().join("in.txt")).unwrap(), "new");
}

#[cfg(unix)]
#[tokio::test]
async fn a_write_protected_file_is_not_replaced() {
    use std::os::unix::fs::PermissionsExt;
    let temp = TempProject::new().with_file("in.txt", "old");
    let file = temp.work_dir().join("in.txt");
    // With the second mode, others may write, but the owner may not.
    for mode in [0o444, 0o446] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        if mode == 0o446 && fs::OpenOptions::new().write(true).open(&file).is_ok() {
            // A privileged user, who may write everything.
            continue;
        }
        for append in [false, true] {
            let input = json!({ "path": "in.txt", "text": "new", "append": append });
            let shown = write_description(&temp, &input).pop().unwrap();
            assert!(shown.contains("this will fail: `in.txt` is write-protected"), "{shown}");
            let error = temp.call_tool("write_file", input).await.unwrap_err();
            assert!(error.contains("is write-protected"), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "old");
}

#[cfg(unix)]
#[test]
fn the_session_file_is_never_overwritten_by_a_tool() {
    let temp = TempProject::new().with_file("sub/real.db", "").with_file("other/real.db", "");
    std::os::unix::fs::symlink("sub/real.db", temp.work_dir().join("link.db")).unwrap();
    let root = super::Root::new(temp.work_dir(), Some(temp.work_dir().join("link.db")));
    for path in
        ["link.db", "sub/real.db", "sub/../sub/REAL.db", "sub/real.db-wal", "link.db-journal"]
    {
        let error = root.write_target(path).map(|entry| entry.path()).unwrap_err();
        assert!(error.contains("stores this conversation"), "{path}: {error}");
    }
    for path in ["other/real.db", "sub/real.db.txt", "real.db"] {
        assert_eq!(root.write_target(path).map(|entry| entry.path()).as_deref(), Ok(path));
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_is_neither_waited_for_nor_written_to() {
    let temp = TempProject::new().with_file("in.txt", "a secret\n");
    let pipe = temp.work_dir().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    for (tool, words) in [
        ("read_file", "is not a file"),
        ("search_text", "neither a file nor a directory"),
        ("count_lines", "neither a file nor a directory"),
        ("list_directory", "is not a directory"),
    ] {
        let error = temp.call_tool(tool, path_arguments("pipe")).await.unwrap_err();
        assert!(error.contains(words), "{tool}: {error}");
    }
    let error =
        temp.call_tool("write_file", json!({ "path": "pipe", "text": "x" })).await.unwrap_err();
    assert!(error.contains("not a regular file"), "{error}");
    assert_eq!(temp.call_tool_json("search_text", json!({ "query": "secret" })).await["lines"], 1);
    let list = temp.call_tool("list_directory", json!({})).await.unwrap();
    assert!(list.contains("pipe (a special file)"), "{list}");
}

#[tokio::test]
async fn a_too_large_file_is_rejected_with_its_size_and_the_limit() {
    let temp = TempProject::new();
    let file = fs::File::create(temp.work_dir().join("large")).unwrap();
    file.set_len(16 * 1024 * 1024 + 1).unwrap();
    let error = temp.call_tool("read_file", json!({ "path": "large" })).await.unwrap_err();
    assert!(error.contains("16777217 bytes") && error.contains("limit of 16777216"), "{error}");
}

#[tokio::test]
async fn reading_a_file_stops_when_its_call_is_cancelled() {
    let (sender, mut contexts) = tokio::sync::mpsc::channel(1);
    let tool = Tool::new("cancelled", "", move |_: NoArgs, cx: ToolContext| {
        let sender = sender.clone();
        async move {
            sender.send(cx).await.unwrap();
            std::future::pending::<String>().await
        }
    });
    let history = History::empty("h");
    let model = Scripted::new([Reply::new().call("cancelled", json!({}))]);
    let turn = model.stream_turn(Request::new(history.clone())).into_turn().await.unwrap();
    let toolkit = turnstream::Toolkit::new([tool]);
    let mut run = toolkit.run(&history, &turn);
    let _started = run.next().await;
    let cx = tokio::select! {
        cx = contexts.recv() => cx.unwrap(),
        event = run.next() => panic!("{event:?}"),
    };
    let mut pieces = 0;
    let endless = std::io::repeat(b'x');
    let mut run = Some(run);
    let stopped = super::root::read_in_pieces(endless, &cx, |_| {
        pieces += 1;
        if pieces == 3 {
            // The owner of the run drops it.
            run.take();
        }
        pieces < 1_000
    });
    assert!(stopped.unwrap_err().to_string().contains("cancelled"));
    assert_eq!(pieces, 3);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArgs {}
