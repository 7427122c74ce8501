//! What the agent may do: look at the working directory, calculate, and write a file if allowed.

mod calculate;
mod count;
mod look;
mod per_file;
mod root;
mod search;
mod server_call;
#[cfg(test)]
mod tests;
mod write;

use turnstream::item::ToolCall;
use turnstream::tool::Toolkit;

use crate::text::{escape_invisible, one_line};
pub(crate) use root::Root;

/// The tools, all of which stay inside of `root`. Those that only read may run again after a crash.
pub(crate) fn toolkit(root: Root) -> Toolkit {
    Toolkit::new([
        look::list_directory(root.clone()).idempotent(),
        look::read_file(root.clone()).idempotent(),
        search::search_text(root.clone()).idempotent(),
        count::count_lines(root.clone()).idempotent(),
        calculate::calculate().idempotent(),
        write::write_file(root),
    ])
}

/// Between the name of an MCP server and that of its tool. No other tool has it in its name.
pub(crate) const SERVER_SEPARATOR: &str = "__";

/// What a call would do, line by line and as its tool reads the arguments: for the user who allows it.
/// The calls in `allowed` are allowed already, have not ended, and run before it.
pub(crate) fn describe_call(root: &Root, call: &ToolCall, allowed: &[ToolCall]) -> Vec<String> {
    match call.parse_arguments() {
        Ok(file) if call.name == write::TOOL_NAME => {
            let writes = allowed.iter().filter(|call| call.name == write::TOOL_NAME);
            let earlier: Vec<write::WriteFileArgs> =
                writes.filter_map(|call| call.parse_arguments().ok()).collect();
            write::describe_write(root, &file, &earlier)
        }
        _ => server_call::describe_server_call(call).unwrap_or_else(|| {
            let arguments = escape_invisible(call.arguments_or_empty_object(), 1_000);
            vec![one_line(&call.name, 64), arguments]
        }),
    }
}

/// Does file work on a thread that may wait for a disk.
async fn run_blocking<T, F>(work: F) -> Result<T, String>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, String> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err("the tool stopped unexpectedly".to_owned()),
    }
}
