//! Creates tools from a recorded tool list. The actual tool is looked up only when a call runs.

use std::sync::Arc;

use async_stream::stream;
use futures::StreamExt;
use futures::future::BoxFuture;

use crate::error::Error;
use crate::tool::tool_record::ToolRecord;
use crate::tool::{PreparedCall, Tool, ToolContext, ToolOutput, ToolUpdate, UpdateStream};

/// A function that lists a source's tools.
pub(crate) type ListTools = dyn Fn() -> BoxFuture<'static, Result<Vec<Tool>, Error>> + Send + Sync;

impl ToolRecord {
    /// Creates a tool from this record. Each call first lists the source's tools and looks up the
    /// tool with the recorded name. If the listed tool's spec and settings match the record, the
    /// call runs the listed tool. Arguments are checked only when the call runs, since the listed
    /// tool is responsible for checking them.
    pub(crate) fn into_late_bound_tool(self, list: Arc<ListTools>) -> Tool {
        let (spec, settings, runs_agents) =
            (self.spec.clone(), self.settings(), self.runs_sub_agents);
        let fingerprint = self.fingerprint.clone();
        let late = LateBound { record: Arc::new(self), list };
        let resumed = late.clone();
        let tool = Tool::from_prepare_fn(spec, move |_, arguments| {
            let (late, arguments) = (late.clone(), arguments.to_owned());
            Ok(PreparedCall::new(move |cx| late.run(arguments, CallStart::Fresh, cx)))
        });
        let tool = Tool { settings, fingerprint, ..tool };
        match runs_agents {
            // Only after the lookup is it known whether the tool is an agent whose run was
            // suspended.
            true => tool.backed_by_agent(Arc::new(()), move |cx, arguments| {
                resumed.clone().run(arguments.to_owned(), CallStart::Resumed, cx)
            }),
            false => tool,
        }
    }
}

#[derive(Clone)]
struct LateBound {
    record: Arc<ToolRecord>,
    list: Arc<ListTools>,
}

/// Specifies whether a call is new or resumes a suspended run.
#[derive(Clone, Copy)]
enum CallStart {
    Fresh,
    Resumed,
}

impl LateBound {
    fn run(self, arguments: String, start: CallStart, cx: ToolContext) -> UpdateStream {
        stream! {
            match self.start(&arguments, start, cx).await {
                Ok(mut updates) => {
                    while let Some(update) = updates.next().await {
                        yield update;
                    }
                }
                Err(why) => yield ToolUpdate::Output(ToolOutput::error(why)),
            }
        }
        .boxed()
    }

    async fn start(
        &self,
        arguments: &str,
        start: CallStart,
        cx: ToolContext,
    ) -> Result<UpdateStream, String> {
        let tool = self.find().await?;
        let name = tool.name();
        let prepared = match start {
            CallStart::Resumed => tool.prepare_resumed(arguments).ok_or_else(|| {
                format!("Not run: the tool `{name}` is not an agent that can resume.")
            })?,
            CallStart::Fresh => tool.handler.prepare(arguments).map_err(|why| {
                format!(
                    "The arguments of `{name}` do not fit: {why}. Call it again with arguments that \
                     fit its schema."
                )
            })?,
        };
        prepared.start(cx).map_err(|message| format!("Error: the tool panicked: {message}"))
    }

    /// Returns the listed tool with the recorded name, if its spec and settings match the record.
    async fn find(&self) -> Result<Tool, String> {
        let name = &self.record.spec.name;
        let tools = (self.list)().await;
        let tools = tools.map_err(|error| format!("Not run: {}.", error.message()))?;
        let Some(tool) = tools.into_iter().find(|tool| tool.name() == name) else {
            return Err(format!("Not run: there is no tool `{name}` any more."));
        };
        match ToolRecord::from(&tool) == *self.record {
            true => Ok(tool),
            false => Err(format!("Not run: the tool `{name}` has changed since it was listed.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::executor::block_on;
    use serde_json::json;

    use super::*;
    use crate::error::ErrorKind;
    use crate::item::{History, ResultKind};
    use crate::request::ToolSpec;
    use crate::tool::Toolkit;
    use crate::turn::{StopReason, Turn, TurnBuilder, TurnEvent};

    fn tool(description: &str) -> Tool {
        let schema = json!({
            "type": "object",
            "properties": { "n": { "type": "integer" } },
            "required": ["n"],
        });
        let spec = ToolSpec::new("t", description, schema);
        Tool::raw(spec, |args, _| async move { args["n"].to_string() }).unwrap()
    }

    fn turn(arguments: &str) -> Arc<Turn> {
        let mut builder = TurnBuilder::new();
        builder.start_tool_call(0, "c", "t");
        builder.push_tool_call_args(0, arguments);
        builder.end_tool_call(0);
        builder.stop(StopReason::ToolCalls, "tool_calls");
        builder.complete().unwrap();
        let turn = std::iter::from_fn(|| builder.next_event()).find_map(|event| match event {
            TurnEvent::TurnComplete { turn } => Some(turn),
            _ => None,
        });
        turn.unwrap()
    }

    /// Calls a tool created from a record, for which the source returns `listed`.
    fn call(listed: Result<Vec<Tool>, Error>, arguments: &str) -> (ResultKind, String) {
        let listed = Mutex::new(Some(listed));
        let list: Arc<ListTools> = Arc::new(move || {
            let listed = listed.lock().unwrap().take().expect("the tools are listed once");
            Box::pin(async { listed })
        });
        let toolkit = Toolkit::new([ToolRecord::from(&tool("d")).into_late_bound_tool(list)]);
        let mut run = toolkit.run(&History::empty("h"), &turn(arguments));
        block_on(async { while run.next().await.is_some() {} });
        let result = run.finish().unwrap().results.remove(0);
        (result.kind, result.content.text())
    }

    #[test]
    fn a_call_runs_the_tool_that_is_listed_now() {
        let listed = Ok(vec![tool("d")]);
        assert_eq!(call(listed, r#"{"n":3}"#), (ResultKind::Ok, "3".to_owned()));
    }

    #[test]
    fn a_call_is_rejected_if_its_tool_is_missing_changed_or_unlistable() {
        let refused = |listed, why: &str| {
            assert_eq!(call(listed, r#"{"n":3}"#), (ResultKind::Error, why.to_owned()));
        };
        refused(Ok(Vec::new()), "Not run: there is no tool `t` any more.");
        let changed = "Not run: the tool `t` has changed since it was listed.";
        refused(Ok(vec![tool("another")]), changed);
        refused(Ok(vec![tool("d").requires_approval()]), changed);
        let down = Error::new(ErrorKind::Connect, "the server is down");
        refused(Err(down), "Not run: the server is down.");
    }

    #[test]
    fn the_tool_that_is_found_checks_the_arguments() {
        let (kind, text) = call(Ok(vec![tool("d")]), r#"{"n":"x"}"#);
        assert_eq!(kind, ResultKind::Error);
        assert!(text.starts_with("The arguments of `t` do not fit: "), "{text}");
    }
}
