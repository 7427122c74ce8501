//! Tools and messages that the tests share.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use turnstream_testing::mcp::{McpAnswer, McpServer, McpTool};

pub(crate) fn object() -> Value {
    json!({ "type": "object" })
}

/// A tool that returns its arguments.
pub(crate) fn echo() -> McpTool {
    McpTool::new("echo", "Repeats", object(), async |arguments: Value, _| arguments.to_string())
}

/// A tool that reports two steps of progress.
pub(crate) fn two_steps() -> McpTool {
    McpTool::new("two_steps", "Reports", object(), async |_, call| {
        call.progress(1.0, Some(2.0), Some("half")).await;
        call.progress(2.0, None, None).await;
        "done"
    })
}

/// A tool that asks two questions, one after the other.
pub(crate) fn ask_twice() -> McpTool {
    McpTool::new("ask_twice", "Asks", object(), async |_, call| {
        let name = call.elicit("name", "Your name?", object()).await?;
        let roots = call.ask("where", "roots/list", json!({})).await?;
        Ok::<_, McpAnswer>(format!("{} {roots}", name["content"]["name"]))
    })
}

/// A tool that never answers. The flag is set when its future is dropped.
pub(crate) fn wait_for_ever() -> (McpTool, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&dropped);
    let tool = McpTool::new("wait_for_ever", "Waits", object(), move |_, call| {
        let guard = SetOnDrop(Arc::clone(&shared));
        async move {
            let _guard = guard;
            call.progress(1.0, None, None).await;
            pending::<&str>().await
        }
    });
    (tool, dropped)
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(crate) fn server() -> McpServer {
    McpServer::new().with_tool(echo()).with_tool(two_steps()).with_tool(ask_twice())
}

/// Adds the required metadata of every modern request.
pub(crate) fn with_meta(mut params: Value) -> Value {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {}, "roots": {} });
    params
}

#[expect(clippy::needless_pass_by_value, reason = "each is created where it is sent")]
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params })
}

#[expect(clippy::needless_pass_by_value, reason = "each is created where it is sent")]
pub(crate) fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({ "name": tool, "arguments": arguments }))
}

pub(crate) fn modern(mut message: Value) -> Value {
    message["params"] = with_meta(message["params"].take());
    message
}

pub(crate) fn initialize(version: &str) -> Value {
    let params = json!({
        "protocolVersion": version,
        "capabilities": { "elicitation": {}, "roots": {} },
        "clientInfo": { "name": "test", "version": "0" },
    });
    request("init", "initialize", params)
}

#[expect(clippy::needless_pass_by_value, reason = "each is created where it is sent")]
pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

pub(crate) fn error_code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}
