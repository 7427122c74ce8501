//! The tools. Each one records what it changed and what it can prove.

use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

use turnstream::item::Evidence;
use turnstream::tool::{Tool, ToolContext, ToolOutput};

use crate::patch::{self, PatchOutcome};

/// The folder that the tools work in; no path leads out of it.
#[derive(Clone)]
pub(crate) struct Root(Arc<PathBuf>);

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(Arc::new(path))
    }

    fn resolve_path(&self, path: &str) -> Result<PathBuf, String> {
        match Path::new(path).components().all(|part| matches!(part, Component::Normal(_))) {
            true => Ok(self.0.join(path)),
            false => Err(format!("`{path}` is not a path inside of the project")),
        }
    }

    fn read(&self, path: &str) -> Result<String, String> {
        fs::read_to_string(self.resolve_path(path)?).map_err(|error| format!("`{path}`: {error}"))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct FileArgs {
    path: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct PatchArgs {
    path: String,
    /// Unchanged (` `), removed (`-`) and added (`+`) lines; `@@` separates hunks.
    input: String,
}

pub(crate) fn read_file(root: &Root) -> Tool {
    let root = root.clone();
    let read = move |file: FileArgs, _| std::future::ready(root.read(&file.path));
    Tool::new("read_file", "Reads a file", read).with_dry_run_support()
}

/// Idempotent: applying a patch twice changes the file once. A dry run reports the change only.
pub(crate) fn apply_patch(root: &Root) -> Tool {
    let root = root.clone();
    let apply = move |args: PatchArgs, cx: ToolContext| {
        std::future::ready(apply_to_file(&root, &args, &cx))
    };
    Tool::new("apply_patch", "Applies a patch to a file", apply).exclusive().with_dry_run_support()
}

fn apply_to_file(
    root: &Root,
    PatchArgs { path, input }: &PatchArgs,
    cx: &ToolContext,
) -> Result<ToolOutput, String> {
    let text = match patch::apply(&root.read(path)?, input)? {
        PatchOutcome::AlreadyApplied => {
            let message = format!("`{path}` already has the changes of the patch");
            return Ok(ToolOutput::already_exists(message));
        }
        PatchOutcome::Changed(text) => text,
    };
    if cx.is_dry_run() {
        let lines = text.lines().count();
        return Ok(ToolOutput::ok(format!("`{path}` would have {lines} lines")));
    }
    // Recorded before the write, because a failed write may have changed something.
    cx.record_change(path.clone());
    fs::write(root.resolve_path(path)?, text).map_err(|error| format!("`{path}`: {error}"))?;
    Ok(ToolOutput::ok(format!("`{path}` was changed")))
}

/// Runs the check, which is this program in a separate process, and records its result as evidence.
pub(crate) fn markdown_check(root: &Root) -> Tool {
    let root = root.clone();
    let check = move |file: FileArgs, cx| {
        let root = root.clone();
        async move { run_check(&root, &file.path, &cx).await }
    };
    Tool::new("markdown_check", "Checks the format of a glossary", check)
        .with_timeout(Duration::from_mins(1))
        .with_dry_run_support()
}

async fn run_check(root: &Root, path: &str, cx: &ToolContext) -> Result<String, String> {
    root.resolve_path(path)?;
    let cannot = |error: io::Error| format!("the check cannot be run: {error}");
    let program = env::current_exe().map_err(cannot)?;
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut child = CheckProcess::spawn(&program, path, &root.0).map_err(cannot)?;
    let (code, stderr) = child.wait().await.map_err(cannot)?;
    let evidence = Evidence {
        command: format!("{name} --check {path}"),
        exit_code: code,
        stderr_snippet: None,
    };
    cx.record_evidence(evidence.with_stderr(stderr.trim_end()));
    match code {
        Some(0) => Ok("No violations.".to_owned()),
        _ => Err(stderr),
    }
}

/// A process that is killed on drop.
struct CheckProcess(Child);

impl CheckProcess {
    fn spawn(program: &Path, path: &str, folder: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(["--check", path]).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map(Self)
    }

    /// Returns its exit code and its stderr, which is short.
    async fn wait(&mut self) -> io::Result<(Option<i32>, String)> {
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

impl Drop for CheckProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
