//! The tool with which agents of one run write to each other.

use futures::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use crate::agent::RunHandle;
use crate::tool::{PreparedCall, Tool, ToolContext, ToolOutput, ToolSpec, ToolUpdate};

#[derive(Deserialize)]
struct SendArgs {
    to: String,
    text: String,
}

impl Tool {
    /// Creates the tool `send_message`, with which an agent writes to another agent of the same
    /// run: to the agent that started it, to a sub-agent, or to a sub-agent that runs at the same
    /// time.
    ///
    /// - An agent is addressed by its [label](crate::agent::StateFields::label), such as
    ///   `researcher/reader`, or by the last part of it. An outermost agent without a label is
    ///   named `main`. If no running agent or several ones have the name, the call fails.
    /// - The message is delivered before the receiver's next request, as a user message that names
    ///   the sender. If the receiver ends or is suspended before that, the message goes back to the
    ///   sender, as a message before its next request. If the sender has ended as well, the message
    ///   is only in the receiver's [`Outcome::undelivered`](crate::Outcome::undelivered). So a
    ///   message was delivered exactly if it is in the receiver's history.
    /// - A message has at most 64 KiB, and a receiver's queue has the limits of
    ///   [`RunHandle::steer`].
    /// - A message is input that the run draws from its queue, so a recorded run is replayed with
    ///   the same messages. A sub-agent whose call is executed by another process has no
    ///   connection to the other agents, and a message that waits is lost if the process crashes.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnstream::provider::{Reply, Scripted};
    /// use turnstream::{Agent, Item, Tool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), turnstream::Error> {
    /// let note = json!({ "to": "main", "text": "The index is broken." });
    /// let reader = Scripted::new([Reply::new().call("send_message", note), "I read it.".into()]);
    /// let reader = Agent::new(reader).with_tool(Tool::send_message());
    /// let task = json!({ "prompt": "Read the index" });
    /// let model = Scripted::new([Reply::new().call("reader", task), "I will mend it.".into()]);
    /// let agent = Agent::new(model).with_tool(reader.as_tool("reader", "Reads")?);
    ///
    /// let outcome = agent.run("Check the index").outcome().await;
    /// let message = outcome.history.iter().filter_map(Item::as_user).last().unwrap();
    /// assert_eq!(message.text(), "Message from the agent `reader`: The index is broken.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_message() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "to": { "type": "string", "description": "The name of the agent" },
                "text": { "type": "string", "description": "The message" },
            },
            "required": ["to", "text"],
            "additionalProperties": false,
        });
        let description = "Sends a message to another agent that works at the same time: one that \
                           you have started, or the one that has started you (`main`, if it has no \
                           other name).";
        let spec = ToolSpec::new("send_message", description, schema);
        Self::from_prepare_fn(spec, |_, arguments| {
            let args: SendArgs =
                serde_json::from_str(arguments).map_err(|error| error.to_string())?;
            Ok(PreparedCall::new(move |cx| {
                stream::iter([ToolUpdate::Output(send(&args, &cx))]).boxed()
            }))
        })
    }
}

fn send(SendArgs { to, text }: &SendArgs, cx: &ToolContext) -> ToolOutput {
    let Some(own) = cx.policy_extension::<RunHandle>() else {
        return ToolOutput::error("Error: only an agent's run has other agents");
    };
    match own.control.send_message(&own.ids.next_id(), to, text) {
        Ok(name) => ToolOutput::ok(format!(
            "Queued for `{name}`, who reads it before its next step. If it ends before that, you \
             get the message back."
        )),
        Err(message) => ToolOutput::error(format!("Error: {message}")),
    }
}
