//! The tools with which a model uses a memory.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::context::{Memory, MemoryNote};
use crate::error::Error;
use crate::item::truncate_middle;
use crate::tool::{PreparedCall, Tool, ToolContext, ToolOutput, ToolSpec, ToolUpdate};

/// The maximum number of notes that a search returns.
const MAX_FOUND: usize = 10;
/// The maximum length of a note in a search result, in bytes.
const MAX_EXCERPT_BYTES: usize = 500;

#[derive(Deserialize)]
struct ReadArgs {
    name: String,
}

#[derive(Deserialize)]
struct WriteArgs {
    name: String,
    text: String,
}

#[derive(Deserialize)]
struct SearchArgs {
    query: String,
}

/// Creates the tools `read_memory`, `write_memory` and `search_memory`, with which a model uses a
/// memory.
///
/// A call that writes a note records the note as changed, so a [trace](crate::Trace) contains all
/// reads and writes. All three tools are [idempotent](Tool::idempotent). Notes that a model has
/// written are read by later runs: if input from strangers can reach the model, let a person
/// [approve](Tool::requires_approval) the calls to `write_memory`.
///
/// ```
/// use turnstream::Agent;
/// use turnstream::context::{FileMemory, memory_tools};
/// use turnstream::provider::Scripted;
///
/// let [read, write, search] = memory_tools(FileMemory::new("notes"));
/// let agent = Agent::new(Scripted::new(["Noted."]))
///     .with_tools([read, search, write.requires_approval()]);
/// # drop(agent);
/// ```
pub fn memory_tools(memory: impl Memory + 'static) -> [Tool; 3] {
    let memory: Arc<dyn Memory> = Arc::new(memory);
    [read_tool(&memory), write_tool(&memory), search_tool(&memory)]
}

fn read_tool(memory: &Arc<dyn Memory>) -> Tool {
    let schema = schema(&[("name", "The name of the note")]);
    let spec = ToolSpec::new("read_memory", "Reads a note from earlier conversations.", schema);
    tool(spec, memory, |memory, ReadArgs { name }, _| async move {
        Ok(match memory.read(&name).await? {
            Some(text) => ToolOutput::ok(text),
            None => ToolOutput::error(format!(
                "There is no note `{name}`. Use `search_memory` to find one."
            )),
        })
    })
    .with_dry_run_support()
}

fn write_tool(memory: &Arc<dyn Memory>) -> Tool {
    let schema = schema(&[
        ("name", "The name of the note: lowercase letters, digits, `-` and `_`"),
        ("text", "The whole text of the note, which replaces the old one. Empty to delete it"),
    ]);
    let description = "Keeps a note for later conversations. Write what will be useful then, and \
                       search first, so that you replace a note instead of adding a second one.";
    let spec = ToolSpec::new("write_memory", description, schema);
    tool(spec, memory, |memory, WriteArgs { name, text }, cx| async move {
        let note = MemoryNote { name, text };
        memory.write(&note).await?;
        cx.record_change(format!("memory/{}", note.name));
        let verb = if note.text.is_empty() { "Deleted" } else { "Kept" };
        Ok(ToolOutput::ok(format!("{verb} the note `{}`.", note.name)))
    })
}

fn search_tool(memory: &Arc<dyn Memory>) -> Tool {
    let schema = schema(&[("query", "Words that the notes may contain")]);
    let description = "Finds notes from earlier conversations by their words.";
    let spec = ToolSpec::new("search_memory", description, schema);
    tool(spec, memory, |memory, SearchArgs { query }, _| async move {
        let found = memory.search(&query, MAX_FOUND).await?;
        Ok(ToolOutput::ok(match found.is_empty() {
            true => "No note matches.".to_owned(),
            false => list_notes(&found),
        }))
    })
    .with_dry_run_support()
}

/// Creates an idempotent tool. An error of the memory becomes a result that the model reads.
fn tool<A, F>(
    spec: ToolSpec,
    memory: &Arc<dyn Memory>,
    run: fn(Arc<dyn Memory>, A, ToolContext) -> F,
) -> Tool
where
    A: DeserializeOwned + Send + 'static,
    F: Future<Output = Result<ToolOutput, Error>> + Send + 'static,
{
    let memory = Arc::clone(memory);
    let tool = Tool::from_prepare_fn(spec, move |_, arguments| {
        let args: A = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        let memory = Arc::clone(&memory);
        Ok(PreparedCall::new(move |cx| {
            let output = run(memory, args, cx).map(|result| {
                ToolUpdate::Output(result.unwrap_or_else(|error| {
                    ToolOutput::error(format!("Error: {}", error.message()))
                }))
            });
            output.into_stream().boxed()
        }))
    });
    tool.idempotent()
}

fn list_notes(notes: &[MemoryNote]) -> String {
    let excerpt = |MemoryNote { name, text }: &MemoryNote| {
        format!("# {name}\n{}", truncate_middle(text.clone(), MAX_EXCERPT_BYTES))
    };
    notes.iter().map(excerpt).collect::<Vec<_>>().join("\n\n")
}

/// Returns the schema of an object whose properties are required strings.
fn schema(properties: &[(&str, &str)]) -> Value {
    let fields = properties.iter().map(|(name, description)| {
        ((*name).to_owned(), json!({ "type": "string", "description": description }))
    });
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    json!({
        "type": "object",
        "properties": fields.collect::<serde_json::Map<_, _>>(),
        "required": names,
        "additionalProperties": false,
    })
}
