//! The agent's tools: read the working directory, calculate, and write a file if approved.

mod blocking;
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
pub use root::Root;
pub(crate) use server_call::SERVER_SEPARATOR;

/// The tools, all of which stay inside of `root`. Read-only tools may run again after a crash.
pub fn toolkit(root: Root) -> Toolkit {
    Toolkit::new([
        look::list_directory(root.clone()).idempotent(),
        look::read_file(root.clone()).idempotent(),
        search::search_text(root.clone()).idempotent(),
        count::count_lines(root.clone()).idempotent(),
        calculate::calculate().idempotent(),
        write::write_file(root),
    ])
}

/// Describes line by line what a call would do, with the arguments as its tool parses them, for the
/// user who approves it. The calls in `allowed` are approved and unfinished, and run before this
/// one.
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
