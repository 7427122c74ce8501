//! Third-party servers: `run.sh` installs them and sets their commands in the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};
use turnstream::Event;
use turnstream::event::ToolEvent;
use turnstream::item::Part;
use turnstream::{Run, Toolkit};
use turnstream_mcp::{Client, ClientBuilder, ElicitationAnswer, Era, ServerCommand};

use crate::support::{call, call_text, run_call};

/// A client of the server whose command is in the variable, with more arguments.
fn client(variable: &str, args: &[&str]) -> Client {
    builder(variable, args).build().trusted()
}

fn builder(variable: &str, args: &[&str]) -> ClientBuilder {
    Client::stdio(command(variable).args(args)).with_name("s")
}

fn command(variable: &str) -> ServerCommand {
    let command = std::env::var(variable).expect("crates/mcp/tests/run.sh sets it");
    let mut words = command.split(' ');
    ServerCommand::new(words.next().expect("a program")).args(words)
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("turnstream-mcp-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder.canonicalize().expect("it exists"))
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path that is text")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(kit: &Toolkit) -> BTreeSet<String> {
    kit.specs().iter().map(|spec| spec.name.clone()).collect()
}

/// Runs until the tool has reported progress.
async fn run_until_progress(kit: Toolkit, tool: &str, arguments: Value) -> Run {
    let mut run = run_call(kit, tool, arguments);
    loop {
        let event = run.next().await.expect("the run continues").unwrap();
        if let Event::Tool(ToolEvent::Progress { .. }) = event {
            return run;
        }
    }
}

/// Waits until the server has written a line to its log. Returns the duration.
fn wait_for_line(log: &Path, line: &str) -> Duration {
    let started = Instant::now();
    while !fs::read_to_string(log).unwrap_or_default().contains(line) {
        assert!(started.elapsed() < Duration::from_secs(30), "no `{line}` in the server's log");
        std::thread::yield_now();
    }
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn server_everything_lists_calls_reports_progress_and_shows_images() {
    let client = client("TURNSTREAM_MCP_EVERYTHING", &["stdio"]);
    assert_eq!(client.server_info().await.unwrap().era, Era::Legacy);
    let kit = client.toolkit().await.unwrap();
    assert!(names(&kit).contains("s__echo"), "{:?}", names(&kit));
    assert_eq!(call_text(kit.clone(), "s__echo", json!({ "message": "hi" })).await, "Echo: hi");
    let long = json!({ "duration": 0.6, "steps": 3 });
    let (result, progress) = call(kit.clone(), "s__trigger-long-running-operation", long).await;
    assert!(!result.is_error(), "{result:?}");
    assert!(progress.iter().all(|it| it["total"] == 3.0) && !progress.is_empty(), "{progress:?}");
    let (result, _) = call(kit, "s__get-tiny-image", json!({})).await;
    let is_image =
        |part: &Part| matches!(part, Part::Image(image) if image.media_type == "image/png");
    assert!(result.content.into_parts().iter().any(is_image));
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn server_everything_asks_the_user_and_lists_resources_and_prompts() {
    let client = builder("TURNSTREAM_MCP_EVERYTHING", &["stdio"])
        .with_elicitation(|_| async { ElicitationAnswer::Accept(json!({ "name": "Ada" })) })
        .build()
        .trusted();
    // The tool that asks exists only for clients that support questions; it is added a moment
    // later.
    let mut kit = client.toolkit().await.unwrap();
    while !names(&kit).contains("s__trigger-elicitation-request") {
        tokio::task::yield_now().await;
        kit = client.toolkit().await.unwrap();
    }
    let text = call_text(kit, "s__trigger-elicitation-request", json!({})).await;
    assert!(text.contains("Ada"), "{text}");
    let resources = client.resources().await.unwrap();
    let content = client.read_resource(&resources[0].uri).await.unwrap();
    assert!(!content.text().is_empty());
    let prompts = client.prompts().await.unwrap();
    let simple =
        prompts.iter().find(|prompt| prompt.arguments.is_empty()).expect("one without arguments");
    assert!(!client.prompt(&simple.name, &BTreeMap::default()).await.unwrap().is_empty());
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn server_filesystem_reads_and_writes_only_in_its_folder() {
    let folder = Folder::new("files");
    fs::write(folder.0.join("a.txt"), "hello").unwrap();
    let client = client("TURNSTREAM_MCP_FILESYSTEM", &[folder.path()])
        .only(["read_text_file", "write_file"]);
    let kit = client.toolkit().await.unwrap();
    assert_eq!(names(&kit), ["s__read_text_file", "s__write_file"].map(str::to_owned).into());
    assert!(!kit.get("s__read_text_file").unwrap().is_exclusive(), "it says that it only reads");
    let path = |name: &str| json!({ "path": format!("{}/{name}", folder.path()) });
    assert_eq!(call_text(kit.clone(), "s__read_text_file", path("a.txt")).await, "hello");
    let mut written = path("b.txt");
    written["content"] = "new".into();
    call(kit.clone(), "s__write_file", written).await;
    assert_eq!(fs::read_to_string(folder.0.join("b.txt")).unwrap(), "new");
    let (result, _) = call(kit, "s__read_text_file", json!({ "path": "/etc/passwd" })).await;
    assert!(result.is_error() && result.content.text().contains("Access denied"), "{result:?}");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn server_memory_returns_stored_entities() {
    let folder = Folder::new("memory");
    let command = command("TURNSTREAM_MCP_MEMORY")
        .env("MEMORY_FILE_PATH", format!("{}/memory.jsonl", folder.path()));
    let client = Client::stdio(command).with_name("s").build().trusted();
    let kit = client.toolkit().await.unwrap();
    let entity =
        json!({ "name": "Ada", "entityType": "person", "observations": ["writes programs"] });
    call(kit.clone(), "s__create_entities", json!({ "entities": [entity] })).await;
    assert!(call_text(kit.clone(), "s__read_graph", json!({})).await.contains("writes programs"));
    // The process ends, another one starts, and the file still exists.
    client.close().await;
    assert!(call_text(kit, "s__read_graph", json!({})).await.contains("writes programs"));
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn mcp_server_time_returns_the_time_and_its_errors_as_results() {
    let client = client("TURNSTREAM_MCP_TIME", &["--local-timezone=UTC"]);
    assert_eq!(client.server_info().await.unwrap().era, Era::Modern);
    let kit = client.toolkit().await.unwrap();
    let time = call_text(kit.clone(), "s__get_current_time", json!({ "timezone": "UTC" })).await;
    assert!(time.contains("\"timezone\""), "{time}");
    let (result, _) = call(kit, "s__get_current_time", json!({ "timezone": "Nowhere/X" })).await;
    assert!(result.is_error() && result.content.text().contains("Invalid timezone"), "{result:?}");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn mcp_server_git_shows_a_repository() {
    let folder = Folder::new("git");
    let init = std::process::Command::new("git").args(["init", "-q"]).arg(&folder.0).status();
    assert!(init.unwrap().success());
    fs::write(folder.0.join("a.txt"), "hello").unwrap();
    let client = client("TURNSTREAM_MCP_GIT", &["--repository", folder.path()]);
    let kit = client.toolkit().await.unwrap();
    let status = call_text(kit, "s__git_status", json!({ "repo_path": folder.path() })).await;
    assert!(status.contains("a.txt"), "{status}");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn a_modern_server_can_be_called_ask_and_change_its_tools() {
    let client = builder("TURNSTREAM_MCP_MODERN", &["stdio"])
        .with_elicitation(|_| async { ElicitationAnswer::Accept(json!({ "approve": true })) })
        .build()
        .trusted();
    assert_eq!(client.server_info().await.unwrap().era, Era::Modern);
    let kit = client.toolkit().await.unwrap();
    assert_eq!(call_text(kit.clone(), "s__add", json!({ "a": 1, "b": 2 })).await, "3");
    let (result, progress) = call(kit.clone(), "s__slow", json!({ "steps": 3, "ms": 20 })).await;
    assert_eq!(result.content.text(), "took 3 steps");
    // Progress that arrives together with the result may be left out.
    assert!(progress.iter().all(|it| it["total"] == 3.0) && !progress.is_empty(), "{progress:?}");
    let (result, _) = call(kit.clone(), "s__picture", json!({})).await;
    assert!(result.content.into_parts().iter().any(|part| matches!(part, Part::Image(_))));
    let (result, _) = call(kit.clone(), "s__fail", json!({})).await;
    assert!(result.is_error() && result.content.text() == "the disk is full", "{result:?}");
    assert_eq!(
        call_text(kit.clone(), "s__ask", json!({ "file": "a" })).await,
        "deleted a, reason: none"
    );
    let before = names(&kit).len();
    call(kit, "s__change_tools", json!({})).await;
    while names(&client.toolkit().await.unwrap()).len() == before {
        tokio::task::yield_now().await;
    }
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn a_modern_server_notices_a_dropped_call_over_both_transports() {
    let folder = Folder::new("cancel");
    for transport in ["stdio", "http"] {
        let log = folder.0.join(transport);
        let command = command("TURNSTREAM_MCP_MODERN").arg(transport).env("MCP_LOG", &log);
        let mut server = None;
        let client = match transport {
            "stdio" => Client::stdio(command),
            _ => {
                let (process, url) = start_http_server(&log);
                server = Some(process);
                Client::http(&url).unwrap()
            }
        };
        let client = client.with_name("s").build().trusted();
        let kit = client.toolkit().await.unwrap();
        let mut delays = Vec::new();
        for _ in 0..20 {
            fs::write(&log, "").unwrap();
            let slow = json!({ "steps": 1_000, "ms": 20 });
            let run = run_until_progress(kit.clone(), "s__slow", slow).await;
            drop(run);
            delays.push(tokio::task::block_in_place(|| wait_for_line(&log, "slow: cancelled")));
        }
        delays.sort();
        println!(
            "{transport}: from a drop to the server's log, of 20: median {:?}, longest {:?}",
            delays[10], delays[19]
        );
        client.close().await;
        drop(server);
    }
}

/// A process that is killed on drop.
struct KilledOnDrop(std::process::Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_http_server(log: &Path) -> (KilledOnDrop, String) {
    use std::io::{BufRead, BufReader};

    let command = std::env::var("TURNSTREAM_MCP_MODERN").expect("crates/mcp/tests/run.sh sets it");
    let mut words = command.split(' ');
    let mut process = std::process::Command::new(words.next().unwrap())
        .args(words)
        .arg("http")
        .env("MCP_LOG", log)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
    (KilledOnDrop(process), url.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs MCP servers: crates/mcp/tests/run.sh"]
async fn a_server_killed_during_a_call_is_restarted_for_the_next() {
    let folder = Folder::new("killed");
    let pid_file = folder.0.join("pid");
    // The shell prints its process id, which becomes the server's.
    let server = std::env::var("TURNSTREAM_MCP_MODERN").expect("crates/mcp/tests/run.sh sets it");
    let script = format!("echo $$ > {}; exec {server} stdio", pid_file.display());
    let client = Client::stdio(ServerCommand::new("sh").args(["-c", &script]))
        .with_name("s")
        .build()
        .trusted();
    let kit = client.toolkit().await.unwrap();
    let slow = json!({ "steps": 1_000, "ms": 20 });
    let mut run = run_until_progress(kit.clone(), "s__slow", slow).await;
    let pid = fs::read_to_string(&pid_file).unwrap().trim().to_owned();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    let mut text = String::new();
    while let Some(event) = run.next().await {
        if let Some(result) = event.unwrap().tool_output() {
            text = result.content.text();
        }
    }
    assert!(text.starts_with("Error: the MCP server `s` closed its connection"), "{text}");
    assert!(text.contains("signal: 9"), "{text}");
    assert_eq!(call_text(kit, "s__add", json!({ "a": 1, "b": 2 })).await, "3");
    assert!(client.toolkit().await.unwrap().specs().len() > 1);
    client.close().await;
}
