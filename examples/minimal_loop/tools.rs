//! The tools: each says what it changed and what it can prove.

use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

use turnstream::item::Evidence;
use turnstream::tool::{Tool, ToolContext};

use crate::patch::{self, Patched};

/// The folder that the tools work in, and cannot leave.
#[derive(Clone)]
pub(crate) struct Root(Arc<PathBuf>);

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(Arc::new(path))
    }

    fn file(&self, path: &str) -> Result<PathBuf, String> {
        match Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
            true => Ok(self.0.join(path)),
            false => Err(format!("`{path}` is not a path inside of the project")),
        }
    }

    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.file(path)?).map_err(|error| format!("`{path}`: {error}"))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct File {
    path: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Patch {
    path: String,
    /// Lines that stay (` `), go (`-`) or come (`+`); `@@` stands between two places.
    input: String,
}

pub(crate) fn read_file(root: &Root) -> Tool {
    let root = root.clone();
    let read = move |file: File, _| std::future::ready(root.read(&file.path));
    Tool::new("read_file", "Reads a file", read).with_dry_run_support()
}

/// Applied twice, it changes something once. In a dry run it says what it would change.
pub(crate) fn apply_patch(root: &Root) -> Tool {
    let root = root.clone();
    let apply = move |args: Patch, cx: ToolContext| std::future::ready(apply(&root, &args, &cx));
    Tool::new("apply_patch", "Applies a patch to a file", apply).exclusive().with_dry_run_support()
}

fn apply(root: &Root, Patch { path, input }: &Patch, cx: &ToolContext) -> Result<String, String> {
    let text = match patch::apply(&root.read(path)?, input)? {
        Patched::AlreadyThere => return Ok(format!("`{path}` is as the patch wants it already")),
        Patched::Changed(text) => text,
    };
    if cx.is_dry_run() {
        return Ok(format!("`{path}` would have {} lines", text.lines().count()));
    }
    // Told first: a write that fails may have changed something.
    cx.record_change(path.clone());
    fs::write(root.file(path)?, text).map_err(|error| format!("`{path}`: {error}"))?;
    Ok(format!("`{path}` is changed"))
}

/// Runs the check, this program in a process of its own, and puts on record what came of it.
pub(crate) fn markdown_check(root: &Root) -> Tool {
    let root = root.clone();
    let check = move |file: File, cx| {
        let root = root.clone();
        async move { check(&root, &file.path, &cx).await }
    };
    Tool::new("markdown_check", "Checks the format of a glossary", check)
        .with_timeout(Duration::from_mins(1))
        .with_dry_run_support()
}

async fn check(root: &Root, path: &str, cx: &ToolContext) -> Result<String, String> {
    root.file(path)?;
    let cannot = |error: io::Error| format!("the check cannot be run: {error}");
    let program = env::current_exe().map_err(cannot)?;
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut child = Running::start(&program, path, &root.0).map_err(cannot)?;
    let (code, stderr) = child.ended().await.map_err(cannot)?;
    let evidence = Evidence {
        command: format!("{name} --check {path}"),
        exit_code: code,
        stderr_snippet: None,
    };
    cx.record_evidence(evidence.with_stderr(stderr.trim_end()));
    match code {
        Some(0) => Ok("No complaints.".to_owned()),
        _ => Err(stderr),
    }
}

/// A process that ends when it is dropped.
struct Running(Child);

impl Running {
    fn start(program: &Path, path: &str, folder: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["--check", path]).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map(Self)
    }

    /// Its exit code and its complaints, which are few.
    async fn ended(&mut self) -> io::Result<(Option<i32>, String)> {
        let status = loop {
            match self.0.try_wait()? {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        };
        let stderr = self.0.stderr.take();
        let stderr = stderr.map(io::read_to_string).transpose()?;
        Ok((status.code(), stderr.unwrap_or_default()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
